#pragma once
// Handles of the language: Value (an immutable typed value), Ref (a buffer, a part of it, or one
// element) and Arg (an operand: either of them or a C++ number, with the line where the author
// wrote it).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/ir/tile.h"

namespace tessera::dsl {

class Recorder;  // what a Builder has recorded so far
class Arg;
class Rows;
class TileAt;
class TileRef;

/// A typed value. `Value v = t(i)` keeps what the element holds now; later stores do not change it.
/// A run-time value does not convert to bool: use Builder::if_ or select. (A deleted conversion would
/// make a && b ambiguous.)
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

/// A buffer or a part of it. With an index per dimension it is an element: it converts to a Value (a load)
/// and can be assigned (a store). Copies of a Ref name the same storage, and assignment never changes what
/// a Ref names: `a = b` copies element b into element a. To choose a buffer, initialise a Ref or keep
/// several:
///   const Ref from = swap ? y : x;
///   std::vector<Ref> stages = {x, y};
class TESSERA_API Ref {
 public:
  Ref(Recorder* recorder, ir::Region region, SourceLoc loc = {})
      : recorder_(recorder), region_(std::move(region)), loc_(loc) {}
  /// A copy is a name of its own: it is stale once the element is written by another one.
  Ref(const Ref& other);
  ~Ref();

  /// Indexes the leading free dimensions; k.all leaves one free. OOB_CONST if an index is outside a tile or an on-chip buffer for
  /// certain.
  ///
  /// `auto old = t(r, c)` names the element and reads it where it is used. `Value old = t(r, c)` reads it
  /// here. STALE_ELEMENT if a name is read after another name may have changed the element.
  Ref operator()(Arg i) const;
  Ref operator()(Arg i, Arg j) const;
  Ref operator()(Arg i, Arg j, Arg k) const;
  Ref operator()(Arg i, Arg j, Arg k, Arg l) const;
  /// The box of constant `extents` at `offsets`, over all free dimensions.
  TileRef tile(std::vector<Arg> offsets, std::vector<int64_t> extents,
               SourceLoc loc = SourceLoc::here()) const;
  /// The same with the extents of the other side of the statement: of what is copied to it, or of what it is copied to.
  ///   k.copy(x.tile({row, 0}), tile);
  TileAt tile(std::vector<Arg> offsets, SourceLoc loc = SourceLoc::here()) const;
  /// The last two free dimensions exchanged.
  TileRef transposed(SourceLoc loc = SourceLoc::here()) const;
  /// The same fragment, shared or local buffer with another shape and the same number of elements.
  TileRef reshape(std::vector<int64_t> shape, SourceLoc loc = SourceLoc::here()) const;

  /// The same part without bounds guards. The author vouches for every index; the executor traps (OOB).
  Ref unchecked() const;
  /// The same part of a global tensor with a cache hint; values do not change. Asynchronous copies follow
  /// only evict_first. CACHE_HINT for other memory, e2m1 and atomics.
  ///   k.copy(x.tile({row, 0}, {8, 512}).cached(CacheHint::evict_first), tile);   // read once
  Ref cached(ir::CacheHint hint, SourceLoc loc = SourceLoc::here()) const;
  /// The same part of an input, for asynchronous copies in bulk: one bulk copy per row, from sm_90
  /// on. CPASYNC_ROWS unless rows are contiguous on both sides, inside the tensor, 16-byte aligned
  /// multiples of 16 bytes, and the block has whole warps. SYNC_DIVERGENT unless the whole block copies.
  ///   k.copy(x.tile({row, 0}, {16, 512}).bulk(), tile);   // in a pipelined loop
  Ref bulk(SourceLoc loc = SourceLoc::here()) const;

  /// Rows that a list chooses, for k.copy: row r of the copy is row index(r). `index` is a list of one
  /// dimension, of i32, i64 or u32: global, shared or a fragment. Rows outside of a global tensor, as -1,
  /// read 0 and are not written. Below a row stand the other free dimensions. GATHER says what does not fit.
  ///   k.copy(x.rows(ids.tile({step * 64}, {64})), tile);   // x: [tokens, 512], tile: [64, 512]
  Rows rows(const Ref& index, SourceLoc loc = SourceLoc::here()) const;
  /// The same by a function: it gives the leading indices of row r, one or several.
  ///   k.copy(x.rows(64, [&](Value r) { return std::vector<Value>{y + r / 8, x0 + r % 8}; }), tile);
  Rows rows(int64_t count, std::function<std::vector<Value>(const Value&)> place,
            SourceLoc loc = SourceLoc::here()) const;

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
  /// The constants that the free dimensions have. REGION unless all are.
  std::vector<int64_t> extents(SourceLoc loc = SourceLoc::here()) const;
  const ir::Region& region() const { return region_; }
  Recorder* recorder() const { return recorder_; }
  /// Number of the name that operator() or a copy gave the element; 0 = none. For the recorder.
  int element_name() const { return name_; }

 private:
  friend class Builder;
  friend class Tile;
  Ref index(std::vector<Arg> indices) const;
  /// A part of this one, named at `loc`.
  Ref derived(ir::Region region, SourceLoc loc = {}) const;

  Recorder* recorder_;
  ir::Region region_;
  SourceLoc loc_;  // where the element was named
  int name_ = 0;
  bool is_bulk_ = false;  // asynchronous copies take it by bulk copies
};

/// A Ref that is a tile, never one element: arithmetic takes it as the Tile of its elements.
///   k.store(sum * scale, sum);
class TESSERA_API TileRef : public Ref {
 public:
  explicit TileRef(const Ref& ref) : Ref(ref) {}
  TileRef(const TileRef& other) = default;
  using Ref::operator=;
  const TileRef& operator=(const TileRef& other) const {
    static_cast<const Ref&>(*this) = other;
    return *this;
  }
};

/// Rows of a buffer that are chosen one by one; see Ref::rows.
class TESSERA_API Rows {
 public:
  Rows(Ref of, int64_t count, std::function<std::vector<Value>(const Value&)> place)
      : of_(std::move(of)), count_(count), place_(std::move(place)) {}
  const Ref& of() const { return of_; }
  int64_t count() const { return count_; }

 private:
  friend class Builder;
  Ref of_;
  int64_t count_;
  std::function<std::vector<Value>(const Value&)> place_;
};

/// The type of Builder::all.
struct All {};

/// An operand: a Value, an element or a C++ number. A number takes the dtype of the other operand and must
/// be exact in it (LITERAL); cast(DType::bf16, 0.1f) rounds.
class TESSERA_API Arg {
 public:
  Arg(const Value& value, SourceLoc loc = SourceLoc::here());
  /// A Ref is one element here; a TileRef is none.
  template <class Element>
  requires std::is_same_v<Element, Ref> Arg(const Element& element,
                                            SourceLoc loc = SourceLoc::here())
      : value_(element.read(loc)), loc_(loc) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Arg(Number number, SourceLoc loc = SourceLoc::here())
      : integer_(std::is_floating_point_v<Number> ? 0 : static_cast<int64_t>(number)),
        number_(static_cast<double>(number)),
        kind_(std::is_same_v<Number, bool>       ? Kind::boolean
              : std::is_same_v<Number, float>    ? Kind::single
              : std::is_floating_point_v<Number> ? Kind::floating
                                                 : Kind::integer),
        loc_(loc) {}
  /// For indices only: ALL_VALUE where it is used as a value.
  Arg(All, SourceLoc loc = SourceLoc::here()) : kind_(Kind::dimension), loc_(loc) {}
  Arg(const Arg& other);
  Arg(Arg&& other) noexcept;
  Arg& operator=(const Arg& other);
  Arg& operator=(Arg&& other) noexcept;
  ~Arg();

  bool is_literal() const { return kind_ != Kind::value; }
  bool is_all() const { return kind_ == Kind::dimension; }
  /// True for a literal that is a value of `dtype`.
  bool fits(DType dtype) const;
  /// The value; literals become i32 (i64 if they need it), f32 or boolean.
  Value value() const;
  /// The value as `dtype`: a literal must be exact in it, a Value must have it (i32 widens to i64).
  Value as(DType dtype, Recorder* recorder) const;
  Recorder* recorder() const { return value_.recorder(); }
  SourceLoc loc() const { return loc_; }

 private:
  enum class Kind : uint8_t { value, integer, single, floating, boolean, dimension };
  bool is_floating() const { return kind_ == Kind::single || kind_ == Kind::floating; }
  std::string literal_text() const;
  Value value_;
  int64_t integer_ = 0;
  double number_ = 0;
  Kind kind_ = Kind::value;
  SourceLoc loc_;
};

/// A place for a tile, whose extents the other side of a statement gives; see Ref::tile.
class TESSERA_API TileAt {
 public:
  TileAt(Ref of, std::vector<Arg> offsets, SourceLoc loc)
      : of_(std::move(of)), offsets_(std::move(offsets)), loc_(loc) {}

 private:
  friend class Builder;
  /// The tile of these extents; of those of 1, as many come in front or go as the rank needs. RANK.
  TileRef with_extents(std::vector<int64_t> extents) const;
  TileRef with_extents_of(const Ref& other) const;

  Ref of_;
  std::vector<Arg> offsets_;
  SourceLoc loc_;
};

// ---- Arithmetic on equal dtypes (i32 with i64 gives i64); integers wrap, / and % truncate like
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
Value max(const Arg& a, const Arg& b);
Value min(const Arg& a, const Arg& b);
/// max and min of floats that return NaN if an operand is NaN.
Value max_nan(const Arg& a, const Arg& b);
Value min_nan(const Arg& a, const Arg& b);
/// Absolute value; a * b + c with one rounding, in f64 if a value of it is f64, else in f32; square root
/// (IEEE) and its inverse, which a GPU approximates. f64 has no function that a GPU approximates.
Value abs(const Arg& a);
Value fma(const Arg& a, const Arg& b, const Arg& c);
Value sqrt(const Arg& a);
Value rsqrt(const Arg& a);
/// An f32 rounded to tf32: 10 mantissa bits, ties away from zero. A NaN with none of these bits set
/// becomes infinity.
Value round_tf32(const Arg& a);
/// Two f32 as f16, rounded toward zero, in one u32; `low` is in bits 0 to 15. Finite values stay finite
/// (at most 65504), NaN becomes 0x7FFF.
///   f16x2_toward_zero(1.0f, -2.0f) is 0x3C00C000
Value f16x2_toward_zero(const Arg& high, const Arg& low);
/// exp of an f32; a GPU approximates it.
Value exp(const Arg& a);
/// x / (1 + exp(-x)) of an f32, to the bit, without the branch of a division.
Value silu(const Arg& a);
/// Elementary functions; f16 and bf16 are computed in f32 and rounded. A GPU approximates them: exp2, sin,
/// cos, tanh and erf to 2 ulp, log, log2 and log1p (log(1 + x)) to 1. sin and cos of infinity are NaN.
Value exp2(const Arg& a);
Value log(const Arg& a);
Value log2(const Arg& a);
Value log1p(const Arg& a);
Value sin(const Arg& a);
Value cos(const Arg& a);
Value tanh(const Arg& a);
Value erf(const Arg& a);
/// The nearest whole number below, above, or on either side (ties to the even one); exact, -0 stays.
Value floor(const Arg& a);
Value ceil(const Arg& a);
Value rint(const Arg& a);
/// One instruction of the GPU for an f32, instead of a function; subnormal operands and results are zeros.
/// Errors: exp2 2 ulp, log2 2^-22 (of the value, at least of 1), sin and cos 2^-20 (absolute,
/// for |x| <= pi), tanh 2^-10 (relative). exp and log are exp2 and log2 and a product, so their errors
/// grow with |x|. The executor computes them precisely.
///   Value p = exp2_approx((score - largest) * scale);
Value exp2_approx(const Arg& a);
Value exp_approx(const Arg& a);
Value log2_approx(const Arg& a);
Value log_approx(const Arg& a);
Value sin_approx(const Arg& a);
Value cos_approx(const Arg& a);
Value tanh_approx(const Arg& a);
/// The magnitude of one number with the sign of another; tests for NaN and infinity.
Value copysign(const Arg& magnitude, const Arg& sign);
Value is_nan(const Arg& a);
Value is_inf(const Arg& a);
/// Counts in a u32 or u64, as i32: the bits that are set, the zeros above the highest of them, and the place of the
/// lowest, counted from 1 (0 if there is none): ffs(8u) = 4.
Value popcount(const Arg& a);
Value clz(const Arg& a);
Value ffs(const Arg& a);
/// The upper half of a product of two i32, u32, i64 or u64.
Value mulhi(const Arg& a, const Arg& b);
/// Evaluates both arms; use Builder::if_else if one of them must not run.
Value select(const Arg& condition, const Arg& then, const Arg& otherwise);
/// Numeric conversion: floats round to nearest even; e4m3 and e2m1 saturate, NaN becomes the
/// format's NaN (e2m1: code 7); float to integer truncates, saturates and gives 0 for NaN; integers
/// wrap.
TESSERA_API Value cast(DType dtype, const Arg& a);
/// The same bits as another dtype of the same width.
Value reinterpret(DType dtype, const Arg& a);
/// cast() to the dtype of the name.
inline Value f64(const Arg& a) {
  return cast(DType::f64, a);
}
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
/// ceil(a / b) for a >= 0 and a constant b > 0.
Value ceil_div(const Arg& a, int64_t b);
/// Division rounded towards minus infinity, and its remainder, which has the sign of b:
/// floor_div(-7, 2) = -4, floor_mod(-7, 2) = 1.
Value floor_div(const Arg& a, const Arg& b);
Value floor_mod(const Arg& a, const Arg& b);

}  // namespace tessera::dsl
