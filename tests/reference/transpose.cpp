#include "tests/reference/transpose.h"

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

}  // namespace tessera::reference
