// grad_w_reduce: reduces the partial sums of engram_gate_bwd to the gradients of the two norm
// weights.
//
// Method   one thread per weight adds its partials in order. It loads 132 of them, one per SM, before
//          the first sum, because the weights are too few to fill the device with short loops. Every
//          partial is read once, so the bound is bytes / copy bandwidth.
// Maths    sum over the partials in ascending order from +0, then fma(sum, the other weight,
//          gradient)
// Tuned    H200, 132 partials: 4 x 7168 take 6.97 us (peer 6.86), 91 % of a kernel that only reads and
//          writes these bytes; 4 x 4096 5.26. With weights and gradients loaded after the sum 7.70 and
//          5.95; no_allocate 7.26 and 5.46; 32 threads 7.00 and 5.28, 128 threads 7.08 and 5.47. H100,
//          when they were loaded after the sum: 9.7 us; rounds of 66 10.2, of 44 and 33 9.7 and 9.9 (but
//          7.5 instead of 6.9 us for 4 x 4096); 2 and 4 weights per thread 9.7 to 10.1 and 10.2.

#include "dsl/builder.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kThreads = 64, kRound = 132;
// Launch bound: registers for a whole round. Without it ptxas saves registers and waits several
// times per round.
constexpr int kBlocksPerSm = 4;

struct Spec {
  int32_t unused = 0;  // one kernel for all calls
};

ir::Kernel build(const Spec&) {
  using namespace dsl;
  Builder k("grad_w_reduce");
  auto partials = k.dim("partials"), weights = k.dim("weights");  // of all streams
  auto partial = k.input("grad_w_partial", DType::f32, {partials, weights}, {.align = 4});
  auto hidden = k.input("weight_hidden", DType::bf16, {weights}, {.align = 2});
  auto embed = k.input("weight_embed", DType::bf16, {weights}, {.align = 2});
  auto grad_hidden = k.output("grad_weight_hidden", DType::f32, {weights}, {.align = 4});
  auto grad_embed = k.output("grad_weight_embed", DType::f32, {weights}, {.align = 4});
  auto at = k.launch({ceil_div(weights, kThreads)},
                     {.threads = kThreads, .min_blocks_per_sm = kBlocksPerSm});

  auto weight = k.let("weight", at.x * kThreads + k.thread());
  k.if_(weight < weights, [&] {
    // Loaded here, because ptxas would load them after the last partial and wait once more.
    auto own_hidden = k.let("own_hidden", f32(hidden(weight)));
    auto own_embed = k.let("own_embed", f32(embed(weight)));
    auto old_hidden = k.let("old_hidden", grad_hidden(weight));
    auto old_embed = k.let("old_embed", grad_embed(weight));
    auto sum = k.var(DType::f32, 0.0f, "sum");
    auto add_round = [&](const Value& first) {
      auto loaded = k.local(DType::f32, {kRound}, "loaded");
      k.unrolled(kRound, [&](Value i) { loaded(i) = partial(first + i, weight); });
      k.unrolled(kRound, [&](Value i) { sum += loaded(i); });
    };
    auto rounds = k.let("rounds", partials / kRound);
    k.serial(0, rounds, [&](Value round) {
      k.assume(round * kRound + (kRound - 1) < partials);
      add_round(round * kRound);
    });
    // Loads past the last partial give zeros, which change no sum that began at +0.
    k.if_(rounds * kRound < partials, [&] { add_round(rounds * kRound); });
    grad_hidden(weight) = fma(sum, own_embed, old_hidden);
    grad_embed(weight) = fma(sum, own_hidden, old_embed);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t weights = c["hc"] * c["D"];
  Args args;
  for (const char* name :
       {"weight_hidden", "weight_embed", "grad_weight_hidden", "grad_weight_embed"}) {
    args.tensors.push_back({name, reshaped(c.given(name), {weights})});
  }
  args.tensors.push_back(
      {"grad_w_partial", reshaped(c.given("grad_w_partial"), {c["Z"], weights})});
  go.add(build, Spec{}, args);
}

}  // namespace

const Op grad_w_reduce_op{
    .name = "grad_w_reduce",
    .family = "engram",
    .purpose = "gradients of the two norm weights of the gate, from partial sums over tokens",
    .signature = R"(
      grad_w_partial              f32 [Z, hc, D]
      weight_hidden               bf16 [hc, D]
      weight_embed                bf16 [hc, D]
      -> acc grad_weight_hidden?  f32 [hc, D]
      -> acc grad_weight_embed?   f32 [hc, D]
      need                        Z >= 1 on grad_w_partial "there must be a partial"
      limit                       hc * D <= 2130706431 on weight_hidden "so many weights are not supported"
    )",
    .launches = launches,
    .examples = "Z=132 hc=4 D=512; Z=3 hc=2 D=100; Z=70 hc=1 D=512 grad_weight_hidden=given",
    .bench = "Z=132 hc=4 D=7168; Z=132 hc=4 D=4096; Z=132 hc=4 D=2048",
    .case_words = {{"Z", [](const Case&) -> int64_t { return 132; }}}};

}  // namespace tessera::kernels
