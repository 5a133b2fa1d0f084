#include "kernels/op_call.h"

#include <array>
#include <optional>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

/// An op that notes what it is called with.
struct NotingOp {
  NotingOp() {
    op.name = "noting_op";
    op.params = {flag("flag", false), number("limit", ParamValue()),
                 word("dtype", {"bf16", "e4m3"}, "bf16"), tuple("block", ParamValue()),
                 count("repeat", "", 3)};
    op.run = [this](const Tensors& given, const Params& params, Stream) {
      for (const auto& [name, view] : given) said += name + " ";
      for (const auto& [name, value] : params) said += name + "=" + to_string(value) + " ";
    };
  }
  NotingOp(const NotingOp&) = delete;

  OpInfo op;
  std::string said;
};

TEST_CASE("an op gets the tensors and options of its C++ call by name", "[op]") {
  NotingOp noting;
  float value = 0;
  const TensorView x(&value, DType::f32, {1}, Device::cpu()), none;
  call_op(noting.op, {{"x", x}, {"bias", none}}, {}, nullptr);
  CHECK(noting.said == "x block=none dtype=bf16 flag=false limit=none repeat=3 ");
  noting.said.clear();
  call_op(noting.op, {{"x", x}, {"bias", x}},
          {{"flag", true},
           {"limit", std::optional<float>(0.5f)},
           {"dtype", DType::e4m3},
           {"block", std::array<int64_t, 2>{1, 128}},
           {"repeat", int32_t{7}}},
          nullptr);
  CHECK(noting.said == "bias x block=1,128 dtype=e4m3 flag=true limit=0.5 repeat=7 ");
  noting.said.clear();
  call_op(noting.op, {{"x", x}},
          {{"limit", std::optional<float>()}, {"dtype", std::string("e4m3")}}, nullptr);
  CHECK(noting.said == "x block=none dtype=e4m3 flag=false limit=none repeat=3 ");
}

TEST_CASE("an option of a C++ call that is none of its values is refused by name", "[op]") {
  NotingOp noting;
  std::string said;
  try {
    call_op(noting.op, {}, {{"dtype", DType::f32}}, nullptr);
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said ==
        "tessera: noting_op: parameter 'dtype' has a wrong value\n"
        "  expected  {bf16, e4m3}\n"
        "  got       f32");
  CHECK(noting.said.empty());
}

}  // namespace
}  // namespace tessera::kernels
