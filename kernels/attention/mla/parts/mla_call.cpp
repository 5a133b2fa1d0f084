#include "kernels/attention/mla/parts/mla_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::attention {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kMostRows = 32;  // of a tile with keys on M: shared memory has no room for more

}  // namespace

void choose_form(MlaSpec& s, int64_t rows, Device device) {
  s.form = MlaForm::plain, s.rows = 16, s.by_engine = 0, s.stages = s.p_stages = 1;
  if (!jit::has_wgmma(device)) return;
  s.form = MlaForm::keys_on_m, s.stages = s.p_stages = 2;
  s.rows = static_cast<int32_t>(
      std::min(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))), kMostRows));
  const bool is_aligned = s.cache_vector == 8;
  s.by_engine = is_aligned && s.page_size > 0 && s.page_size % kLatentKeys == 0 ? 1 : 0;
}

double latent_factor_of(const Call& c) {
  return c.number("sm_scale") * kLog2E;
}

void require_latent_scale(const Call& c) {
  const auto factor = static_cast<float>(latent_factor_of(c));
  c.need(std::isfinite(factor) && factor > 0, "sm_scale", "parameter 'sm_scale' has a wrong value",
         "a finite number above 0, in f32 too", fmt::format("{}", c.number("sm_scale")));
}

int32_t vector_of_rows(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, 16 / bytes(view.dtype)));
}

}  // namespace tessera::kernels::attention
