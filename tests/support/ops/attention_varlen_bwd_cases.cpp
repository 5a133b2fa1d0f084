// Cases of attention_varlen_bwd: requests of all lengths one behind the other, empty ones among them, rows that belong to
// none, masks, groups of heads, sinks, a gradient of lse, strides, bounds out of order.

#include <limits>

#include "tests/reference/attention.h"
#include "tests/support/ops/attention_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;

/// Whole scores with c = 1 and lse = 0: p is a power of two, and every sum is exact.
OpCase exact(const std::string& label, const PackedSize& s, const kernels::Params& params = {},
             DType dtype = DType::bf16) {
  OpCase test = normal_packed_backward(label, s, params, dtype);
  test.label += " exact";
  test.params["scale"] = kLn2;
  test.tolerance = std::nullopt;
  Random random(static_cast<uint64_t>(test.inputs["q"].size() + test.inputs["k"].size()));
  const auto refill = [&](const char* name, const std::function<double()>& value) {
    HostTensor& tensor = test.inputs[name];
    const int64_t rest = s.rest * tensor.shape()[1] * tensor.shape()[2];
    for (int64_t i = 0; i < tensor.size() - rest; ++i) tensor.set_value(i, value());
  };
  const auto few = [&] {
    return random.below(s.width) < 4 ? static_cast<double>(random.below(3) - 1) : 0.0;
  };
  const auto quarters = [&] { return static_cast<double>(random.below(9) - 4) / 4; };
  refill("grad_out", few), refill("q", few);
  refill("k", [&] { return static_cast<double>(random.below(3) - 1); });
  refill("v", quarters), refill("out", quarters);
  const Dims& shape = test.inputs["lse"].shape();
  test.inputs["lse"] = tensor_by(DType::f32, shape, [](int64_t) { return 0; });
  return test;
}

/// All rows as parts of one tensor, each 401 elements behind the one before.
OpCase in_one_tensor(OpCase test) {
  for (const char* name : {"q", "k", "v", "out", "grad_out"}) {
    test = strided(std::move(test), name, {401, 64, 1});
  }
  return test;
}

}  // namespace

OpCase normal_packed_backward(const std::string& label, const PackedSize& s,
                              const kernels::Params& params, DType dtype,
                              const std::vector<double>& sinks) {
  OpCase test = normal_packed(label, s, params, dtype);
  if (!sinks.empty()) {
    test.inputs["sink"] = tensor_of(DType::f32, {s.heads}, sinks);
    test.tolerances["grad_sink"] = Tolerance{1e-4, 1e-5};
  }
  for (auto& [name, tensor] : reference::attention(test.inputs, test.params)) {
    test.inputs[name] = tensor;
  }
  const Dims& q = test.inputs["q"].shape();
  test.inputs["grad_out"] = random_tensor(dtype, {q[0], q[1], s.value_width}, Values::normal, 4);
  for (const char* name : {"out", "grad_out"}) {
    HostTensor& tensor = test.inputs[name];
    for (int64_t i = tensor.size() - s.rest * q[1] * s.value_width; i < tensor.size(); ++i) {
      tensor.set_value(i, kNan);
    }
  }
  test.tolerances.erase("lse");
  test.tolerance = Tolerance{.calc_diff = 0x1p-21};  // T4: 2^-10 of the norm
  return test;
}

std::vector<OpCase> attention_varlen_bwd_cases() {
  std::vector<OpCase> cases;
  const kernels::Params causal = {{"causal", true}};
  const std::pair<int64_t, int64_t> widths[] = {
      {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& [width, value_width] : widths) {
    cases.push_back(exact("", {{33, 3}, {65, 40}, 2, 1, width, value_width, 2}, causal));
    cases.push_back(exact("", {{5, 20}, {7, 30}, 1, 1, width, value_width, 0}, {}, DType::f16));
  }
  cases.push_back(exact("empty requests", {{0, 10, 0, 5, 0}, {0, 10, 7, 0, 0}, 2, 2, 64, 64, 3}));
  cases.push_back(
      exact("lengths around a tile", {{1, 63, 64, 65}, {65, 64, 63, 1}, 1, 1, 64, 64, 0}, causal));
  cases.push_back(exact("lengths around a part", {{3, 4}, {127, 129}, 1, 1, 64, 64, 0}));
  cases.push_back(exact("more queries than keys", {{90, 4}, {20, 2}, 2, 2, 64, 64, 5}, causal));
  cases.push_back(in_one_tensor(exact("", {{5, 4}, {5, 4}, 2, 2, 64, 64, 0}, causal)));
  cases.push_back(exact("a group of three", {{20, 2}, {40, 3}, 6, 2, 64, 64, 1}, causal));
  cases.push_back(exact("no request", {{}, {}, 2, 1, 64, 64, 4}));
  PackedSize many{{}, {}, 1, 1, 64, 64, 1};
  for (int64_t b = 0; b < 140; ++b) many.queries.push_back(b % 3), many.keys.push_back(b % 4);
  cases.push_back(exact("more requests than a block looks at together", many, causal));
  const PackedSize s = {{70, 9}, {133, 50}, 2, 1, 64, 64, 1};
  cases.push_back(exact("window", s, {{"window_left", int64_t{17}}, {"causal", true}}));
  cases.push_back(exact("window on both sides", s,
                        {{"window_left", int64_t{9}}, {"window_right", int64_t{40}}}));
  cases.push_back(normal_packed_backward("", s, causal));
  cases.push_back(normal_packed_backward("no rest", {{20, 30}, {40, 50}, 2, 1, 64, 64, 0}, causal));
  cases.push_back(normal_packed_backward("cap", s, {{"softcap", 2.0}}));
  cases.push_back(normal_packed_backward("sinks", {{150, 3, 129}, {12, 5, 7}, 2, 2, 64, 64, 2}, {},
                                         DType::bf16, {1, -1}));
  OpCase test = normal_packed_backward("sinks", s, causal, DType::bf16, {0.5, -3});
  test.inputs["grad_sink"] = tensor_of(DType::f32, {2}, {10, -20});
  cases.push_back(test);
  test = exact("a gradient of lse", {{20, 7}, {40, 9}, 2, 1, 64, 64, 0});
  test.inputs["grad_lse"] = tensor_by(DType::f32, {2, 27}, [](int64_t i) { return i % 5 - 2; });
  cases.push_back(test);
  test = exact("bounds out of order", {{20, 20, 20}, {30, 30, 30}, 1, 1, 64, 64, 1});
  test.inputs["cu_q"] = tensor_of(DType::i32, {4}, {0, 30, 10, 1000});
  test.inputs["cu_k"] = tensor_of(DType::i32, {4}, {-5, 40, -1, 90});
  cases.push_back(test);
  for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{0, 4}, {3, 0}, {0, 0}}) {
    cases.push_back(exact("nothing", {{queries}, {keys}, 2, 1, 64, 64, 0}));
  }
  return cases;
}

}  // namespace tessera::test
