// gate_scores_sum: the sums of the normalised scores of each sequence, for an auxiliary loss.
//
// Shapes   scores [tokens, experts], mask [tokens], out [sequences, experts]
// Dtypes   f32, mask bool
// Method   a block has a run of 64 tokens. Warps load rows, several at once, sum them and leave their shares in
//          shared memory, where a thread per expert adds the run in ascending order; a token that is left out
//          adds +0. A second kernel adds the runs of a sequence, ascending, by tiles in shared memory. Runs
//          do not depend on the GPU. The bound is the read of the scores and two launches.
// Measured one H200, 8192 tokens of 256 experts: 8.0 us, of 384 9.7, 512 of 256 5.0.
// Lost     a row at a time, read again by a thread per expert, and partials added from memory: 17.0, 25.6 and 13.9.
// Maths    out = sum of u / U over the tokens that the mask counts; U sums u in the order of norm_row.h

#include <algorithm>
#include <vector>

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
constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int64_t kTileBytes = 96 * 1024;  // every GPU has as much shared memory
constexpr int64_t kHeldSlots = 32;         // of rows that a lane has loaded at once
constexpr int kSumThreads = 256;
constexpr int64_t kSumRuns = 64, kSumExperts = 32;  // of a tile of partials

/// Tokens of a run whose shares are in shared memory at once.
int64_t tile_tokens(int64_t experts) {
  int64_t tokens = kRun;
  while (tokens * experts * 4 > kTileBytes) tokens /= 2;
  return tokens;
}

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
  const int64_t tile = tile_tokens(s.experts), per_warp = std::max<int64_t>(tile / kWarps, 1);
  const int64_t columns = num_blocks(s.experts, kThreads);
  auto shares = k.shared(DType::f32, {tile, s.experts}, "shares");
  auto sums = k.local(DType::f32, {columns}, "sums");
  k.unrolled(columns, [&](Value column) { sums(column) = 0.0f; });
  moe::RouterSpec in_row{};
  in_row.experts = s.experts;
  in_row.vector = static_cast<uint8_t>(s.vector);
  const moe::ExpertRow row(k, in_row);
  const int64_t at_once = std::clamp<int64_t>(kHeldSlots / row.slots(), 1, per_warp);
  const auto share_rows = [&](const Value& round, const Value& part) {
    std::vector<Ref> rows;
    std::vector<Value> places, counted;
    for (int64_t i = 0; i < at_once; ++i) {
      auto place = k.let("place", (part * at_once + i) * kWarps + k.warp());
      auto token = k.let("token", round * tile + place);
      auto source = k.let("source", begin + min(token, count - 1));
      k.assume(source >= 0 && source < tokens);
      rows.push_back(row.load("u", [&](const Value& expert) { return scores(source, expert); }));
      counted.push_back(k.let("counted", token < count && mask(source)));
      places.push_back(place);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const Ref& u = rows[i];
      const Value sum = serving::sum_of_row(
          k, row.slots(), [&](int64_t slot, const Value& before) { return before + u(slot); });
      auto counts = k.let("counts", counted[i] && sum != 0.0f);
      k.unrolled(row.slots(), [&](Value slot) { u(slot) = select(counts, u(slot) / sum, 0.0f); });
      k.unrolled(row.slots() / s.vector, [&](Value piece) {
        auto expert = k.let("expert", row.expert(piece * s.vector));
        k.if_(expert < s.experts && places[i] < tile, [&] {
          k.vectorized(s.vector,
                       [&](Value j) { shares(places[i], expert + j) = u(piece * s.vector + j); });
        });
      });
    }
  };
  k.wait_for_previous_kernel();
  k.serial(0, ceil_div(count, tile), [&](Value round) {
    k.serial(0, per_warp / at_once, [&](Value part) { share_rows(round, part); });
    k.unrolled(columns, [&](Value column) {
      auto expert = k.let("expert", column * kThreads + k.thread());
      k.if_(expert < s.experts, [&] {
        k.serial(0, tile, [&](Value token) { sums(column) += shares(token, expert); });
      });
    });
  });
  k.unrolled(columns, [&](Value column) {
    auto expert = k.let("expert", column * kThreads + k.thread());
    k.if_(expert < s.experts, [&] { partials(at.x, expert) = sums(column); });
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
  const int64_t blocks = num_blocks(s.experts, kSumExperts);
  auto at = k.launch({sequences * blocks}, {.threads = kSumThreads});
  k.let_next_kernel_start();
  auto sequence = k.let("sequence", at.x / blocks);
  auto first = k.let("first", at.x % blocks * kSumExperts);
  auto tile = k.shared(DType::f32, {kSumRuns, kSumExperts}, "tile");
  auto sum = k.var(DType::f32, 0.0f, "sum");
  k.wait_for_previous_kernel();
  k.serial(0, ceil_div(runs, kSumRuns), [&](Value round) {
    auto run = k.let("run", round * kSumRuns);
    k.copy(partials.tile({sequence * runs + run, first}, {kSumRuns, kSumExperts}), tile);
    k.if_(k.thread() < kSumExperts, [&] {
      k.serial(0, min(runs - run, i32(kSumRuns)), [&](Value i) { sum += tile(i, k.thread()); });
    });
  });
  auto expert = k.let("expert", first + k.thread());
  k.if_(k.thread() < kSumExperts && expert < s.experts, [&] { out(sequence, expert) = sum; });
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
