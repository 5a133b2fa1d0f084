#pragma once
// The base of the lowerings of products, one in the file of each matrix instruction: what they take of TileLowering.
// It is implemented among the parts of lower_tiles (lowering/product_lowering.cpp), so that products depend on none of them.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/products/atoms.h"
#include "codegen/thread_ir.h"

namespace tessera::codegen {

class ProductLowering {
 protected:
  ProductLowering(TileLowering& tiles, const ir::Gemm& gemm, SourceLoc loc)
      : gemm_(gemm), loc_(loc), tiles_(tiles) {}

  /// The index of a thread among those that compute the product.
  Expr thread() const;
  template <class Node>
  void emit(Node node) {
    add({std::move(node), loc_});
  }
  /// An unrolled loop of `count` rounds, or just its body with index 0 for one round.
  void unrolled(const std::string& name, int64_t count, const std::function<void(const Expr&)>& fn);
  ArrayRef array_of(const ir::BufferRef& buffer) const;
  ArrayRef new_registers(std::string name, DType dtype, int64_t size);
  VarRef new_value(std::string name, DType dtype);
  std::vector<Expr> resolve(const std::vector<Expr>& indices) const;
  Expr simplify(const Expr& e) const;
  int64_t divisor(const Expr& e) const;
  /// `width` elements of the region's buffer from `indices` on.
  Access access(const ir::Region& region, const std::vector<Expr>& indices, int width);
  void note(std::string text);  // for explain()

  /// The extent of an axis of an operand.
  static int64_t extent(const ir::Region& region, size_t axis) {
    return region.extents[dimension(region, axis)]->integer;
  }
  static size_t dimension(const ir::Region& region, size_t axis) {
    return static_cast<size_t>(region.order[axis]);
  }

  const ir::Gemm& gemm_;
  const SourceLoc loc_;

 private:
  void add(Stmt stmt);

  TileLowering& tiles_;
};

}  // namespace tessera::codegen
