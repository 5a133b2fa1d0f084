// Cases as text: what a call was, in the words of Case.

#include "kernels/signature/case.h"

#include <string>

#include "kernels/registry/all_ops.h"
#include "kernels/signature/table.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

std::string text_of(const Op& op, const std::string& text) {
  const Case one(parsed(op), text);
  const Tensors inputs = one.inputs();
  return case_text(Call(parsed(op), inputs, one.params()));
}

TEST_CASE("a call says which case it is", "[signature]") {
  CHECK(
      text_of(per_token_cast_op,
              "num_per_channels=128 x.strides=512,1 format=e4m3 round_sf=true x=bf16 H=256 T=5") ==
      "T=5 H=256 x=bf16 x.strides=512,1 format=e4m3 num_per_channels=128 round_sf=true");
  CHECK(text_of(norm_fn_fwd_op, "T=600 n=4 H=256 norm_weight=given") ==
        "T=600 n=4 H=256 M=24 norm_weight=given");
}

TEST_CASE("several token dimensions are one in the case of a call", "[signature]") {
  const ParsedOp& op = parsed(norm_fn_fwd_op);
  const Case one(op, "T=6 n=4 H=256");
  Tensors inputs = one.inputs();
  inputs["residual"] = TensorView(nullptr, DType::bf16, {2, 3, 4, 256}, Device::cpu());
  CHECK(case_text(Call(op, inputs, one.params())) == "T=6 n=4 H=256 M=24");
}

TEST_CASE("the case of a call has its inputs and parameters", "[signature]") {
  for (const Op* op : all_ops()) {
    const ParsedOp& of_op = parsed(*op);
    for (const std::string_view cases : {op->examples, op->bench}) {
      for (const std::string& line : case_lines(cases)) {
        const Case first(of_op, line);
        const Tensors inputs = first.inputs();
        const std::string text = case_text(Call(of_op, inputs, first.params()));
        CAPTURE(op->name, line, text);
        const Case second(of_op, text);
        CHECK(second.params() == first.params());
        const Tensors again = second.inputs();
        REQUIRE(again.size() == inputs.size());
        for (const auto& [name, view] : inputs) {
          REQUIRE(again.contains(name));
          CHECK(to_string(again.at(name)) == to_string(view));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
