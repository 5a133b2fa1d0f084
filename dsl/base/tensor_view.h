#pragma once
// A non-owning, trivially copyable view of a tensor on the CPU or on a CUDA device.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "dsl/base/api.h"
#include "dsl/base/dtype.h"

namespace tessera {

/// The place of memory: the CPU, or a CUDA device by its ordinal.
///
/// Example: Device::cuda(0)
struct Device {
  enum class Kind : uint8_t { cpu, cuda } kind = Kind::cpu;  // CPU or CUDA device
  int ordinal = 0;

  /// The CPU; a CUDA device by its ordinal.
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int ordinal) { return {Kind::cuda, ordinal}; }
  bool is_cuda() const { return kind == Kind::cuda; }
  friend bool operator==(const Device&, const Device&) = default;
};
TESSERA_API std::string to_string(Device device);  // "cpu", "cuda:0"

/// Up to kMaxRank extents or strides, stored inline. More are an argument error.
inline constexpr int kMaxRank = 8;
struct TESSERA_API Dims {
  std::array<int64_t, kMaxRank> values{};
  int rank = 0;

  Dims() = default;
  Dims(std::initializer_list<int64_t> list);
  explicit Dims(std::span<const int64_t> list);
  int64_t operator[](int i) const { return values[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values[static_cast<size_t>(i)]; }
  /// Appends a value. Throws an argument error beyond kMaxRank.
  void push_back(int64_t value);
  const int64_t* begin() const { return values.data(); }
  /// Stays within the array for any `rank`.
  const int64_t* end() const {
    const bool fits = rank >= 0 && rank <= kMaxRank;
    return values.data() + (fits ? rank : 0);
  }
  friend TESSERA_API bool operator==(const Dims& a, const Dims& b);
};
/// The product of the extents; the strides of a contiguous row-major tensor.
TESSERA_API int64_t num_elements(const Dims& shape);
TESSERA_API Dims row_major_strides(const Dims& shape);
TESSERA_API std::string to_string(const Dims& dims);  // "[4096, 56]"

/// Strides count elements of `dtype`. e2m1 data is passed as i8 [.., H/2].
struct TESSERA_API TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  bool read_only = false;  // memory that may not be written: an error for an output
  Dims shape;
  Dims strides;

  TensorView() = default;
  /// Row-major.
  TensorView(void* data, DType dtype, Dims shape, Device device = {});
  TensorView(void* data, DType dtype, Dims shape, Dims strides, Device device);
  /// The same for constant memory: `read_only`.
  template <class T>
  requires std::is_const_v<T> TensorView(T* data_, DType dtype_, Dims shape_, Device device_ = {})
      : TensorView(const_cast<std::remove_const_t<T>*>(data_), dtype_, shape_, device_) {
    read_only = true;
  }
  template <class T>
  requires std::is_const_v<T> TensorView(T* data_, DType dtype_, Dims shape_, Dims strides_,
                                         Device device_)
      : TensorView(const_cast<std::remove_const_t<T>*>(data_), dtype_, shape_, strides_, device_) {
    read_only = true;
  }

  int rank() const { return shape.rank; }
  int64_t size() const { return num_elements(shape); }
  /// Strides of extent-1 dimensions and of empty tensors do not matter.
  bool is_row_major() const;
  /// Bytes from `data` to one past the last element; 0 if empty. Strides are never negative here.
  int64_t span_bytes() const;
};
/// Describes why a view is impossible.
struct ViewDefect {
  std::string expected, got;
};
/// Finds an impossible rank, a number of strides unequal to the rank, or an unknown dtype or device.
/// Nothing if the view is valid.
TESSERA_API std::optional<ViewDefect> find_defect(const TensorView& view);

/// "bf16[4096, 7168]", with ", strides [..]" appended when they are not row-major.
TESSERA_API std::string to_string(const TensorView& view);

}  // namespace tessera
