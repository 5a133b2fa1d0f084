// A user's kernel as an op: its table, its cases, its calls, and what is wrong with a registration.

#include "tools/lib/own_kernel.h"

#include <cstring>
#include <limits>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/signature/param_grammar.h"
#include "tests/support/catch.h"
#include "tools/lib/calls/example.h"
#include "tools/lib/calls/kernel_op.h"
#include "tools/lib/calls/op_call.h"
#include "tools/lib/calls/op_check.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/images/bundle_maker.h"

namespace tessera::tools {
namespace {

/// y = scale * x + bias, x with a row pitch; rows a multiple of 4.
ir::Kernel scaled() {
  dsl::Builder k("scaled");
  auto rows = k.dim("rows", {.multiple_of = 4});
  auto pitch = k.stride("pitch");
  auto x = k.input("x", DType::f32, {rows, 8}, {.strides = {pitch, 1}, .align = 4});
  auto bias = k.input("bias", DType::f32, {8}, {.optional = true});
  auto y = k.output("y", DType::f32, {rows, 8});
  auto scale = k.scalar("scale", DType::f32);
  auto at = k.launch({rows}, {.threads = 32});
  k.parallel({8}, [&](auto c) { y(at.x, c) = x(at.x, c) * scale; });
  k.if_present(bias, [&] { k.parallel({8}, [&](auto c) { y(at.x, c) = y(at.x, c) + bias(c); }); });
  return k.finish();
}

/// How often each id comes; `step` is what one counts.
ir::Kernel histogram() {
  dsl::Builder k("histogram");
  auto n = k.dim("n"), bins = k.dim("bins");
  auto ids = k.input("ids", DType::i32, {n});
  auto counts = k.output("counts", DType::i32, {bins});
  auto step = k.scalar("step", DType::i32);
  auto twice = k.scalar("twice", DType::boolean);
  auto at = k.launch({n}, {.threads = 32});
  k.if_(k.thread() == 0, [&] {
    k.atomic_add(counts(ids(at.x)), step);
    k.if_(twice, [&] { k.atomic_add(counts(ids(at.x)), step); });
  });
  return k.finish();
}

ir::Kernel fixed() {
  dsl::Builder k("fixed");
  auto x = k.input("x", DType::u8, {4});
  auto y = k.output("y", DType::u8, {4});
  k.launch({1}, {.threads = 32});
  k.parallel({4}, [&](auto i) { y(i) = x(i); });
  return k.finish();
}

const std::string kCase = "rows=4 pitch=12 scale=0.5";

std::string message(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string case_message(const std::string& text) {
  return message([&] { op_of("scaled", scaled(), {text}); });
}

template <class T>
StoredTensor stored(const std::string& name, DType dtype, Dims shape, const std::vector<T>& data) {
  StoredTensor tensor{name, dtype, shape, HostBuffer(num_elements(shape) * bytes(dtype))};
  REQUIRE(tensor.data.size() == static_cast<int64_t>(data.size() * sizeof(T)));
  std::memcpy(tensor.data.data(), data.data(), data.size() * sizeof(T));
  return tensor;
}

template <class T>
std::vector<T> values(const Safetensors& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  std::vector<T> result(static_cast<size_t>(tensor->data.size()) / sizeof(T));
  std::memcpy(result.data(), tensor->data.data(), result.size() * sizeof(T));
  return result;
}

Safetensors run(const kernels::OpInfo& op, const std::vector<std::string>& params,
                const Safetensors& inputs) {
  OpCall call(op, kernels::parse_params(op, params), inputs, Device::cpu());
  call.run();
  return call.results();
}

TEST_CASE("a kernel's declaration is its table", "[own]") {
  CHECK(list_text({op_of("scaled", scaled(), {kCase})}, "") ==
        "scaled (own): \n"
        "  in     x: f32 [rows, 8] strides [pitch, 1]\n"
        "  in     bias?: f32 [8] row_major\n"
        "  inout  y?: f32 [rows, 8] row_major\n"
        "  -p     scale: float\n");
  CHECK(list_text({op_of("histogram", histogram(), {"n=1 bins=1 step=1 twice=true"})}, "") ==
        "histogram (own): \n"
        "  in     ids: i32 [n] row_major\n"
        "  inout  counts?: i32 [bins] row_major\n"
        "  -p     bins: int >= 0 or none = none\n"
        "  -p     step: int\n"
        "  -p     twice: bool\n");
  const kernels::OpInfo op = op_of("fixed", fixed(), {});
  CHECK(op.params.empty());
  REQUIRE(op.examples.size() == 1);
  CHECK(op.examples.front().label == "fixed shapes");
  CHECK(check_example(op, op.examples.front(), 1).error.empty());
}

TEST_CASE("a case says dims, scalars, values and what is absent", "[own]") {
  const kernels::OpInfo op =
      op_of("scaled", scaled(), {kCase, "rows=8 pitch=8 scale=1e-3 bias=none"});
  REQUIRE(op.examples.size() == 2);
  REQUIRE(op.bench.size() == 2);
  const kernels::BenchCase& first = op.examples[0];
  CHECK(first.label == kCase);
  REQUIRE(first.inputs.size() == 2);
  CHECK(first.inputs[0].shape == Dims{4, 8});
  CHECK(first.inputs[0].strides == Dims{12, 1});
  CHECK(std::get<double>(first.params.at("scale")) == 0.5);
  REQUIRE(op.examples[1].inputs.size() == 1);
  for (const kernels::BenchCase& one : op.examples) CHECK(check_example(op, one, 1).error.empty());

  const kernels::OpInfo counting =
      op_of("histogram", histogram(), {"n=1000 bins=256 step=1 twice=false ids=3..250"});
  const auto& ids = counting.examples.front().inputs.front().values;
  REQUIRE(ids);
  int64_t lowest = 256, highest = 0;
  for (int64_t i = 0; i < 10000; ++i) {
    lowest = std::min(lowest, ids(i));
    highest = std::max(highest, ids(i));
  }
  CHECK(lowest == 3);
  CHECK(highest == 250);
  CHECK(check_example(counting, counting.examples.front(), 1).error.empty());
}

TEST_CASE("a user's kernel runs on the tensors of a file", "[own]") {
  const kernels::OpInfo op = op_of("scaled", scaled(), {kCase});
  Safetensors file;
  std::vector<float> x(32), bias(8, 100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  file.tensors.push_back(stored("x", DType::f32, {4, 8}, x));
  file.metadata["strides.x"] = "11,1";
  std::vector<float> plain = x, with_bias = x;
  for (float& value : plain) value *= 2;
  for (float& value : with_bias) value = value * 2 + 100;
  CHECK(values<float>(run(op, {"scale=2"}, file), "y") == plain);
  file.tensors.push_back(stored("bias", DType::f32, {8}, bias));
  CHECK(values<float>(run(op, {"scale=2"}, file), "y") == with_bias);
}

TEST_CASE("an output that a kernel also reads begins as zeros or as the file has it", "[own]") {
  const kernels::OpInfo op =
      op_of("histogram", histogram(), {"n=1 bins=1 step=1 twice=true ids=0..0"});
  Safetensors file;
  file.tensors.push_back(stored("ids", DType::i32, {4}, std::vector<int32_t>{0, 2, 2, 1}));
  CHECK(values<int32_t>(run(op, {"bins=3", "step=5", "twice=false"}, file), "counts") ==
        std::vector<int32_t>{5, 5, 10});
  CHECK(message([&] {
          run(op, {"step=5", "twice=false"}, file);
        }) ==
        "tessera: histogram: parameter 'bins' is missing\n"
        "  expected  a number, where no tensor says it\n"
        "  got       none");
  file.tensors.push_back(stored("counts", DType::i32, {3}, std::vector<int32_t>{100, 200, 300}));
  CHECK(values<int32_t>(run(op, {"step=1", "twice=true"}, file), "counts") ==
        std::vector<int32_t>{102, 202, 304});
  CHECK(message([&] {
          run(op, {"bins=4", "step=1", "twice=true"}, file);
        }) ==
        "tessera: histogram: parameter 'bins' has a wrong value\n"
        "  expected  3 (from counts dim 0)\n"
        "  got       4");
}

TEST_CASE("tensors that a user's kernel does not take are argument errors", "[own]") {
  const kernels::OpInfo op = op_of("scaled", scaled(), {kCase});
  const auto told = [&](StoredTensor x) {
    Safetensors file;
    file.tensors.push_back(std::move(x));
    return message([&] { run(op, {"scale=2"}, file); });
  };
  CHECK(told(stored("x", DType::i32, {4, 8}, std::vector<int32_t>(32))) ==
        "tessera: scaled: argument 'x' has the wrong dtype\n"
        "  expected  f32[rows, 8]\n"
        "  got       i32[4, 8]");
  CHECK(told(stored("x", DType::f32, {32}, std::vector<float>(32))) ==
        "tessera: scaled: argument 'x' has the wrong rank\n"
        "  expected  f32[rows, 8]\n"
        "  got       f32[32]");
  CHECK(told(stored("x", DType::f32, {4, 9}, std::vector<float>(36)))
            .find("argument 'x' has the wrong shape\n  expected  extent 8 in dimension 1") !=
        std::string::npos);
  CHECK(told(stored("x", DType::f32, {5, 8}, std::vector<float>(40)))
            .find("expected  rows (dimension 0) a multiple of 4") != std::string::npos);
  CHECK(told(stored("xx", DType::f32, {4, 8}, std::vector<float>(32)))
            .find("tessera: scaled: unknown tensor 'xx'") == 0);
}

TEST_CASE("a case of a user's kernel that is wrong says what and where", "[own]") {
  CHECK(case_message("pitch=8 scale=1") ==
        "tessera: scaled: case 'pitch=8 scale=1': parameter 'rows' is missing\n"
        "  expected  int >= 0\n"
        "  got       none");
  CHECK(case_message("row=4 pitch=8 scale=1") ==
        "tessera: scaled: case 'row=4 pitch=8 scale=1': unknown parameter 'row'\n"
        "  expected  rows, pitch, scale\n"
        "  got       row=4\n"
        "  hint      did you mean 'rows'?");
  CHECK(case_message("rows=four pitch=8 scale=1") ==
        "tessera: scaled: case 'rows=four pitch=8 scale=1': parameter 'rows' cannot be read\n"
        "  expected  an int, such as 128\n"
        "  got       'four'");
  CHECK(case_message("rows=4 pitch=8 scale=1e").find("parameter 'scale' cannot be read") !=
        std::string::npos);
  CHECK(case_message("rows=-4 pitch=8 scale=1").find("expected  int >= 0\n  got       -4") !=
        std::string::npos);
  CHECK(case_message("rows=4 pitch=8 scale=1 rows=8").find("parameter 'rows' is given twice") !=
        std::string::npos);
  CHECK(case_message("rows=4, pitch=8").find("  got       '4,'") != std::string::npos);
  CHECK(case_message("rows 4").find("parameter 'rows' has no value") != std::string::npos);
  CHECK(case_message(kCase + " x=0..4") ==
        "tessera: scaled: case '" + kCase +
            " x=0..4': tensor 'x' cannot have these values\n"
            "  expected  no word: only values of integers can be chosen\n"
            "  got       '0..4'");
  CHECK(case_message(kCase + " bias=given")
            .find("expected  none, for an optional tensor that is not given") != std::string::npos);
  CHECK(case_message(kCase + " bias=none bias=none").find("tensor 'bias' is described twice") !=
        std::string::npos);
  for (const char* range : {"3", "5..4", "0..3000000000", "a..b", "..", "0..4x"}) {
    CAPTURE(range);
    CHECK(message([&] {
            op_of("histogram", histogram(),
                  {"n=1 bins=1 step=1 twice=true ids=" + std::string(range)});
          }).find("  expected  two values of i32 in order, such as 0..15\n") != std::string::npos);
  }
}

TEST_CASE("a case that the kernel's declaration refuses is told at the call", "[own]") {
  const kernels::OpInfo op = op_of("scaled", scaled(), {"rows=5 pitch=8 scale=1"});
  CHECK(check_example(op, op.examples.front(), 1)
            .error.find(
                "tessera: scaled: argument 'x' has an extent 5 that the kernel does not take\n"
                "  expected  rows (dimension 0) a multiple of 4\n"
                "  got       f32[5, 8]\n"
                "  at        ") == 0);
}

TEST_CASE("a user's kernel has a name of its own", "[own]") {
  const auto told = [](const std::string& name, int copies = 1) {
    const Registration own{name, fixed, {}, SourceLoc{"mine.cpp", 7}};
    return message([&] {
      with_own(kernels::ops(), std::vector<Registration>(static_cast<size_t>(copies), own));
    });
  };
  CHECK(told("mine") == "no error");
  CHECK(told("mine", 2) ==
        "tessera: mine: two ops have one name\n"
        "  expected  another name than that of the kernel of mine.cpp:7\n"
        "  got       'mine'\n"
        "  at        mine.cpp:7");
  CHECK(told("transpose") ==
        "tessera: transpose: two ops have one name\n"
        "  expected  another name than that of a shipped op\n"
        "  got       'transpose'\n"
        "  at        mine.cpp:7");
  for (const char* word : {"quant", "all", "own"}) {
    CHECK(told(word).find("a kernel has a name that means several ops\n") != std::string::npos);
  }
  for (const char* word : {"", "two words", "7up", "a-b"}) {
    CHECK(told(word).find("expected  letters, digits and _, at most 64, no digit first\n") !=
          std::string::npos);
  }
}

TEST_CASE("a wrong case is told with the line of its registration", "[own]") {
  const std::string text = message([] {
    with_own({}, {{"scaled", scaled, {"rows=4"}, SourceLoc{"mine.cpp", 7}}});
  });
  CHECK(text.find("tessera: scaled: case 'rows=4': parameter 'pitch' is missing\n") == 0);
  CHECK(text.find("\n  at        mine.cpp:7") != std::string::npos);
}

TEST_CASE("a kernel that cannot be recorded is told with its own line", "[own]") {
  const std::string text = message([] {
    with_own({}, {{"twice",
                   [] {
                     dsl::Builder k("twice");
                     k.input("x", DType::f32, {4});
                     k.input("x", DType::f32, {4});
                     return k.finish();
                   },
                   {},
                   SourceLoc{"mine.cpp", 7}}});
  });
  CHECK(text.find("two tensors are called 'x'") != std::string::npos);
  CHECK(text.find("own_kernel_test.cpp:") != std::string::npos);
}

TEST_CASE("a user's kernel goes into a bundle for a target that is not here", "[own]") {
  const kernels::OpInfo op = op_of("scaled", scaled(), {kCase, "rows=8 pitch=9 scale=1"});
  const auto requests = requests_of(op, runtime::Target{9, 0, 'a'});
  REQUIRE(requests.size() == 1);  // one kernel for every case
  CHECK(requests.front().op == "scaled");
  CHECK(requests.front().emit().text.find("tessera_scaled(") != std::string::npos);
  CHECK(kernels_of(op, op.examples.front()).size() == 1);
}

}  // namespace
}  // namespace tessera::tools
