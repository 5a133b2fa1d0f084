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
  int64_t block_rows = 0, block_cols = 0;  // of x that share a scale; 0: x is not quantised
  SfLayout x_sf_layout = SfLayout::row_major;
};

/// Everything that generated code depends on; not every op looks at all of it.
struct TokenCastSpec {
  DType in, format;
  SfLayout sf_layout, x_sf_layout;
  bool round_sf;
  uint8_t align;            // bytes of x, at most 16
  int16_t stride_multiple;  // elements, of the row stride: a power of two
  int32_t hidden, group;
  int32_t block_rows, block_cols;
};
TokenCastSpec spec_of(const TensorView& x, const TokenCast& call);
/// 16, 32, 64 and 128 columns; any other group stands for a whole row.
bool is_ordinary_group(int64_t group);

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
/// Blocks of whole rows, each thread with runs of `vector` columns, at most `most` in all.
TokenTile whole_row_tile(int64_t hidden, int64_t vector, int64_t most = 64);

/// Checks a bf16 or f32 x, num_per_channels and, where the op has them, format, sf_layout and
/// round_sf; binds T, H and C, the number of groups.
TokenCast check_token_cast(ArgCheck& check, const Tensors& tensors, const Params& params);
/// The same without x; T and H are bound.
TokenCast check_cast_params(ArgCheck& check, const Params& params);
/// Reads sf_layout and round_sf, where the op has them, into `call`.
void check_scale_params(const ArgCheck& check, const Params& params, TokenCast& call);
/// Checks an input of codes, e4m3 [T, H] or i8 [T, H / 2], rows any stride apart; binds T and H.
void check_codes_input(ArgCheck& check, const std::string& name, const Tensors& tensors);

/// The output of codes: e4m3 [T, H], or i8 [T, H / 2] with two e2m1 codes per byte.
OutputInfo codes_output(const std::string& name, DType format, const Dims& logical);
/// Checks it; T and H are bound.
void check_codes_output(ArgCheck& check, const std::string& name, const Tensors& tensors,
                        DType format);
/// Codes as kernels declare them: e2m1 [T, H] for i8 [T, H / 2]. Other dtypes are left alone.
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
