#pragma once
// An owning CPU tensor for tests: any strides, guard bytes around the storage, gaps filled with a
// large number so that code which reads or writes where it must not is seen.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"

namespace tessera::test {

/// Every byte that no test has set: 1.3e36 in f32 and bf16, 61280 in f16, 352 in e4m3.
inline constexpr std::byte kUnset{0x7B};
/// Guard bytes before and after the storage.
inline constexpr int64_t kGuardBytes = 256;

/// Elements are addressed by their logical row-major number, 0 .. size() - 1, whatever the strides.
class HostTensor {
 public:
  HostTensor() = default;
  /// Row-major, all elements unset.
  HostTensor(DType dtype, Dims shape);
  /// `storage_elements` beyond what the strides reach is padding that belongs to the tensor.
  HostTensor(DType dtype, Dims shape, Dims strides, int64_t storage_elements = 0);

  /// Writable; a test that promises not to write uses damage() and checksum() to prove it.
  TensorView view() const;
  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }
  int64_t size() const { return num_elements(shape_); }

  /// Bits of one element, zero-extended.
  uint64_t bits(int64_t element) const;
  void set_bits(int64_t element, uint64_t bits);
  /// The value of a float, integer or bool element; 64-bit integers beyond 2^53 are rounded.
  double value(int64_t element) const;
  /// Stores the nearest value of the dtype (reference rounding); integers take the integral part.
  void set_value(int64_t element, double value);

  /// Sets every byte of the storage, padding included.
  void fill_bytes(std::byte byte);
  /// Empty if the guards are whole, else which byte changed.
  std::string damage() const;
  /// Empty if every byte of the storage that is no element equals `byte`, else the first that does
  /// not.
  std::string padding_other_than(std::byte byte) const;
  /// A sum over the storage and the guards.
  uint64_t checksum() const;

  /// All of it, gaps and padding too.
  std::span<std::byte> storage() {
    return std::span(raw_).subspan(kGuardBytes, raw_.size() - 2 * kGuardBytes);
  }

  /// Storage with its guards, for copies to and from a device.
  std::vector<std::byte>& raw() { return raw_; }
  const std::vector<std::byte>& raw() const { return raw_; }

 private:
  int64_t element_offset(int64_t element) const;  // bytes into raw_
  int64_t storage_bytes() const { return static_cast<int64_t>(raw_.size()) - 2 * kGuardBytes; }

  DType dtype_ = DType::f32;
  Dims shape_, strides_;
  std::vector<std::byte> raw_ = std::vector<std::byte>(2 * kGuardBytes, kUnset);
};

using HostTensors = std::map<std::string, HostTensor>;

/// Bits of element `element` of a CPU view, in logical row-major order.
uint64_t element_bits(const TensorView& view, int64_t element);
/// The number that `bits` stands for in `dtype`.
double value_of(DType dtype, uint64_t bits);

}  // namespace tessera::test
