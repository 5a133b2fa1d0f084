// A compiler with one more matrix instruction: its file beside this one, its row in atom_list.h.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/product_kernel.h"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("a matrix instruction that is one file and one row computes a product") {
  Product p = product_of(DType::f32, 64, 64, 32);
  for (const Target target : {Target{8, 0, 0}, kSm90a}) {
    CHECK(codegen::explain(product_kernel(p), target).find("gemm: fma, 4 x 1 warps") !=
          std::string::npos);
    const ProductData data = exact_operands(p);
    const HostTensor before = data.y;
    run_product(p, data, target, codegen::cpu::Arithmetic::exact);
    CHECK_THAT(data.y, HasValues([&](int64_t i) {
                 double want = before.value(i);
                 for (int64_t k = 0; k < p.k; ++k) {
                   want += data.a.value(i / p.n * p.k + k) * data.b.value(i % p.n * p.k + k);
                 }
                 return want;
               }));
  }
}

TEST_CASE("a product that the new instruction does not fit goes by another") {
  const Product p = product_of(DType::bf16, 64, 64, 64);
  CHECK(codegen::explain(product_kernel(p), kSm90a).find("gemm: wgmma, ") != std::string::npos);
  CHECK(codegen::explain(product_kernel(p), kSm90a).find("not fma: no product of whole f32") !=
        std::string::npos);
}
