#include "kernels/attention/parts/fwd_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tessera::kernels::attention {
namespace {

constexpr double kLog2E = 1.4426950408889634;

constexpr std::array<std::pair<int64_t, int64_t>, 5> kWidths = {
    {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}};

/// True if f32 has it, neither as 0 nor as infinity.
bool is_positive(double value) {
  const auto single = static_cast<float>(value);
  return std::isfinite(single) && single > 0;
}

}  // namespace

double scale_of(const Call& c) {
  return c.has_value("scale") ? c.number("scale") : 1 / std::sqrt(static_cast<double>(c["dk"]));
}

double factor_of(const Call& c) {
  const double softcap = c.number("softcap");
  return (softcap > 0 ? softcap : scale_of(c)) * kLog2E;
}

void require_widths(const Call& c, std::string_view values) {
  const std::pair<int64_t, int64_t> widths{c["dk"], c["dv"]};
  c.need(std::find(kWidths.begin(), kWidths.end(), widths) != kWidths.end(), values,
         fmt::format("the heads of '{}' and 'q' have extents that are not supported", values),
         "dk and dv of 64 and 64, 96 and 96, 128 and 128, 192 and 128, or 256 and 256",
         fmt::format("{} and {}", widths.first, widths.second), ErrorKind::unsupported);
}

void require_factors(const Call& c) {
  const double scale = scale_of(c), softcap = c.number("softcap");
  c.need(std::isfinite(scale) && is_positive(scale * kLog2E), "scale",
         "parameter 'scale' has a wrong value", "a finite number above 0, in f32 too",
         fmt::format("{}", scale));
  c.need(softcap == 0 || (is_positive(softcap * kLog2E) && is_positive(scale / softcap)), "softcap",
         "parameter 'softcap' has a wrong value", "0 for none, or a finite number above 0",
         fmt::format("{}", softcap));
}

void require_forward(const Call& c) {
  require_widths(c, "v");
  require_factors(c);
  c.need(c["split_len"] == 0, "split_len", "parameter 'split_len' is not supported", "0",
         std::to_string(c["split_len"]), ErrorKind::unsupported);
}

}  // namespace tessera::kernels::attention
