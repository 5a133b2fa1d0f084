// gate_scores_sum: the sums of the normalised scores of each sequence, for an auxiliary loss.
//
// Shapes   scores [tokens, experts], mask [tokens], out [sequences, experts]
// Dtypes   f32, mask bool
// Method   a block has a run of 64 tokens. A warp sums the row of each token; then a thread per expert
//          adds the run in ascending order. A second kernel adds the runs of a sequence, ascending. Runs
//          do not depend on the GPU.
// Maths    out = sum of u / U over the tokens that the mask counts; U sums u in the order of norm_row.h

#include <algorithm>

#include "kernels/moe/parts/expert_row.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/gate_row.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t experts;
  int32_t vector;  // scores per load
};

constexpr int64_t kRun = 64;  // tokens; results depend on it
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSumThreads = 128;

ir::Kernel build_runs(const Spec& s) {
  using namespace dsl;
  Builder k("gate_scores_sum_runs");
  auto tokens = k.dim("tokens"), parts = k.dim("parts");
  auto scores =
      k.input("scores", DType::f32, {tokens, s.experts}, {.align = int64_t{s.vector} * 4});
  auto mask = k.input("mask", DType::boolean, {tokens}, {.align = 1});
  auto partials = k.output("partials", DType::f32, {parts, s.experts}, {.align = 4});
  auto length = k.scalar("sequence_length", DType::i32), runs = k.scalar("runs", DType::i32);
  auto at = k.launch({parts}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto first = k.let("first", at.x % runs * kRun);  // of the sequence
  auto begin = k.let("begin", at.x / runs * length + first);
  auto count = k.let("count", min(length - first, i32(kRun)));
  k.wait_for_previous_kernel();
  // Row sums; 0 for a token that is left out.
  auto sums = k.shared(DType::f32, {kRun}, "sums");
  k.serial(0, ceil_div(count, kWarps), [&](Value round) {
    auto token = k.let("token", round * kWarps + k.warp());
    k.if_(token < count, [&] {
      moe::RouterSpec in_row{};
      in_row.experts = s.experts;
      in_row.vector = static_cast<uint8_t>(s.vector);
      const moe::ExpertRow row(k, in_row);
      auto u = row.load("u", [&](const Value& expert) { return scores(begin + token, expert); });
      const Value sum = serving::sum_of_row(
          k, row.slots(), [&](int64_t slot, const Value& before) { return before + u(slot); });
      auto counted = mask(begin + token);
      k.if_(k.lane() == 0, [&] { sums(token) = select(counted, sum, 0.0f); });
    });
  });
  k.serial(0, ceil_div(i32(s.experts), kThreads), [&](Value round) {
    auto expert = k.let("expert", round * kThreads + k.thread());
    k.if_(expert < s.experts, [&] {
      auto sum = k.var(DType::f32, 0.0f, "sum");
      k.serial(0, count, [&](Value token) {
        auto all = k.let("all", sums(token).read());
        auto share = scores(begin + token, expert) / all;
        sum = select(all != 0.0f, sum + share, sum);
      });
      partials(at.x, expert) = sum;
    });
  });
  return k.finish();
}

ir::Kernel build_sum(const Spec& s) {
  using namespace dsl;
  Builder k("gate_scores_sum");
  auto sequences = k.dim("sequences"), parts = k.dim("parts");
  auto partials = k.input("partials", DType::f32, {parts, s.experts}, {.align = 4});
  auto out = k.output("out", DType::f32, {sequences, s.experts}, {.align = 4});
  auto runs = k.scalar("runs", DType::i32);
  const int64_t blocks = num_blocks(s.experts, kSumThreads);
  auto at = k.launch({sequences * blocks}, {.threads = kSumThreads});
  k.let_next_kernel_start();
  auto sequence = k.let("sequence", at.x / blocks);
  auto expert = k.let("expert", at.x % blocks * kSumThreads + k.thread());
  k.wait_for_previous_kernel();
  k.if_(expert < s.experts, [&] {
    auto sum = k.var(DType::f32, 0.0f, "sum");
    k.serial(0, runs, [&](Value run) { sum += partials(sequence * runs + run, expert); });
    out(sequence, expert) = sum;
  });
  return k.finish();
}

int64_t length_of(const Call& c) {
  return c["T"] / c["Q"];
}

/// Runs of all sequences; at least one, so that the workspace is never empty.
int64_t parts_of(const Call& c) {
  return std::max<int64_t>(c["Q"] * num_blocks(length_of(c), kRun), 1);
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.experts = c.i32("E");
  s.vector = c.align({"scores"}) == 16 && s.experts % 4 == 0 ? 4 : 1;
  const TensorView& workspace = c.given("workspace");
  Args args;
  args.tensors.push_back(
      {"partials",
       {workspace.data, DType::f32, Dims{parts_of(c), c["E"]}, Dims{c["E"], 1}, workspace.device}});
  args.scalars = {{"sequence_length", length_of(c)}, {"runs", num_blocks(length_of(c), kRun)}};
  if (c["T"] > 0) go.add(build_runs, s, args, "runs");
  go.add(build_sum, s, args, "sum");
}

}  // namespace

const Op gate_scores_sum_op{
    .name = "gate_scores_sum",
    .family = "serving",
    .purpose = "sums of the normalised scores of each sequence",
    .signature = R"(
      scores     f32 [T, E]               # of moe_topk_gate_fwd
      mask       bool [T]                 # false: the token is left out
      -> out     f32 [Q, E]
      workspace  f32 [elements()]
      param  num_seqs int
      let    Q = num_seqs
      need   num_seqs >= 1
      need   T % Q = 0 on num_seqs "parameter 'num_seqs' does not divide the tokens"
      need   E >= 1 on scores "argument 'scores' has no columns"
      limit  E <= 4096 on scores "too many experts"
      limit  Q * E <= 2130706431 on num_seqs "so many sequences are not supported"
    )",
    .launches = launches,
    .functions = {{"elements", [](const Call& c) { return parts_of(c) * c["E"]; }}},
    .examples = R"(
      T=390 E=256 num_seqs=1; T=5 E=30 num_seqs=1; T=64 E=384 num_seqs=1)",
    .bench = R"(
      T=512 E=256 num_seqs=1; T=8192 E=256 num_seqs=2; T=8192 E=384 num_seqs=2)",
    .values = {{"mask", [](const Case&, int64_t t) { return t % 5 == 4 ? int64_t{0} : 1; }}}};

}  // namespace tessera::kernels
