// Matrix products by wgmma: which products it computes, what it computes, and what is refused.

#include "codegen/products/wgmma.h"

#include <fmt/format.h>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using codegen::cpu::Arithmetic;

namespace {

const std::vector<DType> kWgmmaDtypes = {DType::bf16, DType::f16,  DType::f32,
                                         DType::e4m3, DType::e5m2, DType::i8};

/// How many instructions the block's program names.
int64_t num_wgmma(const Product& p) {
  const codegen::Program program = codegen::lower(product_kernel(p), kSm90a);
  int64_t count = 0;
  codegen::walk(program.body,
                [&](const codegen::Stmt& stmt) { count += test::is_group_product(stmt); });
  return count;
}

/// The product of small integers by the instruction that the compiler chooses on sm_90a.
void check_exact(const Product& p) {
  INFO(p.text());
  REQUIRE(num_wgmma(p) > 0);
  const ProductData data = exact_operands(p);
  const HostTensor before = data.y;
  run_product(p, data, kSm90a, Arithmetic::target);
  CHECK_THAT(data.y, HasValues([&](int64_t i) {
               const int64_t column = i % p.n, row = i / p.n;
               double want = before.value(i);
               for (int64_t k = 0; k < p.k; ++k) {
                 want += data.a.value(p.a_by_columns ? k * p.m + row : row * p.k + k) *
                         data.b.value(p.b_by_columns ? column * p.k + k : k * p.n + column);
               }
               return want;
             }));
}

std::string why_not_wgmma(const Product& p, Target target = kSm90a) {
  const std::string text = codegen::explain(product_kernel(p), target);
  const size_t at = text.find("not wgmma: ");
  return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
}

std::string refusal(Product p, Target target = kSm90a) {
  p.options.instruction = ir::Instruction::wgmma;
  return error_of([&] { codegen::lower(product_kernel(p), target); });
}

}  // namespace

TEST_CASE("products of every dtype by wgmma, over one and two groups of warps",
          "[language][wgmma]") {
  for (const DType dtype : kWgmmaDtypes) {
    for (const int threads : {128, 256}) {
      Product p = product_of(dtype, 128, 128, 128);
      p.threads = threads;
      check_exact(p);
      // Each group has m / 64 / groups tiles of one instruction along n.
      CHECK(num_wgmma(p) == 128 / 64 / (threads / 128) * (p.k * bits(dtype) / 256));
    }
  }
}

TEST_CASE("operands of wgmma lie along k or along m and n, in rows of any swizzle",
          "[language][wgmma]") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const int form : {0, 1, 2, 3}) {
      for (const int64_t extent : {16, 32, 64}) {
        Product p = product_of(dtype, 64, 64, 64);
        p.a_by_columns = (form & 1) != 0;
        p.b_by_columns = (form & 2) != 0;
        (p.b_by_columns ? p.k : p.n) = extent;
        check_exact(p);
      }
    }
  }
}

TEST_CASE("a left operand of wgmma in registers", "[language][wgmma]") {
  for (const DType dtype : kWgmmaDtypes) {
    Product p = product_of(dtype, 128, 64, 128);
    p.a_in_registers = true;
    check_exact(p);
    CHECK(codegen::explain(product_kernel(p), kSm90a).find("relayouts") == std::string::npos);
  }
}

TEST_CASE("the columns of a product are parts that wgmma has", "[language][wgmma]") {
  using codegen::wgmma_parts;
  using Parts = std::vector<int64_t>;
  CHECK(wgmma_parts(8, DType::bf16) == Parts{8});
  CHECK(wgmma_parts(256, DType::bf16) == Parts{256});
  CHECK(wgmma_parts(264, DType::bf16) == Parts{136, 128});
  CHECK(wgmma_parts(320, DType::bf16) == Parts{160, 160});
  CHECK(wgmma_parts(512, DType::bf16) == Parts{256, 256});
  CHECK(wgmma_parts(40, DType::i8) == Parts{24, 16});
  CHECK(wgmma_parts(320, DType::i8) == Parts{160, 160});
  CHECK(wgmma_parts(12, DType::bf16).empty());
  for (const DType dtype : {DType::bf16, DType::i8}) {
    for (const int64_t n : {8, 24, 40, 96, 136, 192, 320})
      check_exact(product_of(dtype, 64, n, 32));
  }
  check_exact(product_of(DType::bf16, 192, 64, 32));
  Product wide = product_of(DType::f16, 64, 512, 16);
  wide.threads = 256;
  check_exact(wide);
}

TEST_CASE("wgmma and mma.sync give the same bits, by the arithmetic of the hardware",
          "[language][wgmma]") {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Product p = product_of(dtype, 64, 72, 96);
    const ProductData one = random_operands(p, 3), other = random_operands(p, 3);
    run_product(p, one, kSm90a, Arithmetic::target);
    p.options.instruction = ir::Instruction::mma;
    CHECK(num_wgmma(p) == 0);
    run_product(p, other, kSm90a, Arithmetic::target);
    CHECK(one.y.raw() == other.y.raw());
  }
}

TEST_CASE("sums of 8-bit floats by wgmma are promoted as the author says", "[language][wgmma]") {
  // 448 * 448 and 4095 ones: 204799.
  const auto sum_of = [&](int promote, ir::Instruction instruction) {
    dsl::Builder k("long_sum");
    auto a = k.input("a", DType::e4m3, {64, 4096});
    auto b = k.input("b", DType::e4m3, {8, 4096});
    auto y = k.output("y", DType::f32, {64, 8});
    k.launch({1}, {.threads = 128});
    auto left = k.shared(DType::e4m3, {64, 256}, "left");
    auto right = k.shared(DType::e4m3, {8, 256}, "right");
    auto sum = k.fragment(DType::f32, {64, 8}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, 16, [&](dsl::Value step) {
      k.copy(a.tile({0, step * 256}, {64, 256}), left);
      k.copy(b.tile({0, step * 256}, {8, 256}), right);
      k.gemm(left, right.transposed(), sum, {.instruction = instruction, .promote = promote});
    });
    k.copy(sum, y);
    const auto ones = [](int64_t i) { return i % 4096 == 0 ? 448 : 1; };
    const HostTensor rows = tensor_by(DType::e4m3, {64, 4096}, ones);
    const HostTensor columns = tensor_by(DType::e4m3, {8, 4096}, ones);
    const HostTensor out(DType::f32, {64, 8});
    const codegen::cpu::Executable executable(codegen::lower(k.finish(), kSm90a));
    const codegen::cpu::Argument arguments[] = {
        {.tensor = rows.view()}, {.tensor = columns.view()}, {.tensor = out.view()}};
    executable.run(arguments, {.traps = true, .arithmetic = Arithmetic::target});
    return out.value(9);
  };
  CHECK(sum_of(128, ir::Instruction::automatic) == 204672);
  CHECK(sum_of(0, ir::Instruction::automatic) == 200704);
  CHECK(sum_of(128, ir::Instruction::mma) == 204799);
}

TEST_CASE("explain says why a product is not computed by wgmma", "[language][wgmma]") {
  const Product fits = product_of(DType::bf16, 64, 64, 64);
  CHECK(why_not_wgmma(fits).empty());
  CHECK(why_not_wgmma(fits, {9, 0, 0}) == "not wgmma: sm_90 has no wgmma");
  CHECK(why_not_wgmma(fits, {10, 0, 'a'}) == "not wgmma: sm_100a has no wgmma");
  Product p = fits;
  p.m = 32;
  CHECK(why_not_wgmma(p) == "not wgmma: m 32 is no multiple of 64");
  p = fits;
  p.threads = 96;
  p.m = 192;
  CHECK(why_not_wgmma(p) == "not wgmma: 96 threads are no whole groups of 128");
  p = fits;
  p.options.warp_rows = 4;
  CHECK(why_not_wgmma(p) == "not wgmma: the grid of warps is given");
  p = product_of(DType::e4m3, 64, 64, 128);
  p.b_by_columns = false;
  const std::string k_major =
      "8-bit operands are K-major: b is contiguous along n; store it as [n, k] and pass "
      "b.transposed()";
  CHECK(why_not_wgmma(p) == "not wgmma: " + k_major);
  CHECK(refusal(p).find(k_major) != std::string::npos);
  p = product_of(DType::e4m3, 64, 64, 96);
  CHECK(why_not_wgmma(p) == "not wgmma: k 96 is no multiple of promote, 128");
  p = product_of(DType::f32, 64, 64, 64);
  CHECK(why_not_wgmma(p).empty());
  p.options.tf32 = ir::Tf32::round;
  CHECK(why_not_wgmma(p).find("would have to be rounded in shared memory") != std::string::npos);
}

TEST_CASE("a product that wgmma does not fit is refused where the author asks for it",
          "[language][wgmma]") {
  Product p = product_of(DType::bf16, 64, 64, 64);
  CHECK(refusal(p).empty());
  const std::string text = refusal(p, {8, 0, 0});
  CHECK(text.find("this gemm cannot be computed by wgmma [GEMM]") != std::string::npos);
  CHECK(text.find("got       sm_80 has no wgmma") != std::string::npos);
  p.m = 32;
  CHECK(
      refusal(p, {}).find("m 32 is no multiple of 64\n  hint      let the rows of a be a multiple "
                          "of 64\n") != std::string::npos);
  p = product_of(DType::f32, 64, 64, 64);
  p.options.tf32 = ir::Tf32::round;
  CHECK(refusal(p).find("hint      pass .tf32 = ir::Tf32::truncate\n") != std::string::npos);
}

TEST_CASE("a grid of warps beside wgmma is refused with the hint to leave out the grid",
          "[language][wgmma]") {
  Product p = product_of(DType::bf16, 64, 64, 64);
  p.options.warp_rows = 2;
  p.options.warp_columns = 2;
  const std::string text = refusal(p);
  CAPTURE(text);
  CHECK(text.find("  got       the grid of warps is given\n  hint      leave out warp_rows and "
                  "warp_columns: wgmma has a grid of its own\n") != std::string::npos);
}

TEST_CASE("wgmma takes a grid of warps that the author gives by rows", "[language][wgmma]") {
  for (const int groups : {1, 2, 4}) {
    for (const bool by_columns : {false, true}) {  // .warp_columns = 1 is the same grid
      Product p = product_of(DType::bf16, 64 * groups, 64, 64);
      p.threads = 128 * groups;
      p.options.instruction = ir::Instruction::wgmma;
      (by_columns ? p.options.warp_columns : p.options.warp_rows) = by_columns ? 1 : 4 * groups;
      check_exact(p);
      CHECK(codegen::explain(product_kernel(p), kSm90a)
                .find(fmt::format("gemm: wgmma, {} x 1 groups of 4 warps", groups)) !=
            std::string::npos);
      // mma.sync holds the sum in the same registers, so the bits are the same.
      const ProductData one = random_operands(p, 3), other = random_operands(p, 3);
      run_product(p, one, kSm90a, Arithmetic::target);
      p.options.instruction = ir::Instruction::mma;
      CHECK(num_wgmma(p) == 0);
      run_product(p, other, kSm90a, Arithmetic::target);
      CHECK(one.y.raw() == other.y.raw());
    }
  }
  // Warps along the columns are another grid.
  Product p = product_of(DType::bf16, 128, 64, 64);
  p.threads = 256;
  p.options.warp_rows = 4;
  CHECK(refusal(p).find("the grid of warps is given") != std::string::npos);
}

TEST_CASE("a second product takes the first one from its registers", "[language][wgmma]") {
  for (const int64_t depth : {64, 128}) {
    dsl::Builder k("chained");
    auto q = k.input("q", DType::bf16, {64, depth});
    auto keys = k.input("keys", DType::bf16, {64, depth});
    auto values = k.input("values", DType::bf16, {64, depth});
    auto y = k.output("y", DType::f32, {64, depth});
    k.launch({1}, {.threads = 128});
    auto q_tile = k.shared(DType::bf16, {64, depth}, "q_tile");
    auto k_tile = k.shared(DType::bf16, {64, depth}, "k_tile");
    auto v_tile = k.shared(DType::bf16, {64, depth}, "v_tile");
    auto s = k.fragment(DType::f32, {64, 64}, "s"), o = k.fragment(DType::f32, {64, depth}, "o");
    auto p = k.fragment(DType::bf16, {64, 64}, "p");
    k.copy(q, q_tile);
    k.copy(keys, k_tile);
    k.copy(values, v_tile);
    k.fill(s, 0.0f);
    k.fill(o, 0.0f);
    k.gemm(q_tile, k_tile.transposed(), s);
    k.parallel({64, 64},
               [&](dsl::Value i, dsl::Value j) { p(i, j) = dsl::cast(DType::bf16, s(i, j)); });
    k.gemm(p, v_tile, o);
    k.copy(o, y);
    const ir::Kernel kernel = k.finish();
    const std::string explained = codegen::explain(kernel, kSm90a);
    CHECK(count(explained, "gemm: wgmma") == 2);
    CHECK(explained.find("relayouts") == std::string::npos);
    const auto values_by = [](int64_t step) {
      return [step](int64_t i) { return (i * step + i / 5) % 3 - 1; };
    };
    const HostTensor a = tensor_by(DType::bf16, {64, depth}, values_by(7));
    const HostTensor b = tensor_by(DType::bf16, {64, depth}, values_by(5));
    const HostTensor c = tensor_by(DType::bf16, {64, depth}, values_by(11));
    const HostTensor out(DType::f32, {64, depth});
    const codegen::cpu::Executable executable(codegen::lower(kernel, kSm90a));
    const codegen::cpu::Argument arguments[] = {
        {.tensor = a.view()}, {.tensor = b.view()}, {.tensor = c.view()}, {.tensor = out.view()}};
    executable.run(arguments, {.traps = true, .arithmetic = Arithmetic::target});
    CHECK_THAT(out, HasValues([&](int64_t i) {
                 double want = 0;
                 for (int64_t row = i / depth, j = 0; j < 64; ++j) {
                   double product = 0;
                   for (int64_t d = 0; d < depth; ++d) {
                     product += a.value(row * depth + d) * b.value(j * depth + d);
                   }
                   want += product * c.value(j * depth + i % depth);
                 }
                 return want;
               }));
  }
}

TEST_CASE("what threads write reaches the tensor cores by one proxy fence before the barrier",
          "[language][wgmma]") {
  dsl::Builder k("written");
  auto y = k.output("y", DType::f32, {64, 64});
  k.launch({1}, {.threads = 128});
  auto a = k.shared(DType::bf16, {64, 64}, "a");
  auto b = k.shared(DType::bf16, {64, 64}, "b");
  auto sum = k.fragment(DType::f32, {64, 64}, "sum");
  k.parallel({64, 64},
             [&](dsl::Value i, dsl::Value j) { a(i, j) = dsl::cast(DType::bf16, i - j); });
  k.parallel({64, 64},
             [&](dsl::Value i, dsl::Value j) { b(i, j) = dsl::cast(DType::bf16, i + j); });
  k.fill(sum, 0.0f);
  k.gemm(a, b.transposed(), sum);
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  codegen::Program program = codegen::lower(kernel, kSm90a);
  const std::string text = codegen::to_string(program);
  CHECK(count(text, "proxy fence\n") == 1);
  CHECK(text.find("proxy fence\n  barrier\n") != std::string::npos);
  const HostTensor out(DType::f32, {64, 64});
  const codegen::cpu::Argument arguments[] = {{.tensor = out.view()}};
  const auto run = [&] { codegen::cpu::Executable(program).run(arguments, {.traps = true}); };
  CHECK(error_of(run).empty());
  std::erase_if(program.body, [](const codegen::Stmt& stmt) { return test::is_proxy_fence(stmt); });
  const std::string error = error_of(run);
  CHECK(error.find("[PROXY]") != std::string::npos);
  CHECK(error.find("with no proxy fence after it") != std::string::npos);
}

namespace {

/// y = a * b over `steps` tiles of k, copied `ahead` of the product.
ir::Kernel pipelined_product(int64_t steps, int ahead, int threads, bool reads_sum = false) {
  dsl::Builder k("pipelined_product");
  auto a = k.input("a", DType::bf16, {64, steps * 32});
  auto b = k.input("b", DType::bf16, {64, steps * 32});
  auto y = k.output("y", DType::f32, {64, 64});
  k.launch({1}, {.threads = threads});
  auto left = k.shared(DType::bf16, {64, 32}, "left");
  auto right = k.shared(DType::bf16, {64, 32}, "right");
  auto sum = k.fragment(DType::f32, {64, 64}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, steps, ahead + 1, [&](dsl::Value step) {
    k.copy(a.tile({0, step * 32}, {64, 32}), left);
    k.copy(b.tile({0, step * 32}, {64, 32}), right);
    k.gemm(left, right.transposed(), sum);
    if (reads_sum) k.parallel({64, 64}, [&](dsl::Value i, dsl::Value j) { sum(i, j) += 1; });
  });
  k.copy(sum, y);
  return k.finish();
}

struct Rounds {
  HostTensor a, b, y;
  explicit Rounds(int64_t steps)
      : a(tensor_by(DType::bf16, {64, steps * 32}, [](int64_t i) { return i * 7 % 5 - 2; })),
        b(tensor_by(DType::bf16, {64, steps * 32}, [](int64_t i) { return i * 3 % 7 - 3; })),
        y(DType::f32, {64, 64}) {}

  void run(const codegen::Program& program) const {
    const codegen::cpu::Argument arguments[] = {
        {.tensor = a.view()}, {.tensor = b.view()}, {.tensor = y.view()}};
    codegen::cpu::Executable(program).run(arguments, {.traps = true});
  }
};

}  // namespace

TEST_CASE("a pipelined loop awaits its product one round later", "[language][wgmma]") {
  for (const int64_t steps : {1, 2, 3, 5, 7, 8}) {
    for (const int ahead : {2, 3, 4}) {
      CAPTURE(steps, ahead);
      const ir::Kernel kernel = pipelined_product(steps, ahead, steps % 2 == 0 ? 256 : 128);
      const Rounds data(steps);
      data.run(codegen::lower(kernel, kSm90a));
      const int64_t depth = steps * 32;
      CHECK_THAT(data.y, HasValues([&](int64_t i) {
                   double want = 0;
                   for (int64_t k = 0; k < depth; ++k) {
                     want += data.a.value(i / 64 * depth + k) * data.b.value(i % 64 * depth + k);
                   }
                   return want;
                 }));
      if (steps < ahead + 2) continue;  // short loops have a tile for each step
      CHECK(codegen::explain(kernel, kSm90a).find("awaited one round later") != std::string::npos);
      const std::string text = codegen::cuda::emit_kernel_text(codegen::lower(kernel, kSm90a));
      CHECK(count(text, "await_wgmma<1>();") == 1);
      CHECK(count(text, "extern __shared__ __align__(512) unsigned char arena[];") == 1);
      CHECK(count(text, "wait_for_wgmma<0, ") == 1);
    }
  }
}

namespace {

/// y[0] = a * b and y[1] = a * c over `steps` tiles of k, both products in one loop.
ir::Kernel two_products(int64_t steps, int ahead, bool reads_second = false) {
  dsl::Builder k("two_products");
  auto a = k.input("a", DType::bf16, {64, steps * 32});
  auto b = k.input("b", DType::bf16, {64, steps * 32});
  auto c = k.input("c", DType::bf16, {64, steps * 32});
  auto y = k.output("y", DType::f32, {2, 64, 64});
  k.launch({1}, {.threads = 128});
  auto left = k.shared(DType::bf16, {64, 32}, "left");
  auto first = k.shared(DType::bf16, {64, 32}, "first");
  auto second = k.shared(DType::bf16, {64, 32}, "second");
  auto sum = k.fragment(DType::f32, {64, 64}, "sum"),
       other = k.fragment(DType::f32, {64, 64}, "other");
  k.fill(sum, 0.0f);
  k.fill(other, 0.0f);
  k.pipelined(0, steps, ahead + 1, [&](dsl::Value step) {
    k.copy(a.tile({0, step * 32}, {64, 32}), left);
    k.copy(b.tile({0, step * 32}, {64, 32}), first);
    k.copy(c.tile({0, step * 32}, {64, 32}), second);
    k.gemm(left, first.transposed(), sum);
    k.gemm(left, second.transposed(), other);
    if (reads_second) k.parallel({64, 64}, [&](dsl::Value i, dsl::Value j) { other(i, j) += 1; });
  });
  k.copy(sum, y(0));
  k.copy(other, y(1));
  return k.finish();
}

}  // namespace

TEST_CASE("a pipelined loop awaits both of its products one round later", "[language][wgmma]") {
  for (const int64_t steps : {1, 2, 3, 5, 8}) {
    for (const int ahead : {2, 3}) {
      CAPTURE(steps, ahead);
      const ir::Kernel kernel = two_products(steps, ahead);
      codegen::Program program = codegen::lower(kernel, kSm90a);
      const auto values_by = [](int64_t step) {
        return [step](int64_t i) { return (i * step + i / 5) % 5 - 2; };
      };
      const HostTensor a = tensor_by(DType::bf16, {64, steps * 32}, values_by(7));
      const HostTensor b = tensor_by(DType::bf16, {64, steps * 32}, values_by(5));
      const HostTensor c = tensor_by(DType::bf16, {64, steps * 32}, values_by(11));
      const HostTensor y(DType::f32, {2, 64, 64});
      const codegen::cpu::Argument arguments[] = {
          {.tensor = a.view()}, {.tensor = b.view()}, {.tensor = c.view()}, {.tensor = y.view()}};
      const auto run = [&] { codegen::cpu::Executable(program).run(arguments, {.traps = true}); };
      run();
      const int64_t depth = steps * 32;
      CHECK_THAT(y, HasValues([&](int64_t i) {
                   const HostTensor& right = i < 64 * 64 ? b : c;
                   double want = 0;
                   for (int64_t k = 0; k < depth; ++k) {
                     want += a.value(i / 64 % 64 * depth + k) * right.value(i % 64 * depth + k);
                   }
                   return want;
                 }));
      if (steps < ahead + 2) continue;  // short loops have a tile for each step
      CHECK(count(codegen::explain(kernel, kSm90a), "awaited one round later") == 2);
      CHECK(count(codegen::cuda::emit_kernel_text(program), "await_wgmma<2>();") == 2);
      // One more group in flight reads what the next copies overwrite.
      codegen::walk(program.body, [](codegen::Stmt& stmt) {
        auto* wait = std::get_if<codegen::Await>(&stmt.node);
        if (wait != nullptr && wait->pending == 2) wait->pending = 6;
      });
      CHECK(error_of(run).find("[PRODUCT_BUSY]") != std::string::npos);
    }
  }
  const std::string read = codegen::explain(two_products(5, 3, true), kSm90a);
  CHECK(count(read, "awaited in its round: the loop uses 'other'") == 2);
}

TEST_CASE("a product that the loop needs is awaited in its round", "[language][wgmma]") {
  const std::string read = codegen::explain(pipelined_product(4, 3, 128, true), kSm90a);
  CHECK(read.find("awaited in its round: the loop uses 'sum'") != std::string::npos);
  // With one iteration ahead the next copies go where the last product reads.
  const std::string short_of_tiles = codegen::explain(pipelined_product(4, 1, 128), kSm90a);
  CHECK(short_of_tiles.find("awaited in its round: ") != std::string::npos);
}

TEST_CASE("the executor sees operands that are overwritten under a product", "[language][wgmma]") {
  codegen::Program program = codegen::lower(pipelined_product(8, 3, 128), kSm90a);
  const Rounds data(8);
  CHECK(error_of([&] { data.run(program); }).empty());
  codegen::walk(program.body, [](codegen::Stmt& stmt) {
    auto* wait = std::get_if<codegen::Await>(&stmt.node);
    const bool of_products = wait != nullptr && wait->work == codegen::Work::products;
    if (of_products && wait->pending == 1) wait->pending = 4;
  });
  const std::string error = error_of([&] { data.run(program); });
  CHECK(error.find("[PRODUCT_BUSY]") != std::string::npos);
  CHECK(error.find("is overwritten while a product that reads it runs on") != std::string::npos);
}

TEST_CASE("sums are not there while their product runs on", "[language][wgmma]") {
  codegen::Program program =
      codegen::lower(product_kernel(product_of(DType::bf16, 64, 64, 64)), kSm90a);
  std::erase_if(program.body, [](const codegen::Stmt& stmt) {
    const auto* wait = std::get_if<codegen::Await>(&stmt.node);
    return wait != nullptr && wait->work == codegen::Work::products;
  });
  const ProductData data = exact_operands(product_of(DType::bf16, 64, 64, 64));
  const codegen::cpu::Argument arguments[] = {
      {.tensor = data.a.view()}, {.tensor = data.b.view()}, {.tensor = data.y.view()}};
  const std::string error =
      error_of([&] { codegen::cpu::Executable(program).run(arguments, {.traps = true}); });
  CHECK(error.find("[UNINITIALISED]") != std::string::npos);
}

TEST_CASE("the arithmetic of a target that was not measured is refused", "[language][wgmma]") {
  const Product p = product_of(DType::bf16, 64, 64, 64);
  for (const Target target : {Target{8, 0, 0}, Target{10, 0, 'a'}}) {
    const std::string text =
        error_of([&] { run_product(p, exact_operands(p), target, Arithmetic::target); });
    CHECK(text.find("the sums of this target's tensor cores are not known") != std::string::npos);
  }
}

TEST_CASE("NVRTC takes every form of wgmma, and the assembler keeps it asynchronous",
          "[language][wgmma][nvrtc][slow]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  std::vector<Product> products;
  for (const DType dtype : kWgmmaDtypes) {
    products.push_back(product_of(dtype, 128, 128, 128));
    products.push_back(product_of(dtype, 64, 24, 128));
    products.back().a_in_registers = true;
  }
  for (const int form : {0, 1, 2}) {
    products.push_back(product_of(DType::bf16, 64, 64, 64));
    products.back().a_by_columns = (form & 1) != 0;
    products.back().b_by_columns = (form & 2) != 0;
  }
  products.push_back(product_of(DType::e4m3, 64, 64, 128));
  products.back().right_dtype = DType::e5m2;
  for (const Product& p : products) {
    INFO(p.text());
    const auto source = codegen::cuda::emit(codegen::lower(product_kernel(p), kSm90a));
    const Compiled compiled = nvrtc->compile(source.text, "sm_90a");
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}
