// norm_fwd: root mean square norm of rows, after an addition and before a cast.
//
// Shapes   x, residual, out [tokens, hidden], weight [hidden], rstd [tokens], out_sf [tokens,
//          ceil(hidden / group)]
// Dtypes   x bf16|f32, weight and residual as x; out as x, or e4m3 with scales
// Method   a row in at most 256 threads, short rows several to a block. Few tokens load the weights of
//          their columns first; with many, 128 threads have a row, load the weights late and have registers for
//          the row alone, so that many blocks are on an SM. No branch separates the loads: beyond the row
//          they repeat its last run. Rows are read and written once; the bound is bytes / copy bandwidth.
// Measured one H200, bf16, 8001 rows of 7168: 57 us, all of the copy's rate, of 4096 34, 99 %, of 2048 20, 86 %. With a cast
//          to e4m3 51, 86 %; with an addition before it 102, 96 %.
// Lost     weights loaded in the step that needs them 58, 35, and 52 and 103 with a cast; five blocks of an SM with a cast 53;
//          256 threads 69, 37, and 74 with a cast; then five blocks of an SM 69; rows ahead in shared memory by cp.async or
//          bulk copies 63, 38, and 55 to 57 with a cast; eight blocks of 128 threads with a cast 57; weights in registers 73,
//          39, and 82 with a cast; conversions one by one 72 with a cast.
// Maths    n = round(x + residual); then norm_output.h

#include "kernels/serving/norm/parts/norm_kernel.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

// Blocks enough for several waves on any GPU; beyond, a block takes more rows with the same weights.
constexpr int64_t kManyBlocks = 2048, kMaxTiles = 8;
// From so many tokens on, blocks per SM count more than an early load of the weights.
constexpr int64_t kManyTokens = 1024;
constexpr int64_t kShortRow =
    2048;  // of which a thread holds so little that they do not: 22.4 us for 24.6

/// Rows of many tokens take half as many threads: each has twice as many loads in flight, and rows of 7168 fill
/// their last step.
RowTile row_tile(const NormSpec& s) {
  constexpr int64_t kLongRow = 8192;
  const int64_t threads = s.keeps_weight || s.out.hidden > kLongRow ? 256 : 128;
  return pick_row_tile(s.out.hidden,
                       {.shares_blocks = true, .max_threads = threads, .block_threads = threads});
}

/// Launch bound of blocks that load weights late: registers for the row, and for what a step computes.
int blocks_per_sm(const NormSpec& s, const RowTile& tile) {
  if (s.keeps_weight) return 0;
  constexpr int64_t kMostWords = 56, kOthers = 36, kOthersOfCast = 52;  // words of a thread
  const int64_t words = tile.steps * kRowRun * bytes(s.out.dtype) / 4 * (s.has_residual ? 2 : 1);
  if (words > kMostWords) return 0;
  constexpr int64_t kRegisters = 65536;  // of an SM
  const int64_t each = words + (s.out.group > 0 ? kOthersOfCast : kOthers);
  return static_cast<int>(kRegisters / (each * tile.block_threads()));
}

}  // namespace

ir::Kernel build_norm(const NormSpec& s) {
  const DType dtype = s.out.dtype;
  const int64_t hidden = s.out.hidden;
  const RowTile tile = row_tile(s);
  Builder k(s.out.group == 0 ? "norm_fwd" : "norm_fwd_and_per_token_cast");
  auto tokens = k.dim("tokens");
  const auto rows_of = [&](const std::string& name) {
    auto stride = k.stride(name + "_stride", {.multiple_of = s.width});
    return k.input(name, dtype, {tokens, hidden},
                   {.strides = {stride, 1}, .align = int64_t{bytes(dtype)} * s.width});
  };
  auto x = rows_of("x");
  std::optional<Ref> residual, residual_out;
  if (s.has_residual) {
    residual = rows_of("residual");
    residual_out = k.output("residual_out", dtype, {tokens, hidden});
  }
  NormOutput out(k, s.out, tokens, "norm_eps");
  auto tiles_per_block = k.scalar("tiles_per_block", DType::i32);
  const auto tiles = ceil_div(out.rows(), tile.rows);
  auto at =
      k.launch({(tiles + tiles_per_block - 1) / tiles_per_block},
               {.threads = tile.block_threads(), .min_blocks_per_sm = blocks_per_sm(s, tile)});
  k.let_next_kernel_start();
  const NormRow row(k, hidden, tile);
  const int64_t stored = std::min<int64_t>(kRowRun, 16 / bytes(dtype));
  k.wait_for_previous_kernel();
  if (s.keeps_weight) out.load_weight(row);
  k.serial(at.x * tiles_per_block, min((at.x + 1) * tiles_per_block, tiles), [&](Value tile_of) {
    auto token = k.let("token", tile_of * tile.rows + row.row());
    auto valid = k.let("valid", token < tokens);
    auto source = k.let("source", min(token, tokens - 1));
    auto n = row.local(dtype, "n");
    std::optional<Ref> added;
    if (residual) added = row.local(dtype, "added");
    row.load_all(x(source), n, s.width);
    if (added) row.load_all((*residual)(source), *added, s.width);
    if (added) {
      for (int64_t step = 0; step < tile.steps; ++step) {
        k.vectorized(kRowRun, [&](Value i) {
          n(step, i) = cast(dtype, f32(n(step, i)) + f32((*added)(step, i)));
        });
        row.in_row(step, [&](const Value& column) {
          k.if_(valid, [&] { row.store(n(step), (*residual_out)(token), column, stored); });
        });
      }
    }
    out.store(row, token, valid, n);
  });
  return k.finish();
}

NormSpec norm_spec(const Call& c) {
  const TensorView x = c.tensor("x");
  const int64_t most = 16 / bytes(x.dtype);
  const auto width_of = [&](const char* name) {
    return c.has(name) ? common_vector(c.tensor(name), most) : most;
  };
  NormSpec s{};
  s.out = norm_output_spec(c, x.dtype);
  s.out.save_rstd = c.flag("save_rstd");
  s.has_residual = c.has("residual");
  s.keeps_weight = c["T"] < kManyTokens || c["H"] <= kShortRow;
  s.width = static_cast<int8_t>(std::gcd(width_of("x"), width_of("residual")));
  return s;
}

void add_norm(const Call& c, Launches& go, const NormSpec& s, Args args) {
  if (c["T"] == 0) return;  // mega_moe_sf keeps its values
  const int64_t tiles = num_blocks(c["T"], row_tile(s).rows);
  const int64_t per_block =
      s.keeps_weight ? std::clamp<int64_t>(tiles / kManyBlocks, 1, kMaxTiles) : 1;
  args.scalars.push_back({"tiles_per_block", per_block});
  go.add(build_norm, s, args);
}

int64_t mega_rows(int64_t tokens, int64_t block) {
  return num_blocks(tokens, block) * num_blocks(block, kMegaTile) * kMegaTile;
}

}  // namespace tessera::kernels::serving
