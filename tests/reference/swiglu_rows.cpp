#include "tests/reference/swiglu_rows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"
#include "tests/reference/swiglu.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

const HostTensor* given(const HostTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

void set(HostTensor& tensor, int64_t element, float value) {
  tensor.set_bits(element, encode(tensor.dtype(), static_cast<double>(value)));
}

/// A flag for each row.
std::vector<bool> owned_rows(const HostTensors& in, int64_t rows, int64_t alignment) {
  const HostTensor* psum = given(in, "psum");
  if (psum == nullptr) return std::vector<bool>(static_cast<size_t>(rows), true);
  std::vector<bool> owned(static_cast<size_t>(rows), false);
  int64_t before = 0;
  for (int64_t e = 0; e < psum->size(); ++e) {
    const int64_t given_end = static_cast<int32_t>(static_cast<uint32_t>(psum->bits(e)));
    const int64_t end = std::min(std::max(given_end, before), rows);
    const int64_t begin = (before + alignment - 1) / alignment * alignment;
    for (int64_t row = begin; row < end; ++row) owned[static_cast<size_t>(row)] = true;
    before = end;
  }
  return owned;
}

std::optional<float> weight_of(const HostTensors& in, const SwigluRowsOptions& o, int64_t row) {
  const HostTensor* weights = given(in, "topk_weights");
  if (weights == nullptr) return std::nullopt;
  const float weight = number(*weights, row);
  return o.factor ? weight * *o.factor : weight;
}

}  // namespace

HostTensors swiglu_fwd(const HostTensors& in, const SwigluRowsOptions& o) {
  const HostTensor& x = in.at("x");
  const int64_t rows = x.shape()[0], hidden = x.shape()[1] / 2;
  const std::vector<bool> owned = owned_rows(in, rows, o.alignment);
  HostTensor out(o.out_dtype, {rows, hidden});
  out.fill_bytes(std::byte{0});
  std::vector<uint64_t> counts(4);
  for (int64_t row = 0; row < rows; ++row) {
    if (!owned[static_cast<size_t>(row)]) continue;
    const std::optional<float> weight = weight_of(in, o, row);
    for (int64_t h = 0; h < hidden; ++h) {
      const float gate = number(x, row * 2 * hidden + h);
      const float up = number(x, row * 2 * hidden + hidden + h);
      set(out, row * hidden + h, swiglu(gate, up, o.clamp, weight));
      if (o.clamp) {
        counts[0] += gate > *o.clamp ? 1 : 0;
        counts[1] += up > *o.clamp ? 1 : 0;
        counts[2] += up < -*o.clamp ? 1 : 0;
      }
      ++counts[3];
    }
  }
  HostTensors result;
  result["out"] = std::move(out);
  if (const HostTensor* before = given(in, "clamped_count")) {
    HostTensor sums = *before;
    for (int64_t i = 0; i < 4; ++i) sums.set_bits(i, sums.bits(i) + counts[static_cast<size_t>(i)]);
    result["clamped_count"] = std::move(sums);
  }
  return result;
}

HostTensors swiglu_bwd(const HostTensors& in, const SwigluRowsOptions& o) {
  const HostTensor &x = in.at("x"), &grad_out = in.at("grad_out");
  const int64_t rows = x.shape()[0], hidden = x.shape()[1] / 2;
  const std::vector<bool> owned = owned_rows(in, rows, o.alignment);
  HostTensor grad_x(o.out_dtype, {rows, 2 * hidden}), out(o.out_dtype, {rows, hidden});
  HostTensor grad_weight(DType::f32, {rows});
  for (HostTensor* one : {&grad_x, &out, &grad_weight}) one->fill_bytes(std::byte{0});
  for (int64_t row = 0; row < rows; ++row) {
    if (!owned[static_cast<size_t>(row)]) continue;
    const std::optional<float> weight = weight_of(in, o, row);
    std::vector<float> grads, acts;
    for (int64_t h = 0; h < hidden; ++h) {
      const int64_t at = row * 2 * hidden + h;
      float gate = number(x, at), up = number(x, at + hidden);
      const float g = number(grad_out, row * hidden + h);
      const bool stops_gate = o.clamp && gate > *o.clamp;
      const bool stops_up = o.clamp && (up > *o.clamp || up < -*o.clamp);
      if (stops_gate) gate = *o.clamp;
      if (stops_up) up = up > *o.clamp ? *o.clamp : -*o.clamp;
      const float t = 1.0F + static_cast<float>(std::exp(-static_cast<double>(gate)));
      const float quotient = gate / t, act = quotient * up, s = 1.0F / t;
      const float weighted = g * weight.value_or(1.0F), scaled = weighted * s;
      const float by_up = scaled * up, slope = std::fma(gate, 1.0F - s, 1.0F);
      set(grad_x, at, stops_gate ? 0.0F : by_up * slope);
      set(grad_x, at + hidden, stops_up ? 0.0F : scaled * gate);
      set(out, row * hidden + h, weight ? act * *weight : act);
      grads.push_back(g);
      acts.push_back(act);
    }
    const float sum = lane_sum(grads, acts);
    set(grad_weight, row, o.factor ? sum * *o.factor : sum);
  }
  HostTensors result;
  result["grad_x"] = std::move(grad_x);
  if (o.save_out) result["out"] = std::move(out);
  if (given(in, "topk_weights") != nullptr) result["grad_weight"] = std::move(grad_weight);
  return result;
}

}  // namespace tessera::reference
