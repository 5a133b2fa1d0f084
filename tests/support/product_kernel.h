#pragma once
// Matrix products as kernels of one block, for tests of instructions: operands in every dtype, order and
// place.

#include <string>

#include "codegen/cpu/executor.h"
#include "dsl/builder.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

inline constexpr Target kSm90a{9, 0, 'a'};

/// y [m, n] += a [m, k] * b [k, n].
struct Product {
  DType dtype = DType::bf16;
  DType right_dtype = DType::bf16;
  int64_t m = 64, n = 64, k = 64;
  int threads = 128;
  bool a_by_columns = false;  // a is stored [k, m]
  bool b_by_columns = false;  // b is stored [n, k], as 8- and 32-bit operands of wgmma have to be
  bool a_in_registers = false;
  dsl::GemmOptions options = {};

  std::string text() const;
};
/// Both operands of one dtype, b stored [n, k].
Product product_of(DType dtype, int64_t m, int64_t n, int64_t k);

ir::Kernel product_kernel(const Product& product);

/// Operands of a product and what y holds before it.
struct ProductData {
  HostTensor a, b, y;
};
/// Small integers: every sum is exact in every dtype and order. y counts from 0.
ProductData exact_operands(const Product& product);
/// Any finite values of a similar size.
ProductData random_operands(const Product& product, uint64_t seed);

/// Runs the kernel lowered for a target, on the executor with traps on. y gets the result.
void run_product(const Product& product, const ProductData& data, Target target,
                 codegen::cpu::Arithmetic arithmetic);

}  // namespace tessera::test
