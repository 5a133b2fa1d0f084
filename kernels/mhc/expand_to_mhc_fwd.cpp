// expand_to_mhc_fwd: each row copied into every residual stream.
//
// Method   two 16-byte vectors per thread are loaded together and stored once per stream. Every
//          byte moves once, so the bound is bytes / copy bandwidth, most of it writes.
// Maths    none
// Tuned    H200; see pick_row_tile, which `tessera tune` may replace.

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

constexpr int64_t kUnrolled = 8;  // streams written without a loop

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = s.tile.tile(s.hidden);
  const int64_t rows = 2 * tile.rows;  // two vectors per thread
  OpBuilder k(expand_to_mhc_fwd_op, {{"n", s.streams}, {"H", s.hidden}});
  auto x = k.tensor("x", {.align = s.align}), out = k.tensor("out", {.align = s.align});
  auto at = k.launch({ceil_div(k.extent("T"), rows) * tile.chunks}, {.threads = tile.threads});
  auto first_token = k.let("first_token", at.x / tile.chunks * rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  auto x_frag = k.fragment(DType::bf16, {rows, tile.cols}, "x_frag");  // (rows, cols)
  k.copy(x.tile({first_token, first_col}, {rows, tile.cols}), x_frag);
  const auto write_stream = [&](Value stream) {
    k.parallel({rows, tile.cols}, [&](Value row, Value col) {
      out(first_token + row, stream, first_col + col) = x_frag(row, col);
    });
  };
  if (s.streams <= kUnrolled) {
    k.unrolled(s.streams, write_stream);
  } else {
    k.serial(0, s.streams, write_stream);
  }
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

const Op expand_to_mhc_fwd_op{.name = "expand_to_mhc_fwd",
                              .family = "mhc",
                              .purpose = "copies each row into every residual stream",
                              .signature = R"(
      x       bf16 [T.., H]
      -> out  bf16 [T.., n, H]
      param   mhc_mult int >= 1 = 4
      let     n = mhc_mult
      limit   mhc_mult <= 65536 "so many streams are not supported"  # offsets in a token stay small
    )",
                              .launches = launches,
                              .examples = R"(
      T=5 H=7168 mhc_mult=4; T=3 H=2560 mhc_mult=4; T=7 H=1280 mhc_mult=8; T=9 H=512 mhc_mult=2
      T=3 H=100 mhc_mult=12)",
                              .bench = R"(
      T=8192 H=7168 mhc_mult=4; T=4096 H=7168 mhc_mult=4; T=512 H=7168 mhc_mult=4
      T=128 H=7168 mhc_mult=4; T=1 H=7168 mhc_mult=4; T=8192 H=4096 mhc_mult=4
      T=8192 H=2560 mhc_mult=4; T=8192 H=1280 mhc_mult=4)"};

}  // namespace tessera::kernels
