#include "tests/support/ops/promise_cases.h"

#include <cmath>
#include <optional>

#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

PromiseCase mapping(const std::string& label, const std::vector<double>& ids, int64_t capacity,
                    const std::string& refusal) {
  return {label,
          "get_fused_mapping",
          {{"topk_idx", tensor_of(DType::i64, {2, 2}, ids)}},
          {{"num_experts", int64_t{3}},
           {"alignment", int64_t{4}},
           {"num_expanded_tokens", capacity},
           {"force_no_sync", true}},
          refusal};
}

PromiseCase expansion(const std::string& label, const std::vector<double>& positions,
                      const std::string& refusal, bool is_reported = true) {
  return {label,
          "expand_to_fused_with_sf",
          {{"x", tensor_of(DType::e4m3, {2, 128}, {1})},
           {"x_sf", tensor_of(DType::f32, {2, 1}, {1})},
           {"token_topk_to_pos", tensor_of(DType::i32, {2, 2}, positions)},
           {"pos_to_expert", tensor_of(DType::i32, {4}, {0, -1, 1, 1})}},
          {{"num_per_channels", int64_t{128}}},
          refusal,
          is_reported};
}

PromiseCase plain_expansion(const std::string& label, const std::vector<double>& positions,
                            const std::string& refusal, bool is_reported = true) {
  PromiseCase promise = expansion(label, positions, refusal, is_reported);
  promise.op = "expand_to_fused";
  promise.inputs.erase("x_sf");
  promise.params.clear();
  return promise;
}

PromiseCase count(const std::string& label, double id, const std::string& refusal) {
  return {label,
          "group_count",
          {{"group_idx", tensor_of(DType::i64, {2, 2}, {0, id, -1, 2})}},
          {{"num_groups", int64_t{3}}},
          refusal};
}

PromiseCase share(const std::string& label, double id, const std::string& refusal) {
  return {label,
          "aux_fi",
          {{"topk_idx", tensor_of(DType::i64, {2, 2}, {0, id, -1, 2})}},
          {{"num_experts", int64_t{3}}, {"num_aux_topk", int64_t{2}}},
          refusal};
}

PromiseCase unique(const std::string& label, double id, const std::string& refusal) {
  return {label,
          "inplace_unique_group_indices",
          {{"group_indices", tensor_of(DType::i64, {2, 2}, {0, id, -1, 2})}},
          {{"num_groups", int64_t{3}}},
          refusal};
}

PromiseCase reduction(const std::string& label, double position, const std::string& refusal) {
  return {label,
          "reduce_fused",
          {{"x", tensor_of(DType::f32, {2, 256}, {1})},
           {"token_topk_to_pos", tensor_of(DType::i32, {1, 2}, {0, position})}},
          {},
          refusal};
}

PromiseCase gated_cast(const std::string& label, double slot, const std::string& refusal,
                       std::optional<double> expert = {}) {
  PromiseCase promise = {label,
                         "swiglu_forward_and_per_token_cast",
                         {{"x", tensor_of(DType::bf16, {1, 256}, {0})},
                          {"pos_to_token_topk", tensor_of(DType::i32, {1}, {slot})},
                          {"topk_weights", tensor_of(DType::f32, {2, 3}, {1})}},
                         {{"num_per_channels", int64_t{128}}},
                         refusal};
  if (expert) promise.inputs.emplace("pos_to_expert", tensor_of(DType::i32, {1}, {*expert}));
  return promise;
}

PromiseCase gathered_cast(const std::string& label, double row, const std::string& refusal) {
  return {label,
          "per_channel_cast_fused",
          {{"x", tensor_of(DType::bf16, {3, 64}, {1})},
           {"pos_to_token", tensor_of(DType::i32, {16}, {0, row, -1, 2})}},
          {},
          refusal};
}

PromiseCase gated_gradient(const std::string& label, double slot, double position,
                           const std::string& refusal) {
  return {label,
          "swiglu_backward_and_per_token_cast",
          {{"x", tensor_by(DType::e4m3, {2, 64}, [](int64_t i) { return i % 64 < 32 ? 0 : 1; })},
           {"x_sf", tensor_of(DType::f32, {2, 2}, {1})},
           {"grad_out", tensor_of(DType::bf16, {2, 32}, {1})},
           {"weight", tensor_of(DType::f32, {1, 2}, {1})},
           {"pos_to_token_topk", tensor_of(DType::i32, {2}, {0, slot})},
           {"token_topk_to_pos", tensor_of(DType::i32, {1, 2}, {0, position})}},
          {{"num_per_channels", int64_t{32}}},
          refusal};
}

PromiseCase hash(const std::string& label, double size, const std::string& refusal) {
  return {label,
          "engram_hash",
          {{"ngram_token_ids", tensor_of(DType::i32, {2, 2}, {5, 6})},
           {"multipliers", tensor_of(DType::i64, {1, 2}, {3})},
           {"vocab_sizes", tensor_of(DType::i32, {1, 1, 2}, {7, size})},
           {"offsets", tensor_of(DType::i32, {1, 2}, {0, 7})}},
          {},
          refusal};
}

/// One row of 64 codes 1/2 in two blocks, or of zeros.
PromiseCase lossless(const std::string& label, const std::vector<double>& scales,
                     const std::string& refusal, double byte = 0x11) {
  return {label,
          "per_block_cast_lossless",
          {{"x", tensor_of(DType::i8, {1, 32}, {byte})},
           {"x_sf", tensor_of(DType::f32, {1, 2}, scales)}},
          {{"x_block_size", std::vector<int64_t>{1, 32}},
           {"out_block_size", std::vector<int64_t>{1, 64}}},
          refusal};
}

struct Routing {
  double logit = 0, kept = 1, physical = 3, replicas = 1;  // the last two: of expert 3
  bool is_masked = false;
};

PromiseCase gate(const std::string& label, const Routing& routing, const std::string& refusal) {
  return {label,
          "top2_sum_gate",
          {{"logits", tensor_of(DType::f32, {1, 4}, {0, 0, routing.logit, 0})},
           {"bias", tensor_of(DType::f32, {4}, {0})},
           {"mask", tensor_of(DType::boolean, {1}, {routing.is_masked ? 0.0 : 1.0})},
           {"fix_routing_mask", tensor_of(DType::boolean, {1}, {1})},
           {"unmapped_topk_idx", tensor_of(DType::i64, {1, 2}, {0, routing.kept})},
           {"to_physical_map", tensor_of(DType::i32, {4, 1}, {0, 1, 2, routing.physical})},
           {"logical_count", tensor_of(DType::i32, {4}, {1, 1, 1, routing.replicas})}},
          {{"num_topk", int64_t{2}}, {"scoring_func", std::string("sigmoid")}},
          refusal};
}

PromiseCase ngrams(const std::string& label, const std::vector<double>& rows,
                   const std::string& refusal) {
  return {label,
          "engram_ngram_ids",
          {{"token_ids", tensor_of(DType::i32, {4}, {5, 6, 7})},
           {"row_start", tensor_of(DType::i32, {3}, rows)}},
          {{"ngram_size", int64_t{2}}},
          refusal};
}

PromiseCase embedded(const std::string& label, double size, double offset,
                     const std::string& refusal) {
  return {label,
          "engram_embed",
          {{"ngram_token_ids", tensor_of(DType::i32, {1, 2}, {5, 6})},
           {"multipliers", tensor_of(DType::i64, {2}, {3, 7})},
           {"vocab_sizes", tensor_of(DType::i32, {1, 2}, {4, size})},
           {"offsets", tensor_of(DType::i32, {2}, {0, offset})},
           {"table", tensor_of(DType::f32, {9, 2}, {1, 2, 3})}},
          {},
          refusal};
}

PromiseCase packed_scales(const std::string& label, double scale, const std::string& refusal) {
  return {label,
          "batched_transpose_weight_sf",
          {{"sf", tensor_of(DType::f32, {1, 2}, {1, scale})}},
          {{"block_size", int64_t{128}}},
          refusal};
}

/// Embedding tables, and scales of weights.
std::vector<PromiseCase> table_promise_cases() {
  return {
      ngrams("rows of two requests, and padding", {0, 2, 3}, ""),
      ngrams("a first row that is not 0", {1, 2, 3},
             "tessera: engram_ngram_ids: argument 'row_start' has a value out of range\n"
             "  expected  0 .. 0\n"
             "  got       1 at [0]"),
      ngrams("rows that go backwards", {0, 3, 2},
             "tessera: engram_ngram_ids: argument 'row_start' has a value out of range\n"
             "  expected  3 .. 4\n"
             "  got       2 at [2]"),
      ngrams("an end beyond the rows", {0, 2, 5},
             "tessera: engram_ngram_ids: argument 'row_start' has a value out of range\n"
             "  expected  2 .. 4\n"
             "  got       5 at [2]"),
      embedded("tables that lie in the rows", 5, 4, ""),
      embedded("a table without rows", 0, 4,
               "tessera: engram_embed: argument 'vocab_sizes' has a value out of range\n"
               "  expected  1 .. 9\n"
               "  got       0 at [0, 1]"),
      embedded("a table beyond the rows", 6, 4,
               "tessera: engram_embed: argument 'offsets' has a value out of range\n"
               "  expected  0 .. 3, the table's rows but those of this size\n"
               "  got       4 at [1]"),
      embedded("a table before the rows", 2, -1,
               "tessera: engram_embed: argument 'offsets' has a value out of range\n"
               "  expected  0 .. 7, the table's rows but those of this size\n"
               "  got       -1 at [1]"),
      packed_scales("powers of two", 0.25, ""),
      packed_scales("no scale", 0, ""),
      packed_scales("no bound", INFINITY, ""),
      packed_scales("a scale that is no power of two", 3,
                    "tessera: batched_transpose_weight_sf: argument 'sf' has a value out of range\n"
                    "  expected  powers of two, +0 or +infinity\n"
                    "  got       3 at [0, 1]"),
      packed_scales("a negative scale", -1,
                    "tessera: batched_transpose_weight_sf: argument 'sf' has a value out of range\n"
                    "  expected  powers of two, +0 or +infinity\n"
                    "  got       -1 at [0, 1]")};
}

}  // namespace

std::vector<std::string> PromiseCase::reports() const {
  constexpr size_t kPrefix = 9;  // "tessera: "
  if (refusal.empty() || !is_reported) return {};
  std::string report = refusal.substr(kPrefix, refusal.find('\n') - kPrefix);
  if (!part.empty()) report.replace(0, op.size(), part);
  return {report};
}

std::vector<PromiseCase> promise_cases() {
  std::vector<PromiseCase> cases = {
      mapping("ids in range", {0, 2, -1, 2}, 8, ""),
      mapping("no id at all", {-1}, 0, ""),
      mapping("an id beyond the experts", {0, 3, -1, 2}, 8,
              "tessera: get_fused_mapping: argument 'topk_idx' has a value out of range\n"
              "  expected  -1 .. 2\n"
              "  got       3 at [0, 1]"),
      mapping("an id below -1", {0, 2, -2, 2}, 8,
              "tessera: get_fused_mapping: argument 'topk_idx' has a value out of range\n"
              "  expected  -1 .. 2\n"
              "  got       -2 at [1, 0]"),
      mapping("no room at all", {0, 2, -1, 2}, 0,
              "tessera: get_fused_mapping: the experts of 'topk_idx' need more positions than "
              "'num_expanded_tokens'\n"
              "  expected  at least 8\n"
              "  got       0"),
      mapping("too little room", {0, 2, -1, 2}, 7,
              "tessera: get_fused_mapping: the experts of 'topk_idx' need more positions than "
              "'num_expanded_tokens'\n"
              "  expected  at least 8\n"
              "  got       7"),
      expansion("positions in range", {0, 3, -1, 2}, ""),
      expansion("a position beyond the rows", {0, 4, -1, 2},
                "tessera: expand_to_fused_with_sf: argument 'token_topk_to_pos' has a value out of "
                "range\n"
                "  expected  -1 .. 3\n"
                "  got       4 at [0, 1]"),
      // No kernel sees whether a position belongs to one pair.
      expansion("a position of no pair", {0, -1, -1, 2},
                "tessera: expand_to_fused_with_sf: 'token_topk_to_pos' and 'pos_to_expert' "
                "disagree on position 3\n"
                "  expected  one pair, or none and an expert of -1\n"
                "  got       0 pairs and expert 1",
                false),
      expansion("a position of a pair that is marked as padding", {0, 1, 3, 2},
                "tessera: expand_to_fused_with_sf: 'token_topk_to_pos' and 'pos_to_expert' "
                "disagree on position 1\n"
                "  expected  one pair, or none and an expert of -1\n"
                "  got       1 pairs and expert -1",
                false),
      plain_expansion("positions in range", {0, 3, -1, 2}, ""),
      plain_expansion(
          "a position beyond the rows", {0, 4, -1, 2},
          "tessera: expand_to_fused: argument 'token_topk_to_pos' has a value out of range\n"
          "  expected  -1 .. 3\n"
          "  got       4 at [0, 1]"),
      plain_expansion("a position of no pair", {0, -1, -1, 2},
                      "tessera: expand_to_fused: 'token_topk_to_pos' and 'pos_to_expert' disagree "
                      "on position 3\n"
                      "  expected  one pair, or none and an expert of -1\n"
                      "  got       0 pairs and expert 1",
                      false),
      count("groups in range", 2, ""),
      count("a group beyond the last", 3,
            "tessera: group_count: argument 'group_idx' has a value out of range\n"
            "  expected  -1 .. 2\n"
            "  got       3 at [0, 1]"),
      count("a group below -1", -2,
            "tessera: group_count: argument 'group_idx' has a value out of range\n"
            "  expected  -1 .. 2\n"
            "  got       -2 at [0, 1]"),
      count("a group that 32 bits do not hold", 4294967297,
            "tessera: group_count: argument 'group_idx' has a value out of range\n"
            "  expected  -1 .. 2\n"
            "  got       4294967297 at [0, 1]"),
      share("experts in range", 2, ""),
      share("an expert beyond the last", 3,
            "tessera: aux_fi: argument 'topk_idx' has a value out of range\n"
            "  expected  -1 .. 2\n"
            "  got       3 at [0, 1]"),
      share("an expert below -1", -4294967295,
            "tessera: aux_fi: argument 'topk_idx' has a value out of range\n"
            "  expected  -1 .. 2\n"
            "  got       -4294967295 at [0, 1]"),
      unique("groups in range", 2, ""),
      unique("a negative id", -7, ""),
      unique("a group beyond the last", 3,
             "tessera: inplace_unique_group_indices: argument 'group_indices' has a value out of "
             "range\n"
             "  expected  -9223372036854775808 .. 2\n"
             "  got       3 at [0, 1]"),
      reduction("no second position", -1, ""),
      reduction("a position beyond the rows", 2,
                "tessera: reduce_fused: argument 'token_topk_to_pos' has a value out of range\n"
                "  expected  -1 .. 1\n"
                "  got       2 at [0, 1]"),
      gated_cast("the last weight", 5, ""),
      gated_cast("padding", -7, ""),
      gated_cast("a weight that is not there", 6,
                 "tessera: swiglu_forward_and_per_token_cast: argument 'pos_to_token_topk' has a "
                 "value out of range\n"
                 "  expected  -2147483648 .. 5\n"
                 "  got       6 at [0]"),
      gated_cast("a weight that is not there, of a row that is padding", 6, "", -1),
      gated_cast("a weight that is not there, of a row that is an expert's", 6,
                 "tessera: swiglu_forward_and_per_token_cast: argument 'pos_to_token_topk' has a "
                 "value out of range\n"
                 "  expected  -2147483648 .. 5\n"
                 "  got       6 at [0]",
                 0),
      gathered_cast("the last row", 2, ""),
      gathered_cast("padding", -5, ""),
      gathered_cast("a row that is not there", 3,
                    "tessera: per_channel_cast_fused: argument 'pos_to_token' has a value out of "
                    "range\n"
                    "  expected  -2147483648 .. 2\n"
                    "  got       3 at [1]"),
      gated_gradient("the last entry and row", 1, 1, ""),
      gated_gradient("padding", -3, -2, ""),
      gated_gradient("an entry that is not there", 2, -1,
                     "tessera: swiglu_backward_and_per_token_cast: argument 'pos_to_token_topk' "
                     "has a value out of range\n"
                     "  expected  -2147483648 .. 1\n"
                     "  got       2 at [1]"),
      gated_gradient("a row that is not there", -1, 2,
                     "tessera: swiglu_backward_and_per_token_cast: argument 'token_topk_to_pos' "
                     "has a value out of range\n"
                     "  expected  -2147483648 .. 1\n"
                     "  got       2 at [0, 1]"),
      hash("tables of one row", 1, ""),
      hash("an empty table", 0,
           "tessera: engram_hash: argument 'vocab_sizes' has a value out of range\n"
           "  expected  1 .. 2147483647\n"
           "  got       0 at [0, 0, 1]"),
      lossless("scales as far apart as they may be", {2048, 1}, ""),
      lossless("scales too far apart", {1, 4096},
               "tessera: per_block_cast_lossless: argument 'x_sf' has scales too far apart in one "
               "block of 'out'\n"
               "  expected  at most 2^11 where codes are not 0\n"
               "  got       2^12 at [0, 0]"),
      lossless("scales too far apart, of zeros", {1, 4096}, "", 0),
      lossless("a scale that is no power of two", {1, 3},
               "tessera: per_block_cast_lossless: argument 'x_sf' has a value out of range\n"
               "  expected  positive finite powers of two\n"
               "  got       3 at [0, 1]"),
      gate("all in range", {}, ""),
      gate("a masked token, of which nothing is read", {.logit = NAN, .kept = 9, .is_masked = true},
           ""),
      gate("an infinite logit", {.logit = INFINITY},
           "tessera: top2_sum_gate: argument 'logits' has a value out of range\n"
           "  expected  finite logits of tokens that are not masked\n"
           "  got       inf at [0, 2]"),
      gate("a kept expert beyond the experts", {.kept = 4},
           "tessera: top2_sum_gate: argument 'unmapped_topk_idx' has a value out of range\n"
           "  expected  0 .. 3 where fix_routing_mask is true\n"
           "  got       4 at [0, 1]"),
      gate("a replica that is not there", {.kept = 3, .replicas = 2},
           "tessera: top2_sum_gate: argument 'logical_count' has a value out of range\n"
           "  expected  1 .. 1\n"
           "  got       2 at [3]"),
      gate("a replica that lives nowhere", {.kept = 3, .physical = -1}, ""),
      gate("a replica beyond the physical experts", {.kept = 3, .physical = 4},
           "tessera: top2_sum_gate: argument 'to_physical_map' has a value out of range\n"
           "  expected  at most 3\n"
           "  got       4 at [3, 0]"),
  };
  for (PromiseCase& promise : table_promise_cases()) cases.push_back(std::move(promise));
  for (PromiseCase& promise : serving_promise_cases()) cases.push_back(std::move(promise));
  for (PromiseCase& promise : hisparse_promise_cases()) cases.push_back(std::move(promise));
  for (PromiseCase& promise : gemm_promise_cases()) cases.push_back(std::move(promise));
  return cases;
}

}  // namespace tessera::test
