// moe_gate: the experts of each token and their weights from the tokens themselves.
//
// Shapes   x [tokens, hidden], w [experts, hidden], topk_idx, topk_weights [tokens, slots]
// Method   one launch where there are many tokens: a block has 32 of them and all experts, multiplies chunk after chunk as
//          router_logits does, and keeps the logits in shared memory. Then its warps route the tokens from there, as
//          moe_topk_gate_fwd and hash_gate do from memory. Where blocks would be few, the chunks are summed side by side by the
//          kernel of router_logits, and a block of the second launch adds those of its tokens. Logits go to memory only where
//          the call asks for them.
// Measured one H200, 384 experts of 7168, us, before (clusters of blocks that took a chunk each) / now: 1 token 25.0 / 17.3, 64
//          25.0 / 19.1, 512 51.6 / 26.4; 256 of 4096: 16.6 / 13.8, 16.7 / 14.8, 36.1 / 20.6; 4096 tokens, one launch, 152
// Maths    router_logits, then moe_topk_gate_fwd or hash_gate: the same code, so the same bits
// Bound    bytes of x and w at the copy rate; 2 T E H operations of the tensor cores. Every block reads w, from L2
//          but for the first.

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/expert_score.h"
#include "kernels/moe/parts/router_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/chunk_sums.h"
#include "kernels/serving/gate/parts/gate_route.h"
#include "kernels/serving/gate/parts/hash_route.h"
#include "kernels/serving/parts/hash_values.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using dsl::Ref;
using dsl::Value;
using serving::GateSpec;
using serving::GateTensors;
using serving::HashSpec;
using serving::HashTensors;
using serving::LogitsSpec;

/// The logits of a block.
struct BlockSpec {
  LogitsSpec tile;
  int32_t is_apart;  // 1: their chunks are sums already
};
struct TopkSpec {
  BlockSpec logits;
  GateSpec gate;
  int32_t has_num_tokens, save_logits;
};
struct TableSpec {
  BlockSpec logits;
  HashSpec hash;
  int32_t save_scores, save_logits;
};

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kBlocks = 2;     // of a multiprocessor; with more, sums would spill
constexpr int64_t kUnit = 64;  // experts: 8 for each warp
constexpr int64_t kRows = 32, kFewRows = 16;
constexpr int64_t kRoutedRows = kWarps;  // of a block that only adds chunks and routes
// From here on blocks of 16 tokens are more than an H200 has multiprocessors.
constexpr int64_t kManyTokens = 132 * kFewRows;
constexpr const char* kNotFinite = "arguments 'x' and 'w' give a logit that is not finite";

/// The logits of the tokens of a block.
class BlockLogits {
 public:
  BlockLogits(dsl::Builder& k, const BlockSpec& s, const Value& tokens, bool is_saved,
              bool saves_scores = false)
      : k_(k), s_(s), experts_(k.dim("experts")), tokens_(tokens) {
    if (s.is_apart != 0) {
      chunks_ = k.dim("chunks");
      parts_ = k.input("parts", DType::f32, {chunks_, tokens, experts_});
    } else {
      tile_.emplace(k, s.tile, tokens, experts_);
    }
    if (is_saved) saved_ = k.output("logits", DType::f32, {tokens, experts_});
    if (saves_scores) scores_ = k.output("scores", DType::f32, {tokens, experts_});
  }

  const Value& experts() const { return experts_; }
  /// Tokens of a block.
  int64_t rows() const { return s_.tile.rows; }
  dsl::BlockIndex launch() {
    return k_.launch({ceil_div(tokens_, rows())},
                     {.threads = kThreads, .min_blocks_per_sm = kBlocks});
  }
  /// Computes the logits of the block's tokens, from the one it returns on, in shared memory. Those of tokens that do not
  /// count are not defined there, and saved as +0. Nothing is read of a block without a token before `end`.
  std::pair<Value, Ref> compute(const Value& block, const Value& end,
                                const std::function<Value(const Value& token)>& counts) {
    auto logits = k_.shared(DType::f32, {rows(), s_.tile.columns}, "logits_tile");
    auto first = k_.let("first", block * rows());
    k_.copy(tile_ ? tile_->logits(first, dsl::i32(0), first < end) : added(first, end), logits);
    const auto save = [&](const Ref& to, const std::function<Value(const Value& logit)>& value) {
      k_.parallel({rows(), s_.tile.columns}, [&](Value r, Value c) {
        Value logit = logits(r, c);
        to(first + r, c) = select(counts(first + r), value(logit), 0.0f);
      });
    };
    if (saved_) save(*saved_, [](const Value& logit) { return logit; });
    if (scores_) {
      save(*scores_, [](const Value& logit) {
        return moe::expert_score(moe::Scoring::sqrtsoftplus, logit, logit, logit);
      });
    }
    return {first, logits};
  }

 private:
  /// Adds the chunks of the tokens from `first` on, in order.
  Ref added(const Value& first, const Value& end) {
    auto sum = k_.fragment(DType::f32, {rows(), s_.tile.columns}, "sum");
    k_.fill(sum, 0.0f);
    k_.serial(0, select(first < end, chunks_, 0), [&](Value chunk) {
      k_.parallel({rows(), s_.tile.columns}, [&](Value r, Value c) {
        Value before = sum(r, c), more = (*parts_)(chunk, first + r, c);
        sum(r, c) = select(chunk == 0, more, before + more);
      });
    });
    return sum;
  }

  dsl::Builder& k_;
  const BlockSpec s_;
  const Value experts_, tokens_;
  Value chunks_;
  std::optional<serving::LogitsTile> tile_;
  std::optional<Ref> parts_, saved_, scores_;
};

ir::Kernel build_topk(const TopkSpec& s) {
  using namespace dsl;
  Builder k("moe_gate");
  auto tokens = k.dim("tokens");
  BlockLogits block(k, s.logits, tokens, s.save_logits != 0);
  GateTensors t = serving::declare_gate(k, s.gate, tokens);
  std::optional<Ref> num_tokens;
  if (s.has_num_tokens != 0) num_tokens = k.input("num_tokens", DType::i32, {1}, {.align = 4});
  auto at = block.launch();
  t.count = num_tokens ? k.let("count", k.uniform(min((*num_tokens)(0), tokens))) : tokens;
  const auto own =
      block.compute(at.x, *t.count, [&](const Value& token) { return t.counts(token); });
  const Value first = own.first;
  const Ref logits = own.second;
  k.serial(0, ceil_div(block.rows(), kWarps), [&](Value round) {
    auto row = k.let("row", round * kWarps + k.warp());
    auto token = k.let("token", first + row);
    auto lane = k.let("lane", k.lane());
    k.if_(row < block.rows() && token < tokens, [&] {
      serving::route_token(k, s.gate, t,
                           {[&](const Value& expert) { return logits(row, expert); }, kNotFinite},
                           token, lane);
    });
  });
  return k.finish();
}

ir::Kernel build_by_table(const TableSpec& s) {
  using namespace dsl;
  const int64_t lanes = s.hash.lanes();
  OpBuilder k(moe_gate_op, {{"K", s.hash.num_topk}, {"S", s.hash.num_shared}});
  const HashTensors t = serving::declare_hash(k, s.hash);
  BlockLogits block(k, s.logits, t.tokens, s.save_logits != 0, s.save_scores != 0);
  auto at = block.launch();
  auto count = k.let("count", k.uniform(t.count()));
  const auto own = block.compute(at.x, count, [&](const Value& token) { return token < count; });
  const Value first = own.first;
  const Ref logits = own.second;
  const int64_t rows = block.rows();
  k.serial(0, (rows * lanes + kThreads - 1) / kThreads, [&](Value pass) {
    auto place = k.let("place", pass * kThreads + k.thread());
    auto row = k.let("row", place / lanes);
    auto token = k.let("token", select(row < rows, first + row, t.tokens));
    auto slot = k.let("slot", place % lanes), counts = k.let("counts", token < count);
    const auto logit = [&](const Value& expert) { return Value(logits(row, expert)); };
    serving::route_by_table(k, s.hash, t, {block.experts(), logit, kNotFinite}, token, slot,
                            counts);
  });
  return k.finish();
}

bool is_by_table(const Call& c) {
  return c.word("routing") == "hash";
}

int64_t num_routed(const Call& c) {
  if (!is_by_table(c)) return c.has_value("num_topk") ? c["num_topk"] : 0;
  const TensorView& table = c.given("table");
  return table.rank() == 2 ? table.shape[1] : 0;
}

int64_t num_shared(const Call& c) {
  return is_by_table(c) ? c["num_shared_experts"] : serving::shared_slots(c);
}

/// Inputs of the other routing would be of no effect.
void check(const Call& c) {
  if (!is_by_table(c)) return;
  for (const char* name :
       {"bias", "image_bias", "mask", "fix_routing_mask", "logical_count", "unmapped_topk_idx"}) {
    c.need(!c.has(name), name, fmt::format("argument '{}' goes with another routing", name),
           "routing = topk", "routing = hash");
  }
}

void require(const Call& c) {
  if (!values_are_checked(c.given("x"))) return;
  if (is_by_table(c)) return serving::require_known(c);
  moe::require_kept_and_mapped(c, serving::rows_that_count(c));
}

bool is_few(const Call& c) {
  return c["T"] < kManyTokens;
}
bool is_apart(const Call& c) {
  return is_few(c) && serving::chunks_of(c) > 1;
}

/// Sums of all chunks; at least one element, so that the workspace is never empty.
int64_t elements(const Call& c) {
  return is_apart(c) ? std::max<int64_t>(serving::chunks_of(c) * c["T"] * c["E"], 1) : 1;
}

void launches(const Call& c, Launches& go) {
  const int64_t columns = (c["E"] + kUnit - 1) / kUnit * kUnit;
  BlockSpec logits{serving::logits_spec(c, is_few(c) ? kFewRows : kRows, columns), 0};
  Args args;
  if (is_apart(c)) {
    args.tensors.push_back({"parts", serving::add_chunk_sums(c, go)});
    logits.tile = {};  // x and w are not read
    logits.tile.rows = kRoutedRows, logits.tile.columns = static_cast<int32_t>(columns);
    logits.is_apart = 1;
  }
  const int32_t save = c.flag("save_logits") ? 1 : 0;
  if (is_by_table(c)) {
    go.add(build_by_table,
           TableSpec{logits, serving::hash_spec(c), c.flag("save_scores") ? 1 : 0, save}, args,
           "hash");
  } else {
    constexpr int32_t kShared = 16;  // bytes that rows of shared memory are aligned to
    go.add(build_topk,
           TopkSpec{logits, serving::gate_spec(c, kShared), c.has("num_tokens") ? 1 : 0, save},
           args, "topk");
  }
}

int64_t least_bytes(const Case& c) {
  return 2 * (c["T"] + c["E"]) * c["H"] + 12 * c["T"] * c["K"];
}

}  // namespace

const Op moe_gate_op{
    .name = "moe_gate",
    .family = "serving",
    .purpose = "the experts of each token and their weights, from the tokens",
    .signature = R"(
      x                  bf16 [T, H] rows
      w                  bf16 [E, H]
      bias?, image_bias? f32 [E]
      image_token_mask?  bool [T]         iff image_bias  # true: ranked by image_bias
      mask?              bool [T]         # false: a padding row, of which nothing is looked at
      fix_routing_mask?  bool [T]         # true: keeps its unmapped_topk_idx
      to_physical_map?   i32 [E+S, D]     iff logical_count
      logical_count?     i32 [E+S]        iff to_physical_map
      token_ids?         i64/i32 [T]      iff routing = hash
      table?             i32 [V, K]       iff routing = hash
      num_tokens?        i32 [1]          # rows from here on are padding
      -> topk_idx        i32/i64 [T, K+S] # i64; of hash idx_dtype
      -> topk_weights    f32 [T, K+S]
      -> scores?         f32 [T, E]       iff save_scores  # +0 in rows of padding
      -> logits?         f32 [T, E]       iff save_logits  # +0 in rows of padding
      -> inout unmapped_topk_idx?  i64 [T, K] rows
      workspace          f32 [elements()]
      param  routing {topk, hash} = topk  # by scores, or by a table
      param  num_topk int 1..32 = none    iff routing = topk
      param  use_shared_as_routed bool = false
      param  num_shared_experts int = 0
      param  routed_scaling_factor float = 1
      param  ep_rank int = 0
      param  save_scores bool = false
      param  scale {shared, routed} = shared  # of hash
      param  idx_dtype {i32, i64} = i32       # of hash
      param  save_logits bool = false
      let    K = num_routed()
      let    S = num_shared()
      let    physical = num_physical()
      need   H >= 1 on x "argument 'x' has no columns"
      need   E >= 1 on w "argument 'w' has no rows"
      need   routing = topk if use_shared_as_routed on use_shared_as_routed
      |      "shared experts always have slots with routing hash"
      need   num_topk <= E if routing = topk
      need   K >= 1 on table "argument 'table' has no columns"
      need   V >= 1 if table on table "argument 'table' has no rows"
      need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
      need   num_shared_experts >= 0
      need   K + S <= 32 on num_shared_experts
      |      "parameter 'num_shared_experts' leaves too many slots for a token"
      need   0 <= ep_rank <= 2147483647
      need   unmapped_topk_idx if fix_routing_mask
      |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
      limit  T <= 2130706431
      limit  E <= 512 on w "too many experts"         # the logits of a token lie in one block
      limit  H <= 65536 on x "rows this long are not supported"
      bucket T at 65, 2112                            # tiles of more rows; one launch
    )",
    .launches = launches,
    .check = check,
    .check_values = require,
    .functions = {{"num_routed", num_routed},
                  {"num_shared", num_shared},
                  {"elements", elements},
                  {"num_physical", [](const Call&) { return serving::kAnyPhysical; }},
                  {"topk_idx_dtype",
                   [](const Call& c) {
                     const bool narrow = is_by_table(c) && c.word("idx_dtype") == "i32";
                     return static_cast<int64_t>(narrow ? DType::i32 : DType::i64);
                   }}},
    .examples = R"(
      T=21 E=256 H=1100 num_topk=8 bias=given routed_scaling_factor=2.5; T=5 E=72 H=256 num_topk=6 save_scores=true save_logits=true num_tokens=given
      T=7 E=30 H=65 num_topk=5 bias=given image_bias=given x.strides=72,1
      T=36 E=384 H=512 num_topk=6 num_shared_experts=1 use_shared_as_routed=true to_physical_map=given logical_count=given mask=given unmapped_topk_idx=given
      T=9 V=40 E=100 H=1040 K=6 routing=hash num_shared_experts=2 routed_scaling_factor=2.5 num_tokens=given
      T=19 V=40 E=64 H=64 K=8 routing=hash token_ids=i32 idx_dtype=i64 scale=routed save_logits=true)",
    .bench = R"(
      T=1 E=384 H=7168 num_topk=6 bias=given; T=16 E=384 H=7168 num_topk=6 bias=given; T=64 E=384 H=7168 num_topk=6 bias=given
      T=512 E=384 H=7168 num_topk=6 bias=given; T=4096 E=384 H=7168 num_topk=6 bias=given; T=8192 E=384 H=7168 num_topk=6 bias=given
      T=1 E=256 H=4096 num_topk=6 bias=given; T=64 E=256 H=4096 num_topk=6 bias=given; T=512 E=256 H=4096 num_topk=6 bias=given
      T=4096 E=256 H=4096 num_topk=6 bias=given; T=512 V=129280 E=256 H=4096 K=6 routing=hash)",
    // The last four tokens are masked; every expert has one replica, itself.
    .case_words = {{"K", [](const Case& c) { return std::get<int64_t>(*c.find("num_topk")); }},
                   {"S",
                    [](const Case& c) {
                      const bool by_table = c.find("routing") == ParamValue(std::string("hash"));
                      const bool takes =
                          by_table || c.find("use_shared_as_routed") == ParamValue(true);
                      return takes ? c["num_shared_experts"] : int64_t{0};
                    }},
                   {"D", [](const Case&) { return int64_t{33}; }}},
    .values = {{"mask", [](const Case& c, int64_t t) { return t < c["T"] - 4 ? int64_t{1} : 0; }},
               {"image_token_mask", [](const Case&, int64_t t) { return t % 2; }},
               {"to_physical_map", [](const Case& c, int64_t i) { return i / c["D"]; }},
               {"logical_count", [](const Case&, int64_t) { return int64_t{1}; }},
               {"token_ids", [](const Case& c, int64_t t) { return t * 7919 % c["V"]; }},
               {"table", [](const Case& c, int64_t i) { return i * 104729 % c["E"]; }},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"] - 3; }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
