#include "tests/reference/transpose.h"

#include <utility>

#include "dsl/base/error.h"

namespace tessera::reference {

test::HostTensor transpose(const test::HostTensor& x) {
  const int rank = x.shape().rank;
  TESSERA_CHECK(rank == 2 || rank == 3, "the reference transposes rank 2 and 3");
  const int64_t num_batches = rank == 3 ? x.shape()[0] : 1;
  const int64_t num_rows = x.shape()[rank - 2];
  const int64_t num_cols = x.shape()[rank - 1];
  Dims shape = x.shape();
  shape[rank - 2] = num_cols;
  shape[rank - 1] = num_rows;

  test::HostTensor out(x.dtype(), shape);
  for (int64_t b = 0; b < num_batches; ++b) {
    for (int64_t r = 0; r < num_rows; ++r) {
      for (int64_t c = 0; c < num_cols; ++c) {
        out.set_bits((b * num_cols + c) * num_rows + r, x.bits((b * num_rows + r) * num_cols + c));
      }
    }
  }
  return out;
}

test::HostTensors batched_transpose_weight_sf(const test::HostTensor& sf, int64_t block) {
  const int rank = sf.shape().rank;
  const int64_t rows = sf.shape()[rank - 2], columns = sf.shape()[rank - 1];
  const int64_t size = rows * columns, batches = size == 0 ? 0 : sf.size() / size;
  const auto shape_of = [&](int64_t count, int64_t length) {
    Dims shape = sf.shape();
    shape[rank - 2] = (count + 3) / 4;
    shape[rank - 1] = length * block;
    return shape;
  };
  test::HostTensor sf0(DType::i32, shape_of(columns, rows)),
      sf1(DType::i32, shape_of(rows, columns));
  // The exponent of the scale at `place` of a line of `count`, in its byte; 0 beyond the line.
  const auto exponent = [&](int64_t place, int64_t count, int64_t element) -> uint64_t {
    return place < count ? (sf.bits(element) >> 23 & 255) << (8 * (place % 4)) : 0;
  };
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t i = 0; i < sf0.size() / batches; ++i) {
      const int64_t row = i % (rows * block) / block, word = i / (rows * block);
      uint64_t packed = 0;
      for (int64_t c = 4 * word; c < 4 * word + 4; ++c) {
        packed |= exponent(c, columns, b * size + row * columns + c);
      }
      sf0.set_bits(b * (sf0.size() / batches) + i, packed);
    }
    for (int64_t i = 0; i < sf1.size() / batches; ++i) {
      const int64_t column = i % (columns * block) / block, word = i / (columns * block);
      uint64_t packed = 0;
      for (int64_t r = 4 * word; r < 4 * word + 4; ++r) {
        packed |= exponent(r, rows, b * size + r * columns + column);
      }
      sf1.set_bits(b * (sf1.size() / batches) + i, packed);
    }
  }
  return {{"sf0", std::move(sf0)}, {"sf1", std::move(sf1)}};
}

}  // namespace tessera::reference
