#pragma once
// The value of a scalar parameter in a call.

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "dsl/base/api.h"
#include "dsl/base/dtype.h"

namespace tessera::kernels::jit {

/// A typed number or flag: a float parameter takes floats, an integer parameter integers in its
/// range, a bool parameter bools. A double is rounded to the parameter's dtype.
///
/// Example: const jit::Scalar scalars[] = {1e-6f, 3}; scale(tensors, scalars, stream);
class TESSERA_API Scalar {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> &&
           sizeof(T) <= 8) constexpr Scalar(T value) {  // NOLINT: implicit
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::boolean;
      integer_ = value ? 1 : 0;
    } else if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::floating;
      number_ = static_cast<double>(value);
    } else {
      kind_ = std::is_unsigned_v<T> ? Kind::not_negative : Kind::integer;
      integer_ = static_cast<int64_t>(value);
    }
  }

  /// True if a parameter of this dtype takes values of this kind, in range or not.
  bool is_for(DType type) const;
  /// The launch argument: a value of the dtype in the low bytes. Nothing if the kind or the range
  /// does not fit the dtype.
  std::optional<int64_t> slot(DType type) const;
  /// "the float 0.5", "the integer 2", "the bool true"
  std::string text() const;
  /// The value without its kind.
  std::string value_text() const;

 private:
  enum class Kind : uint8_t { floating, integer, not_negative, boolean };
  Kind kind_ = Kind::integer;
  int64_t integer_ = 0;  // not_negative: the bits of a uint64_t
  double number_ = 0;
};

/// The value of a float slot.
TESSERA_API double number_in(int64_t slot, DType type);

}  // namespace tessera::kernels::jit
