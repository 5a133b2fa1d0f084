// Cases of attention: extents around tiles and blocks of keys, masks, groups of heads, sinks, special values.

#include "tests/support/ops/attention_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;

struct Size {
  int64_t requests, queries, keys, heads, groups, width, value_width;
};

std::string text(const Size& s) {
  return fmt::format("B={} Sq={} Sk={} h={} g={} dk={} dv={}", s.requests, s.queries, s.keys,
                     s.heads, s.groups, s.width, s.value_width);
}

Dims q_shape(const Size& s) {
  return {s.requests, s.queries, s.heads, s.width};
}

/// Whole scores with c = 1: every exponential is a power of two. Scores differ by little and values are
/// small multiples of 1/4, so every sum is exact, whatever the tensor cores keep.
OpCase exact(const std::string& label, const Size& s, const kernels::Params& params = {},
             DType dtype = DType::bf16) {
  OpCase test;
  test.label = fmt::format("{} {} {}", label, text(s), name(dtype));
  test.params = params;
  test.params["scale"] = kLn2;
  Random random(static_cast<uint64_t>(s.queries * 1000 + s.keys));
  const auto few = [&](int64_t) { return random.below(s.width) < 4 ? random.below(3) - 1 : 0; };
  const auto quarters = [&](int64_t) { return static_cast<double>(random.below(17) - 8) / 4; };
  test.inputs["q"] = tensor_by(dtype, q_shape(s), few);
  test.inputs["k"] = tensor_by(dtype, {s.requests, s.keys, s.groups, s.width},
                               [&](int64_t) { return random.below(3) - 1; });
  test.inputs["v"] = tensor_by(dtype, {s.requests, s.keys, s.groups, s.value_width}, quarters);
  test.tolerances["lse"] = Tolerance{1e-6, 2e-6};  // of log2
  return test;
}

/// T2 of the contract: abs(out - gpu) <= u (abs(gpu) + A / 4), where A is about 1 here; a result in the middle of two
/// numbers of the dtype, 2 u apart, rounds to either.
OpCase normal(const std::string& label, const Size& s, const kernels::Params& params = {},
              DType dtype = DType::bf16) {
  OpCase test;
  test.label = fmt::format("{} {} {} normal values", label, text(s), name(dtype));
  test.params = params;
  test.inputs["q"] = random_tensor(dtype, q_shape(s), Values::normal, 1);
  test.inputs["k"] =
      random_tensor(dtype, {s.requests, s.keys, s.groups, s.width}, Values::normal, 2);
  test.inputs["v"] =
      random_tensor(dtype, {s.requests, s.keys, s.groups, s.value_width}, Values::normal, 3);
  const double u = dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  test.tolerance = Tolerance{2 * u, u / 4};
  test.tolerances["lse"] = Tolerance{1e-6, 4e-6};
  return test;
}

kernels::Params causal() {
  return {{"causal", true}};
}

kernels::Params window(int64_t left, int64_t right, bool is_causal = false) {
  return {{"window_left", left}, {"window_right", right}, {"causal", is_causal}};
}

/// Sets row `row` of request 0 and all its heads.
void set_row(HostTensor& tensor, int64_t row, double value) {
  const int64_t size = tensor.shape()[2] * tensor.shape()[3];
  for (int64_t i = row * size; i < (row + 1) * size; ++i) tensor.set_value(i, value);
}

void add_masks(std::vector<OpCase>& cases) {
  const Size s = {1, 70, 133, 2, 1, 64, 64};
  cases.push_back(exact("window 0, 0", s, window(0, 0)));
  cases.push_back(exact("window 17", s, window(17, -1)));
  cases.push_back(exact("keys ahead", s, window(-1, 5)));
  cases.push_back(exact("causal window", s, window(60, -1, true)));
  cases.push_back(exact("window on both sides", {1, 133, 70, 1, 1, 64, 64}, window(9, 40)));
  cases.push_back(exact("a window that is wider than all keys", s, window(1000, 1000)));
  cases.push_back(exact("more queries than keys", {1, 90, 20, 2, 2, 64, 64}, causal()));
  cases.push_back(exact("a window that begins in the third block", {1, 3, 300, 1, 1, 64, 64},
                        window(20, -1, true)));
}

void add_lengths(std::vector<OpCase>& cases) {
  OpCase test = exact("lengths", {5, 66, 140, 2, 1, 64, 64}, causal());
  test.inputs["q_lengths"] = tensor_of(DType::i32, {5}, {66, 0, 1, 30, 65});
  test.inputs["k_lengths"] = tensor_of(DType::i32, {5}, {140, 128, 0, 127, 129});
  for (const char* name : {"k", "v"}) {  // behind the end of request 3
    HostTensor& tensor = test.inputs[name];
    const int64_t row = tensor.shape()[2] * tensor.shape()[3];
    for (int64_t i = (3 * 140 + 127) * row; i < 4 * 140 * row; ++i) tensor.set_value(i, kNan);
  }
  cases.push_back(test);
  test.inputs.erase("q_lengths");
  test.label += " of keys";
  cases.push_back(test);
}

void add_special(std::vector<OpCase>& cases) {
  OpCase test = exact("a key of NaN, one of infinity", {1, 20, 40, 2, 1, 64, 64}, causal());
  set_row(test.inputs["k"], 30, kNan);
  for (int64_t i = 0; i < 64; ++i) {  // scores of +inf, -inf or 0 times infinity
    test.inputs["k"].set_value(35 * 64 + i, i == 0 ? kInfinity : 0);
  }
  for (int64_t i = 0; i < test.inputs["q"].size(); i += 64) {
    test.inputs["q"].set_value(i, i % 3 == 0 ? 1 : -1);
  }
  cases.push_back(test);
  test = exact("all scores of a row NaN", {1, 3, 5, 1, 1, 64, 64});
  set_row(test.inputs["q"], 1, kNan);
  cases.push_back(test);
  test = exact("scores of -inf alone", {1, 2, 3, 1, 1, 64, 64});
  for (int64_t i = 0; i < 3 * 64; ++i) {
    test.inputs["k"].set_value(i, i % 64 == 5 ? -kInfinity : 0);
  }
  for (int64_t i = 0; i < 2 * 64; ++i) test.inputs["q"].set_value(i, i % 64 == 5 ? 1 : 0);
  cases.push_back(test);
  test = exact("values of -0", {1, 3, 5, 1, 1, 64, 64});
  for (int64_t i = 0; i < test.inputs["v"].size(); ++i) test.inputs["v"].set_value(i, -0.0);
  cases.push_back(test);
  test = normal("large scores", {1, 5, 140, 1, 1, 64, 64});
  for (const char* name : {"q", "k"}) {
    for (int64_t i = 0; i < test.inputs[name].size(); ++i) {
      test.inputs[name].set_value(i, std::ldexp(test.inputs[name].value(i), 4));
    }
  }
  cases.push_back(test);
}

void add_sinks(std::vector<OpCase>& cases) {
  const Size s = {1, 5, 130, 6, 3, 64, 64};
  OpCase test = exact("sinks", s);
  test.inputs["sink"] =
      tensor_of(DType::f32, {6}, {-kInfinity, kInfinity, kNan, 1e4, -kInfinity, -1e4});
  cases.push_back(test);
  test = normal("sinks", s, causal());
  test.inputs["sink"] = tensor_of(DType::f32, {6}, {0.5, -3, 2, 4, 0, -1});
  cases.push_back(test);
  test = normal("sinks beside few keys", {1, 2, 3, 3, 1, 64, 64});
  test.inputs["sink"] = tensor_of(DType::f32, {3}, {-1, 0.5, 2});
  cases.push_back(test);
}

/// q, k and v as parts of one tensor; heads before rows.
void add_strided(std::vector<OpCase>& cases) {
  const Size s = {2, 9, 9, 2, 2, 64, 64};
  OpCase test = exact("parts of one tensor", s, causal());
  for (const char* name : {"q", "k", "v"}) {
    HostTensor part(DType::bf16, {2, 9, 2, 64}, {9 * 400, 400, 64, 1}, 2 * 9 * 400);
    for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, test.inputs[name].bits(i));
    test.inputs[name] = part;
  }
  cases.push_back(test);
  for (const int64_t gap : {8, 2, 1}) {  // elements; 1: no vector fits
    test = exact(fmt::format("heads before rows, gaps of {}", gap), s);
    for (const char* name : {"q", "k", "v"}) {
      const int64_t row = 64 + gap;
      HostTensor part(DType::bf16, {2, 9, 2, 64}, {2 * 9 * row, row, 9 * row, 1});
      for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, test.inputs[name].bits(i));
      test.inputs[name] = part;
    }
    cases.push_back(test);
  }
}

}  // namespace

OpCase scores_of_minus_infinity(OpCase test, const std::string& keys) {
  test.label = "scores of -inf";
  HostTensor &q = test.inputs.at("q"), &k = test.inputs.at(keys);
  const int64_t width = q.shape()[q.shape().rank - 1];
  const double infinity = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < q.size(); ++i) q.set_value(i, i % width == 0 ? -infinity : 0);
  for (int64_t i = 0; i < k.size(); ++i) k.set_value(i, 1);
  return test;
}

std::vector<OpCase> attention_fwd_cases() {
  std::vector<OpCase> cases;
  const std::pair<int64_t, int64_t> widths[] = {
      {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
  for (const auto& [width, value_width] : widths) {
    cases.push_back(exact("", {1, 65, 129, 2, 1, width, value_width}, causal()));
    cases.push_back(exact("", {1, 3, 64, 1, 1, width, value_width}, {}, DType::f16));
    cases.push_back(normal("", {1, 7, 200, 1, 1, width, value_width}));
  }
  for (const int64_t keys : {1, 63, 127, 128, 257}) {
    cases.push_back(exact("", {1, 1, keys, 1, 1, 64, 64}));
  }
  cases.push_back(exact("", {2, 130, 130, 4, 2, 64, 64}, causal()));
  cases.push_back(exact("", {1, 5, 150, 8, 1, 128, 128}));
  cases.push_back(normal("", {1, 130, 300, 2, 2, 128, 128}, causal()));
  cases.push_back(normal("", {2, 64, 64, 4, 1, 64, 64}, causal(), DType::f16));
  cases.push_back(normal("cap", {1, 5, 140, 2, 1, 64, 64}, {{"softcap", 8.0}}));
  cases.push_back(normal("small cap", {1, 5, 140, 2, 1, 64, 64},
                         {{"softcap", 0.5}, {"scale", 1.0}, {"causal", true}}));
  for (const Size& s : {Size{0, 3, 4, 2, 1, 64, 64}, Size{2, 0, 4, 2, 1, 64, 64},
                        Size{2, 3, 0, 2, 1, 64, 64}, Size{1, 3, 4, 0, 1, 64, 64}}) {
    cases.push_back(exact("nothing", s));
  }
  add_masks(cases);
  add_lengths(cases);
  add_special(cases);
  add_sinks(cases);
  add_strided(cases);
  return cases;
}

}  // namespace tessera::test
