// The plans of the KV compressor on the executor: the references, the mistakes that their cases catch,
// what bad calls are told.

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

void check_plan_mutants(const std::string& op, const std::vector<OpCase>& cases) {
  const auto caught = [&](const std::function<void(HostTensors&, Params&)>& mistake) {
    return is_caught(op, cases, misled(op, mistake));
  };
  CHECK_FALSE(caught([](HostTensors&, Params&) {}));
  CHECK(caught([](HostTensors& in, Params&) { in.erase("page_table"); }));
  CHECK(caught([](HostTensors&, Params& params) { params.erase("page_size"); }));
  CHECK(caught([](HostTensors&, Params& params) {  // the ring is as long as a page
    if (std::get<int64_t>(params["state_page_size"]) > 0)
      params["ring"] = params["state_page_size"];
  }));
  for (const char* name : {"state_pages", "state_slot", "page_table"}) {
    CHECK(caught([name](HostTensors& in, Params&) {  // what is not there is the first
      if (!in.contains(name)) return;
      HostTensor& table = in[name];
      for (int64_t i = 0; i < table.size(); ++i) {
        if (table.value(i) < 0) table.set_value(i, 0);
      }
    }));
  }
}

}  // namespace

TEST_CASE("compress_plan equals its reference on the executor", "[compress_plan]") {
  check_cases("compress_plan", compress_plan_cases());
}

TEST_CASE("compress_plan_decode equals its reference on the executor", "[compress_plan_decode]") {
  check_cases("compress_plan_decode", compress_plan_decode_cases());
}

TEST_CASE("the compress_plan tests catch every mutant", "[compress_plan][mutants]") {
  check_plan_mutants("compress_plan", compress_plan_cases());
  CHECK(is_caught("compress_plan", compress_plan_cases(),
                  misled("compress_plan", [](HostTensors&, Params& params) {
                    params["max_rollback"] = int64_t{0};
                  })));
}

TEST_CASE("the compress_plan_decode tests catch every mutant", "[compress_plan_decode][mutants]") {
  check_plan_mutants("compress_plan_decode", compress_plan_decode_cases());
}

TEST_CASE("compress_plan_decode explains wrong arguments", "[compress_plan_decode][errors]") {
  const auto told = [](const Params& more, const HostTensors& tables) {
    Params params = {{"ratio", int64_t{4}}, {"ring", int64_t{8}}};
    for (const auto& [name, value] : more) params[name] = value;
    HostTensors inputs = tables;
    inputs["positions"] = HostTensor(DType::i32, {3});
    return outputs_error("compress_plan_decode", inputs, params);
  };
  const HostTensors slots = {{"state_slot", HostTensor(DType::i32, {3})}};
  const HostTensors pages = {{"state_pages", HostTensor(DType::i32, {3, 2})}};
  CHECK(told({}, slots) == "no error");
  CHECK(told({{"state_page_size", int64_t{16}}}, pages) == "no error");
  CHECK(told({{"max_rollback", int64_t{2}}}, slots) ==
        "tessera: compress_plan_decode: parameter 'ring' has a wrong value\n"
        "  expected  a multiple of 4, at least 9\n"
        "  got       8");
  CHECK(told({{"ring", int64_t{10}}}, slots) ==
        "tessera: compress_plan_decode: parameter 'ring' has a wrong value\n"
        "  expected  a multiple of 4, at least 8\n"
        "  got       10");
  CHECK(told({}, {}) ==
        "tessera: compress_plan_decode: one of 'state_slot' and 'state_pages' is needed\n"
        "  expected  one of them\n"
        "  got       none");
  CHECK(told({}, pages) ==
        "tessera: compress_plan_decode: parameter 'state_page_size' does not go with the tables\n"
        "  expected  the tokens of a page of 'state_pages'\n"
        "  got       0");
  CHECK(told({{"state_page_size", int64_t{20}}}, pages) ==
        "tessera: compress_plan_decode: parameter 'state_page_size' has a wrong value\n"
        "  expected  a multiple of ring = 8\n"
        "  got       20");
}
