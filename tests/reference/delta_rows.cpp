#include "tests/reference/delta_rows.h"

#include <cmath>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {

using test::HostTensor;

DeltaOptions delta_options(const kernels::Params& params, int64_t dk) {
  const auto find = [&](const char* name) {
    const auto found = params.find(name);
    return found == params.end() ? kernels::ParamValue() : found->second;
  };
  const kernels::ParamValue scale = find("scale"), norm = find("qk_norm"), eps = find("norm_eps");
  const auto* given = std::get_if<double>(&scale);
  const auto* has_norm = std::get_if<bool>(&norm);
  const auto* given_eps = std::get_if<double>(&eps);
  return {static_cast<float>(given == nullptr ? 1 / std::sqrt(static_cast<double>(dk)) : *given),
          has_norm != nullptr && *has_norm,
          static_cast<float>(given_eps == nullptr ? 1e-6 : *given_eps)};
}

std::vector<float> delta_row(const HostTensor& tensor, int64_t row, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < width; ++i) {
    values.push_back(static_cast<float>(tensor.value(row * width + i)));
  }
  return values;
}

float rounded_to(DType dtype, float value) {
  return static_cast<float>(decode(dtype, encode(dtype, static_cast<double>(value))));
}

std::vector<float> normed_row(std::vector<float> x, const DeltaOptions& o, DType dtype,
                              bool is_eps_outside, bool is_unrounded) {
  if (!o.has_norm) return x;
  const float sum = lane_sum(x, x);
  const float r = is_eps_outside ? 1.0F / (std::sqrt(sum) + o.eps) : 1.0F / std::sqrt(sum + o.eps);
  for (float& value : x) value = is_unrounded ? value * r : rounded_to(dtype, value * r);
  return x;
}

float log2_decay(float g) {
  constexpr auto kLog2E = static_cast<float>(1.4426950408889634);
  const float x = g * kLog2E;
  return x < -128.0F ? -128.0F : x;
}

int64_t delta_slot(const HostTensor& slots, int64_t element, int64_t count) {
  const auto slot = static_cast<int64_t>(slots.value(element));
  return slot >= 0 && slot < count ? slot : -1;
}

}  // namespace tessera::reference
