#pragma once
// What the ops that cast rows in groups of columns share: their arguments, the form of their
// kernels and how the work is cut into tiles.

#include "kernels/quant/scale_layout.h"

namespace tessera::kernels {

/// A checked call.
struct TokenCast {
  DType format = DType::e4m3;  // or e2m1
  int64_t hidden = 0, group = 0, num_groups = 0;
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};

/// Everything that generated code depends on; not every op looks at all of it.
struct TokenCastSpec {
  DType in, format;
  SfLayout sf_layout;
  bool round_sf;
  int32_t align;  // bytes of x, at most 16
  int32_t hidden, group;
  int32_t stride_multiple;  // of the row stride, a power of two
};
TokenCastSpec spec_of(const TensorView& x, const TokenCast& call);

/// The part of the matrix that one block of threads works on.
struct TokenTile {
  int64_t rows, cols;
  int threads;
  int64_t group, groups;  // columns that share a scale, and how many such groups
};
/// 32 elements per thread of 128: two to four 16-byte loads in flight each. With one scale per row
/// the block holds whole rows: as many threads along a row as divide it evenly, else columns are
/// padded. `groups_together` groups stay in one tile.
TokenTile pick_token_tile(const TokenCastSpec& spec, int64_t groups_together);

/// Checks x, num_per_channels and, where the op has them, format, sf_layout and round_sf; binds T,
/// H and C, the number of groups.
TokenCast check_token_cast(ArgCheck& check, const Tensors& tensors, const Params& params);

/// The output of codes: e4m3 [T, H], or i8 [T, H / 2] with two e2m1 codes per byte.
OutputInfo codes_output(const std::string& name, DType format, const Dims& logical);
/// Checks it; T and H are bound.
void check_codes_output(ArgCheck& check, const std::string& name, const Tensors& tensors,
                        DType format);
/// Codes as kernels declare them: e2m1 [T, H] for i8 [T, H / 2]. Rows must not be apart.
TensorView codes_view(const TensorView& codes);

/// The parameters `format` and `num_per_channels`.
ParamInfo format_param();
ParamInfo group_param();

/// Shapes of an example or a benchmark, without the bytes that it moves.
BenchCase token_cast_case(int64_t tokens, int64_t hidden, DType in, DType format, int64_t group);
/// Bytes of `tokens` rows of codes, and of their scales.
int64_t codes_bytes(int64_t tokens, int64_t hidden, DType format);
int64_t scale_bytes(int64_t tokens, int64_t num_groups, SfLayout layout);

}  // namespace tessera::kernels
