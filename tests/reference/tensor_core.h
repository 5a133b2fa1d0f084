#pragma once
// One instruction of the tensor cores of sm_90, by definition.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

/// How many bits below the largest term a tensor core keeps of a term, and of the mantissa of a sum.
struct TensorCore {
  int kept = 25, stored = 23;
};

/// magnitude * 2^place, where a normal number's leading bit has the exponent `lead`.
struct Number {
  double value = 0;  // tells zero, infinity and NaN
  int64_t magnitude = 0;
  int place = 0, lead = 0;
};

Number number_of(DType format, uint32_t code);
/// The elements of a tensor, decomposed.
std::vector<Number> numbers_of(const test::HostTensor& tensor);

/// One instruction: c + the sum of a[i] * b[i], where a and b hold codes of `format`. A product with a
/// zero factor takes no part, nor does c = 0. Other terms are truncated toward zero to `kept` bits
/// below the largest exponent among them, where a product has the sum of its factors' exponents and a
/// subnormal factor the exponent of the smallest normal number. They are added exactly, and the sum is
/// truncated to `stored` bits of mantissa. A NaN is 0x7FFFFFFF, an empty sum +0.
///
/// Returns the bits of an f32.
uint32_t tensor_core_sum(TensorCore core, DType format, uint32_t c, std::span<const uint32_t> a,
                         std::span<const uint32_t> b);
/// The same for factors that are decomposed already.
uint32_t sum_of(TensorCore core, const Number& c, const Number* a, const Number* b, size_t count);

}  // namespace tessera::reference
