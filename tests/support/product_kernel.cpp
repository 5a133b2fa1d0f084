#include "tests/support/product_kernel.h"

#include <fmt/format.h>

#include "codegen/lower.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

Dims a_shape(const Product& p) {
  return p.a_by_columns ? Dims{p.k, p.m} : Dims{p.m, p.k};
}
Dims b_shape(const Product& p) {
  return p.b_by_columns ? Dims{p.n, p.k} : Dims{p.k, p.n};
}
DType sum_dtype(const Product& p) {
  return p.dtype == DType::i8 ? DType::i32 : DType::f32;
}

double small_integer(int64_t i) {
  return static_cast<double>((i * 37 + i / 7) % 9 - 4);
}

}  // namespace

std::string Product::text() const {
  return fmt::format("{} x {}, {} x {} x {}, {} threads{}{}{}", name(dtype), name(right_dtype), m,
                     n, k, threads, a_by_columns ? ", a by columns" : "",
                     b_by_columns ? ", b by columns" : "",
                     a_in_registers ? ", a in registers" : "");
}

Product product_of(DType dtype, int64_t m, int64_t n, int64_t k) {
  Product p;
  p.dtype = p.right_dtype = dtype;
  p.m = m;
  p.n = n;
  p.k = k;
  p.b_by_columns = true;
  if (dtype == DType::f32) p.options.tf32 = ir::Tf32::truncate;
  return p;
}

ir::Kernel product_kernel(const Product& p) {
  dsl::Builder k("product");
  auto a = k.input("a", p.dtype, {a_shape(p)[0], a_shape(p)[1]});
  auto b = k.input("b", p.right_dtype, {b_shape(p)[0], b_shape(p)[1]});
  auto y = k.output("y", sum_dtype(p), {p.m, p.n});
  k.launch({1}, {.threads = p.threads});
  auto right = k.shared(p.right_dtype, {b_shape(p)[0], b_shape(p)[1]}, "right");
  auto sum = k.fragment(sum_dtype(p), {p.m, p.n}, "sum");
  k.copy(b, right);
  k.copy(y, sum);
  const dsl::Ref b_view = p.b_by_columns ? right.transposed() : right;
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

ProductData exact_operands(const Product& p) {
  return {tensor_by(p.dtype, a_shape(p), small_integer),
          tensor_by(p.right_dtype, b_shape(p), [](int64_t i) { return small_integer(3 * i + 1); }),
          tensor_by(sum_dtype(p), {p.m, p.n}, [](int64_t i) { return i % 4096; })};
}

ProductData random_operands(const Product& p, uint64_t seed) {
  return {random_tensor(p.dtype, a_shape(p), Values::normal, seed),
          random_tensor(p.right_dtype, b_shape(p), Values::normal, seed + 1),
          random_tensor(sum_dtype(p), {p.m, p.n}, Values::normal, seed + 2)};
}

void run_product(const Product& p, const ProductData& data, Target target,
                 codegen::cpu::Arithmetic arithmetic) {
  const codegen::cpu::Executable executable(codegen::lower(product_kernel(p), target));
  const codegen::cpu::Argument arguments[] = {
      {.tensor = data.a.view()}, {.tensor = data.b.view()}, {.tensor = data.y.view()}};
  executable.run(arguments, {.traps = true, .arithmetic = arithmetic});
}

}  // namespace tessera::test
