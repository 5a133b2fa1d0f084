// q_norm_rope: normalises heads of queries without a weight and rotates their last 64 channels.
//
// Dtypes   q, out bf16; positions i32|i64
// Method   the rows of norm_fwd, a row per head and, up to 512 channels, per warp; the threads of the last 64 channels rotate four pairs each. Rows are read
//          and written once; the bound is bytes / copy bandwidth.
// Measured one H200, 8192 x 64 heads of 512: 259 us, 98 % of copy; 64 threads of a head and a barrier 337.
// Maths    norm_fwd, rounded to bf16, then apply_rotary of interleaved pairs, rounded again: the same bits

#include <numeric>
#include <utility>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/cache/parts/cache_cases.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/serving/parts/pair_angles.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::kRowRun;

struct Spec {
  int32_t heads, channels;
  serving::AngleSpec angles;
  DType positions;
  uint8_t width;  // elements of an access to q and out
};

ir::Kernel build(const Spec& s) {
  // A warp has a head: no barrier.
  constexpr int64_t kLongHead = 512;
  const serving::RowTile tile = serving::pick_row_tile(
      s.channels, {.shares_blocks = true, .max_threads = s.channels > kLongHead ? 256 : 32});
  Builder k("q_norm_rope");
  auto tokens = k.dim("tokens");
  const DimOptions apart{.multiple_of = s.width};
  const auto options = [&](const std::string& name) {
    return TensorOptions{.strides = {k.stride(name + "_token_stride", apart),
                                     k.stride(name + "_head_stride", apart), 1},
                         .align = 2 * s.width};
  };
  auto q = k.input("q", DType::bf16, {tokens, s.heads, s.channels}, options("q"));
  auto out = k.output("out", DType::bf16, {tokens, s.heads, s.channels}, options("out"));
  auto positions = k.input("positions", s.positions, {tokens}, {.align = bytes(s.positions)});
  serving::PairAngles angles(k, s.angles, kRowRun);
  auto eps = k.scalar("norm_eps", DType::f32);
  auto at = k.launch({ceil_div(tokens * s.heads, tile.rows)}, {.threads = tile.block_threads()});
  k.let_next_kernel_start();
  const serving::NormRow row(k, s.channels, tile);
  auto number = k.let("row", at.x * tile.rows + row.row());
  auto token = k.let("token", number / s.heads), head = k.let("head", number % s.heads);
  auto exists = k.let("exists", token < tokens);
  k.wait_for_previous_kernel();
  auto position = k.var(s.positions, -1, "position");
  auto n = row.local(DType::bf16, "n");
  row.clear(n);
  k.if_(exists, [&] {
    position = positions(token).unchecked();
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step,
                 [&](const Value& column) { row.load(q(token, head), column, n(step), s.width); });
    }
  });
  // Rows of padding are zeros, whatever q holds.
  auto counts = k.let("counts", Value(position) != -1);
  const Value squares = row.sum([&](int64_t step, const Value& i) {
    auto value = f32(n(step, i));
    return std::pair(value, value);
  });
  auto r = k.let("r", 1.0f / sqrt(squares / static_cast<float>(s.channels) + eps));
  k.if_(exists, [&] {
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step, [&](const Value& column) {
        auto values = k.local(DType::f32, {kRowRun}, "values");
        k.unrolled(kRowRun, [&](Value i) {
          auto normed = f32(cast(DType::bf16, f32(n(step, i)) * r));
          values(i) = select(counts, normed, 0.0f);
        });
        auto first = k.let("first_rotated", column - (s.channels - serving::kRotated));
        k.if_(first >= 0 && counts, [&] {
          angles.load(position, first, first >= 0, out_of_range("positions"));
          angles.rotate(values);
        });
        row.store(values, out(token, head), column, s.width);
      });
    }
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.heads = c.i32("h");
  s.channels = c.i32("d");
  s.angles = serving::angle_spec(c, kRowRun);
  s.positions = c.dtype("positions");
  const int64_t width =
      std::gcd(common_vector(c.given("q"), kRowRun), common_vector(c.given("out"), kRowRun));
  s.width = static_cast<uint8_t>(width);
  go.add(build, s);
}

}  // namespace

const Op q_norm_rope_op{
    .name = "q_norm_rope",
    .family = "serving",
    .purpose = "heads of queries, normalised without a weight, their last 64 channels rotated",
    .signature = R"(
      q           bf16 [T, h, d] rows
      cos_sin     f32 [angles, 64]       # of pairs (2j, 2j + 1)
      positions   i32/i64 [T]            # -1: padding, a row of zeros
      -> out      bf16 [T, h, d] rows
      param  norm_eps float = 1e-6
      param  cos_sin_layout {pairs, halves} = pairs
      need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
      need   h >= 1 on q "argument 'q' has no heads"
      need   d >= 64 on q "a head has too few channels"
      need   d % 16 = 0 on q "a head has the wrong number of channels"
      limit  d <= 16384 on q "heads this long are not supported"
      limit  T * h <= 2130706431 on q "so many heads of tokens are not supported"
    )",
    .launches = launches,
    .check_values = serving::require_positions,
    .examples = R"(
      T=37 h=5 d=512 angles=90 positions=i64; T=9 h=3 d=128 angles=50 positions=i32 cos_sin_layout=halves
      T=9 h=2 d=576 angles=50 positions=i32 q.strides=1280,640,1)",
    .bench = R"(
      T=64 h=64 d=512 angles=8192 positions=i32; T=8192 h=64 d=512 angles=8192 positions=i32)",
    .values = {{"positions", serving::cached_position}},
    .bytes = [](const Case& c) { return 4 * c["T"] * c["h"] * c["d"]; }};

}  // namespace tessera::kernels
