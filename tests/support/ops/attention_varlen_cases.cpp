// Cases of attention_varlen_fwd: requests of all lengths one behind the other, empty ones among them, rows that
// belong to none.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <limits>
#include <optional>

#include "tests/support/ops/attention_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;

HostTensor bounds_of(const std::vector<int64_t>& lengths) {
  HostTensor cu(DType::i32, {static_cast<int64_t>(lengths.size()) + 1});
  int64_t sum = 0;
  cu.set_value(0, 0);
  for (size_t b = 0; b < lengths.size(); ++b) {
    sum += lengths[b];
    cu.set_value(static_cast<int64_t>(b) + 1, static_cast<double>(sum));
  }
  return cu;
}

int64_t sum_of(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t length : lengths) sum += length;
  return sum;
}

/// Whole scores with c = 1 and values of which every sum is exact. Rows behind all requests are NaN.
OpCase exact(const std::string& label, const PackedSize& s, const kernels::Params& params = {},
             DType dtype = DType::bf16) {
  OpCase test = normal_packed(label, s, params, dtype);
  test.label += " exact";
  test.params["scale"] = kLn2;
  test.tolerance = std::nullopt;
  Random random(static_cast<uint64_t>(sum_of(s.queries) * 1000 + sum_of(s.keys)));
  const auto refill = [&](const char* name, int64_t rows, const std::function<double()>& value) {
    HostTensor& tensor = test.inputs[name];
    const int64_t row = tensor.shape()[1] * tensor.shape()[2];
    for (int64_t i = 0; i < rows * row; ++i) tensor.set_value(i, value());
  };
  refill("q", sum_of(s.queries), [&] {
    return random.below(s.width) < 4 ? static_cast<double>(random.below(3) - 1) : 0.0;
  });
  refill("k", sum_of(s.keys), [&] { return static_cast<double>(random.below(3) - 1); });
  refill("v", sum_of(s.keys), [&] { return static_cast<double>(random.below(17) - 8) / 4; });
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};  // of log2
  return test;
}

/// q, k and v as parts of one tensor; heads before rows, with gaps of which no vector of 16 bytes begins at the last.
void add_strided(std::vector<OpCase>& cases) {
  const PackedSize s = {{5, 4}, {5, 4}, 2, 2, 64, 64, 0};
  const auto moved = [&](const std::string& label, const Dims& strides, int64_t elements) {
    OpCase test = exact(label, s, {{"causal", true}});
    for (const char* name : {"q", "k", "v"}) {
      HostTensor part(DType::bf16, {9, 2, 64}, strides, elements);
      for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, test.inputs[name].bits(i));
      test.inputs[name] = part;
    }
    cases.push_back(test);
  };
  moved("parts of one tensor", {400, 64, 1}, 9 * 400);
  for (const int64_t gap : {8, 2, 1}) {
    const int64_t row = 64 + gap;
    moved(fmt::format("heads before rows, gaps of {}", gap), {row, 9 * row, 1}, 2 * 9 * row);
  }
}

}  // namespace

OpCase normal_packed(const std::string& label, const PackedSize& s, const kernels::Params& params,
                     DType dtype) {
  OpCase test;
  test.label =
      fmt::format("{} {} x {} h={} g={} dk={} dv={} {}", label, fmt::join(s.queries, ","),
                  fmt::join(s.keys, ","), s.heads, s.groups, s.width, s.value_width, name(dtype));
  test.params = params;
  const int64_t q_rows = sum_of(s.queries) + s.rest, k_rows = sum_of(s.keys) + s.rest;
  test.inputs["q"] = random_tensor(dtype, {q_rows, s.heads, s.width}, Values::normal, 1);
  test.inputs["k"] = random_tensor(dtype, {k_rows, s.groups, s.width}, Values::normal, 2);
  test.inputs["v"] = random_tensor(dtype, {k_rows, s.groups, s.value_width}, Values::normal, 3);
  test.inputs["cu_q"] = bounds_of(s.queries), test.inputs["cu_k"] = bounds_of(s.keys);
  for (const char* name : {"q", "k", "v"}) {
    HostTensor& tensor = test.inputs[name];
    const int64_t row = tensor.shape()[1] * tensor.shape()[2];
    for (int64_t i = tensor.size() - s.rest * row; i < tensor.size(); ++i) {
      tensor.set_value(i, kNan);
    }
  }
  const double u = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  test.tolerance = Tolerance{2 * u, u / 4};
  test.tolerances["lse"] = Tolerance{1e-6, 4e-6};
  return test;
}

std::vector<OpCase> attention_varlen_fwd_cases() {
  std::vector<OpCase> cases;
  const kernels::Params causal = {{"causal", true}};
  const std::pair<int64_t, int64_t> widths[] = {
      {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& [width, value_width] : widths) {
    cases.push_back(exact("", {{65, 3}, {129, 40}, 2, 1, width, value_width, 2}, causal));
    cases.push_back(exact("", {{5, 70}, {7, 64}, 1, 1, width, value_width, 0}, {}, DType::f16));
  }
  cases.push_back(exact("empty requests", {{0, 10, 0, 5, 0}, {0, 10, 7, 0, 0}, 2, 2, 64, 64, 3}));
  cases.push_back(exact("lengths around a block",
                        {{1, 127, 128, 129}, {129, 128, 127, 1}, 1, 1, 64, 64, 0}, causal));
  cases.push_back(exact("more queries than keys", {{90, 4}, {20, 2}, 2, 2, 64, 64, 5}, causal));
  add_strided(cases);
  cases.push_back(exact("two heads of each key", {{40}, {70}, 4, 2, 64, 64, 0}));
  cases.push_back(scores_of_minus_infinity(exact("", {{3}, {70}, 1, 1, 64, 64, 0}), "k"));
  cases.push_back(exact("no request", {{}, {}, 2, 1, 64, 64, 4}));
  PackedSize many{{}, {}, 1, 1, 64, 64, 1};
  for (int64_t b = 0; b < 140; ++b) many.queries.push_back(b % 3), many.keys.push_back(b % 4);
  cases.push_back(exact("more requests than a block looks at together", many, causal));
  const PackedSize s = {{70, 9}, {133, 150}, 2, 1, 64, 64, 1};
  cases.push_back(exact("window", s, {{"window_left", int64_t{17}}, {"causal", true}}));
  cases.push_back(exact("window on both sides", s,
                        {{"window_left", int64_t{9}}, {"window_right", int64_t{40}}}));
  cases.push_back(normal_packed("", s, causal));
  cases.push_back(normal_packed("", {{130, 20}, {130, 300}, 2, 1, 128, 128, 3}, causal));
  cases.push_back(normal_packed("cap", s, {{"softcap", 8.0}}));
  OpCase test = normal_packed("sinks", s, causal);
  test.inputs["sink"] = tensor_of(DType::f32, {2}, {0.5, -3});
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
