#pragma once
// Tile: arithmetic on whole tiles. An expression of tiles is computed element by element where a statement
// uses it, in one parallel loop, as if the loop were written out.
//
//   auto row = k.load(x(at.x));                           // a fragment
//   auto e = k.evaluate(exp(row - k.reduce_max(row)));    // another one
//   k.store(e / k.reduce_sum(e), y(at.x));                // a loop over y

#include <functional>
#include <vector>

#include "dsl/value.h"

namespace tessera::dsl {

/// A tile of values: what a buffer holds, or an expression of such tiles. Shapes follow the last dimensions;
/// an extent of 1 meets any other. STALE_ELEMENT where a statement uses a tile of a buffer that has been
/// written since the tile was made.
class TESSERA_API Tile {
 public:
  /// The elements of `ref`, a buffer or a part of one of constant extents (REGION).
  ///   k.store(Tile(sum) * scale, sum);
  explicit Tile(const Ref& ref, SourceLoc loc = SourceLoc::here());
  /// The same of what is a tile for certain: k.store(sum * scale, sum).
  Tile(const TileRef& ref, SourceLoc loc = SourceLoc::here());
  Tile(const Tile& other);
  Tile& operator=(const Tile& other);
  ~Tile();

  const std::vector<int64_t>& shape() const;
  DType dtype() const;
  /// The buffer whose elements these are, for k.copy and element reads. NOT_A_BUFFER for an expression:
  /// k.evaluate(tile).ref().
  TileRef ref(SourceLoc loc = SourceLoc::here()) const;

  /// fn(a, b, ..) for each element. SHAPE if the shapes do not meet.
  ///   auto clamped = Tile::map([](auto v) { return max(min(v[0], v[1]), -v[1]); }, {x, limit});
  static Tile map(std::function<Value(const std::vector<Value>&)> fn, std::vector<Tile> tiles,
                  SourceLoc loc = SourceLoc::here());

 private:
  friend class Builder;
  struct Node;
  explicit Tile(std::shared_ptr<const Node> node);
  /// The same elements with another dimension of extent 1.
  Tile with_axis(int axis) const;
  /// The element at an index of the loop, whose extents the tile meets.
  Value at(const std::vector<Value>& index, const std::vector<int64_t>& extents) const;
  /// Throws where a buffer has been written since.
  void check_fresh(SourceLoc loc) const;

  std::shared_ptr<const Node> node_;
};

/// The result of Builder::argmax and argmin.
struct TileBest {
  Tile value;  // as of reduce_max and reduce_min
  Tile index;  // i32, along the axis
};

/// A tile and a tile, or one value for all elements.
#define TESSERA_TILE_BINARY(NAME)                      \
  TESSERA_API Tile NAME(const Tile& a, const Tile& b); \
  TESSERA_API Tile NAME(const Tile& a, const Arg& b);  \
  TESSERA_API Tile NAME(const Arg& a, const Tile& b);
TESSERA_TILE_BINARY(operator+)
TESSERA_TILE_BINARY(operator-)
TESSERA_TILE_BINARY(operator*)
TESSERA_TILE_BINARY(operator/)
TESSERA_TILE_BINARY(operator%)
TESSERA_TILE_BINARY(operator&)
TESSERA_TILE_BINARY(operator|)
TESSERA_TILE_BINARY(operator^)
TESSERA_TILE_BINARY(operator<)
TESSERA_TILE_BINARY(operator<=)
TESSERA_TILE_BINARY(operator>)
TESSERA_TILE_BINARY(operator>=)
TESSERA_TILE_BINARY(operator==)
TESSERA_TILE_BINARY(operator!=)
TESSERA_TILE_BINARY(operator&&)
TESSERA_TILE_BINARY(operator||)
TESSERA_TILE_BINARY(max)
TESSERA_TILE_BINARY(min)
TESSERA_TILE_BINARY(copysign)
#undef TESSERA_TILE_BINARY

/// The functions of value.h on each element.
#define TESSERA_TILE_UNARY(NAME) TESSERA_API Tile NAME(const Tile& a);
TESSERA_TILE_UNARY(operator-)
TESSERA_TILE_UNARY(operator!)
TESSERA_TILE_UNARY(abs)
TESSERA_TILE_UNARY(sqrt)
TESSERA_TILE_UNARY(rsqrt)
TESSERA_TILE_UNARY(exp)
TESSERA_TILE_UNARY(exp2)
TESSERA_TILE_UNARY(log)
TESSERA_TILE_UNARY(log2)
TESSERA_TILE_UNARY(log1p)
TESSERA_TILE_UNARY(sin)
TESSERA_TILE_UNARY(cos)
TESSERA_TILE_UNARY(tanh)
TESSERA_TILE_UNARY(erf)
TESSERA_TILE_UNARY(silu)
TESSERA_TILE_UNARY(floor)
TESSERA_TILE_UNARY(ceil)
TESSERA_TILE_UNARY(rint)
TESSERA_TILE_UNARY(exp2_approx)
TESSERA_TILE_UNARY(exp_approx)
TESSERA_TILE_UNARY(log2_approx)
TESSERA_TILE_UNARY(log_approx)
TESSERA_TILE_UNARY(sin_approx)
TESSERA_TILE_UNARY(cos_approx)
TESSERA_TILE_UNARY(tanh_approx)
TESSERA_TILE_UNARY(is_nan)
TESSERA_TILE_UNARY(is_inf)
TESSERA_TILE_UNARY(f32)
TESSERA_TILE_UNARY(i32)
#undef TESSERA_TILE_UNARY
TESSERA_API Tile cast(DType dtype, const Tile& a);
TESSERA_API Tile fma(const Tile& a, const Tile& b, const Tile& c);
TESSERA_API Tile select(const Tile& condition, const Tile& then, const Tile& otherwise);
TESSERA_API Tile select(const Tile& condition, const Tile& then, const Arg& otherwise);

}  // namespace tessera::dsl
