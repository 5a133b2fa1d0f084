#include "kernels/attention/mla/parts/mla_call.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::attention {
namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kMostRows = 32;  // of a tile with keys on M: shared memory has no room for more

}  // namespace

void choose_form(MlaSpec& s, const Call& c, int64_t rows) {
  s.form = MlaForm::plain, s.rows = 16, s.by_engine = 0, s.stages = s.p_stages = 1;
  if (jit::has_wgmma(c.device())) {
    if (rows > kMostRows) {
      s.form = MlaForm::two_groups, s.rows = 64, s.stages = 2;
    } else {
      s.form = MlaForm::keys_on_m, s.stages = s.p_stages = 2;
      s.rows = static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
    }
    const bool is_aligned = s.cache_vector == 8;
    s.by_engine = is_aligned && s.page_size > 0 && s.page_size % kLatentKeys == 0 ? 1 : 0;
  }
  const bool by_token = has_lists(s) || s.is_sparse != 0;
  s.one_token = by_token || c["n"] == 1 || c["h"] % s.rows == 0 ? 1 : 0;
}

void add_parts(const Call& c, int64_t parts, Args& args) {
  const int64_t rows = c["B"] * c["n"] * c["h"];
  auto* const data = static_cast<float*>(c.given("workspace").data);
  const int64_t of_outputs = parts * rows * kLatentValueWidth;
  const auto view = [&](int64_t at, std::initializer_list<int64_t> shape) {
    return TensorView{data == nullptr ? nullptr : data + at, DType::f32, Dims(shape), c.device()};
  };
  args.tensors.push_back({"partial", view(0, {parts, rows, kLatentValueWidth})});
  args.tensors.push_back({"partial_max", view(of_outputs, {parts, rows})});
  args.tensors.push_back({"partial_sum", view(of_outputs + parts * rows, {parts, rows})});
}

double latent_factor_of(const Call& c) {
  return c.number("sm_scale") * kLog2E;
}

void require_latent_scale(const Call& c) {
  const auto factor = static_cast<float>(latent_factor_of(c));
  c.need(std::isfinite(factor) && factor > 0, "sm_scale", "parameter 'sm_scale' has a wrong value",
         "a finite number above 0, in f32 too", fmt::format("{}", c.number("sm_scale")));
}

void require_query_scales(const Call& c) {
  if (!c.has("q_scale") || !values_are_checked(c.given("q_scale"))) return;
  const TensorView& view = c.given("q_scale");
  const auto* const scales = static_cast<const float*>(view.data);
  for (int64_t i = 0; i < view.size(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] > 0) continue;
    std::string place;
    int64_t rest = i;
    for (int d = view.rank() - 1; d >= 0; rest /= view.shape[d--]) {
      place = std::to_string(rest % view.shape[d]) + (place.empty() ? "" : ", ") + place;
    }
    c.need(false, "q_scale", "argument 'q_scale' has a value out of range",
           "finite numbers above 0", fmt::format("{} at [{}]", scales[i], place));
  }
}

int32_t vector_of_rows(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, 16 / bytes(view.dtype)));
}

}  // namespace tessera::kernels::attention
