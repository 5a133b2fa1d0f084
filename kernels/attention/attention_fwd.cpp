// attention_fwd: out = softmax(scale * q k^T) v of each request and head, and the logarithm of the sum of exponentials.
//
// Dtypes   q, k, v and out bf16|f16; lse f32
// Method   see fwd_kernel.cpp
// Maths    scores and p v by the tensor cores, 16 of k per instruction; p = exp2(fma(score, c, -max c)) with
//          c = scale * log2 e; the sum of a row in 32 classes of keys; p rounded to the dtype of q for p v, not in
//          the sum. Blocks of 128 keys (64 for heads of 256), ascending. No bit of a row depends on the tile, on
//          other rows, requests or heads.

#include <algorithm>
#include <limits>

#include "dsl/builder.h"
#include "kernels/alignment.h"
#include "kernels/all_ops.h"
#include "kernels/attention/fwd_kernel.h"
#include "kernels/attention/fwd_values.h"
#include "kernels/jit/target.h"
#include "kernels/jit/tune.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using attention::ForwardSpec;

constexpr int64_t kWidest = 8;                  // elements of 16 bytes
constexpr int64_t kCached = int64_t{24} << 20;  // bytes of keys and values that stay in the cache

/// Strides of extents of 1 do not count: those that several would have.
TensorView packed(TensorView view) {
  for (int i = view.rank() - 2; i >= 0; --i) view.strides[i] = step(view, i);
  return view;
}

struct EmptySpec {
  int32_t width, is_f16;
};

/// Without keys.
ir::Kernel build_empty(const EmptySpec& s) {
  using namespace dsl;
  Builder k("attention_fwd_empty");
  auto rows = k.dim("rows");
  const DType dtype = s.is_f16 != 0 ? DType::f16 : DType::bf16;
  auto out = k.output("out", dtype, {rows, s.width}, {.align = 2});
  auto lse = k.output("lse", DType::f32, {rows}, {.align = 4});
  constexpr int kRows = 16;
  auto at = k.launch({ceil_div(rows, kRows)}, {.threads = 128});
  k.fill(out.tile({at.x * kRows, 0}, {kRows, s.width}), cast(dtype, 0.0f));
  k.fill(lse.tile({at.x * kRows}, {kRows}), std::numeric_limits<float>::infinity());
  return k.finish();
}

constexpr int64_t kElement = 2;  // bytes

constexpr int64_t kRows = 128;  // two groups of warps

/// By roles: a tile of q, one of out, and the ring.
bool is_legal(const jit::TuneFacts& facts, const jit::TuneChoice& c) {
  const int64_t width = facts.spec.at("width"), ring = c[0] * facts.spec.at("keys") * width;
  constexpr int64_t kLeast = int64_t{32} << 10;  // elements in flight
  return ring >= kLeast && (2 * width * kRows + ring) * kElement + 1024 <= facts.shared_memory;
}

/// A persistent grid wins where all tiles take about as long. On an H200, 4 x 16 heads of 128 with 4096 tokens, us: 878 in
/// place of 912; causal 545 in place of 503, but with heads of 64 669 in place of 789. Two stages 931, five 880.
jit::TuneChoice standard_choice(const jit::TuneFacts& facts) {
  const int64_t width = facts.spec.at("width");
  const bool is_even = facts.spec.at("right") == 0 || width == 64;
  return {width == 64 ? 8 : width == 128 ? 4 : 2, is_even ? 1 : 0};
}

const jit::TuneSpace& tune_space() {
  static const auto* const made =
      new jit::TuneSpace{.fields = {{"stages", {2, 4, 5, 8}}, {"persistent", {0, 1}}},
                         .standard = standard_choice,
                         .is_legal = is_legal};
  return *made;
}

/// By roles where the tensor cores take groups of four warps.
attention::ForwardTile pick_tile(const Call& c, const ForwardSpec& s) {
  const bool is_aligned = s.q_vector == kWidest && s.k_vector == kWidest && s.v_vector == kWidest &&
                          s.out_vector == kWidest;
  const bool has_form = s.width == s.value_width && s.width != 96 && s.has_k_lengths == 0;
  if (has_form && is_aligned && jit::has_group_products(c.device())) {
    const jit::TuneChoice t = jit::choose("attention_fwd", tune_space(),
                                          {.spec = {{"width", s.width},
                                                    {"keys", s.keys()},
                                                    {"left", s.has_left},
                                                    {"right", s.has_right}}},
                                          c.device());
    return {kRows, static_cast<int32_t>(t[0]), 1, static_cast<int32_t>(t[1])};
  }
  const int64_t elements = 64 * s.width + s.keys() * (s.width + s.value_width);
  return {64, elements * kElement <= jit::shared_memory_limit(c.device()) ? 1 : 0, 0};
}

int32_t vector_of(const TensorView& view) {
  return static_cast<int32_t>(common_vector(view, kWidest));
}

void launches(const Call& c, Launches& go) {
  const int64_t queries = c["Sq"], keys = c["Sk"];
  ForwardSpec s{};
  s.width = c.i32("dk"), s.value_width = c.i32("dv");
  s.is_f16 = c.dtype("q") == DType::f16 ? 1 : 0;
  if (keys == 0) {
    const int64_t rows = c["B"] * c["h"] * queries;
    const TensorView &out = c.given("out"), &lse = c.given("lse");
    return go.add(build_empty, EmptySpec{s.value_width, s.is_f16},
                  {.tensors = {{"out", {out.data, out.dtype, {rows, s.value_width}, out.device}},
                               {"lse", {lse.data, lse.dtype, {rows}, lse.device}}}},
                  "empty");
  }
  const TensorView q = packed(c.given("q")), k = packed(c.given("k")), v = packed(c.given("v"));
  s.q_vector = vector_of(q), s.k_vector = vector_of(k), s.v_vector = vector_of(v);
  s.out_vector = vector_of(c.given("out"));
  const int64_t left = c["window_left"], right = c.flag("causal") ? 0 : c["window_right"];
  s.has_left = left >= 0 && left < keys + queries ? 1 : 0;
  s.has_right = right >= 0 && right < keys + queries ? 1 : 0;
  const double softcap = c.number("softcap");
  s.has_softcap = softcap > 0 ? 1 : 0;
  s.has_sink = c.has("sink") ? 1 : 0;
  s.has_q_lengths = c.has("q_lengths") ? 1 : 0;
  s.has_k_lengths = c.has("k_lengths") ? 1 : 0;
  s.tile = pick_tile(c, s);
  const int64_t of_head = keys * (s.width + s.value_width) * 2;
  const int64_t section = std::clamp<int64_t>(kCached / of_head, 1, c["B"] * c["g"]);
  go.add(attention::build_forward, s,
         {.tensors = {{"q", q}, {"k", k}, {"v", v}},
          .scalars = {{"c", attention::factor_of(c)},
                      {"cap", softcap > 0 ? attention::scale_of(c) / softcap : 0.0},
                      {"left", left},
                      {"right", right},
                      {"section", section * (c["h"] / c["g"])}}});
}

}  // namespace

const Op attention_fwd_op{
    .name = "attention_fwd",
    .family = "attention",
    .purpose = "softmax(scale * q k^T) v of each head, and its log of the sum of exponentials",
    .signature = R"(
      q           bf16/f16 [B, Sq, h, dk] rows
      k           as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
      v           as q [B, Sk, g, dv] rows
      q_lengths?  i32 [B]                       values 0 .. Sq
      k_lengths?  i32 [B]                       values 0 .. Sk
      sink?       f32 [h]                       # exp(sink) is added to the sum of a row, not to lse
      -> out      as q [B, Sq, h, dv]
      -> lse      f32 [B, h, Sq]
      param  scale float = none
      param  causal bool = false
      param  window_left, window_right int >= -1 = -1
      param  softcap float >= 0 = 0
      param  split_len int >= 0 = 0
      need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
      need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
      limit  Sq <= 536870912 on q "so many rows are not supported"
      limit  Sk <= 536870912 on k "so many rows are not supported"
      limit  B * h * ceil(Sq / 64) <= 2147483647 on q "so many rows are not supported"
    )",
    .launches = launches,
    .check = attention::require_forward,
    .examples = R"(
      B=2 Sq=70 Sk=150 h=4 g=2 dk=64 dv=64 q=bf16 causal=true
      B=1 Sq=130 Sk=130 h=2 g=1 dk=128 dv=128 q=bf16; B=1 Sq=65 Sk=200 h=2 g=2 dk=96 dv=96 q=f16 sink=given softcap=8
      B=2 Sq=40 Sk=140 h=2 g=1 dk=192 dv=128 q=bf16 k_lengths=given q_lengths=given
      B=1 Sq=20 Sk=80 h=2 g=1 dk=256 dv=256 q=bf16 window_left=17 window_right=5)",
    .bench = R"(
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=128 dv=128 q=bf16 causal=true
      B=1 Sq=16384 Sk=16384 h=16 g=16 dk=128 dv=128 q=bf16
      B=4 Sq=4096 Sk=4096 h=64 g=8 dk=128 dv=128 q=bf16 causal=true
      B=4 Sq=4096 Sk=4096 h=32 g=32 dk=64 dv=64 q=bf16
      B=4 Sq=4096 Sk=4096 h=32 g=32 dk=64 dv=64 q=bf16 causal=true
      B=4 Sq=4096 Sk=4096 h=16 g=16 dk=192 dv=128 q=bf16 causal=true
      B=2 Sq=8192 Sk=8192 h=16 g=16 dk=256 dv=256 q=bf16)",
    .values = {
        {"q_lengths", [](const Case& c, int64_t b) { return c["Sq"] - b * 7 % (c["Sq"] + 1); }},
        {"k_lengths", [](const Case& c, int64_t b) { return c["Sk"] - b * 9 % (c["Sk"] + 1); }}}};

}  // namespace tessera::kernels
