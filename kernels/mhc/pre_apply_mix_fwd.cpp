// pre_apply_mix_fwd: the residual streams of each token, mixed into one row.
//
// Method   one 16-byte vector of every stream per thread, all loads before the first product; no
//          shared memory. Every byte is moved once, so the bound is bytes / copy bandwidth.
// Maths    apply_pre_mix of mix_sequences.h, one rounding to bf16
// Tuned    H200; see pick_row_tile, which `tessera tune` may replace.

#include "kernels/mhc/parts/mix_sequences.h"
#include "kernels/mhc/parts/row_choice.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t streams, hidden;
  int32_t align;  // bytes, of x and out
  mhc::RowChoice tile;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = s.tile.tile(s.hidden);
  OpBuilder k(pre_apply_mix_fwd_op, {{"n", s.streams}, {"H", s.hidden}});
  auto x = k.tensor("x", {.align = s.align}), mix = k.tensor("mix");
  auto out = k.tensor("out", {.align = s.align});
  auto row_tiles = ceil_div(k.extent("T"), tile.rows);
  auto at = k.launch({row_tiles * tile.chunks}, {.threads = tile.threads});
  k.wait_for_previous_kernel();
  // In reverse order: L2 may still hold the end of x after the previous kernel.
  auto first_token = k.let("first_token", (row_tiles - 1 - at.x / tile.chunks) * tile.rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
    auto token = first_token + row;
    auto h = first_col + col;
    std::vector<Value> weights, streams;
    for (int64_t i = 0; i < s.streams; ++i) {
      weights.push_back(mix(token, i));
      streams.push_back(f32(x(token, i, h)));
    }
    out(token, h) = cast(DType::bf16, mhc::apply_pre_mix(weights, streams));
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{c.i32("n"), c.i32("H"), c.align({"x", "out"}), {}};
  s.tile = mhc::choose_row_tile(c.op().name,
                                {{"streams", s.streams}, {"hidden", s.hidden}, {"align", s.align}},
                                c["T"], c.device());
  go.add(build, s);
}

}  // namespace

const Op pre_apply_mix_fwd_op{
    .name = "pre_apply_mix_fwd",
    .family = "mhc",
    .purpose = "mixes the residual streams of each token into the input of a sub-layer",
    .signature = R"(
      x       bf16 [T.., n, H]
      mix     f32 [T.., n]
      -> out  bf16 [T.., H]
      need    n >= 1 on x "there must be a stream"
      limit   n <= 16 on x "so many streams are not supported"   # a vector of each in registers
    )",
    .launches = launches,
    .examples = "T=5 n=4 H=7168; T=3 n=4 H=2560; T=7 n=4 H=1280; T=9 n=2 H=512; T=3 n=3 H=100",
    .bench = R"(
      T=8192 n=4 H=7168; T=4096 n=4 H=7168; T=512 n=4 H=7168; T=128 n=4 H=7168; T=1 n=4 H=7168
      T=8192 n=4 H=4096; T=8192 n=4 H=2560; T=8192 n=4 H=1280)"};

}  // namespace tessera::kernels
