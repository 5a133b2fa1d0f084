#include "kernels/gemm/parts/mxfp4_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "kernels/gemm/parts/operand.h"
#include "kernels/jit/target.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::gemm {
namespace {

constexpr Tile kPipelined = {64, 32, 128, 3, 0};  // 33 KiB of shared memory, two blocks per SM
/// By roles, rows of b by rows of a, narrow ones first: 120 to 220 KiB of shared memory.
constexpr Tile kTiles[] = {{64, 8, 128, 20, 1},  {128, 8, 128, 16, 1},  {256, 8, 128, 11, 1},
                           {64, 16, 128, 18, 1}, {128, 16, 128, 14, 1}, {256, 16, 128, 10, 1},
                           {64, 32, 128, 16, 1}, {128, 32, 128, 12, 1}, {256, 32, 128, 8, 1},
                           {64, 64, 128, 12, 1}, {128, 64, 128, 9, 1},  {64, 128, 128, 8, 1},
                           {128, 128, 128, 5, 1}};
constexpr int64_t kMultiprocessors = 132;
constexpr int64_t kMostExpected = 256;  // rows of a group by ends; more change no tile
constexpr int64_t kWidest = 16;         // bytes of a vector

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// A matrix as a stack of one; a stack as it is.
TensorView as_stack(const TensorView& x, int rank) {
  if (x.rank() == rank) return x;
  TensorView stack = x;
  stack.shape = {1};
  stack.strides = {x.rank() > 1 ? x.shape[0] * step(x, 0) : x.size()};
  for (int i = 0; i < x.rank(); ++i) {
    stack.shape.push_back(x.shape[i]);
    const bool is_row = i == x.rank() - 2;
    stack.strides.push_back(is_row ? step(x, i) : x.strides[i]);
  }
  return stack;
}
TensorView scales_as_stack(const TensorView& x) {
  if (x.rank() == 3) return x;
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]},
                    {x.size(), x.strides[0], x.strides[1]}, x.device);
}

int32_t vector_of(const TensorView& stack) {
  return static_cast<int32_t>(common_vector(stack, kWidest / bytes(stack.dtype)));
}

/// Rows of a that have one matrix of b: as many, or up to half as many again as a mean; matrices.
struct Expected {
  int64_t rows, matrices;
  bool is_mean = false;

  int64_t most() const { return is_mean ? rows + rows / 2 : rows; }
};

Expected expected_of(const Call& c, MxGroups groups) {
  switch (groups) {
    case MxGroups::one:
      return {c["M"], 1};
    case MxGroups::masked: {
      const int64_t expected = c.i32("expected_m");
      if (expected == 0) return {c["Mmax"], c["G"]};
      return {std::min(expected, c["Mmax"]), c["G"], true};
    }
    case MxGroups::by_ends: {
      // A mean of which `most` is a power of two: few numbers of rows, such as the tokens of a layer, change the tile.
      const int64_t mean = ceil_div(c["M"], c["G"]), most = mean + mean / 2;
      const auto width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most)));
      return {std::min(width, kMostExpected) * 2 / 3, c["G"], true};
    }
    default:
      return {std::min<int64_t>(c["M"], c["alignment"]), ceil_div(c["M"], c["alignment"])};
  }
}

/// Clocks that a block takes for a step of a tile (H200).
double clocks_of_step(const Tile& tile) {
  if (tile.columns <= 32) return tile.rows == 64 ? 600 : tile.rows == 128 ? 900 : 1450;
  if (tile.columns == 64) return tile.rows == 64 ? 750 : 1100;
  return tile.rows == 64 ? 950 : 1450;
}

/// The tile that computes all tiles soonest, of the narrowest that hold the most rows to expect, or the mean, else of the
/// widest. Half of the matrices have more rows than the mean.
Tile tile_for(const Expected& expected, int64_t columns, int64_t scaled) {
  // Four part sums in a row of 128 columns are more than a thread has registers for.
  const int64_t widest = scaled == kMxGroup ? 64 : 128;
  const Tile* best = nullptr;
  double least = 0;
  for (const int64_t rows : {expected.rows, expected.most()}) {
    int64_t width = 8;
    while (width < std::min(std::max<int64_t>(rows, 1), widest)) width *= 2;
    const int64_t across = ceil_div(std::max<int64_t>(expected.most(), 1), width);
    const double of_matrix = expected.is_mean && across == 2 ? 1.5 : static_cast<double>(across);
    for (const Tile& tile : kTiles) {
      if (tile.columns != width) continue;
      const auto tiles = static_cast<int64_t>(
          of_matrix * static_cast<double>(expected.matrices * ceil_div(columns, tile.rows)));
      const double time =
          static_cast<double>(ceil_div(tiles, kMultiprocessors)) * clocks_of_step(tile);
      if (best == nullptr || time < least) best = &tile, least = time;
    }
  }
  return *best;
}

TensorView as_words(const TensorView& x, const Dims& shape) {
  return TensorView(x.data, DType::u32, shape, x.device);
}

}  // namespace

std::span<const Tile> mxfp4_tiles() {
  return kTiles;
}

void add_mxfp4(const Call& c, Launches& go, MxGroups groups) {
  if (groups != MxGroups::one && c["G"] == 0) return;  // no row has a group
  const TensorView a = as_stack(c.given("a"), 3), out = as_stack(c.given("out"), 3);
  Mxfp4Spec s{};
  s.groups = groups;
  s.operand = a.dtype == DType::bf16 ? Mxfp4Operand::bf16 : Mxfp4Operand::e4m3;
  s.has_depth = c["K"] > 0 ? 1 : 0;
  s.is_f32 = out.dtype == DType::f32 ? 1 : 0;
  s.by_block = c.find("Fb") && s.has_depth != 0 ? 1 : 0;
  s.scaled = c.i32("num_per_channels");
  s.has_bias = c.has("bias") ? 1 : 0;
  s.a_vector = s.has_depth != 0 ? vector_of(a) : 1;
  s.out_vector = vector_of(out);
  s.n_multiple = multiple_of(c["N"], kWidest / bytes(out.dtype));
  const bool by_roles =
      s.has_depth != 0 && s.a_vector == kWidest / bytes(a.dtype) && jit::has_wgmma(c.device());
  s.tile = by_roles ? tile_for(expected_of(c, groups), c["N"], s.scaled) : kPipelined;
  s.tile.step = static_cast<int32_t>(tile_depth(s.operand));
  // Tensor copies know where a matrix ends; other copies take vectors that lie wholly inside.
  s.k_multiple = by_roles || s.has_depth == 0 ? 1 : multiple_of(c["K"], kWidest / bytes(a.dtype));
  const int64_t stacks = groups == MxGroups::one ? 1 : c["G"];
  const int64_t row_tiles = c["Nt"], blocks = c["Kb"];
  Args args{
      .tensors = {{"a", a},
                  {"b", as_words(c.given("b"), {stacks, row_tiles, c["Kt"], c["S"] / 1024, 256})},
                  {"b_shift", as_words(c.given("b_shift"), {stacks, row_tiles, blocks, 64})},
                  {"out", out}}};
  const TensorView& b_sf = c.given("b_sf");
  args.tensors.push_back({"b_sf", as_stack(b_sf, s.by_block != 0 ? 3 : 2)});
  if (s.has_bias != 0) args.tensors.push_back({"bias", as_stack(c.given("bias"), 2)});
  if (c.has("a_sf")) {
    TensorView a_sf = c.given("a_sf");
    s.is_packed = a_sf.dtype == DType::i32 ? 1 : 0;
    if (s.is_packed != 0) a_sf.dtype = DType::u32;
    args.tensors.push_back({"a_sf", scales_as_stack(a_sf)});
  }
  go.add(build_mxfp4, s, args);
}

void check_mxfp4(const Call& c) {
  if (!c.find("Fb")) return;
  c.need(c.given("a").dtype == DType::e4m3, "b_sf", "argument 'b_sf' has the wrong shape",
         "a scale for each row: weights for bf16 are folded by rows",
         fmt::format("{} columns", c["Fb"]));
  c.need(c["Fb"] == c["Kb"], "b_sf", "argument 'b_sf' has the wrong shape",
         fmt::format("a scale for each 128 of k: {} = ceil(K / 128)", c["Kb"]),
         fmt::format("{} columns", c["Fb"]));
}

int64_t tile_bytes_of(const Case& c) {
  return c.dtype_word("a") == "bf16" ? 2048 : 4096;
}
int64_t row_tiles_of(const Case& c) {
  return ceil_div(c["N"], 64);
}
int64_t depth_tiles_of(const Case& c) {
  return ceil_div(c["K"], tile_bytes_of(c) / 32);
}
int64_t depth_blocks_of(const Case& c) {
  return ceil_div(c["K"], 128);
}
int64_t scale_columns_of(const Case& c) {
  const int64_t scales = ceil_div(c["K"], c["num_per_channels"]);
  return c.dtype_word("a_sf") == "i32" ? ceil_div(scales, 4) : scales;
}

}  // namespace tessera::kernels::gemm
