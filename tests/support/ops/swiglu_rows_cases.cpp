// Cases of swiglu_fwd and swiglu_bwd: all dtypes, rows of one warp to several steps, experts with
// padding between them, ends that are out of order, clamps, weights, values at the ends of the formats.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Form {
  int64_t rows = 5, hidden = 256;
  DType x = DType::bf16, out = DType::bf16;
  bool weights = false, count = false;
  double factor = 0, clamp = 0;  // 0: none
  std::vector<double> psum = {};
  int64_t alignment = 128;
  Values values = Values::normal;
};

constexpr Tolerance kOfExp = {2e-6, 1e-7}, kOfExpInBf16 = {1.6e-2, 1e-5};

OpCase forward_case(const Form& f) {
  OpCase test;
  test.label = fmt::format("P={} H={} {} to {}{}{} factor={} clamp={} E={}", f.rows, f.hidden,
                           name(f.x), name(f.out), f.weights ? " weights" : "",
                           f.count ? " counted" : "", f.factor, f.clamp, f.psum.size());
  test.inputs["x"] = random_tensor(f.x, {f.rows, 2 * f.hidden}, f.values, 41);
  if (f.weights)
    test.inputs["topk_weights"] = random_tensor(DType::f32, {f.rows}, Values::normal, 42);
  if (!f.psum.empty()) {
    test.inputs["psum"] = tensor_of(DType::i32, {std::ssize(f.psum)}, f.psum);
    test.params["alignment"] = f.alignment;
    // Values of padding reach no output.
    HostTensor& x = test.inputs["x"];
    double before = 0;
    for (const double end : f.psum) {
      const auto start = static_cast<int64_t>(before) + f.alignment - 1;
      for (auto row = static_cast<int64_t>(before); row < start / f.alignment * f.alignment;
           ++row) {
        if (row >= 0 && row < f.rows && before >= 0 && end > before) {
          x.set_value(row * 2 * f.hidden, std::numeric_limits<double>::quiet_NaN());
        }
      }
      before = end;
    }
  }
  if (f.count) test.inputs["clamped_count"] = tensor_of(DType::i64, {4}, {5, 1e12, 0, 7});
  test.params["out_dtype"] = std::string(f.out == DType::f32 ? "f32" : "bf16");
  if (f.factor != 0) test.params["routed_scaling_factor"] = f.factor;
  if (f.clamp != 0) test.params["swiglu_clamp_value"] = f.clamp;
  const Tolerance tolerance = f.out == DType::f32 ? kOfExp : kOfExpInBf16;
  test.tolerances["out"] = tolerance;
  return test;
}

OpCase backward_case(const Form& f, DType grad, bool save_out) {
  OpCase test = forward_case(f);
  test.label += fmt::format(" grad {}{}", name(grad), save_out ? " saved" : "");
  test.inputs["grad_out"] = random_tensor(grad, {f.rows, f.hidden}, f.values, 43);
  for (int64_t row = 0; row < f.rows && !f.psum.empty(); ++row) {  // padding, see forward_case
    if (std::isnan(test.inputs.at("x").value(row * 2 * f.hidden))) {
      test.inputs["grad_out"].set_value(row * f.hidden + 1,
                                        std::numeric_limits<double>::infinity());
    }
  }
  test.inputs.erase("clamped_count");
  test.params["save_out"] = save_out;
  // Sums of products that cancel: an error of the size of their terms.
  test.tolerances["grad_x"] = f.out == DType::f32 ? Tolerance{1e-5, 1e-5} : kOfExpInBf16;
  test.tolerances["grad_weight"] = Tolerance{1e-4, 1e-4};
  return test;
}

const std::vector<std::vector<double>> kEnds = {
    {37},                    // one expert, and padding behind it
    {20, 20, 70, 100, 100},  // experts without rows
    {0, 0, 0},               // no rows at all
    {64, 40, 90},            // not ascending
    {-5, 50, 1000},          // below 0, beyond the rows
    {2147483647},            // whose start rounds up beyond 32 bits
};

std::vector<Form> forms() {
  std::vector<Form> forms;
  for (const DType x : {DType::bf16, DType::f32}) {
    for (const DType out : {DType::bf16, DType::f32}) {
      for (const int64_t hidden : {8, 128, 264, 512, 2056, 3072}) {
        forms.push_back({hidden < 500 ? 9 : 3, hidden, x, out, hidden % 16 == 0});
      }
      forms.push_back({7, 64, x, out, true, false, 2.5, 0.5});
      forms.push_back({7, 64, x, out, false, false, 0, 1.5});
      forms.push_back({0, 64, x, out, true});
    }
    for (const std::vector<double>& psum : kEnds) {
      forms.push_back({110, 64, x, DType::f32, true, false, 0, 0, psum, 32});
    }
  }
  std::vector<double> many;
  for (int e = 1; e <= 70; ++e) many.push_back(4 * e - e % 4);  // more experts than lanes
  forms.push_back({290, 32, DType::bf16, DType::bf16, false, false, 0, 0, many, 4});
  forms.push_back({2301, 40, DType::bf16, DType::bf16, true, false, 0, 0, {700, 1500, 2290}, 128});
  forms.push_back({2, 16384, DType::bf16, DType::bf16, true});
  return forms;
}

}  // namespace

std::vector<OpCase> swiglu_fwd_cases() {
  std::vector<OpCase> cases;
  for (const Form& form : forms()) cases.push_back(forward_case(form));
  for (const DType x : {DType::bf16, DType::f32}) {
    cases.push_back(forward_case({9, 128, x, DType::bf16, true, true, 0, 0.75}));
    cases.push_back(forward_case({90, 64, x, DType::f32, false, true, 0, 0.75, {20, 50, 85}, 32}));
    cases.push_back(forward_case({0, 64, x, DType::f32, false, true, 0, 0.75}));
    OpCase nasty = forward_case({40, 128, x, DType::f32, false, true, 0, 1e30});
    nasty.inputs["x"] = random_tensor(x, {40, 256}, Values::nasty, 44);
    nasty.label += " nasty";
    cases.push_back(std::move(nasty));
  }
  cases.push_back(
      forward_case({2200, 64, DType::bf16, DType::bf16, true, true, 3, 0.5, {100, 2150}}));
  return cases;
}

std::vector<OpCase> swiglu_bwd_cases() {
  std::vector<OpCase> cases;
  for (const Form& form : forms()) {
    const auto number = std::ssize(cases);
    cases.push_back(
        backward_case(form, number % 2 == 0 ? DType::bf16 : DType::f32, number % 3 == 0));
  }
  // NaN and infinities of one row each, a gate so negative that its sigmoid is 0, a clamp that stops NaN nowhere
  OpCase ends = backward_case({5, 64, DType::f32, DType::f32, true, false, 0, 2}, DType::f32, true);
  const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), -200};
  for (int64_t row = 0; row < 4; ++row) {
    ends.inputs["x"].set_value(row * 128 + 5, values[row]);       // a gate
    ends.inputs["x"].set_value(row * 128 + 64 + 9, values[row]);  // an up
  }
  ends.inputs["grad_out"].set_value(4 * 64 + 3, values[0]);
  ends.label += " ends";
  cases.push_back(std::move(ends));
  return cases;
}

}  // namespace tessera::test
