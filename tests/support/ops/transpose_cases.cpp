// Cases of transpose and batched_transpose: every element width, bits that no arithmetic would
// survive, row pitch, extents of zero and one, extents that are no multiple of the tile.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

// The inner dimensions are (rows, cols) with `pitch` elements from row to row.
OpCase make_case(DType dtype, Dims shape, int64_t pitch) {
  const int rank = shape.rank;
  Dims strides = row_major_strides(shape);
  strides[rank - 2] = pitch;
  if (rank == 3) strides[0] = shape[1] * pitch;
  OpCase test;
  test.label = fmt::format("{}{} pitch {}", name(dtype), to_string(shape), pitch);
  test.inputs["x"] = random_tensor(dtype, shape, strides, Values::bits, 11);
  const int64_t rows = shape[rank - 2];
  const int64_t cols = shape[rank - 1];
  test.may_be_unsupported = rows % 64 != 0 || cols % 64 != 0 || pitch % 4 != 0;
  return test;
}

}  // namespace

std::vector<OpCase> transpose_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype :
       {DType::e4m3, DType::e5m2, DType::i8, DType::u8, DType::boolean, DType::bf16, DType::f16,
        DType::i16, DType::u16, DType::f32, DType::i32, DType::u32}) {
    cases.push_back(make_case(dtype, {128, 192}, 192));
  }
  for (const DType dtype : {DType::e4m3, DType::bf16, DType::f32}) {
    cases.push_back(make_case(dtype, {64, 64}, 64));
    cases.push_back(make_case(dtype, {64, 576}, 1152));  // left half of a wider buffer
    cases.push_back(make_case(dtype, {192, 128}, 132));  // rows aligned to 4 elements only
    cases.push_back(make_case(dtype, {320, 448}, 448));  // odd multiples of 64
    cases.push_back(make_case(dtype, {0, 128}, 128));
    cases.push_back(make_case(dtype, {64, 0}, 0));
    cases.push_back(make_case(dtype, {1, 1}, 1));
    cases.push_back(make_case(dtype, {1, 129}, 129));
    cases.push_back(make_case(dtype, {129, 1}, 1));
    cases.push_back(make_case(dtype, {63, 65}, 65));
    cases.push_back(make_case(dtype, {65, 63}, 67));  // rows aligned to one element
    cases.push_back(make_case(dtype, {100, 200}, 208));
  }
  return cases;
}

std::vector<OpCase> batched_transpose_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype :
       {DType::u8, DType::e4m3, DType::bf16, DType::i16, DType::f32, DType::u32}) {
    cases.push_back(make_case(dtype, {3, 64, 128}, 128));
    cases.push_back(make_case(dtype, {2, 192, 64}, 128));
    cases.push_back(make_case(dtype, {1, 128, 128}, 132));
    cases.push_back(make_case(dtype, {0, 64, 64}, 64));
    cases.push_back(make_case(dtype, {2, 0, 64}, 64));
    cases.push_back(make_case(dtype, {2, 64, 0}, 0));
    cases.push_back(make_case(dtype, {2, 1, 1}, 1));
    cases.push_back(make_case(dtype, {3, 37, 70}, 70));
    cases.push_back(make_case(dtype, {2, 130, 61}, 63));
  }
  cases.push_back(make_case(DType::bf16, {70, 64, 64}, 64));
  // A batch stride of its own: a slice of a larger tensor.
  OpCase slice;
  slice.label = "bf16[2, 64, 64] batch stride 8192";
  slice.inputs["x"] = random_tensor(DType::bf16, {2, 64, 64}, {8192, 64, 1}, Values::bits, 12);
  slice.may_be_unsupported = true;
  cases.push_back(std::move(slice));
  return cases;
}

}  // namespace tessera::test
