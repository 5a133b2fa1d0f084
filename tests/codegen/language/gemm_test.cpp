// Matrix products: operand layouts, dtypes, warp grids, both transposed forms.

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/target.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;

namespace {

/// The parameters of one product test.
struct Product {
  DType dtype = DType::bf16;
  int64_t m = 32, n = 32, k = 32;
  int threads = 128;
  bool a_by_columns = false;  // a is stored [k, m]
  bool b_by_columns = false;  // b is stored [n, k]
  bool a_in_registers = false, b_in_registers = false;
  dsl::GemmOptions options = {};
};

DType sum_dtype(DType operand) {
  return operand == DType::i8 ? DType::i32 : DType::f32;
}

Dims a_shape(const Product& p) {
  return p.a_by_columns ? Dims{p.k, p.m} : Dims{p.m, p.k};
}
Dims b_shape(const Product& p) {
  return p.b_by_columns ? Dims{p.n, p.k} : Dims{p.k, p.n};
}

/// [m, n], or one such product for every depth of the warps.
Dims product_shape(const Product& p) {
  if (p.options.warp_depths == 1) return {p.m, p.n};
  return {p.options.warp_depths, p.m, p.n};
}

/// y = y + a * b in one block.
ir::Kernel product_kernel(const Product& p) {
  Builder k("product");
  auto a = k.input("a", p.dtype, {a_shape(p)[0], a_shape(p)[1]});
  auto b = k.input("b", p.dtype, {b_shape(p)[0], b_shape(p)[1]});
  const Dims dims = product_shape(p);
  const std::vector<int64_t> shape(dims.begin(), dims.end());
  auto y = k.output("y", sum_dtype(p.dtype), {shape.begin(), shape.end()});
  k.launch({1}, {.threads = p.threads});
  auto right = p.b_in_registers ? k.fragment(p.dtype, {p.k, p.n}, "right")
                                : k.shared(p.dtype, {b_shape(p)[0], b_shape(p)[1]}, "right");
  auto sum = k.fragment(sum_dtype(p.dtype), shape, "sum");
  k.copy(p.b_in_registers && p.b_by_columns ? b.transposed() : b, right);
  k.copy(y, sum);
  const Ref b_view = p.b_by_columns && !p.b_in_registers ? right.transposed() : right;
  if (p.a_in_registers) {
    auto left = k.fragment(p.dtype, {p.m, p.k}, "left");
    k.copy(p.a_by_columns ? a.transposed() : a, left);
    k.gemm(left, b_view, sum, p.options);
  } else {
    auto left = k.shared(p.dtype, {a_shape(p)[0], a_shape(p)[1]}, "left");
    k.copy(a, left);
    k.gemm(p.a_by_columns ? left.transposed() : left, b_view, sum, p.options);
  }
  k.copy(sum, y);
  return k.finish();
}

HostTensor zeros(int64_t rows, int64_t columns) {
  return tensor_by(DType::f32, {rows, columns}, [](int64_t) { return 0; });
}

/// Small integers, exact in every operand dtype and in every sum.
double small_integer(int64_t i) {
  return static_cast<double>((i * 37 + i / 7) % 9 - 4);
}

/// Runs the product of small integers, which every order of summation gives exactly.
void check_product(const Product& p) {
  CAPTURE(name(p.dtype), p.m, p.n, p.k, p.threads, p.a_by_columns, p.b_by_columns, p.a_in_registers,
          p.b_in_registers, p.options.warp_depths, p.options.warp_rows, p.options.warp_columns);
  const HostTensor a = tensor_by(p.dtype, a_shape(p), small_integer);
  const HostTensor b =
      tensor_by(p.dtype, b_shape(p), [](int64_t i) { return small_integer(3 * i + 1); });
  const int64_t depths = p.options.warp_depths;
  const HostTensor y = iota(sum_dtype(p.dtype), product_shape(p));
  run_kernel(product_kernel(p), {&a, &b, &y});
  CHECK_THAT(y, HasValues([&](int64_t i) {
               const int64_t column = i % p.n, row = i / p.n % p.m, depth = i / (p.m * p.n);
               auto want = static_cast<double>(i);
               for (int64_t k = depth * p.k / depths; k < (depth + 1) * p.k / depths; ++k) {
                 want += a.value(p.a_by_columns ? k * p.m + row : row * p.k + k) *
                         b.value(p.b_by_columns ? column * p.k + k : k * p.n + column);
               }
               return want;
             }));
}

void check_forms(DType dtype) {
  for (const int form : {0, 1, 2, 3, 4, 6}) {
    Product p;
    p.dtype = dtype;
    p.a_by_columns = (form & 1) != 0;
    p.b_by_columns = (form & 2) != 0;
    p.a_in_registers = (form & 4) != 0;
    p.k = 64;
    check_product(p);
  }
}

void check_warps_along_k(DType dtype) {
  for (const int form : {0, 1, 2, 3, 4}) {
    Product p;
    p.dtype = dtype;
    p.k = 256;
    p.a_in_registers = (form & 1) != 0;
    p.b_in_registers = (form & 2) != 0;
    p.a_by_columns = p.b_by_columns = form == 4;
    p.options.warp_depths = 4;
    check_product(p);
    p.threads = 256;
    p.options.warp_depths = 2;
    check_product(p);
  }
}

}  // namespace

TEST_CASE("gemm of every float dtype, stored by rows and by columns, left operand anywhere",
          "[language][gemm][slow]") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) check_forms(dtype);
}

TEST_CASE("gemm of every 8-bit dtype, stored by rows and by columns, left operand anywhere",
          "[language][gemm][slow]") {
  for (const DType dtype : {DType::e4m3, DType::e5m2, DType::i8}) check_forms(dtype);
}

TEST_CASE("gemm of every dtype with the right operand or both in registers",
          "[language][gemm][slow]") {
  for (const DType dtype :
       {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::i8}) {
    for (const int form : {0, 1, 2}) {
      Product p;
      p.dtype = dtype;
      p.b_in_registers = true;
      p.b_by_columns = (form & 1) != 0;
      p.a_in_registers = (form & 2) != 0;
      p.k = 64;
      check_product(p);
    }
  }
}

TEST_CASE("gemm with warps along k gives the product of every part of k: f32",
          "[language][gemm][slow]") {
  check_warps_along_k(DType::f32);
}

TEST_CASE("gemm with warps along k gives the product of every part of k: bf16",
          "[language][gemm][slow]") {
  check_warps_along_k(DType::bf16);
}

TEST_CASE("gemm with warps along k gives the product of every part of k: e4m3",
          "[language][gemm][slow]") {
  check_warps_along_k(DType::e4m3);
}

TEST_CASE("gemm with warps along k gives the product of every part of k: i8",
          "[language][gemm][slow]") {
  check_warps_along_k(DType::i8);
}

TEST_CASE("gemm with seven warps along k gives the product of every part", "[language][gemm]") {
  Product p;
  p.m = 16;
  p.n = 24;
  p.k = 7 * 32;
  p.threads = 7 * 32;
  p.options.warp_depths = 7;
  p.dtype = DType::f32;
  p.a_in_registers = p.b_in_registers = true;
  check_product(p);
}

TEST_CASE("an operand in registers that a loop multiplies is computed once, before the loop",
          "[language][gemm]") {
  const auto text_of = [](bool filled_in_loop) {
    Builder k("repeated");
    auto x = k.input("x", DType::f32, {64, 32});
    auto w = k.input("w", DType::f32, {32, 8});
    auto y = k.output("y", DType::f32, {64, 8});
    k.launch({1}, {.threads = 32});
    auto right = k.fragment(DType::f32, {32, 8}, "right");
    auto left = k.shared(DType::f32, {16, 32}, "left");
    auto sum = k.fragment(DType::f32, {16, 8}, "sum");
    const auto fill = [&] {
      k.parallel({32, 8},
                 [&](dsl::Value i, dsl::Value j) { right(i, j) = dsl::round_tf32(w(i, j)); });
    };
    if (!filled_in_loop) fill();
    k.serial(0, 4, [&](dsl::Value i) {
      if (filled_in_loop) fill();
      k.copy(x.tile({i * 16, 0}, {16, 32}), left);
      k.fill(sum, 0.0f);
      k.gemm(left, right, sum, {.tf32 = ir::Tf32::truncate});
      k.copy(sum, y.tile({i * 16, 0}, {16, 8}));
    });
    return cuda_text(k.finish());
  };
  CHECK(count(text_of(false), "= computed_here(round_tf32(") == 1);
  CHECK(count(text_of(true), "computed_here") == 0);
}

TEST_CASE("what is rounded to tf32 and multiplied is what is stored", "[language][gemm]") {
  // Ties and their neighbours, what becomes infinite, infinities, zeros, the least normal numbers,
  // NaN of all kinds: the last two differ from infinity in the 13 low bits alone.
  const std::vector<uint32_t> patterns = {
      0x3F801000, 0x3F800FFF, 0x3F801001, 0xBF803000, 0x3F802FFF, 0x7F7FF000,
      0xFF7FFFFF, 0x7F7FEFFF, 0x7F800000, 0xFF800000, 0x00000000, 0x80000000,
      0x00801000, 0x00800FFF, 0x80FFF000, 0x00FFF001, 0x7FFFFFFF, 0xFFFFFFFF,
      0x7FC00000, 0xFFC00001, 0x7F802000, 0xFF803FFF, 0x7F801000, 0xFF800001};
  const auto columns = static_cast<int64_t>(patterns.size());
  Builder k("rounded");
  auto x = k.input("x", DType::f32, {16, 8});
  auto w = k.input("w", DType::f32, {8, columns});
  auto y = k.output("y", DType::f32, {16, columns});
  auto rounded = k.output("rounded", DType::f32, {8, columns});
  k.launch({1}, {.threads = 32});
  auto left = k.fragment(DType::f32, {16, 8}, "left");
  auto right = k.fragment(DType::f32, {8, columns}, "right");
  auto sum = k.fragment(DType::f32, {16, columns}, "sum");
  k.copy(x, left);
  const auto round = [&](const Ref& to) {
    k.parallel({8, columns},
               [&](dsl::Value i, dsl::Value j) { to(i, j) = dsl::round_tf32(w(i, j)); });
  };
  round(right);
  round(rounded);
  k.fill(sum, 0.0f);
  k.gemm(left, right, sum, {.tf32 = ir::Tf32::truncate});
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  HostTensor weights(DType::f32, {8, columns});
  for (int64_t i = 0; i < 8 * columns; ++i) {
    weights.set_bits(i, i < columns ? patterns[static_cast<size_t>(i)] : 0);
  }
  const HostTensor ones = tensor_by(DType::f32, {16, 8}, [](int64_t i) { return i % 8 == 0; });
  HostTensor products(DType::f32, {16, columns}), stored(DType::f32, {8, columns});
  run_kernel(kernel, {&ones, &weights, &products, &stored});
  for (int64_t j = 0; j < columns; ++j) {
    const uint32_t bits = patterns[static_cast<size_t>(j)];
    CAPTURE(j, bits);
    const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    CHECK(stored.bits(j) == ((is_nan ? bits : bits + 0x1000) & 0xFFFFE000));
    const auto want = std::bit_cast<float>(static_cast<uint32_t>(stored.bits(j)));
    CHECK((std::isnan(want) ? std::isnan(products.value(j)) : products.value(j) == want));
  }
}

TEST_CASE("gemm over warp grids 1x1, 2x2, 4x1, 1x4 and 2x4", "[language][gemm][slow]") {
  struct Case {
    int rows, columns;
    int64_t m, n;
  };
  for (const Case& c : {Case{1, 1, 16, 8}, Case{1, 1, 32, 24}, Case{2, 2, 64, 48},
                        Case{4, 1, 64, 24}, Case{1, 4, 16, 64}, Case{2, 4, 96, 160}}) {
    Product p;
    p.m = c.m;
    p.n = c.n;
    p.threads = 32 * c.rows * c.columns;
    p.b_by_columns = true;
    p.options = {.warp_rows = c.rows, .warp_columns = c.columns};
    check_product(p);
    p.dtype = DType::f32;
    p.a_in_registers = true;
    check_product(p);
  }
}

TEST_CASE("a tf32 product rounds its operands to nearest, or ignores their low bits (N08)",
          "[language][gemm]") {
  // 1 + 2^-11 lies between two tf32 values, a tie that rounds away from zero.
  const float odd = 1.0f + 0x1p-11f;
  for (const ir::Tf32 policy : {ir::Tf32::round, ir::Tf32::truncate}) {
    Product p;
    p.dtype = DType::f32;
    p.m = 16;
    p.n = 8;
    p.k = 8;
    p.threads = 32;
    p.options.tf32 = policy;
    const HostTensor a =
        tensor_by(DType::f32, {16, 8}, [=](int64_t i) { return i % 8 == 0 ? odd : 0.0; });
    const HostTensor b = tensor_by(DType::f32, {8, 8}, [](int64_t i) { return i < 8; });
    const HostTensor y = zeros(16, 8);
    run_kernel(product_kernel(p), {&a, &b, &y});
    CHECK(y.value(0) == (policy == ir::Tf32::round ? 1.0 + 0x1p-10 : 1.0));
  }
}

TEST_CASE("a product of floats adds c and the exact products of a step and rounds once",
          "[language][gemm]") {
  Product p;
  p.m = 16;
  p.n = 8;
  p.k = 32;
  p.threads = 32;
  const HostTensor a = tensor_by(DType::bf16, {16, 32},
                                 [](int64_t i) { return 1.0 / static_cast<double>(i % 91 + 3); });
  const HostTensor b = tensor_by(
      DType::bf16, {32, 8}, [](int64_t i) { return 1.0 / (static_cast<double>(i % 53) - 26.5); });
  const HostTensor y = zeros(16, 8);
  {
    // For a target whose sums are not known, and not on the GPU.
    const kernels::jit::TargetScope target({8, 0, 0});
    const kernels::jit::TrapScope traps;
    const TensorView views[] = {a.view(), b.view(), y.view()};
    kernels::jit::run(product_kernel(p), views, {}, nullptr);
  }
  CHECK_THAT(y, HasValues([&](int64_t i) {
               const int64_t row = i / 8, column = i % 8;
               float want = 0;
               for (int64_t step = 0; step < 32; step += 16) {
                 double sum = want;
                 for (int64_t k = step; k < step + 16; ++k) {
                   sum += a.value(row * 32 + k) * b.value(k * 8 + column);
                 }
                 want = static_cast<float>(sum);
               }
               return want;
             }));
}

TEST_CASE("gemm reads shared operands by ldmatrix where rows of 16 bytes allow it",
          "[language][gemm]") {
  Product p;
  p.k = 64;
  std::string text = cuda_text(product_kernel(p));
  CHECK(count(text, "load_matrix<4>") == 1);
  CHECK(count(text, "load_matrix_transposed<4>") == 1);
  CHECK(count(text, "mma_bf16(") == 1);
  CHECK(codegen::explain(product_kernel(p))
            .find("gemm over 2 x 2 warps, m16n8k16 of bf16: left by ldmatrix, right by "
                  "transposed ldmatrix") != std::string::npos);
  p.dtype = DType::f32;
  text = cuda_text(product_kernel(p));
  CHECK(count(text, "load_matrix<4>") == 1);
  CHECK(count(text, "load_matrix_transposed") == 0);
  CHECK(codegen::explain(product_kernel(p)).find("right element by element") != std::string::npos);
}

TEST_CASE("matrix loads of bf16 tiles have no bank conflicts", "[language][gemm]") {
  for (const int64_t depth : {32, 64, 128}) {
    for (const bool b_by_columns : {false, true}) {
      CAPTURE(depth, b_by_columns);
      Product p;
      p.m = 64;
      p.n = 64;
      p.k = depth;
      p.b_by_columns = b_by_columns;
      const codegen::cpu::Executable executable(codegen::lower(product_kernel(p)));
      const HostTensor a = tensor_by(p.dtype, a_shape(p), small_integer);
      const HostTensor b = tensor_by(p.dtype, b_shape(p), small_integer);
      const HostTensor y = zeros(64, 64);
      codegen::cpu::Counts counts;
      const codegen::cpu::Argument arguments[] = {
          {.tensor = a.view()}, {.tensor = b.view()}, {.tensor = y.view()}};
      executable.run(arguments, {.counts = &counts});
      CHECK(counts.shared_ideal_wavefronts > 0);
      CHECK(counts.shared_wavefronts == counts.shared_ideal_wavefronts);
    }
  }
}

TEST_CASE("gemm explains operands that do not fit", "[language][gemm]") {
  const auto message = [](const std::function<void(Builder&)>& body, int threads = 128) {
    return error_of([&] {
      Builder k("bad");
      k.launch({1}, {.threads = threads});
      body(k);
      codegen::lower(k.finish());
    });
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  std::string text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::bf16, {64, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "[SHAPE]");
  contains(text, "[m, k] * [k, n] -> [m, n]");
  contains(text, "[32, 32] * [64, 32] -> [32, 32]");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 64}, "x"), k.shared(DType::bf16, {64, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"), {.warp_depths = 2});
  });
  contains(text, "the product of a gemm is no matrix of constant extents");
  contains(text, "[warp_depths, m, n]");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 64}, "x"), k.shared(DType::bf16, {64, 32}, "w"),
           k.fragment(DType::f32, {3, 32, 32}, "sum"), {.warp_depths = 3});
  });
  contains(text, "warp_depths does not divide the warps of the block");
  contains(text, "a divisor of 4");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::bf16, {32, 32}, "w"),
           k.fragment(DType::f32, {4, 32, 32}, "sum"), {.warp_depths = 4});
  });
  contains(text, "a multiple of 64 for bf16");
  text = message([](Builder& k) {
    auto x = k.fragment(DType::bf16, {32, 32}, "x");
    k.gemm(x, x, k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "both operands of a gemm are one fragment");
  for (const bool left : {true, false}) {
    for (const bool view : {true, false}) {
      text = message([&](Builder& k) {
        auto x = k.shared(DType::f32, {32, 32}, "x");
        auto sum = k.fragment(DType::f32, {32, 32}, "sum");
        auto again = view ? sum.reshape({32, 32}) : sum;
        left ? k.gemm(again, x, sum) : k.gemm(x, again, sum);
      });
      contains(text, "an operand of a gemm is its product");
      contains(text, "copy it");
    }
  }
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::f16, {32, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "no matrix instruction takes these operands");
  contains(text, "bf16 and f16");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 24}, "x"), k.shared(DType::bf16, {24, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "a multiple of 16 for bf16");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"),
           k.fragment(DType::bf16, {32, 32}, "w").transposed(),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "the right operand of a gemm is in the wrong memory");
  contains(text, "copy it into k.shared(...) first");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::bf16, {32, 24}, "w"),
           k.fragment(DType::f32, {32, 24}, "sum"), {.warp_rows = 4});
  });
  contains(text, "the warps of the block do not divide the product");
  contains(text, "m 32, n 24, 4 warps, warp_rows 4, warp_columns any");
  text = message([](Builder& k) {
    k.gemm(k.shared(DType::i8, {32, 32}, "x"), k.shared(DType::i8, {32, 32}, "w"),
           k.fragment(DType::f32, {32, 32}, "sum"));
  });
  contains(text, "the product 'sum' of a gemm has the wrong dtype");
  text = message(
      [](Builder& k) {
        k.gemm(k.shared(DType::bf16, {32, 32}, "x"), k.shared(DType::bf16, {32, 32}, "w"),
               k.fragment(DType::f32, {32, 32}, "sum"));
      },
      48);
  contains(text, "[PARTIAL_WARP]");
}
