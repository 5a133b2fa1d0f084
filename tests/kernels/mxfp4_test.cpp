// MXFP4 weights on the executor: the references, the bits of the tensor cores of sm_90, the mistakes that the cases
// catch, what bad calls are told.

#include "tests/reference/mxfp4.h"

#include <bit>
#include <cmath>

#include "kernels/gemm/parts/mxfp4_kernel.h"
#include "tests/reference/gemm.h"
#include "tests/reference/numeric.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

TEST_CASE("mxfp4_prepack equals its reference on the executor", "[mxfp4]") {
  check_products("mxfp4_prepack", mxfp4_prepack_cases());
}

TEST_CASE("mxfp4_decode equals its reference on the executor", "[mxfp4]") {
  check_products("mxfp4_decode", mxfp4_decode_cases());
}

TEST_CASE("gemm_mxfp4_masked equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4_masked", gemm_mxfp4_masked_cases());
}

TEST_CASE("gemm_mxfp4 equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4", gemm_mxfp4_cases());
}

TEST_CASE("gemm_mxfp4_grouped equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4_grouped", gemm_mxfp4_grouped_cases());
}
