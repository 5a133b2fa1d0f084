#pragma once
// The places of a SharedMatrix's elements, once its array is arranged.

#include <cstdint>

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// 16 bytes of a matrix in shared memory.
struct MatrixChunk {
  int64_t row = 0, depth = 0;  // of the first element: m or n, and k
  int64_t offset = 0;          // of the first element in the array
};

/// Calls fn(const MatrixChunk&) for every 16 bytes of a matrix whose first element has this offset. The
/// elements of a chunk are consecutive along k, or along m or n if the matrix is transposed.
template <class Fn>
void for_each_chunk(const SharedMatrix& matrix, int64_t first, const Fn& fn) {
  const layout::Swizzle& swizzle = *matrix.first.array->swizzle;
  const layout::TilePoint begin = layout::point_at(swizzle, first);
  const int64_t rows = matrix.transposed ? matrix.depth() : matrix.rows;  // of the array
  const int64_t columns = matrix.transposed ? matrix.rows : matrix.depth();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += swizzle.chunk) {
      const int64_t offset = layout::offset(swizzle, begin.row + row, begin.column + column);
      fn(matrix.transposed ? MatrixChunk{column, row, offset} : MatrixChunk{row, column, offset});
    }
  }
}

}  // namespace tessera::codegen
