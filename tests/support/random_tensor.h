#pragma once
// Seeded test data, the same on every machine and compiler.

#include <cstdint>

#include "tests/support/host_tensor.h"

namespace tessera::test {

/// A small generator with good bits (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// 0 .. bound - 1
  int64_t below(int64_t bound);
  /// [0, 1)
  double uniform();
  /// Mean 0, deviation 1, never beyond 3.5: the sum of four uniform draws.
  double normal();

 private:
  uint64_t state_;
};

enum class Values : uint8_t {
  normal,   // floats: standard normal; integers and bool: any bits
  uniform,  // floats: [0, 1); integers and bool: any bits
  bits,     // any bits, so NaN payloads too
  nasty,  // runs of normal values at any scale, zeros, subnormals, powers of two, infinities, NaN,
          // limits
};

/// Example: random_tensor(DType::bf16, {4, 512}, Values::normal, 7)
HostTensor random_tensor(DType dtype, Dims shape, Values values, uint64_t seed);
/// With strides; what lies between the elements stays unset.
HostTensor random_tensor(DType dtype, Dims shape, Dims strides, Values values, uint64_t seed);
/// Refills the elements of a tensor.
void fill_random(HostTensor& tensor, Values values, uint64_t seed);

}  // namespace tessera::test
