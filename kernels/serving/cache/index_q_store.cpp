// index_q_store: rotates, transforms and quantises the index queries, and folds their scales into the weights of heads.
//
// Dtypes   q bf16, weight bf16|f32, positions i32|i64; out e4m3, weights f32
// Method   a warp has a head of 128 channels, four per lane. A head is read and written once; the bound is bytes / copy
//          bandwidth.
// Maths    rotation and transform in f32, no rounding between; sf = amax / 448, codes by 448 / amax, IEEE;
//          weights = (weight * weight_scale) * sf

#include "kernels/checks/value_check.h"
#include "kernels/quant/parts/scale_factor.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/cache/parts/cache_cases.h"
#include "kernels/serving/parts/cache_rows.h"
#include "kernels/serving/parts/pair_angles.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::kLaneChannels, serving::kWarpChannels;

struct Spec {
  int32_t heads;
  serving::AngleSpec angles;
  DType weight, positions;
  uint8_t q_width;  // elements of an access
  bool hadamard, rope_first;
  uint8_t unused = 0;
};

ir::Kernel build(const Spec& s) {
  Builder k("index_q_store");
  auto tokens = k.dim("tokens");
  auto q = k.input("q", DType::bf16, {tokens, s.heads, kWarpChannels}, {.align = 2 * s.q_width});
  auto weight = k.input("weight", s.weight, {tokens, s.heads},
                        {.strides = {k.stride("weight_stride"), 1}, .align = bytes(s.weight)});
  auto positions = k.input("positions", s.positions, {tokens}, {.align = bytes(s.positions)});
  serving::PairAngles angles(k, s.angles, kLaneChannels);
  auto weight_scale = k.scalar("weight_scale", DType::f32);
  auto out = k.output("out", DType::e4m3, {tokens, s.heads, kWarpChannels}, {.align = 4});
  auto weights = k.output("weights", DType::f32, {tokens, s.heads}, {.align = 4});
  constexpr int kWarps = 4;
  auto at = k.launch({ceil_div(tokens * s.heads, kWarps)}, {.threads = 32 * kWarps});
  k.let_next_kernel_start();
  auto row = k.let("row", at.x * kWarps + k.warp());
  auto token = k.let("token", row / s.heads), head = k.let("head", row % s.heads);
  auto column = k.let("column", k.lane() * kLaneChannels);
  k.wait_for_previous_kernel();
  k.if_(token < tokens, [&] {
    auto position = k.let("position", positions(token).unchecked());
    // Rows of padding are zeros, whatever q and the weight hold.
    auto counts = k.let("counts", position != -1);
    auto values = k.local(DType::f32, {kLaneChannels}, "values");
    auto folded = k.var(DType::f32, 0.0f, "folded");
    k.unrolled(kLaneChannels, [&](Value i) { values(i) = 0.0f; });
    k.if_(counts, [&] {
      serving::load_lane(k, q(token, head), kWarpChannels, s.q_width, column, values);
      folded = f32(weight(token, head).unchecked()) * weight_scale;
      const int64_t rotated = s.rope_first ? 0 : kWarpChannels - serving::kRotated;
      auto first = k.let("first_rotated", column - rotated);
      auto rotates = k.let("rotates", first >= 0 && first < serving::kRotated);
      angles.load(position, first, rotates, out_of_range("positions"));
      k.if_(rotates, [&] { angles.rotate(values); });
    });
    if (s.hadamard) serving::hadamard_of_warp(k, values);
    auto largest = k.var(DType::f32, 0.0f, "largest");
    k.unrolled(kLaneChannels, [&](Value i) { largest = max(largest, abs(values(i))); });
    for (const int lanes : {1, 2, 4, 8, 16}) {
      const Value other = k.shuffle_xor(largest, lanes);
      largest = max(largest, other);
    }
    const ScaleFactor scale = scale_factor(k, kE4m3, largest, false);
    auto inverse = k.let("inverse_scale", scale.inverse);
    k.vectorized(kLaneChannels, [&](Value i) {
      out(token, head, column + i).unchecked() = cast(DType::e4m3, values(i) * inverse);
    });
    k.if_(k.lane() == 0,
          [&] { weights(token, head).unchecked() = select(counts, folded * scale.scale, 0.0f); });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.heads = c.i32("h");
  s.angles = serving::angle_spec(c, kLaneChannels);
  s.weight = c.dtype("weight");
  s.positions = c.dtype("positions");
  s.q_width = static_cast<uint8_t>(common_vector(c.given("q"), kLaneChannels));
  s.hadamard = c.flag("hadamard");
  s.rope_first = c.flag("rope_first");
  go.add(build, s);
}

}  // namespace

const Op index_q_store_op{
    .name = "index_q_store",
    .family = "serving",
    .purpose = "index queries, rotated and quantised, with their scales in the weights of heads",
    .signature = R"(
      q           bf16 [T, h, 128]
      weight      bf16/f32 [T, h] rows
      cos_sin     f32 [angles, 64]       # of pairs (2j, 2j + 1)
      positions   i32/i64 [T]            # -1: padding, rows of zeros
      -> out      e4m3 [T, h, 128]
      -> weights  f32 [T, h]             # (weight * weight_scale) * scale of the head
      param  weight_scale float
      param  hadamard bool = true        # after the rotation
      param  rope_first bool = false     # the first 64 channels rotate, else the last
      param  cos_sin_layout {pairs, halves} = pairs
      need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
      need   h >= 1 on q "argument 'q' has no heads"
      limit  T * h <= 2130706431 on q "so many heads of tokens are not supported"
    )",
    .launches = launches,
    .check_values = serving::require_positions,
    .examples = R"(
      T=37 h=5 angles=90 weight=bf16 positions=i64 weight_scale=0.125
      T=9 h=3 angles=50 weight=f32 positions=i32 weight_scale=0.5 hadamard=false cos_sin_layout=halves
      T=9 h=2 angles=50 weight=f32 positions=i32 weight_scale=0.5 rope_first=true weight.strides=7,1)",
    .bench = R"(
      T=64 h=64 angles=8192 weight=bf16 positions=i32 weight_scale=0.125
      T=8192 h=64 angles=8192 weight=bf16 positions=i32 weight_scale=0.125)",
    .values = {{"positions", serving::cached_position}},
    .bytes = [](const Case& c) {
      const int64_t weight = c.dtype_word("weight") == "f32" ? 4 : 2;
      return c["T"] * c["h"] * (3 * serving::kWarpChannels + weight + 4);
    }};

}  // namespace tessera::kernels
