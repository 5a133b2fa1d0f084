#include "kernels/op_call.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/ops.h"
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

TEST_CASE("a view that cannot be is refused before an op reads its extents", "[op]") {
  NotingOp noting;
  float value = 0;
  TensorView x(&value, DType::f32, {1}, GENERATE(Device::cpu(), Device::cuda(0)));
  const auto told = [&] {
    try {
      call_op(noting.op, {{"x", x}}, {}, nullptr);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  x.shape.rank = x.strides.rank = 200;
  CHECK(told() ==
        "tessera: noting_op: argument 'x' is no possible view\n"
        "  expected  0 to 8 dimensions\n"
        "  got       200");
  x.shape.rank = x.strides.rank = -1;
  CHECK(told().find("got       -1") != std::string::npos);
  x.shape.rank = x.strides.rank = 1;
  x.dtype = static_cast<DType>(200);
  CHECK(told().find("got       number 200") != std::string::npos);
  x.dtype = DType::f32;
  x.strides.rank = 0;
  CHECK(told().find("expected  1 strides, like extents") != std::string::npos);
  CHECK(noting.said.empty());
}

TEST_CASE("an output of constant memory is refused, an input is not", "[op]") {
  const std::vector<float> x(6, 1.0f);
  std::vector<float> out(6);
  transpose({.x = TensorView(x.data(), DType::f32, {2, 3}),
             .out = TensorView(out.data(), DType::f32, {3, 2})},
            nullptr);
  CHECK(out == x);
  const std::vector<float> constant(6);
  std::string said;
  try {
    transpose({.x = TensorView(x.data(), DType::f32, {2, 3}),
               .out = TensorView(constant.data(), DType::f32, {3, 2})},
              nullptr);
  } catch (const Error& error) {
    said = error.what();
  }
  CHECK(said ==
        "tessera: transpose: argument 'out' is written, but its memory is constant\n"
        "  expected  a view made from a pointer to memory that is not const\n"
        "  got       f32[3, 2], read only");
  CHECK(constant == std::vector<float>(6));
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

TEST_CASE("a call says how much scratch memory it needs, and runs with it", "[op][workspace]") {
  std::vector<int64_t> ids(5000 * 2);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 4);
  std::array<int32_t, 4> counts{};
  GroupCount call = {.group_idx = TensorView(ids.data(), DType::i64, {5000, 2}, Device::cpu()),
                     .out = TensorView(counts.data(), DType::i32, {4}, Device::cpu()),
                     .num_groups = 4};
  const auto told = [&] {
    try {
      group_count(call, nullptr);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(told() ==
        "tessera: group_count: argument 'workspace' is missing\n"
        "  expected  i32[20]\n"
        "  got       group_idx, out\n"
        "  hint      workspace_of(call) gives its dtype and shape");
  call.workspace = workspace_of(call);
  CHECK(to_string(call.workspace) == "i32[20]");
  std::vector<int32_t> memory(static_cast<size_t>(call.workspace.size()), 77);  // need not be zero
  call.workspace.data = memory.data();
  CHECK(told() == "no error");
  CHECK(counts == std::array<int32_t, 4>{2500, 2500, 2500, 2500});
}

TEST_CASE("a call that needs no scratch memory takes none", "[op][workspace]") {
  std::array<int64_t, 2> ids = {1, -1};
  std::array<int32_t, 2> counts{};
  GroupCount call = {.group_idx = TensorView(ids.data(), DType::i64, {1, 2}, Device::cpu()),
                     .out = TensorView(counts.data(), DType::i32, {2}, Device::cpu()),
                     .num_groups = 2};
  call.workspace = workspace_of(call);
  CHECK(call.workspace.size() == 0);
  group_count(call, nullptr);
  CHECK(counts == std::array<int32_t, 2>{0, 1});
}

TEST_CASE("a tensor without elements may have an address that none of its elements could have",
          "[op]") {
  alignas(8) std::array<char, 16> bytes{};
  std::array<int32_t, 2> counts = {7, 7};
  GroupCount call = {.group_idx = TensorView(bytes.data() + 1, DType::i64, {65, 0}, Device::cpu()),
                     .out = TensorView(counts.data(), DType::i32, {2}, Device::cpu()),
                     .num_groups = 2};
  call.workspace = workspace_of(call);
  group_count(call, nullptr);
  CHECK(counts == std::array<int32_t, 2>{0, 0});
}

}  // namespace
}  // namespace tessera::kernels
