// Slots of paged caches on the executor: the references, the mistakes that their cases catch, what bad
// calls are told.

#include <algorithm>

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"

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

using Mistake = std::function<void(HostTensors&, Params&)>;

Mistake moved(const std::string& tensor, double by) {
  return [=](HostTensors& in, Params&) {
    if (!in.contains(tensor)) return;
    for (int64_t i = 0; i < in[tensor].size(); ++i) {
      if (in[tensor].value(i) >= 1) in[tensor].set_value(i, in[tensor].value(i) + by);
    }
  };
}

}  // namespace

TEST_CASE("gather_pages equals its reference on the executor", "[gather_pages]") {
  check_cases("gather_pages", gather_pages_cases());
}

TEST_CASE("paged_lengths equals its reference on the executor", "[paged_lengths]") {
  check_cases("paged_lengths", paged_lengths_cases());
}

TEST_CASE("slot_plan equals its reference on the executor", "[slot_plan]") {
  check_cases("slot_plan", slot_plan_cases());
}

TEST_CASE("serving_plan equals its reference on the executor", "[serving_plan]") {
  check_cases("serving_plan", serving_plan_cases());
}

TEST_CASE("the tests of paged caches catch every mutant", "[gather_pages][slot_plan][mutants]") {
  const auto caught = [&](const std::string& op, const std::vector<OpCase>& cases,
                          const Mistake& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  const auto gathers = gather_pages_cases(), plans = slot_plan_cases();
  const auto lengths = paged_lengths_cases();
  CHECK_FALSE(caught("gather_pages", gathers, [](HostTensors&, Params&) {}));
  CHECK(caught("gather_pages", gathers, moved("indices", 1)));
  CHECK(caught("gather_pages", gathers, moved("page_table", -1)));
  CHECK(caught("gather_pages", gathers, [](HostTensors& in, Params&) {  // no page is page 0
    for (int64_t i = 0; i < in["page_table"].size(); ++i) {
      in["page_table"].set_value(i, std::max(in["page_table"].value(i), 0.0));
    }
  }));
  CHECK(caught("gather_pages", gathers, [](HostTensors& in, Params&) {  // no index is index 0
    for (int64_t i = 0; i < in["indices"].size(); ++i) {
      in["indices"].set_value(i, std::max(in["indices"].value(i), 0.0));
    }
  }));
  CHECK_FALSE(caught("slot_plan", plans, [](HostTensors&, Params&) {}));
  CHECK(caught("slot_plan", plans, moved("positions", -1)));
  for (const char* pool : {"window", "c4", "c128"}) {
    CHECK(caught("slot_plan", plans, moved(std::string(pool) + "_pages", 1)));
    CHECK(caught("slot_plan", plans, [=](HostTensors&, Params& params) {
      params[std::string(pool) + "_page_size"] = int64_t{3};
    }));
  }
  const auto steps = serving_plan_cases();
  CHECK_FALSE(caught("serving_plan", steps, [](HostTensors&, Params&) {}));
  CHECK(caught("serving_plan", steps, moved("start", 1)));
  CHECK(caught("serving_plan", steps, moved("row_start", -1)));
  CHECK(caught("serving_plan", steps, moved("page_table", 1)));
  for (const char* size : {"ratio", "second_ratio", "page_size"}) {
    CHECK(caught("serving_plan", steps,
                 [=](HostTensors&, Params& params) { params[size] = int64_t{5}; }));
  }
  CHECK(is_caught("paged_lengths", lengths,
                  spoiled("paged_lengths", [](const HostTensors&, HostTensors& out) {
                    out["blocks"] = out["compressed"];
                  })));
  CHECK(caught("paged_lengths", lengths, moved("lengths", 3)));
}

TEST_CASE("ops of paged caches explain wrong arguments", "[gather_pages][slot_plan][errors]") {
  const HostTensors gather = {{"indices", HostTensor(DType::i32, {5, 6})},
                              {"page_table", HostTensor(DType::i32, {5, 3})}};
  CHECK(outputs_error("gather_pages", gather, {{"page_size", int64_t{64}}}) == "no error");
  CHECK(outputs_error("gather_pages", gather, {{"page_size", int64_t{0}}}) ==
        "tessera: gather_pages: parameter 'page_size' is out of range\n"
        "  expected  1 <= page_size <= 1073741824\n"
        "  got       page_size = 0");
  HostTensors other = gather;
  other["page_table"] = HostTensor(DType::i32, {4, 3});
  CHECK(outputs_error("gather_pages", other, {{"page_size", int64_t{64}}}) ==
        "tessera: gather_pages: argument 'page_table' has the wrong shape\n"
        "  expected  i32[5, Q]   (R = 5 from indices dim 0)\n"
        "  got       i32[4, 3] on cpu");
  const HostTensors plan = {{"positions", HostTensor(DType::i32, {5})},
                            {"window_pages", HostTensor(DType::i32, {5, 3})},
                            {"c4_pages", HostTensor(DType::i32, {5, 3})}};
  CHECK(outputs_error("slot_plan", plan, {{"window_page_size", int64_t{64}}}) == "no error");
  CHECK(outputs_error("slot_plan", plan,
                      {{"window_page_size", int64_t{64}}, {"c4_page_size", int64_t{0}}}) ==
        "tessera: slot_plan: parameter 'c4_page_size' is out of range\n"
        "  expected  1 .. 1073741824\n"
        "  got       0");
  CHECK(outputs_error("paged_lengths", {{"lengths", HostTensor(DType::i32, {5})}},
                      {{"ratio", int64_t{0}}, {"page_size", int64_t{64}}}) ==
        "tessera: paged_lengths: parameter 'ratio' is out of range\n"
        "  expected  1 <= ratio <= 2147483647\n"
        "  got       ratio = 0");
}
