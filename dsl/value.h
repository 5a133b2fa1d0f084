#pragma once
// Handles of the language: Value (an immutable typed value), Ref (a buffer, a part of it, or one
// element) and Arg (an operand: either of them or a C++ number, with the line where the author
// wrote it).

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/ir/tile.h"

namespace tessera::dsl {

class Recorder;  // what a Builder has recorded so far
class Arg;

/// A typed value. Reading an element takes a snapshot: later stores do not change it. A value of run
/// time has no C++ truth: use Builder::if_ or select. (Not even a deleted conversion to bool, which
/// would make a && b ambiguous.)
class TESSERA_API Value {
 public:
  Value() = default;
  Value(Recorder* recorder, ir::Expr expr) : recorder_(recorder), expr_(std::move(expr)) {}
  // Out of line, as those of Ref and Arg: a kernel makes hundreds of each.
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  DType dtype() const { return expr_->type; }
  const ir::Expr& expr() const { return expr_; }
  Recorder* recorder() const { return recorder_; }

 private:
  Recorder* recorder_ = nullptr;
  ir::Expr expr_;
};

/// A buffer or a part of it. Fully indexed it is an element: converts to a Value (a load) and can
/// be assigned (a store). Copies of a Ref name the same storage. A Ref never changes what it names:
/// `a = b` copies the element b into the element a. Choose when it begins, or keep several:
///   const Ref from = swap ? y : x;
///   std::vector<Ref> stages = {x, y};
class TESSERA_API Ref {
 public:
  Ref(Recorder* recorder, ir::Region region, SourceLoc loc = {})
      : recorder_(recorder), region_(std::move(region)), loc_(loc) {}
  /// A copy is a name of its own: it is stale once the element is written by another one.
  Ref(const Ref& other);
  ~Ref();

  /// Indexes the leading dimensions that are still free. An index of constants and of loops with
  /// constant bounds that leaves a part on the chip, or a tile, in an iteration that is surely run is
  /// refused (OOB_CONST).
  ///
  /// `auto old = t(r, c)` names the element and reads it where it is used; `Value old = t(r, c)` reads
  /// it here. Reading through a name from before a write by another name that may have changed the
  /// element is refused (STALE_ELEMENT).
  Ref operator()(Arg i) const;
  Ref operator()(Arg i, Arg j) const;
  Ref operator()(Arg i, Arg j, Arg k) const;
  Ref operator()(Arg i, Arg j, Arg k, Arg l) const;
  /// The box of `extents` (constants) at `offsets`, over all free dimensions.
  Ref tile(std::vector<Arg> offsets, std::vector<int64_t> extents,
           SourceLoc loc = SourceLoc::here()) const;
  /// The last two free dimensions exchanged.
  Ref transposed(SourceLoc loc = SourceLoc::here()) const;
  /// The same fragment, shared or local buffer with another shape and the same number of elements.
  Ref reshape(std::vector<int64_t> shape, SourceLoc loc = SourceLoc::here()) const;

  /// The same part without bounds guards: the author vouches for every index, the checked executor
  /// traps.
  Ref unchecked() const;
  /// The same part of a global tensor with a hint for the caches. No value changes. Asynchronous
  /// copies heed evict_first alone, for all of it. CACHE_HINT for other memory, e2m1 and atomics.
  ///   k.copy(x.tile({row, 0}, {8, 512}).cached(CacheHint::evict_first), tile);   // read once
  Ref cached(ir::CacheHint hint, SourceLoc loc = SourceLoc::here()) const;
  /// The same part of a tensor that is not written, of which asynchronous copies start whole rows, one
  /// instruction each (bulk copies, from sm_90 on). A hint for the cache holds for these rows alone.
  /// CPASYNC_ROWS unless rows lie in one piece on both sides, inside of the tensor, of a multiple of 16
  /// bytes at such an address, and the block has whole warps; SYNC_DIVERGENT where not all of it comes.
  ///   k.copy(x.tile({row, 0}, {16, 512}).whole_rows(), tile);   // in a pipelined loop
  Ref whole_rows(SourceLoc loc = SourceLoc::here()) const;

  /// Stores to the element, loads it, or both. `read` is the conversion with a name.
  const Ref& operator=(const Arg& value) const;
  const Ref& operator=(const Ref& other) const;
  const Ref& operator=(const Ref& other);
  const Ref& operator+=(const Arg& value) const;
  const Ref& operator-=(const Arg& value) const;
  const Ref& operator*=(const Arg& value) const;
  const Ref& operator/=(const Arg& value) const;
  operator Value() const;
  Value read(SourceLoc loc = SourceLoc::here()) const;

  DType dtype() const { return region_.buffer->dtype; }
  const ir::Region& region() const { return region_; }
  Recorder* recorder() const { return recorder_; }
  /// Number of the name that operator() or a copy gave the element; 0 = none.
  int element_name() const { return name_; }

 private:
  Ref index(std::vector<Arg> indices) const;

  Recorder* recorder_;
  ir::Region region_;
  SourceLoc loc_;  // where the element was named
  int name_ = 0;
};

/// An operand. Numbers take the dtype of the other operand if they are exact in it (LITERAL
/// otherwise); cast(DType::bf16, 0.1f) rounds.
class TESSERA_API Arg {
 public:
  Arg(const Value& value, SourceLoc loc = SourceLoc::here());
  Arg(const Ref& element, SourceLoc loc = SourceLoc::here());
  template <class Number>
  requires std::is_arithmetic_v<Number> Arg(Number number, SourceLoc loc = SourceLoc::here())
      : integer_(std::is_floating_point_v<Number> ? 0 : static_cast<int64_t>(number)),
        number_(static_cast<double>(number)),
        kind_(std::is_same_v<Number, bool>       ? Kind::boolean
              : std::is_same_v<Number, float>    ? Kind::single
              : std::is_floating_point_v<Number> ? Kind::floating
                                                 : Kind::integer),
        loc_(loc) {}
  Arg(const Arg& other);
  Arg(Arg&& other) noexcept;
  Arg& operator=(const Arg& other);
  Arg& operator=(Arg&& other) noexcept;
  ~Arg();

  bool is_literal() const { return kind_ != Kind::value; }
  /// True for a literal that is a value of `dtype`.
  bool fits(DType dtype) const;
  /// The value; literals become i32 (i64 if they need it), f32 or boolean.
  Value value() const;
  /// The value as `dtype`: a literal must be exact in it, a Value must have it (i32 widens to i64).
  Value as(DType dtype, Recorder* recorder) const;
  Recorder* recorder() const { return value_.recorder(); }
  SourceLoc loc() const { return loc_; }

 private:
  enum class Kind : uint8_t { value, integer, single, floating, boolean };
  bool is_floating() const { return kind_ == Kind::single || kind_ == Kind::floating; }
  std::string literal_text() const;
  Value value_;
  int64_t integer_ = 0;
  double number_ = 0;
  Kind kind_ = Kind::value;
  SourceLoc loc_;
};

// ---- arithmetic on equal dtypes (i32 with i64 gives i64); integers wrap, / and % truncate like
// C++
TESSERA_API Value operator+(const Arg& a, const Arg& b);
TESSERA_API Value operator-(const Arg& a, const Arg& b);
TESSERA_API Value operator*(const Arg& a, const Arg& b);
TESSERA_API Value operator/(const Arg& a, const Arg& b);
TESSERA_API Value operator%(const Arg& a, const Arg& b);
TESSERA_API Value operator-(const Arg& a);
TESSERA_API Value operator&(const Arg& a, const Arg& b);
TESSERA_API Value operator|(const Arg& a, const Arg& b);
TESSERA_API Value operator^(const Arg& a, const Arg& b);
TESSERA_API Value operator<<(const Arg& a, const Arg& amount);
TESSERA_API Value operator>>(const Arg& a, const Arg& amount);
TESSERA_API Value operator<(const Arg& a, const Arg& b);
TESSERA_API Value operator<=(const Arg& a, const Arg& b);
TESSERA_API Value operator>(const Arg& a, const Arg& b);
TESSERA_API Value operator>=(const Arg& a, const Arg& b);
TESSERA_API Value operator==(const Arg& a, const Arg& b);
TESSERA_API Value operator!=(const Arg& a, const Arg& b);
TESSERA_API Value operator&&(const Arg& a, const Arg& b);  // both sides are evaluated
TESSERA_API Value operator||(const Arg& a, const Arg& b);
TESSERA_API Value operator!(const Arg& a);

/// max and min drop NaN and order -0 below +0.
TESSERA_API Value max(const Arg& a, const Arg& b);
TESSERA_API Value min(const Arg& a, const Arg& b);
/// As max and min of floats, but NaN if one of them is NaN.
TESSERA_API Value max_nan(const Arg& a, const Arg& b);
TESSERA_API Value min_nan(const Arg& a, const Arg& b);
TESSERA_API Value abs(const Arg& a);
TESSERA_API Value fma(const Arg& a, const Arg& b, const Arg& c);  // one rounding
TESSERA_API Value sqrt(const Arg& a);                             // IEEE
TESSERA_API Value rsqrt(const Arg& a);
/// An f32 rounded to tf32: 10 mantissa bits, ties away from zero. A NaN with none of these bits set
/// becomes infinity.
TESSERA_API Value round_tf32(const Arg& a);
/// The f16 of two f32, rounded toward zero, in one u32: `low` in bits 0 to 15. What is finite stays
/// finite (65504 at most), NaN becomes 0x7FFF.
///   f16x2_toward_zero(1.0f, -2.0f) is 0x3C00C000
TESSERA_API Value f16x2_toward_zero(const Arg& high, const Arg& low);
TESSERA_API Value exp(const Arg& a);
/// The f32 x / (1 + exp(-x)) to the bit, without the branch of a division: many at once overlap.
TESSERA_API Value silu(const Arg& a);
TESSERA_API Value log1p(const Arg& a);
TESSERA_API Value tanh(const Arg& a);
TESSERA_API Value copysign(const Arg& magnitude, const Arg& sign);
TESSERA_API Value is_nan(const Arg& a);
TESSERA_API Value is_inf(const Arg& a);
TESSERA_API Value popcount(const Arg& a);
/// Both arms are evaluated; use Builder::if_else where one of them must not be.
TESSERA_API Value select(const Arg& condition, const Arg& then, const Arg& otherwise);
/// Numeric conversion: floats round to nearest even; e4m3 and e2m1 saturate, NaN becomes the
/// format's NaN (e2m1: code 7); float to integer truncates, saturates and gives 0 for NaN; integers
/// wrap.
TESSERA_API Value cast(DType dtype, const Arg& a);
/// The same bits as another dtype of the same width.
TESSERA_API Value reinterpret(DType dtype, const Arg& a);
inline Value f32(const Arg& a) {
  return cast(DType::f32, a);
}
inline Value i32(const Arg& a) {
  return cast(DType::i32, a);
}
inline Value u32(const Arg& a) {
  return cast(DType::u32, a);
}
inline Value i64(const Arg& a) {
  return cast(DType::i64, a);
}
/// ceil(a / b) for a >= 0 and a positive constant b.
TESSERA_API Value ceil_div(const Arg& a, int64_t b);
/// Signed division towards minus infinity, and the remainder that goes with it (the sign of b, or
/// 0): floor_div(-7, 2) = -4, floor_mod(-7, 2) = 1.
TESSERA_API Value floor_div(const Arg& a, const Arg& b);
TESSERA_API Value floor_mod(const Arg& a, const Arg& b);

}  // namespace tessera::dsl
