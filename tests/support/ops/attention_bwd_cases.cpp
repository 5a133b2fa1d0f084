// Cases of attention_bwd: extents around tiles and parts, masks, groups of heads, lengths, sinks, a gradient of lse, caps,
// strides.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/reference/attention.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;

Dims q_shape(const BackwardSize& s, int64_t width) {
  return {s.requests, s.queries, s.heads, width};
}
Dims k_shape(const BackwardSize& s, int64_t width) {
  return {s.requests, s.keys, s.groups, width};
}
std::string text(const BackwardSize& s, DType dtype) {
  return fmt::format("B={} Sq={} Sk={} h={} g={} dk={} dv={} {}", s.requests, s.queries, s.keys,
                     s.heads, s.groups, s.width, s.value_width, name(dtype));
}

/// Whole scores with c = 1 and lse = 0: p is a power of two, and every sum is exact (A22).
OpCase exact(const std::string& label, const BackwardSize& s, const kernels::Params& params = {},
             DType dtype = DType::bf16) {
  OpCase test;
  test.label = fmt::format("{} {}", label, text(s, dtype));
  test.params = params;
  test.params["scale"] = kLn2;
  Random random(static_cast<uint64_t>(s.queries * 1000 + s.keys));
  const auto few = [&](int64_t) { return random.below(s.width) < 4 ? random.below(3) - 1 : 0; };
  const auto quarters = [&](int64_t) { return static_cast<double>(random.below(9) - 4) / 4; };
  test.inputs["grad_out"] = tensor_by(dtype, q_shape(s, s.value_width), few);
  test.inputs["q"] = tensor_by(dtype, q_shape(s, s.width), few);
  test.inputs["k"] =
      tensor_by(dtype, k_shape(s, s.width), [&](int64_t) { return random.below(3) - 1; });
  test.inputs["v"] = tensor_by(dtype, k_shape(s, s.value_width), quarters);
  test.inputs["out"] = tensor_by(dtype, q_shape(s, s.value_width), quarters);
  test.inputs["lse"] =
      tensor_by(DType::f32, {s.requests, s.heads, s.queries}, [](int64_t) { return 0; });
  return test;
}

/// Adds what the forward pass gives.
void add_forward(OpCase& test) {
  const HostTensors made = reference::attention(test.inputs, test.params);
  for (const auto& [name, tensor] : made) test.inputs[name] = tensor;
}

void set_row(HostTensor& tensor, int64_t request, int64_t row, double value) {
  const int64_t size = tensor.shape()[2] * tensor.shape()[3];
  const int64_t first = (request * tensor.shape()[1] + row) * size;
  for (int64_t i = first; i < first + size; ++i) tensor.set_value(i, value);
}

/// Requests of other lengths; what lies behind them is NaN.
void add_lengths(OpCase& test, const std::vector<double>& of_q, const std::vector<double>& of_k) {
  const auto count = static_cast<int64_t>(of_q.size());
  test.inputs["q_lengths"] = tensor_of(DType::i32, {count}, of_q);
  test.inputs["k_lengths"] = tensor_of(DType::i32, {count}, of_k);
  for (int64_t b = 0; b < count; ++b) {
    const auto index = static_cast<size_t>(b);
    for (const char* name : {"q", "grad_out", "out", "k", "v"}) {
      HostTensor& tensor = test.inputs[name];
      const bool is_key = *name == 'k' || *name == 'v';
      const auto length = static_cast<int64_t>(is_key ? of_k[index] : of_q[index]);
      for (int64_t i = length; i < tensor.shape()[1]; ++i) set_row(tensor, b, i, kNan);
    }
  }
}

}  // namespace

OpCase normal_backward(const std::string& label, const BackwardSize& s,
                       const kernels::Params& params, DType dtype,
                       const std::vector<double>& sinks) {
  OpCase test;
  test.label = fmt::format("{} {} normal values", label, text(s, dtype));
  test.params = params;
  test.inputs["q"] = random_tensor(dtype, q_shape(s, s.width), Values::normal, 1);
  test.inputs["k"] = random_tensor(dtype, k_shape(s, s.width), Values::normal, 2);
  test.inputs["v"] = random_tensor(dtype, k_shape(s, s.value_width), Values::normal, 3);
  test.inputs["grad_out"] = random_tensor(dtype, q_shape(s, s.value_width), Values::normal, 4);
  if (!sinks.empty()) {
    test.inputs["sink"] = tensor_of(DType::f32, {s.heads}, sinks);
    test.tolerances["grad_sink"] = Tolerance{1e-4, 1e-5};
  }
  add_forward(test);
  test.tolerance = Tolerance{.calc_diff = 0x1p-21};  // T4: 2^-10 of the norm
  return test;
}

std::vector<OpCase> attention_bwd_cases() {
  std::vector<OpCase> cases;
  const kernels::Params causal = {{"causal", true}};
  const auto window = [](int64_t left, int64_t right) {
    return kernels::Params{{"window_left", left}, {"window_right", right}};
  };
  const std::pair<int64_t, int64_t> widths[] = {
      {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& [width, value_width] : widths) {
    cases.push_back(exact("", {1, 33, 65, 2, 1, width, value_width}, causal));
    cases.push_back(exact("", {1, 3, 20, 1, 1, width, value_width}, {}, DType::f16));
    cases.push_back(normal_backward("", {1, 7, 70, 1, 1, width, value_width}));
  }
  cases.push_back(normal_backward("several parts", {1, 5, 300, 1, 1, 64, 64}));
  for (const int64_t rows : {1, 16, 64, 66}) {
    cases.push_back(exact("", {2, rows, 17, 2, 2, 64, 64}, causal));
  }
  for (const int64_t keys : {1, 64, 127, 129})
    cases.push_back(exact("", {1, 18, keys, 1, 1, 64, 64}));
  const BackwardSize s = {1, 70, 133, 2, 1, 64, 64};
  cases.push_back(exact("window 0, 0", s, window(0, 0)));
  cases.push_back(exact("window 17", s, window(17, -1)));
  cases.push_back(exact("keys ahead", s, window(-1, 5)));
  cases.push_back(exact("window on both sides", {1, 133, 70, 1, 1, 64, 64}, window(9, 40)));
  cases.push_back(exact("more queries than keys", {1, 90, 20, 2, 2, 64, 64}, causal));
  cases.push_back(exact("a group of three", {1, 20, 40, 6, 2, 64, 64}, causal));
  cases.push_back(normal_backward("a group of four", {1, 20, 40, 4, 1, 64, 64}));
  cases.push_back(normal_backward("a cap", {1, 20, 40, 2, 2, 64, 64}, {{"softcap", 2.0}}));
  OpCase test = exact("a gradient of lse", {1, 20, 40, 2, 1, 64, 64});
  test.inputs["grad_lse"] = tensor_by(DType::f32, {1, 2, 20}, [](int64_t i) { return i % 5 - 2; });
  cases.push_back(test);
  cases.push_back(
      normal_backward("sinks", {2, 20, 40, 3, 1, 64, 64}, causal, DType::bf16, {0.5, -3, 2}));
  test = normal_backward("sinks", {1, 150, 12, 2, 2, 64, 64}, {}, DType::bf16, {1, -1});
  test.inputs["grad_sink"] = tensor_of(DType::f32, {2}, {10, -20});
  cases.push_back(test);
  cases.push_back(normal_backward("infinite sinks", {1, 5, 12, 2, 2, 64, 64}, {}, DType::bf16,
                                  {kInfinity, -kInfinity}));
  test = exact("lengths", {4, 66, 70, 2, 1, 64, 64}, causal);
  add_lengths(test, {66, 0, 1, 30}, {70, 64, 0, 63});
  cases.push_back(test);
  test = exact("rows without keys", {1, 20, 40, 2, 2, 64, 64}, causal);
  for (int64_t i = 0; i < 40; i += 3) test.inputs["lse"].set_value(i, kInfinity);
  cases.push_back(test);
  test = exact("parts of one tensor", {2, 9, 9, 2, 2, 64, 64}, causal);
  for (const char* name : {"q", "k", "v", "out", "grad_out"}) {
    HostTensor part(DType::bf16, {2, 9, 2, 64}, {9 * 401, 401, 64, 1}, 2 * 9 * 401);
    for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, test.inputs[name].bits(i));
    test.inputs[name] = part;
  }
  cases.push_back(test);
  cases.push_back(exact("no keys", {1, 5, 0, 2, 2, 64, 64}));
  cases.push_back(exact("no queries", {1, 0, 5, 2, 2, 64, 64}));
  return cases;
}

}  // namespace tessera::test
