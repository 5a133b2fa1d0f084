// topk_select and topk_plan on the executor: the references, the mistakes that their cases catch, what
// bad calls are told.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/jit/target.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const kernels::UncheckedValues as_on_a_gpu;
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

/// topk_select with the order of columns changed before and after.
reference::Runner reversed_ties() {
  return [](const HostTensors& in, const Params& params) {
    HostTensors backwards = in;
    HostTensor& scores = backwards["scores"];
    const int64_t rows = scores.shape()[0], columns = scores.shape()[1];
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t row = i / columns, column = i % columns;
      scores.set_bits(i, in.at("scores").bits(row * columns + columns - 1 - column));
    }
    HostTensors out = reference::runner("topk_select")(backwards, params);
    HostTensor& indices = out["indices"];
    const int64_t topk = indices.shape()[1];
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> picked;
      for (int64_t k = 0; k < topk; ++k) picked.push_back(indices.value(row * topk + k));
      for (double& column : picked) column = static_cast<double>(columns - 1) - column;
      std::sort(picked.begin(), picked.end());
      for (int64_t k = 0; k < topk; ++k) {
        indices.set_value(row * topk + k, picked[static_cast<size_t>(k)]);
      }
    }
    return out;
  };
}

}  // namespace

TEST_CASE("topk_select equals its reference on the executor", "[topk_select][slow]") {
  check_cases("topk_select", topk_select_cases());
}

TEST_CASE("topk_select has the same result without clusters", "[topk_select][slow]") {
  const kernels::jit::TargetScope ampere({8, 0, 0});
  std::vector<OpCase> cases = topk_select_cases();
  std::erase_if(cases, [](const OpCase& test) {
    return test.inputs.at("scores").shape()[1] <= 32768 || test.inputs.at("scores").size() > 200000;
  });
  REQUIRE(cases.size() >= 4);
  check_cases("topk_select", cases);
}

TEST_CASE("topk_plan equals its reference on the executor", "[topk_plan]") {
  check_cases("topk_plan", topk_plan_cases());
}

TEST_CASE("the topk_select tests catch every mutant", "[topk_select][mutants][slow]") {
  const std::string op = "topk_select";
  std::vector<OpCase> cases = topk_select_cases();
  std::erase_if(cases, [](const OpCase& test) { return test.inputs.at("scores").size() > 20000; });
  const auto scores_read = [&](const std::function<double(double)>& as) {
    return is_caught(op, cases, misled(op, [&](HostTensors& in, Params& params) {
                       if (params.contains("save_values")) return;  // they would show it
                       HostTensor& scores = in["scores"];
                       for (int64_t i = 0; i < scores.size(); ++i) {
                         scores.set_value(i, as(scores.value(i)));
                       }
                     }));
  };
  CHECK_FALSE(scores_read([](double x) { return x; }));
  CHECK(scores_read([](double x) { return x == 0 && std::signbit(x) ? -0x1p-149 : x; }));
  CHECK(scores_read([](double x) {  // NaN above everything
    return std::isnan(x) ? std::numeric_limits<double>::infinity() : x;
  }));
  CHECK(scores_read([](double x) {  // subnormals are zeros
    return std::fabs(x) < 0x1p-126 ? 0.0 : x;
  }));
  CHECK(scores_read([](double x) {  // keys of 16 bits
    return std::isfinite(x) ? std::ldexp(std::round(std::ldexp(x, 8)), -8) : x;
  }));
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK(caught([](HostTensors&, Params& params) { params.erase("order"); }));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("relative"); }));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("page_size"); }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("lengths"); }));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("starts"); }));
  CHECK(caught([](HostTensors& in, Params&) {  // the rows of the table in their order
    for (int64_t b = 0; in.contains("table_row") && b < in["table_row"].size(); ++b) {
      in["table_row"].set_value(b, static_cast<double>(b % in["page_table"].shape()[0]));
    }
  }));
  CHECK(caught([](HostTensors& in, Params&) {  // lengths are counts
    if (!in.contains("lengths") || !in.contains("starts")) return;
    for (int64_t b = 0; b < in["lengths"].size(); ++b) {
      in["lengths"].set_value(b, in["lengths"].value(b) + in["starts"].value(b));
    }
  }));
  // ties go to the last columns
  std::vector<OpCase> plain = cases;
  std::erase_if(plain, [](const OpCase& test) {
    return test.params.size() > 1 || test.inputs.size() > 1 ||
           std::get<int64_t>(test.params.at("topk")) > test.inputs.at("scores").shape()[1];
  });
  CHECK(is_caught(op, plain, reversed_ties()));
}

TEST_CASE("a plan has no say in the result of topk_select", "[topk_select]") {
  OpCase test;
  test.inputs["scores"] = random_tensor(DType::f32, {3, 500}, Values::normal, 1);
  test.params["topk"] = int64_t{20};
  const reference::Runner run = op_runner("topk_select", Device::cpu());
  const HostTensors want = run(test.inputs, test.params);
  const kernels::UncheckedValues as_on_a_gpu;
  for (uint64_t seed = 1; seed < 4; ++seed) {
    test.inputs["plan"] = random_tensor(DType::i32, {4, 2}, Values::bits, seed);
    CHECK(compare_outputs(test, want, run(test.inputs, test.params)).ok);
  }
}

TEST_CASE("a row has the same result in any batch", "[topk_select]") {
  const HostTensor all = random_tensor(DType::f32, {130, 600}, Values::nasty, 2);
  HostTensor one(DType::f32, {1, 600});
  for (int64_t i = 0; i < 600; ++i) one.set_bits(i, all.bits(77 * 600 + i));
  const reference::Runner run = op_runner("topk_select", Device::cpu());
  const Params params = {{"topk", int64_t{50}}, {"order", std::string("value")}};
  const HostTensor in_batch = run({{"scores", all}}, params).at("indices");
  const HostTensor alone = run({{"scores", one}}, params).at("indices");
  for (int64_t i = 0; i < 50; ++i) CHECK(in_batch.bits(77 * 50 + i) == alone.bits(i));
}

TEST_CASE("topk_select explains wrong arguments", "[topk_select][errors]") {
  const HostTensors inputs = {{"scores", HostTensor(DType::f32, {3, 100})}};
  const auto told = [&](const Params& more, const HostTensors& tensors = {}) {
    Params params = {{"topk", int64_t{8}}};
    for (const auto& [name, value] : more) params[name] = value;
    HostTensors all = inputs;
    for (const auto& [name, tensor] : tensors) all[name] = tensor;
    return outputs_error("topk_select", all, params);
  };
  CHECK(told({}) == "no error");
  CHECK(told({{"topk", int64_t{4097}}}) ==
        "tessera: topk_select: argument 'topk': so many scores of a row are not supported\n"
        "  expected  topk <= 4096\n"
        "  got       topk = 4097");
  CHECK(told({{"topk", int64_t{0}}}) ==
        "tessera: topk_select: parameter 'topk' has a wrong value\n"
        "  expected  int 1..4096\n"
        "  got       0");
  CHECK(told({{"page_size", int64_t{48}}}) ==
        "tessera: topk_select: parameter 'page_size' has a wrong value\n"
        "  expected  a power of two up to 2^30\n"
        "  got       48");
  CHECK(told({}, {{"lengths", HostTensor(DType::i32, {4})}}) ==
        "tessera: topk_select: argument 'lengths' has the wrong shape\n"
        "  expected  i32[3]   (B = 3 from scores dim 0)\n"
        "  got       i32[4] on cpu");
  CHECK(told({}, {{"scores", HostTensor(DType::f32, {3, 0})}}) == "no error");
}
