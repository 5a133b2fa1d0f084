// Matrix products that take parts of fragments: of the product, of operands in registers, of shared tiles.

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using codegen::cpu::Arithmetic;
using dsl::Builder;

namespace {

/// y[row .. row + rows, column .. column + columns] += a[same rows, depth ..] * b[depth .., same columns].
struct Box {
  int64_t row, rows, column, columns, depth, depths;
};

struct Case {
  DType dtype = DType::bf16;
  int64_t m, n, k;
  std::vector<Box> boxes;
  int threads = 128;
  bool a_in_registers = false, b_in_registers = false;
  dsl::GemmOptions options = {};
};

DType sum_dtype(DType operand) {
  return operand == DType::i8 ? DType::i32 : DType::f32;
}

/// One block that computes the boxes one after another. b is stored [n, k].
ir::Kernel kernel_of(const Case& c) {
  Builder k("parts");
  auto a = k.input("a", c.dtype, {c.m, c.k}), b = k.input("b", c.dtype, {c.n, c.k});
  auto y = k.output("y", sum_dtype(c.dtype), {c.m, c.n});
  k.launch({1}, {.threads = c.threads});
  auto left = c.a_in_registers ? k.fragment(c.dtype, {c.m, c.k}, "left")
                               : k.shared(c.dtype, {c.m, c.k}, "left");
  auto right = c.b_in_registers ? k.fragment(c.dtype, {c.k, c.n}, "right")
                                : k.shared(c.dtype, {c.n, c.k}, "right");
  auto sum = k.fragment(sum_dtype(c.dtype), {c.m, c.n}, "sum");
  k.copy(a, left);
  k.copy(c.b_in_registers ? b.transposed() : b, right);
  k.copy(y, sum);
  for (const Box& x : c.boxes) {
    const auto of_b = c.b_in_registers ? right.tile({x.depth, x.column}, {x.depths, x.columns})
                                       : right.tile({x.column, x.depth}, {x.columns, x.depths});
    k.gemm(left.tile({x.row, x.depth}, {x.rows, x.depths}),
           c.b_in_registers ? of_b : of_b.transposed(),
           sum.tile({x.row, x.column}, {x.rows, x.columns}), c.options);
  }
  k.copy(sum, y);
  return k.finish();
}

struct Data {
  HostTensor a, b, y;
  std::vector<double> want;
};

Data data_of(const Case& c) {
  const auto small_integer = [](int64_t i) {
    return static_cast<double>((i * 37 + i / 7) % 7 - 3);
  };
  Data d = {tensor_by(c.dtype, {c.m, c.k}, small_integer),
            tensor_by(c.dtype, {c.n, c.k}, [&](int64_t i) { return small_integer(3 * i + 1); }),
            tensor_by(sum_dtype(c.dtype), {c.m, c.n}, [](int64_t i) { return i % 4096; }),
            {}};
  d.want = values_of(d.y);
  for (const Box& x : c.boxes) {
    for (int64_t i = x.row; i < x.row + x.rows; ++i) {
      for (int64_t j = x.column; j < x.column + x.columns; ++j) {
        for (int64_t l = x.depth; l < x.depth + x.depths; ++l) {
          d.want[static_cast<size_t>(i * c.n + j)] +=
              d.a.value(i * c.k + l) * d.b.value(j * c.k + l);
        }
      }
    }
  }
  return d;
}

void check(const Case& c) {
  CAPTURE(name(c.dtype), c.m, c.n, c.k, c.threads, c.a_in_registers, c.b_in_registers,
          c.options.warp_rows, c.options.warp_columns);
  const Data d = data_of(c);
  run_kernel(kernel_of(c), {&d.a, &d.b, &d.y});
  CHECK(values_of(d.y) == d.want);
}

void check_on_sm_90a(const Case& c, int num_wgmma_products) {
  CAPTURE(name(c.dtype), c.m, c.n, c.k, c.threads, c.a_in_registers);
  const ir::Kernel kernel = kernel_of(c);
  CHECK(count(codegen::explain(kernel, kSm90a), "gemm: wgmma") == num_wgmma_products);
  const Data d = data_of(c);
  const codegen::cpu::Executable executable(codegen::lower(kernel, kSm90a));
  const codegen::cpu::Argument arguments[] = {
      {.tensor = d.a.view()}, {.tensor = d.b.view()}, {.tensor = d.y.view()}};
  executable.run(arguments, {.traps = true, .arithmetic = Arithmetic::target});
  CHECK(values_of(d.y) == d.want);
}

std::string refusal(const std::function<void(Builder&)>& body) {
  return error_of([&] {
    Builder k("bad");
    k.launch({1}, {.threads = 128});
    body(k);
    codegen::lower(k.finish());
  });
}

}  // namespace

TEST_CASE("products of parts of shared tiles and of fragments", "[language][gemm][parts]") {
  const std::vector<Box> boxes = {{0, 32, 0, 64, 0, 32}, {32, 32, 64, 64, 32, 64}};
  for (const DType dtype : {DType::bf16, DType::f32, DType::e4m3}) {
    for (const bool a_in_registers : {false, true}) {
      for (const bool b_in_registers : {false, true}) {
        check({.dtype = dtype,
               .m = 64,
               .n = 128,
               .k = 96,
               .boxes = boxes,
               .a_in_registers = a_in_registers,
               .b_in_registers = b_in_registers});
      }
    }
  }
}

TEST_CASE("parts of any whole instructions, where one warp holds the axis that they cut",
          "[language][gemm][parts]") {
  Case c = {.m = 64,
            .n = 72,
            .k = 64,
            .boxes = {{0, 64, 8, 40, 16, 16}, {0, 64, 48, 24, 32, 32}, {0, 64, 0, 72, 0, 64}},
            .options = {.warp_rows = 4}};
  check(c);
  c.a_in_registers = c.b_in_registers = true;
  check(c);
  c = {.m = 48, .n = 64, .k = 32, .boxes = {{16, 16, 0, 64, 0, 32}, {16, 32, 0, 64, 16, 16}}};
  c.options.warp_columns = 4;
  check(c);
  c.a_in_registers = c.b_in_registers = true;
  check(c);
}

TEST_CASE("equal parts, which several warps along the axis share", "[language][gemm][parts]") {
  std::vector<Box> boxes;
  for (int64_t part = 0; part < 8; ++part) {
    boxes.push_back({part / 4 * 32, 32, part % 4 * 32, 32, part % 2 * 32, 32});
  }
  for (const int rows : {1, 2}) {
    Case c = {.m = 64, .n = 128, .k = 64, .boxes = boxes};
    c.options = {.warp_rows = rows, .warp_columns = 4 / rows};
    check(c);
    c.a_in_registers = c.b_in_registers = true;
    check(c);
  }
  // 16 rows, as of 16 heads: all warps lie along the columns.
  check({.m = 16, .n = 512, .k = 32, .boxes = {{0, 16, 0, 256, 0, 32}, {0, 16, 256, 256, 0, 32}}});
}

TEST_CASE("products of parts by wgmma", "[language][wgmma][parts]") {
  const std::vector<Box> columns = {{0, 64, 0, 128, 0, 64}, {0, 64, 128, 128, 64, 64}};
  const std::vector<Box> rows = {{64, 64, 0, 64, 0, 64}, {0, 64, 0, 64, 64, 64}};
  for (const DType dtype : {DType::bf16, DType::i8}) {
    for (const bool a_in_registers : {false, true}) {
      check_on_sm_90a({.dtype = dtype,
                       .m = 64,
                       .n = 256,
                       .k = 128,
                       .boxes = columns,
                       .a_in_registers = a_in_registers},
                      2);
      check_on_sm_90a({.dtype = dtype,
                       .m = 128,
                       .n = 64,
                       .k = 128,
                       .boxes = rows,
                       .a_in_registers = a_in_registers},
                      2);
    }
  }
  // Two groups of warps: equal parts of 128 columns, or parts of rows that each group holds.
  check_on_sm_90a({.m = 64, .n = 256, .k = 128, .boxes = columns, .threads = 256}, 2);
  check_on_sm_90a({.m = 256,
                   .n = 64,
                   .k = 64,
                   .boxes = {{128, 128, 0, 64, 0, 64}},
                   .threads = 256,
                   .a_in_registers = true},
                  1);
  // Sums of 8-bit floats are promoted into the part.
  check_on_sm_90a({.dtype = DType::e4m3,
                   .m = 128,
                   .n = 64,
                   .k = 256,
                   .boxes = {{0, 128, 32, 32, 0, 256}, {64, 64, 0, 64, 128, 128}}},
                  2);
  // A part that begins inside of 64 rows is no product of wgmma.
  check_on_sm_90a({.m = 192,
                   .n = 64,
                   .k = 64,
                   .boxes = {{32, 64, 0, 64, 0, 64}},
                   .options = {.warp_columns = 4}},
                  0);
}

TEST_CASE("products of different parts have different texts", "[language][gemm][parts]") {
  const auto text = [](int64_t column) {
    return ir::to_string(
        kernel_of({.m = 64, .n = 64, .k = 32, .boxes = {{0, 64, column, 32, 0, 32}}}));
  };
  CHECK(count(text(0), "-> sum[0 +: 64, 0 +: 32]") == 1);
  CHECK(count(text(32), "-> sum[0 +: 64, 32 +: 32]") == 1);
}

TEST_CASE("NVRTC takes products of parts for every target",
          "[language][gemm][wgmma][parts][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  const Case c = {.m = 128,
                  .n = 128,
                  .k = 128,
                  .boxes = {{0, 64, 0, 64, 0, 64}, {64, 64, 64, 64, 64, 64}},
                  .a_in_registers = true};
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(target);
    const std::string text =
        codegen::cuda::emit(codegen::lower(kernel_of(c), *parse_target(target))).text;
    CHECK((count(text, "wgmma") > 0) == (target == "sm_90a"));
    const Compiled compiled = nvrtc->compile(text, target);
    CHECK(compiled.log == "");
    CHECK(compiled.ok);
  }
}

TEST_CASE("parts that instructions or warps do not divide are refused", "[language][gemm][parts]") {
  const auto product = [](Builder& k, const dsl::Ref& sum, dsl::GemmOptions options = {}) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::bf16, {32, 32}, "w"), sum,
           options);
  };
  std::string text = refusal([&](Builder& k) {
    product(k, k.fragment(DType::f32, {64, 64}, "sum").tile({8, 0}, {32, 32}));
  });
  CHECK(count(text,
              "the part of 'sum' that is the product of a gemm begins inside of a matrix "
              "instruction [GEMM]") == 1);
  CHECK(count(text, "constant offsets, multiples of 16 and 8") == 1);
  CHECK(count(text, "got       [8, 0]") == 1);
  text = refusal([&](Builder& k) {
    auto x = k.fragment(DType::bf16, {32, 64}, "x");
    k.gemm(x.tile({0, 8}, {32, 32}), k.shared(DType::bf16, {32, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  CHECK(count(text, "constant offsets, multiples of 16 and 16") == 1);
  text = refusal([&](Builder& k) {
    auto w = k.fragment(DType::e4m3, {64, 32}, "w");
    k.gemm(k.shared(DType::e4m3, {32, 32}, "x"), w.tile({16, 0}, {32, 32}),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  CHECK(count(text, "constant offsets, multiples of 32 and 8") == 1);
  text = refusal([&](Builder& k) {
    k.serial(0, 2, [&](dsl::Value i) {
      product(k, k.fragment(DType::f32, {64, 64}, "sum").tile({i * 32, 0}, {32, 32}));
    });
  });
  CHECK(count(text, "constant offsets, multiples of 16 and 8") == 1);
  text = refusal([&](Builder& k) {
    product(k, k.fragment(DType::f32, {64, 64}, "sum").tile({16, 0}, {32, 32}), {.warp_rows = 2});
  });
  CHECK(count(text, "the warps of the block do not divide the product [GEMM]") == 1);
  CHECK(count(text, "equal parts of a fragment along an axis of several warps") == 1);
  text = refusal([&](Builder& k) {
    product(k, k.fragment(DType::f32, {2, 32, 32}, "sum").tile({0, 0, 0}, {2, 32, 16}),
            {.warp_depths = 2});
  });
  CHECK(count(text, "the product of a gemm is in the wrong memory") == 1);
  text = refusal([&](Builder& k) {
    auto x = k.fragment(DType::bf16, {32, 64}, "x");
    k.gemm(x.tile({0, 32}, {32, 32}), k.shared(DType::bf16, {32, 32}, "w"),
           k.fragment(DType::f32, {2, 32, 32}, "sum"), {.warp_depths = 2});
  });
  CHECK(count(text, "warps along k share a part of an operand in registers") == 1);
}
