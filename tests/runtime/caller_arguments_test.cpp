// Arguments of a caller's own kernel, and the errors for those that are not as he declared them.

#include <numeric>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/overlap.h"
#include "tests/support/catch.h"

using namespace tessera;
namespace jit = kernels::jit;

namespace {

/// y(i) = x(63 - i) + 1, f32 [64].
ir::Kernel mirror(bool may_alias = false) {
  dsl::Builder k("mirror");
  auto x = k.input("x", DType::f32, {64}, {.may_alias = may_alias});
  auto y = k.output("y", DType::f32, {64}, {.may_alias = may_alias});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { y(i) = x(63 - i) + 1.0f; });
  return k.finish();
}

/// y = x * 2, f32 [rows, 4] with a pitch.
ir::Kernel twice_in_rows() {
  dsl::Builder k("twice_in_rows");
  auto rows = k.dim("rows");
  auto pitch = k.stride("pitch");
  auto x = k.input("x", DType::f32, {rows, 4}, {.strides = {pitch, 1}, .align = 4});
  auto y = k.output("y", DType::f32, {rows, 4}, {.strides = {pitch, 1}, .align = 4});
  auto at = k.launch({rows}, {.threads = 32});
  k.parallel({4}, [&](dsl::Value c) { y(at.x, c) = x(at.x, c) * 2.0f; });
  return k.finish();
}

/// out(0) = a, in the dtype of the scalar.
ir::Kernel kept(DType dtype) {
  dsl::Builder k("kept");
  auto a = k.scalar("a", dtype);
  auto out = k.output("out", dtype, {1});
  k.launch({1}, {.threads = 32});
  k.if_(k.thread() < 1, [&] { out(0) = a; });
  return k.finish();
}

/// The form in which a scalar of a declared dtype is passed: the bits of the value, as many as it has.
int64_t passed(DType dtype, jit::Scalar value) {
  int64_t bits = 0;
  jit::run(kept(dtype), std::vector{TensorView(&bits, dtype, {1})}, {{value}}, nullptr);
  return bits;
}

template <class Fn>
Error caught(const Fn& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error({});
}

std::string what_of(const Error& error) {
  return error.fields().what;
}

}  // namespace

TEST_CASE("one buffer as input and output of an own kernel is refused") {
  std::vector<float> a(128);
  const TensorView x(a.data(), DType::f32, {64});
  const Error same = caught([&] { jit::run(mirror(), {{x, x}}, {}, nullptr); });
  CHECK(same.kind() == ErrorKind::argument);
  CHECK(same.argument() == "y");
  const std::string text = same.what();
  CHECK(text.find("tessera: mirror: argument 'y' shares memory with 'x'\n"
                  "  expected  an output with memory of its own\n"
                  "  got       y of 256 bytes at 0x") == 0);
  CHECK(text.find(", x of 256 bytes at 0x") != std::string::npos);
  CHECK(same.hint() == "if that is meant, declare both with {.may_alias = true}");
  CHECK(text.find("auto y = k.output(") != std::string::npos);
  CHECK(text.find("auto x = k.input(") != std::string::npos);

  const TensorView eight_further(a.data() + 8, DType::f32, {64});
  CHECK(what_of(caught([&] {
          jit::run(mirror(), {{x, eight_further}}, {}, nullptr);
        })) == "argument 'y' shares memory with 'x'");
  // Again, when the kernel is ready.
  const jit::Function function(mirror());
  const TensorView behind(a.data() + 64, DType::f32, {64});
  function({{x, behind}}, {}, nullptr);
  CHECK(a[64] == 1.0f);
  CHECK(what_of(caught([&] {
          function({{x, x}}, {}, nullptr);
        })) == "argument 'y' shares memory with 'x'");
}

TEST_CASE("two outputs of an own kernel in one memory are refused, two inputs are not") {
  dsl::Builder k("both");
  auto a = k.input("a", DType::f32, {64});
  auto b = k.input("b", DType::f32, {64});
  auto sum = k.output("sum", DType::f32, {64});
  auto difference = k.output("difference", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) {
    sum(i) = a(i) + b(i);
    difference(i) = a(i) - b(i);
  });
  const jit::Function function(k.finish());
  std::vector<float> in(64, 3.0f), out(64), other(64);
  const TensorView x(in.data(), DType::f32, {64}), y(out.data(), DType::f32, {64}),
      z(other.data(), DType::f32, {64});
  function({{x, x, y, z}}, {}, nullptr);
  CHECK(out[5] == 6.0f);
  CHECK(other[5] == 0.0f);
  CHECK(what_of(caught([&] {
          function({{x, x, y, y}}, {}, nullptr);
        })) == "argument 'sum' shares memory with 'difference'");
}

TEST_CASE("columns of one buffer lie side by side and are no overlap") {
  std::vector<float> buffer(8 * 3);
  std::iota(buffer.begin(), buffer.end(), 0.0f);
  const TensorView left(buffer.data(), DType::f32, {3, 4}, {8, 1}, Device::cpu());
  const TensorView right(buffer.data() + 4, DType::f32, {3, 4}, {8, 1}, Device::cpu());
  jit::run(twice_in_rows(), {{left, right}}, {}, nullptr);
  CHECK(buffer[8 + 4 + 3] == 2 * buffer[8 + 3]);
}

TEST_CASE("tensors behind packed e2m1 codes share no memory with them") {
  using kernels::disjoint;
  std::vector<std::byte> bytes(64);
  const auto codes = [&](Dims shape, Dims strides) {
    return TensorView(bytes.data(), DType::e2m1, shape, strides, Device::cpu());
  };
  const auto at = [&](int64_t byte) {
    return TensorView(bytes.data() + byte, DType::i8, {2, 4}, {16, 1}, Device::cpu());
  };
  CHECK(codes({32}, {1}).span_bytes() == 16);
  CHECK(codes({33}, {1}).span_bytes() == 17);
  CHECK_FALSE(disjoint(codes({33}, {1}), at(16)));
  CHECK(disjoint(codes({32}, {1}), at(16)));
  // Rows of 4 bytes, 16 bytes apart, and rows that end within a byte.
  CHECK(disjoint(codes({2, 8}, {32, 1}), at(4)));
  CHECK(disjoint(at(12), codes({2, 8}, {32, 1})));
  CHECK_FALSE(disjoint(codes({2, 9}, {32, 1}), at(4)));
  CHECK_FALSE(disjoint(codes({2, 8}, {33, 1}), at(4)));
}

TEST_CASE("one buffer as input and output is taken where both are declared may_alias") {
  std::vector<float> a(64, 1.0f);
  const TensorView x(a.data(), DType::f32, {64});
  dsl::Builder k("twice");
  auto in = k.input("x", DType::f32, {64}, {.may_alias = true});
  auto out = k.output("y", DType::f32, {64}, {.may_alias = true});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { out(i) = in(i)*2.0f; });
  const jit::TrapScope traps;
  jit::run(k.finish(), {{x, x}}, {}, nullptr);
  CHECK(a == std::vector<float>(64, 2.0f));
  // The order between iterations is the author's to keep.
  const Error race = caught([&] { jit::run(mirror(true), {{x, x}}, {}, nullptr); });
  CHECK(race.kind() == ErrorKind::trap);
  CHECK(race.code() == "RACE");
}

TEST_CASE("an integer for a float scalar is refused, not taken for its bits") {
  std::vector<float> out(1);
  const TensorView view(out.data(), DType::f32, {1});
  const Error error = caught([&] { jit::run(kept(DType::f32), {{view}}, {{2}}, nullptr); });
  CHECK(error.kind() == ErrorKind::argument);
  CHECK(error.argument() == "a");
  const std::string text = error.what();
  CHECK(text.find("tessera: kept: scalar 'a' has the wrong type\n"
                  "  expected  f32\n"
                  "  got       the integer 2\n") == 0);
  CHECK(text.find("auto a = k.scalar(\"a\", dtype);") != std::string::npos);
  jit::run(kept(DType::f32), {{view}}, {{2.0f}}, nullptr);
  CHECK(out[0] == 2.0f);
}

TEST_CASE("a scalar is checked against its declared dtype") {
  const auto refused = [](DType dtype, jit::Scalar value) {
    const Error error = caught([&] { passed(dtype, value); });
    return error.fields().what + ": " + error.expected() + ", got " + error.got();
  };
  CHECK(refused(DType::i32, 0.5f) == "scalar 'a' has the wrong type: i32, got the float 0.5");
  CHECK(refused(DType::i32, 2.0) == "scalar 'a' has the wrong type: i32, got the float 2");
  CHECK(refused(DType::i32, true) == "scalar 'a' has the wrong type: i32, got the bool true");
  CHECK(refused(DType::boolean, 1) == "scalar 'a' has the wrong type: bool, got the integer 1");
  CHECK(refused(DType::f32, false) == "scalar 'a' has the wrong type: f32, got the bool false");
  CHECK(refused(DType::f32, 1e300) == "scalar 'a' is out of range: f32, got 1e+300");
  CHECK(refused(DType::f16, 65520.0f) == "scalar 'a' is out of range: f16, got 65520");
  CHECK(refused(DType::e4m3, 449.0f) == "scalar 'a' is out of range: e4m3, got 449");
  CHECK(refused(DType::i32, int64_t{1} << 31) == "scalar 'a' is out of range: i32, got 2147483648");
  CHECK(refused(DType::u32, -1) == "scalar 'a' is out of range: u32, got -1");
  CHECK(refused(DType::i8, 128) == "scalar 'a' is out of range: i8, got 128");
  CHECK(refused(DType::i64, ~uint64_t{0}) ==
        "scalar 'a' is out of range: i64, got 18446744073709551615");

  CHECK(passed(DType::f32, 0.1) == 0x3DCCCCCD);  // a double is rounded
  CHECK(passed(DType::f32, -0.0f) == 0x80000000);
  CHECK(passed(DType::f64, 0.1) == 0x3FB999999999999A);  // a double is a double
  CHECK(passed(DType::f64, 1e300) == 0x7E37E43C8800759C);
  CHECK(passed(DType::bf16, 1.5f) == 0x3FC0);
  CHECK(passed(DType::f16, 65504.0f) == 0x7BFF);
  CHECK(passed(DType::boolean, true) == 1);
  CHECK(passed(DType::i8, -128) == 0x80);
  CHECK(passed(DType::u32, 4294967295u) == 0xFFFFFFFF);
  CHECK(passed(DType::i64, -5) == -5);
  CHECK(passed(DType::u64, ~uint64_t{0}) == -1);
}

TEST_CASE("a wrong number of arguments is told with the list of them") {
  dsl::Builder k("scaled");
  auto rows = k.dim("rows");
  k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  k.scalar("eps", DType::f32);
  auto at = k.launch({rows}, {.threads = 64});
  y(at.x, k.thread()) = 0.0f;
  const jit::Function function(k.finish());
  std::vector<float> memory(64);
  const TensorView x(memory.data(), DType::f32, {1, 64});
  const Error one_tensor = caught([&] { function({{x}}, {}, nullptr); });
  CHECK(what_of(one_tensor) == "wrong number of arguments");
  CHECK(one_tensor.expected() == "2 tensors: x f32[rows, 64], y f32[rows, 64]; 1 scalar: eps f32");
  CHECK(one_tensor.got() == "1 tensor; 0 scalars");
  CHECK(std::string(one_tensor.what()).find("k.output(\"y\"") != std::string::npos);
}

TEST_CASE("an argument that does not fit is told with the line of its declaration") {
  std::vector<float> memory(256);
  const TensorView x(memory.data(), DType::f32, {64}), y(memory.data() + 64, DType::f32, {63});
  const Error error = caught([&] { jit::run(mirror(), {{x, y}}, {}, nullptr); });
  CHECK(what_of(error) == "argument 'y' has the wrong shape");
  CHECK(std::string(error.what()).find("auto y = k.output(\"y\", DType::f32, {64}") !=
        std::string::npos);
}

TEST_CASE("an empty ir::Kernel is the caller's mistake, not an internal error") {
  const Error error = caught([] { jit::run(ir::Kernel{}, {}, {}, nullptr); });
  CHECK(error.kind() == ErrorKind::program);
  CHECK(std::string(error.what()) ==
        "tessera: the kernel is empty\n"
        "  expected  what Builder::finish() returned\n"
        "  got       an ir::Kernel without a grid: default-constructed, or moved from");
  ir::Kernel kernel = mirror();
  const ir::Kernel taken = std::move(kernel);
  CHECK(caught([&] { jit::Function function(kernel); }).kind() == ErrorKind::program);
}

TEST_CASE("a view that cannot be is refused before any of its extents is read") {
  std::vector<float> memory(256);
  const TensorView good(memory.data(), DType::f32, {64});
  const TensorView y(memory.data() + 64, DType::f32, {64});
  const jit::Function function(mirror());
  const auto told = [&](const TensorView& x) {
    const Error error = caught([&] { function({{x, y}}, {}, nullptr); });
    CHECK(error.kind() == ErrorKind::argument);
    CHECK(error.argument() == "x");
    return error.fields().what + ": " + error.expected() + ", got " + error.got();
  };
  TensorView x = good;
  x.shape.rank = 200;
  x.strides.rank = 200;
  CHECK(told(x) == "argument 'x' is no possible view: 0 to 8 dimensions, got 200");
  CHECK(to_string(x) == "f32 of rank 200");
  x.shape.rank = -1;
  CHECK(told(x) == "argument 'x' is no possible view: 0 to 8 dimensions, got -1");
  x = good;
  x.strides.rank = 7;
  CHECK(told(x) == "argument 'x' is no possible view: 1 strides, like extents, got 7");
  x = good;
  x.dtype = static_cast<DType>(200);
  CHECK(told(x) == "argument 'x' is no possible view: a dtype, number 0 to 15, got number 200");
  CHECK(to_string(x) == "no dtype[64]");
  x = good;
  x.device = Device::cuda(-1);
  const Error device = caught([&] {
    function({{x, TensorView(memory.data() + 64, DType::f32, {64}, x.device)}}, {}, nullptr);
  });
  CHECK(device.kind() == ErrorKind::argument);
  CHECK(what_of(device) == "argument 'x' is no possible view");
}

TEST_CASE("nine extents are an argument error") {
  const Error error = caught([] { Dims{1, 1, 1, 1, 1, 1, 1, 1, 1}; });
  CHECK(error.kind() == ErrorKind::argument);
  CHECK(std::string(error.what()) ==
        "tessera: a tensor has too many dimensions\n"
        "  expected  at most 8\n"
        "  got       9");
}

TEST_CASE("a const vector is an input as it is, and no output") {
  const std::vector<float> x(64, 1.0f);
  std::vector<float> y(64);
  const TensorView in(x.data(), DType::f32, {64});
  CHECK(in.read_only);
  const jit::Function function(mirror());
  function({{in, TensorView(y.data(), DType::f32, {64})}}, {}, nullptr);
  CHECK(y[3] == 2.0f);
  const std::vector<float> constant(64);
  const Error error = caught([&] {
    function({{in, TensorView(constant.data(), DType::f32, {64}, {1}, Device::cpu())}}, {},
             nullptr);
  });
  CHECK(error.argument() == "y");
  CHECK(what_of(error) == "argument 'y' is written, but its memory is constant");
  CHECK(std::string(error.what()).find("auto y = k.output(") != std::string::npos);
  CHECK(constant[3] == 0.0f);
}

TEST_CASE("a counter of one element needs the alignment of its dtype alone") {
  dsl::Builder k("counted");
  auto x = k.input("x", DType::i32, {64}, {.align = 4});
  auto count = k.output("count", DType::i32, {1});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](dsl::Value i) { k.atomic_add(count(0), x(i)); });
  const std::vector<int32_t> ones(64, 1);
  alignas(16) int32_t counts[4] = {};
  jit::run(k.finish(),
           {{TensorView(ones.data(), DType::i32, {64}), TensorView(&counts[1], DType::i32, {1})}},
           {}, nullptr);
  CHECK(counts[1] == 64);
}
