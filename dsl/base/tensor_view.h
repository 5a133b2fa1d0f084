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

/// Where memory is: the CPU, or a CUDA device by its number.
///
/// Example: Device::cuda(0)
struct Device {
  enum class Kind : uint8_t { cpu, cuda } kind = Kind::cpu;  // which of the two
  int ordinal = 0;

  /// The CPU / the CUDA device of a number.
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int ordinal) { return {Kind::cuda, ordinal}; }
  bool is_cuda() const { return kind == Kind::cuda; }
  friend bool operator==(const Device&, const Device&) = default;
};
TESSERA_API std::string to_string(Device device);  // "cpu", "cuda:0"

/// Extents or strides, at most kMaxRank of them, inline. More are an argument error.
inline constexpr int kMaxRank = 8;
struct TESSERA_API Dims {
  std::array<int64_t, kMaxRank> values{};
  int rank = 0;

  Dims() = default;
  Dims(std::initializer_list<int64_t> list);
  explicit Dims(std::span<const int64_t> list);
  int64_t operator[](int i) const { return values[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values[static_cast<size_t>(i)]; }
  /// One more value at the end. Throws an argument error beyond kMaxRank.
  void push_back(int64_t value);
  const int64_t* begin() const { return values.data(); }
  /// Within the array whatever `rank` says.
  const int64_t* end() const {
    const bool fits = rank >= 0 && rank <= kMaxRank;
    return values.data() + (fits ? rank : 0);
  }
  friend TESSERA_API bool operator==(const Dims& a, const Dims& b);
};
/// The product of the extents / the strides of a tensor without gaps, the last one 1.
TESSERA_API int64_t num_elements(const Dims& shape);
TESSERA_API Dims row_major_strides(const Dims& shape);
TESSERA_API std::string to_string(const Dims& dims);  // "[4096, 56]"

/// Strides count elements of `dtype`. e2m1 data is passed as i8 [.., H/2].
struct TESSERA_API TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  bool read_only = false;  // memory that nobody may write: an error as an output
  Dims shape;
  Dims strides;

  TensorView() = default;
  /// Row-major.
  TensorView(void* data, DType dtype, Dims shape, Device device = {});
  TensorView(void* data, DType dtype, Dims shape, Dims strides, Device device);
  /// The same of constant memory: `read_only`.
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
/// What makes a view impossible.
struct ViewDefect {
  std::string expected, got;
};
/// A rank that no view has, a number of strides that is not the rank, a dtype or a device that does not
/// exist. Nothing if all is well.
TESSERA_API std::optional<ViewDefect> find_defect(const TensorView& view);

/// "bf16[4096, 7168]", with ", strides [..]" appended when they are not row-major.
TESSERA_API std::string to_string(const TensorView& view);

}  // namespace tessera
