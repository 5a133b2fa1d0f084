// hash_gate: looks up a token's experts in a table and computes their weights.
//
// Dtypes   token ids i64|i32, ids i32|i64
// Method   a group of lanes per token, as many as its slots, rounded up to a power of two. Each lane
//          goes from token id to expert to logit, and the group sums. Few bytes: the bound is the
//          latency of three dependent loads and one store. With few tokens, whole rows of logits are
//          loaded while the first two loads are in flight.
// Speed    H200, 256 experts, 6 of them: 64 tokens 2.3 us, 4096 tokens 3.7 (limit 3, goal 2.8), 16384 tokens 5.6
//          (goal 4.5). Scattered sectors bound it. Tried at 4096 on an H100 (there 4.0): 64 to 1024 threads per
//          block 3.93 to 4.00; whole rows of logits ahead 4.78, in blocks of 64 or 256 threads 4.86 or 4.91.
// Maths    u = sqrt(softplus(logit)); D = 1e-20 + sum of u, in pairs at distance 16, 8, 4, 2, 1: the
//          distances beyond the group only add +0, which changes no bit; weight = u / D * scale

#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/hash_route.h"
#include "kernels/serving/parts/hash_values.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using serving::HashSpec;
using serving::HashTensors;

struct Spec {
  HashSpec hash;
  int32_t row;  // logits loaded ahead per token; 0: only those of the named experts
};

constexpr int kThreads = 128;
// Up to here loading whole rows takes less time than waiting for the ids.
constexpr int64_t kFewTokens = 64;
constexpr int64_t kLongestRow = 512;
constexpr int64_t kVector = 4;

dsl::Ref logits_of(OpBuilder& k, const Spec& s, const dsl::Value& tokens) {
  if (s.row == 0) return k.tensor("logits");
  auto stride = k.stride("logits_stride", {.multiple_of = kVector});
  return k.input("logits", DType::f32, {tokens, s.row}, {.strides = {stride, 1}, .align = 16});
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t lanes = s.hash.lanes();
  const int64_t tokens_of_block = kThreads / lanes;
  OpBuilder k(hash_gate_op, {{"K", s.hash.num_topk}, {"S", s.hash.num_shared}});
  const HashTensors t = serving::declare_hash(k, s.hash);
  auto experts = s.row > 0 ? i32(s.row) : k.extent("E");
  auto logits = logits_of(k, s, t.tokens);
  auto at = k.launch({ceil_div(t.tokens, tokens_of_block)}, {.threads = kThreads});
  k.let_next_kernel_start();

  auto token = k.let("token", at.x * tokens_of_block + k.thread() / lanes);
  auto slot = k.let("slot", k.thread() % lanes);
  k.wait_for_previous_kernel();
  std::optional<Ref> rows;
  std::optional<AsyncToken> rows_read;
  if (s.row > 0) {
    rows = k.shared(DType::f32, {tokens_of_block, s.row}, "rows");
    rows_read =
        k.copy_async(logits.tile({at.x * tokens_of_block, 0}, {tokens_of_block, s.row}), *rows);
  }
  auto counts = k.let("counts", token < t.count());
  const auto logit = [&](const Value& expert) {
    return rows ? Value((*rows)(k.thread() / lanes, expert))
                : Value(logits(token, expert).unchecked());
  };
  const auto await_rows = [&] {
    if (rows_read) k.wait(*rows_read);
  };
  serving::route_by_table(k, s.hash, t, {experts, logit, out_of_range("logits"), await_rows}, token,
                          slot, counts);
  return k.finish();
}

int32_t row_read(const Call& c) {
  const bool is_few = c["E"] <= kLongestRow && c["T"] <= kFewTokens;
  const bool is_aligned = c.align({"logits"}) == 16 && c["E"] % kVector == 0 &&
                          c.given("logits").strides[0] % kVector == 0;
  return is_few && is_aligned ? c.i32("E") : 0;
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{serving::hash_spec(c), row_read(c)});
}

}  // namespace

const Op hash_gate_op{
    .name = "hash_gate",
    .family = "serving",
    .purpose = "the experts that a table names for each token, and their weights",
    .signature = R"(
      token_ids        i64/i32 [T]
      table            i32 [V, K]
      logits           f32 [T, E] rows
      num_tokens?      i32 [1]           # rows from here on are padding
      -> topk_idx      idx_dtype [T, K+S]
      -> topk_weights  f32 [T, K+S]
      param  num_shared_experts int = 0
      param  routed_scaling_factor float = 1
      param  scale {shared, routed} = shared
      param  idx_dtype {i32, i64} = i32
      let    S = num_shared_experts
      bucket T at 65                     # rows of logits are read whole
      need   num_shared_experts >= 0
      need   K >= 1 on table "argument 'table' has no columns"
      need   V >= 1 on table "argument 'table' has no rows"
      need   E >= 1 on logits "argument 'logits' has no columns"
      need   K + S <= 32 on num_shared_experts
      |      "parameter 'num_shared_experts' leaves too many slots for a token"
      need   E + S <= 2130706431 on logits
    )",
    .launches = launches,
    .check_values = serving::require_hashed,
    .examples = R"(
      T=65 V=100 K=6 E=256; T=33 V=40 K=6 E=384 num_shared_experts=1 routed_scaling_factor=2.5 num_tokens=given
      T=19 V=40 K=8 E=64 token_ids=i32 idx_dtype=i64 scale=routed routed_scaling_factor=1.5 num_shared_experts=2)",
    .bench = R"(
      T=1 V=129280 K=6 E=256; T=64 V=129280 K=6 E=256; T=4096 V=129280 K=6 E=256; T=16384 V=129280 K=6 E=256
      T=1 V=129280 K=6 E=384; T=64 V=129280 K=6 E=384; T=4096 V=129280 K=6 E=384; T=16384 V=129280 K=6 E=384)",
    .values = {{"token_ids", [](const Case& c, int64_t t) { return t * 7919 % c["V"]; }},
               {"table", [](const Case& c, int64_t i) { return i * 104729 % c["E"]; }},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"] - 3; }}},
    // 32-byte sectors: one per logit that is read, and one per token's table entry.
    .bytes = [](const Case& c) { return c["T"] * (32 * c["K"] + 64 + 8 * c["K"]); }};

}  // namespace tessera::kernels
