// topk_gate: ids of the K largest scores of each token.
//
// Shapes   scores [tokens, experts], topk_idx [tokens, num_topk]
// Dtypes   scores f32, topk_idx i64
// Method   one warp per token: scores become unsigned keys of the same order, lane l holds experts
//          l, l + 32, ... in sorted runs of four; each of the K rounds takes the largest key and the
//          smallest id that has it, by two warp reductions. Few bytes, so the bound is the latency
//          of one load, 2 K warp reductions and one store.
// Maths    key = bits of the score, all flipped if negative, else with the sign set; NaN and -inf
//          share a key, and so do the zeros
// Tuned    H200: 8 warps per block.

#include "kernels/moe/topk_gate.h"

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/moe/best_expert.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t experts, num_topk;
};

constexpr int kWarps = 8;              // tokens per block
constexpr int64_t kMaxExperts = 4096;  // 128 keys per lane still fit its registers
// 2. Builder

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("topk_gate");
  auto tokens = k.dim("tokens");
  auto scores = k.input("scores", DType::f32, {tokens, s.experts});
  auto topk_idx = k.output("topk_idx", DType::i64, {tokens, s.num_topk});
  auto at = k.launch({ceil_div(tokens, kWarps)}, {.threads = kWarps * 32});

  auto token = k.let("token", at.x * kWarps + k.warp());
  auto lane = k.let("lane", k.lane());
  k.if_(token < tokens, [&] {
    moe::Ranking ranking(
        k, (s.experts + 31) / 32,
        [&](const Value& slot) {
          auto expert = slot * 32 + lane;
          auto key = moe::order_key(k, moe::rankable(scores(token, expert)));
          return select(expert < s.experts, key, cast(DType::u32, moe::kTaken));
        },
        [&](const Value& slot) { return slot * 32 + lane; });
    // K rounds; lane r keeps the winner of round r of a batch of 32, so that a row is stored at
    // once
    for (int64_t first = 0; first < s.num_topk; first += 32) {
      const int64_t rounds = std::min<int64_t>(32, s.num_topk - first);
      auto winner = k.var(DType::i32, 0, "winner");
      auto one_round = [&](Value round) {
        auto expert = ranking.take();
        winner = select(lane == round, expert, winner);
      };
      if (s.num_topk <= 32) {
        k.unrolled(rounds, one_round);
      } else {
        k.serial(0, rounds, one_round);
      }
      k.if_(lane < rounds, [&] { topk_idx(token, first + lane) = i64(winner); });
    }
  });
  return k.finish();
}

// 3. Host function
Spec spec_of(const TensorView& scores, int64_t num_topk) {
  return {static_cast<int32_t>(scores.shape[1]), static_cast<int32_t>(num_topk)};
}

ArgCheck check_input(const Tensors& tensors, int64_t num_topk) {
  ArgCheck check("topk_gate");
  check.tensor("scores", tensors).dtype(DType::f32).shape("T", "E").row_major();
  check.require(
      num_topk >= 1 && num_topk <= check["E"], "num_topk", "parameter 'num_topk' is out of range",
      "1 .. " + std::to_string(check["E"]) + " (the experts of scores)", std::to_string(num_topk));
  check.require(check["E"] <= kMaxExperts, "scores", "too many experts",
                "at most " + std::to_string(kMaxExperts), std::to_string(check["E"]),
                ErrorKind::unsupported);
  check.bind("K", num_topk, "num_topk");
  return check;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  const int64_t num_topk = std::get<int64_t>(params.at("num_topk"));
  ArgCheck check = check_input(inputs, num_topk);
  const Dims shape{check["T"], num_topk};
  return {row_major_output("topk_idx", DType::i64, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  const int64_t num_topk = std::get<int64_t>(params.at("num_topk"));
  ArgCheck check = check_input(tensors, num_topk);
  check.output("topk_idx", tensors).dtype(DType::i64).shape("T", "K").row_major();
  check.memory();
  const Spec spec = spec_of(tensors.at("scores"), num_topk);
  const TensorView arguments[] = {tensors.at("scores"), tensors.at("topk_idx")};
  if (check["T"] == 0) return;
  jit::run_op("topk_gate", spec, build, arguments, {}, stream);
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t experts, int64_t num_topk) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " E=" + std::to_string(experts) +
            " K=" + std::to_string(num_topk);
  c.params = {{"num_topk", num_topk}};
  c.inputs.push_back({"scores", DType::f32, {tokens, experts}});
  c.bytes = 4 * tokens * experts + 8 * tokens * num_topk;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "topk_gate";
  op.family = "moe";
  op.purpose = "ids of the num_topk largest scores of each token";
  op.tensors = {input("scores", {"f32"}, {"T", "E"}), output("topk_idx", {"i64"}, {"T", "K"})};
  op.params = {count("num_topk", "1..E")};
  op.outputs = outputs;
  op.run = run;
  op.kernels = [](const Tensors& t, const Params& p) -> std::vector<ir::Kernel> {
    return {build(spec_of(t.at("scores"), std::get<int64_t>(p.at("num_topk"))))};
  };
  op.examples = {bench_case(65, 72, 6), bench_case(33, 256, 8), bench_case(9, 16, 6),
                 bench_case(3, 100, 40)};
  for (const int64_t tokens : {4001, 8001}) {
    for (const int64_t experts : {72, 96}) op.bench.push_back(bench_case(tokens, experts, 6));
  }
  op.bench.push_back(bench_case(1, 256, 8));
  op.bench.push_back(bench_case(128, 256, 8));
  return op;
}

}  // namespace

void topk_gate(const TensorView& scores, const TensorView& topk_idx, const TopkGateOptions& options,
               Stream stream) {
  call_op(topk_gate_op(), {{"scores", scores}, {"topk_idx", topk_idx}},
          {{"num_topk", options.num_topk}}, stream);
}

const OpInfo& topk_gate_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
