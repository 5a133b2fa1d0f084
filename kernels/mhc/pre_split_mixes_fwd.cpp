// pre_split_mixes_fwd: the mixes of a sub-layer from the projected residual.
//
// Method   one thread per entry, so that even few tokens fill the SMs; neighbours read neighbouring
//          entries. Few bytes: the bound is the latency of one load, one sigmoid and one store.
// Maths    z = fma(m, scale, base); pre_mix and post_mix of mix_sequences.h
// Tuned    H200: 256 threads per block.

#include "kernels/mhc/parts/mix_sequences.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t streams;
};

constexpr int64_t kThreads = 256;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t n = s.streams, entries = n * (n + 2);
  OpBuilder k(pre_split_mixes_fwd_op, {{"n", n}, {"M", entries}});
  auto tokens = k.extent("T");
  auto input_mixes = k.tensor("input_mixes"), scale = k.tensor("scale"), base = k.tensor("base");
  auto pre_mix = k.tensor("pre_mix"), post_mix = k.tensor("post_mix");
  auto comb_logits = k.tensor("comb_logits");
  auto post_mult = k.param("post_mult_value"), eps = k.param("pre_eps");
  auto at = k.launch({ceil_div(tokens * entries, kThreads)}, {.threads = kThreads});

  auto entry = k.let("entry", at.x * kThreads + k.thread());
  auto token = k.let("token", entry / entries);
  auto j = k.let("j", entry % entries);
  k.if_(token < tokens, [&] {
    Value mix = input_mixes(token, j);
    auto z = k.let("z", mhc::mix_logit(mix, scale(min(j / n, 2)), base(j)));
    k.if_else(
        j < n, [&] { pre_mix(token, j) = mhc::pre_mix(z, eps); },
        [&] {
          k.if_else(
              j < 2 * n, [&] { post_mix(token, j - n) = mhc::post_mix(z, post_mult); },
              [&] { comb_logits(token, (j - 2 * n) / n, (j - 2 * n) % n) = z; });
        });
  });
  return k.finish();
}

/// The most streams whose mixes fit in M columns.
int64_t streams(const Call& c) {
  int64_t n = 0;
  while (c["M"] / (n + 1) >= n + 3) ++n;
  return n;
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("n")});
}

}  // namespace

const Op pre_split_mixes_fwd_op{
    .name = "pre_split_mixes_fwd",
    .family = "mhc",
    .purpose = "splits the projected residual into the mixes of a sub-layer",
    .signature = R"(
      input_mixes     f32 [T.., M]
      scale           f32 [3]
      base            f32 [M]
      -> pre_mix      f32 [T.., n]
      -> post_mix     f32 [T.., n]
      -> comb_logits  f32 [T.., n, n]
      param           post_mult_value float = 1
      param           pre_eps float = 1e-6
      let             n = streams()
      need            M = n*(n+2) and n >= 1 "argument 'input_mixes' has the wrong number of columns"
      limit           n <= 1024 on input_mixes "so many streams are not supported"
    )",
    .launches = launches,
    .functions = {{"streams", streams}},
    .examples = "T=37 n=4; T=5 n=3; T=9 n=1",
    .bench = "T=1 n=4; T=128 n=4; T=512 n=4; T=4096 n=4; T=8192 n=4",
    .case_words = {{"M", [](const Case& c) { return c["n"] * (c["n"] + 2); }}}};

}  // namespace tessera::kernels
