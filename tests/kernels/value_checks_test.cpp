// Values that break a promise: CPU calls are told, by the name of the tensor; without the checks they
// do what a GPU does.

#include "kernels/checks/value_check.h"
#include "kernels/jit/jit.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/promise_cases.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("a CPU call is told of values out of range", "[kernels][values]") {
  for (const PromiseCase& test : promise_cases()) {
    DYNAMIC_SECTION(test.op << ": " << test.label) {
      std::string told;
      try {
        run_op(kernels::find_op(test.op), test.inputs, test.params, Device::cpu());
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::argument);
        told = error.what();
      }
      CHECK(told == test.refusal);
    }
  }
}

TEST_CASE("without the checks a CPU call goes through, and its kernels report what they see",
          "[kernels][values]") {
  const kernels::UncheckedValues unchecked;
  for (const PromiseCase& test : promise_cases()) {
    DYNAMIC_SECTION(test.op << ": " << test.label) {
      kernels::jit::take_value_errors(Device::cpu(), nullptr);  // those of other tests
      std::string trap;
      try {
        run_op(kernels::find_op(test.op), test.inputs, test.params, Device::cpu());
      } catch (const Error& error) {
        trap = error.code();
      }
      // Where no kernel sees the mistake, two threads may write one element.
      if (!trap.empty()) CHECK((trap == "RACE" && !test.refusal.empty() && test.reports().empty()));
      CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr) == test.reports());
      CHECK(kernels::jit::take_value_errors(Device::cpu(), nullptr).empty());
    }
  }
}

TEST_CASE("an empty table is looked at though its address is null: no row is left unwritten",
          "[kernels][values]") {
  const HostTensor x = tensor_of(DType::f32, {2, 4}, {1}), sf = tensor_of(DType::f32, {2, 1}, {1});
  const HostTensor experts = tensor_of(DType::i32, {3}, {-1, 0, -1});
  const HostTensor codes = tensor_of(DType::e4m3, {2, 128}, {1});
  const HostTensor out(DType::f32, {3, 4}), codes_out(DType::e4m3, {3, 128});
  const HostTensor out_sf(DType::f32, {3, 1});
  const TensorView no_slots(nullptr, DType::i32, {2, 0});
  const auto told = [](const std::string& op) {
    return "tessera: " + op +
           ": 'token_topk_to_pos' and 'pos_to_expert' disagree on position 1\n"
           "  expected  one pair, or none and an expert of -1\n"
           "  got       0 pairs and expert 0";
  };
  CHECK(run_error("expand_to_fused",
                  {{"x", x.view()},
                   {"token_topk_to_pos", no_slots},
                   {"pos_to_expert", experts.view()},
                   {"out", out.view()}},
                  {}) == told("expand_to_fused"));
  CHECK(run_error("expand_to_fused_with_sf",
                  {{"x", codes.view()},
                   {"x_sf", sf.view()},
                   {"token_topk_to_pos", no_slots},
                   {"pos_to_expert", experts.view()},
                   {"out", codes_out.view()},
                   {"out_sf", out_sf.view()}},
                  {{"num_per_channels", int64_t{128}}}) == told("expand_to_fused_with_sf"));
}

TEST_CASE("values are checked without tokens too", "[kernels][values]") {
  const HostTensor bias(DType::f32, {4}), map = tensor_of(DType::i32, {4, 1}, {0, 1, 2, 9});
  const HostTensor count = tensor_of(DType::i32, {4}, {1});
  const TensorView none(nullptr, DType::f32, {0, 4});
  CHECK(run_error("top2_sum_gate",
                  {{"logits", none},
                   {"bias", bias.view()},
                   {"to_physical_map", map.view()},
                   {"logical_count", count.view()},
                   {"topk_idx", TensorView(nullptr, DType::i64, {0, 2})},
                   {"topk_weights", TensorView(nullptr, DType::f32, {0, 2})}},
                  {{"num_topk", int64_t{2}}, {"scoring_func", std::string("sigmoid")}}) ==
        "tessera: top2_sum_gate: argument 'to_physical_map' has a value out of range\n"
        "  expected  at most 3\n"
        "  got       9 at [3, 0]");
}
