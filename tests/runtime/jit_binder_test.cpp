// How tensors become the parameters of a kernel, and what is said when they do not fit.

#include <limits>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/argument_binder.h"
#include "tests/support/catch.h"

using namespace tessera;
using kernels::jit::ArgumentBinder;
using kernels::jit::Author;
using kernels::jit::Binding;
using kernels::jit::HostExpr;
using kernels::jit::Scalar;

namespace {

/// An address that no other tensor reaches; nothing reads behind it.
void* apart() {
  static uintptr_t next = 0;
  next += uintptr_t{1} << 40;
  return reinterpret_cast<void*>(next);
}
TensorView view(DType dtype, Dims shape) {
  return {apart(), dtype, shape};
}
TensorView view(DType dtype, Dims shape, Dims strides) {
  return {apart(), dtype, shape, strides, Device::cpu()};
}

/// scale(x [tokens, 64 pitched], out [tokens, 64], bias [64] or absent; count)
ir::Kernel scale_kernel() {
  dsl::Builder k("scale");
  auto tokens = k.dim("tokens");
  auto pitch = k.stride("pitch", {.multiple_of = 8});
  k.input("x", DType::bf16, {tokens, 64}, {.strides = {pitch, 1}});
  k.input("bias", DType::f32, {64}, {.optional = true});
  auto out = k.output("out", DType::f32, {tokens, 64});
  k.scalar("count", DType::i32);
  auto at = k.launch({ceil_div(tokens, 16), 2}, {.threads = 128});
  out(at.x, k.thread() % 64) = 0.0f;
  return k.finish();
}

struct Call {
  TensorView x = view(DType::bf16, {40, 64}, {72, 1});
  TensorView bias = view(DType::f32, {64});
  TensorView out = view(DType::f32, {40, 64});
  std::vector<Scalar> scalars = {7};

  Binding bind() const {
    const ArgumentBinder binder("scale", scale_kernel(), Author::tessera);
    return binder.bind(std::vector{x, bias, out}, scalars);
  }
  std::string error() const {
    try {
      bind();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::argument);
      return error.what();
    }
    return "no error";
  }
};

}  // namespace

TEST_CASE("dims are read off the tensors, scalars follow, the grid is computed") {
  const Binding binding = Call{}.bind();
  CHECK_FALSE(binding.empty);
  CHECK(binding.slots[0] == 40);  // tokens
  CHECK(binding.slots[1] == 72);  // pitch
  CHECK(binding.slots[2] == 7);   // count
  CHECK(binding.grid == std::array<int64_t, 3>{3, 2, 1});
  CHECK(ArgumentBinder("scale", scale_kernel(), Author::tessera).parameter_names() ==
        std::vector<std::string>{"x", "bias", "out", "tokens", "pitch", "count"});
}

TEST_CASE("the number of blocks that a device runs at once is no argument") {
  dsl::Builder k("walk");
  auto n = k.dim("n");
  auto first = k.scalar("first", DType::i32);
  auto blocks = k.device_blocks(2);
  auto last = k.scalar("last", DType::i32);
  auto out = k.output("out", DType::i32, {n});
  auto at = k.launch({min(n, blocks)});
  out(at.x) = first + last;
  const ArgumentBinder binder("walk", k.finish(), Author::caller);
  CHECK(binder.parameter_names() ==
        std::vector<std::string>{"out", "n", "first", "device_blocks_2", "last"});
  CHECK(binder.num_scalars() == 2);
  CHECK(binder.scalar_name(1) == "last");
  const TensorView out_view = view(DType::i32, {1000}, {1});
  const Scalar scalars[] = {7, 9};
  const Binding binding = binder.bind({&out_view, 1}, scalars);
  CHECK(binding.slots[1] == 7);
  CHECK(binding.slots[2] == 2 * 132);  // on the CPU
  CHECK(binding.slots[3] == 9);
  CHECK(binding.grid[0] == 2 * 132);
  try {
    binder.bind({&out_view, 1}, {scalars, 1});
    FAIL_CHECK("one scalar is enough");
  } catch (const Error& error) {
    CHECK(error.expected() == "1 tensor: out i32[n]; 2 scalars: first i32, last i32");
  }
}

TEST_CASE("an optional tensor may be absent, another may not") {
  Call call;
  call.bias = TensorView();
  CHECK(call.error() == "no error");
  call.out = TensorView();
  CHECK(call.error() ==
        "tessera: scale: argument 'out' is missing\n"
        "  expected  f32[tokens, 64]");
}

TEST_CASE("no rows is nothing to do, whatever the strides and addresses") {
  Call call;
  call.x = {nullptr, DType::bf16, {0, 64}, {3, 5}, Device::cpu()};
  call.out = {nullptr, DType::f32, Dims{0, 64}};
  CHECK(call.bind().empty);
}

TEST_CASE("strides of single rows do not matter") {
  Call call;
  call.x = view(DType::bf16, {1, 64}, {5, 1});
  call.out = view(DType::f32, {1, 64}, {123, 1});
  const Binding binding = call.bind();
  CHECK(binding.slots[0] == 1);
  CHECK(binding.slots[1] % 8 == 0);  // what the kernel was promised
}

TEST_CASE("a tensor that does not fit is named") {
  Call call;
  SECTION("dtype") {
    call.x.dtype = DType::f16;
    CHECK(call.error() ==
          "tessera: scale: argument 'x' has the wrong dtype\n"
          "  expected  bf16[tokens, 64]\n"
          "  got       f16[40, 64], strides [72, 1]");
  }
  SECTION("rank") {
    call.out = view(DType::f32, {40, 64, 1});
    CHECK(call.error() ==
          "tessera: scale: argument 'out' has the wrong rank\n"
          "  expected  f32[tokens, 64]\n"
          "  got       f32[40, 64, 1]");
  }
  SECTION("constant extent") {
    call.x = view(DType::bf16, {40, 63}, {72, 1});
    CHECK(call.error() ==
          "tessera: scale: argument 'x' has the wrong shape\n"
          "  expected  extent 64 in dimension 1\n"
          "  got       bf16[40, 63], strides [72, 1]");
  }
  SECTION("an extent that another tensor determines") {
    call.out = view(DType::f32, {41, 64});
    CHECK(call.error() ==
          "tessera: scale: argument 'out' has the wrong shape\n"
          "  expected  extent 40 in dimension 0 = tokens (from x dim 0)\n"
          "  got       f32[41, 64]");
  }
  SECTION("stride") {
    call.out = view(DType::f32, {40, 64}, {80, 1});
    CHECK(call.error() ==
          "tessera: scale: argument 'out' has the wrong strides\n"
          "  expected  stride 64 in dimension 0\n"
          "  got       f32[40, 64], strides [80, 1]");
  }
  SECTION("stride along the rows") {
    call.x = view(DType::bf16, {40, 64}, {128, 2});
    CHECK(call.error() ==
          "tessera: scale: argument 'x' has the wrong strides\n"
          "  expected  stride 1 in dimension 1\n"
          "  got       bf16[40, 64], strides [128, 2]");
  }
  SECTION("divisibility") {
    call.x = view(DType::bf16, {40, 64}, {68, 1});
    CHECK(call.error() ==
          "tessera: scale: argument 'x' has a stride 68 that the kernel does not take\n"
          "  expected  pitch (dimension 0) a multiple of 8\n"
          "  got       bf16[40, 64], strides [68, 1]");
  }
  SECTION("alignment") {
    call.x.data = static_cast<char*>(apart()) + 2;
    const std::string text = call.error();
    CHECK(text.find("tessera: scale: argument 'x' is not aligned\n"
                    "  expected  an address that is a multiple of 16 bytes\n"
                    "  got       0x") == 0);
  }
  SECTION("no memory") {
    call.out.data = nullptr;
    CHECK(call.error() ==
          "tessera: scale: argument 'out' has no data\n"
          "  expected  f32[tokens, 64]\n"
          "  got       f32[40, 64] at a null pointer");
  }
  SECTION("too many scalars") {
    call.scalars = {1, 2};
    CHECK(call.error() ==
          "tessera: scale: wrong number of arguments\n"
          "  expected  3 tensors: x bf16[tokens, 64], bias f32[64], out f32[tokens, 64]; 1 scalar: "
          "count i32\n"
          "  got       3 tensors; 2 scalars");
  }
  SECTION("an extent beyond 32 bits") {
    call.x = view(DType::bf16, {int64_t{1} << 31, 64}, {64, 1});
    CHECK(call.error() ==
          "tessera: scale: argument 'x' has an extent or stride out of range\n"
          "  expected  tokens as a non-negative i32\n"
          "  got       bf16[2147483648, 64]");
  }
}

TEST_CASE("a grid beyond the device's limits is refused") {
  dsl::Builder k("tall");
  auto rows = k.dim("rows");
  k.output("out", DType::i8, {rows});
  k.launch({1, ceil_div(rows, 2)});
  k.print("a block");
  const ArgumentBinder binder("tall", k.finish(), Author::tessera);
  CHECK(binder.bind(std::vector{view(DType::i8, {131070})}, {}).grid[1] == 65535);
  try {
    binder.bind(std::vector{view(DType::i8, {131071})}, {});
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("tessera: tall: the tensors are too large for one launch\n"
                    "  expected  0 to 65535 blocks along y: ") == 0);
    CHECK(error.got() == "65536");
  }
}

namespace {

/// How a call with a persistent loop over [rows, columns] binds: "" or the lines of its error behind the first.
std::string binds(int64_t rows, int64_t columns, int64_t group = 1, bool by_device = false) {
  dsl::Builder k("walk");
  auto r = k.dim("rows"), c = k.dim("columns");
  k.input("a", DType::i8, {r});
  k.input("b", DType::i8, {c});
  k.output("out", DType::f32, {1});
  k.launch({by_device ? min(r * c, k.device_blocks()) : dsl::i32(100)});
  k.persistent({r, c}, [&](dsl::Value, dsl::Value) { k.print("a tile"); }, {.group = group});
  const ArgumentBinder binder("walk", k.finish(), Author::tessera);
  try {
    binder.bind(
        std::vector{view(DType::i8, {rows}), view(DType::i8, {columns}), view(DType::f32, {1})},
        {});
  } catch (const Error& error) {
    const std::string text = error.what(),
                      first = "tessera: walk: a persistent loop has more tiles than i32 counts";
    CHECK(text.find(first) == 0);
    CHECK(error.code() == "SHAPE");
    return text.substr(text.find('\n') + 1);
  }
  return "";
}

}  // namespace

TEST_CASE("a persistent loop of 2^31 tiles is refused before the launch") {
  // 2^31 - 100 tiles and a step of 100 blocks behind them are the most.
  CHECK(binds(4, 536870887) == "");
  CHECK(binds(1, 2130706431) == "");
  CHECK(binds(2, 1073741800) ==
        "  expected  at most 2147483548, at every step of rows * columns\n"
        "  got       2147483600");
  // Modulo 2^32 these are 0, 1 and a negative number.
  CHECK(binds(65536, 65536) ==
        "  expected  at most 2147483647, at every step of rows * columns\n"
        "  got       4294967296");
  CHECK(binds(641, 6700417) ==
        "  expected  at most 2147483647, at every step of rows * columns\n"
        "  got       4294967297");
  CHECK(binds(50000, 50000) ==
        "  expected  at most 2147483647, at every step of rows * columns\n"
        "  got       2500000000");
  CHECK(binds(50000, 50000, 1, true) ==
        "  expected  at most 2147483647, at every step of rows * columns\n"
        "  got       2500000000");
}

TEST_CASE("a group of tiles of a persistent loop that i32 does not count is refused") {
  CHECK(binds(1 << 27, 2, 8) == "");
  CHECK(binds(1 << 28, 2, 8) ==
        "  expected  at most 2147483647, at every step of 8 * rows\n"
        "  got       2147483648");
}

TEST_CASE("a call whose outputs are empty has nothing to do, whatever its grid") {
  dsl::Builder k("reduce");
  auto rows = k.dim("rows");
  k.input("x", DType::f32, {rows});
  k.output("out", DType::f32, {rows});
  k.launch({4});
  k.print("a block");
  const ArgumentBinder binder("reduce", k.finish(), Author::tessera);
  CHECK(binder.bind(std::vector{view(DType::f32, {0}), view(DType::f32, {0})}, {}).empty);
}

TEST_CASE("an empty input of a kernel that has something to write is refused") {
  dsl::Builder k("total");
  auto rows = k.dim("rows");
  k.input("x", DType::f32, {rows});
  k.output("out", DType::f32, {1});
  k.launch({1});
  k.print("a block");
  const ArgumentBinder binder("total", k.finish(), Author::tessera);
  try {
    binder.bind(std::vector{view(DType::f32, {0}), view(DType::f32, {1})}, {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: total: argument 'x' has an extent 0 that the kernel does not take\n"
          "  expected  rows (dimension 0) at least 1\n"
          "  got       f32[0]");
  }
}

TEST_CASE("a tensor of more elements than 64 bits count is too large, not empty") {
  constexpr int64_t kHuge = int64_t{1} << 32;
  CHECK(num_elements({kHuge, kHuge}) > int64_t{1} << 62);
  CHECK(num_elements({kHuge, kHuge, 0}) == 0);
  CHECK(view(DType::f32, {kHuge, kHuge}).span_bytes() > int64_t{1} << 62);
  CHECK(view(DType::f32, {2, 2}, {int64_t{1} << 61, 1}).span_bytes() > int64_t{1} << 62);
  dsl::Builder k("copy");
  auto rows = k.dim("rows");
  auto cols = k.dim("cols");
  k.input("x", DType::f32, {rows, cols});
  k.output("out", DType::f32, {rows, cols});
  k.launch({1}, {.threads = 32});
  k.print("a block");
  const ArgumentBinder binder("copy", k.finish(), Author::tessera);
  try {
    binder.bind(std::vector{view(DType::f32, {kHuge, kHuge}), view(DType::f32, {kHuge, kHuge})},
                {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: copy: argument 'x' is too large\n"
          "  expected  at most 2^62 bytes\n"
          "  got       f32[4294967296, 4294967296]");
  }
}

TEST_CASE("a dim below its multiple is refused although its grid is empty") {
  dsl::Builder k("copy");
  auto count = k.dim("count", {.multiple_of = 128});
  k.input("x", DType::f32, {count});
  k.output("out", DType::f32, {count});
  k.launch({count / 128}, {.threads = 128});
  k.print("a block");
  const ArgumentBinder binder("copy", k.finish(), Author::tessera);
  const auto bind = [&](int64_t extent) {
    return binder.bind(std::vector{view(DType::f32, {extent}), view(DType::f32, {extent})}, {});
  };
  CHECK_FALSE(bind(128).empty);
  CHECK(bind(0).empty);
  try {
    bind(64);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: copy: argument 'x' has an extent 64 that the kernel does not take\n"
          "  expected  count (dimension 0) a multiple of 128\n"
          "  got       f32[64]");
  }
}

TEST_CASE("a dim that no tensor determines is the author's mistake") {
  dsl::Builder k("lost");
  auto rows = k.dim("rows");
  auto ghost = k.dim("ghost");
  k.output("out", DType::f32, {rows * ghost});
  k.launch({1});
  k.print("a block");
  const ir::Kernel kernel = k.finish();
  try {
    ArgumentBinder("lost", kernel, Author::tessera);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
    CHECK(error.fields().what == "no tensor determines dim 'rows'");
    CHECK(error.loc().known());
  }
}

TEST_CASE("host expressions are evaluated in 64 bits and refuse what has no value") {
  auto var = std::make_shared<ir::Var>();
  var->name = "n";
  var->type = DType::i64;
  const ir::Expr n = ir::var(var);
  const auto at = [&](const ir::Expr& e, int64_t value) {
    return HostExpr(e, [](const ir::VarRef&) { return 0; })
        .evaluate(std::vector<int64_t>{value}, "op");
  };
  const auto c = [](int64_t value) { return ir::constant(DType::i64, value); };
  CHECK(at((n + c(63)) / c(64) * c(3) - c(1), 130) == 8);
  CHECK(at(n % c(7), 130) == 4);
  CHECK(at(ir::binary(ir::Op::min, n, c(5)), 9) == 5);
  CHECK(at(ir::binary(ir::Op::max, n, c(5)), 9) == 9);
  CHECK(at(ir::select(n < c(5), c(1), n + c(2)), 9) == 11);
  CHECK(at(ir::select(n < c(5), c(1), n + c(2)), 4) == 1);
  CHECK(at(ir::cast(DType::i32, n), (int64_t{1} << 32) + 5) == 5);
  CHECK(at(n * n, int64_t{1} << 31) == int64_t{1} << 62);
  CHECK(at(n / c(-1), 7) == -7);
  CHECK_THROWS_AS(at(n / c(-1), std::numeric_limits<int64_t>::min()), Error);
  try {
    at(n * n, int64_t{1} << 32);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: op: the extents of this call cannot be computed with\n"
          "  expected  n * n within 64 bits, no division by zero\n"
          "  got       mul of 4294967296 and 4294967296");
  }
  CHECK_THROWS_AS(at(c(8) / n, 0), Error);
  CHECK_THROWS_AS(at(c(8) % n, 0), Error);
  try {
    at(ir::cast(DType::i64, ir::cast(DType::f32, n)), 1);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::program);
  }
}

TEST_CASE("the tensor that asynchronous copies read with evict_first is streamed") {
  using dsl::CacheHint;
  enum class Read { pipelined, in_background, plainly };
  struct Case {
    Read read;
    CacheHint hint;
    int streamed;
  };
  const Case one = GENERATE(Case{Read::pipelined, CacheHint::evict_first, 1},
                            Case{Read::in_background, CacheHint::evict_first, 1},
                            Case{Read::plainly, CacheHint::evict_first, -1},
                            Case{Read::pipelined, CacheHint::evict_last, -1},
                            Case{Read::in_background, CacheHint::none, -1});
  CAPTURE(static_cast<int>(one.read), static_cast<int>(one.hint));
  dsl::Builder k("sums");
  auto rows = k.dim("rows");
  k.input("unused", DType::f32, {64});
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  auto at = k.launch({rows}, {.threads = 32});
  auto tile = k.shared(DType::f32, {1, 64}, "tile");
  const auto from = x.tile({at.x, 0}, {1, 64}).cached(one.hint);
  const auto to = y.tile({at.x, 0}, {1, 64});
  if (one.read == Read::pipelined) {
    k.pipelined(0, 1, 2, [&](auto) {
      k.copy(from, tile);
      k.copy(tile, to);
    });
  } else if (one.read == Read::in_background) {
    k.wait(k.copy_async(from, tile));
    k.copy(tile, to);
  } else {
    k.copy(from, tile);
    k.copy(tile, to);
  }
  const ArgumentBinder binder("sums", k.finish(), Author::tessera);
  const std::vector<TensorView> tensors = {view(DType::f32, {64}), view(DType::f32, {3, 64}),
                                           view(DType::f32, {3, 64})};
  const runtime::Streamed streamed = binder.streamed(tensors);
  CHECK(streamed.argument == one.streamed);
  CHECK(streamed.bytes == (one.streamed >= 0 ? 3 * 64 * 4 : 0));
}
