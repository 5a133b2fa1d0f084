#include "kernels/moe/parts/mapping_values.h"

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::kernels::moe {

namespace {

/// Requires enough positions for the first `pairs` pairs, each expert's rounded up.
void require_room(const Call& c, int64_t pairs, const char* too_few) {
  const TensorView& topk_idx = c.given("topk_idx");
  const int64_t alignment = c["alignment"];
  std::vector<int64_t> counts(static_cast<size_t>(c["E"]));
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t id = integer_at(topk_idx, i);
    if (id >= 0) ++counts[static_cast<size_t>(id)];
  }
  int64_t needed = 0;
  for (const int64_t count : counts) needed += (count + alignment - 1) / alignment * alignment;
  c.need(needed <= c["P"], "topk_idx", too_few, "at least " + std::to_string(needed),
         std::to_string(c["P"]));
}

int64_t pairs_that_count(const Call& c) {
  int64_t tokens = c["T"];
  if (c.has("num_tokens") && values_are_checked(c.given("num_tokens"))) {
    tokens = std::clamp<int64_t>(integer_at(c.given("num_tokens"), 0), 0, tokens);
  }
  return tokens * c["K"];
}

}  // namespace

void require_routing(const Call& c) {
  if (!values_are_checked(c.given("topk_idx"))) return;
  require_room(c, c["T"] * c["K"], kTooFewPositions);
}

void require_ids(const Call& c) {
  const int64_t pairs = pairs_that_count(c);
  require_values(c.check(), "topk_idx", c.given("topk_idx"), -1, c["E"] - 1,
                 [&](int64_t pair) { return pair < pairs; });
}

void require_plan(const Call& c) {
  if (!values_are_checked(c.given("topk_idx"))) return;
  require_ids(c);
  require_room(c, pairs_that_count(c), kTooFewRows);
}

void require_expansion(const Call& c) {
  const TensorView& token_topk_to_pos = c.given("token_topk_to_pos");
  const TensorView& pos_to_expert = c.given("pos_to_expert");
  if (!values_are_checked(token_topk_to_pos) || !values_are_checked(pos_to_expert)) return;
  std::vector<int> pairs(static_cast<size_t>(c["P"]));
  for (int64_t i = 0; i < token_topk_to_pos.size(); ++i) {
    const int64_t position = integer_at(token_topk_to_pos, i);
    if (position >= 0) ++pairs[static_cast<size_t>(position)];
  }
  for (int64_t p = 0; p < c["P"]; ++p) {
    const int count = pairs[static_cast<size_t>(p)];
    const int64_t expert = integer_at(pos_to_expert, p);
    if (count == (expert < 0 ? 0 : 1)) continue;
    c.need(false, "token_topk_to_pos",
           "'token_topk_to_pos' and 'pos_to_expert' disagree on position " + std::to_string(p),
           "one pair, or none and an expert of -1",
           std::to_string(count) + " pairs and expert " + std::to_string(expert));
  }
}

}  // namespace tessera::kernels::moe
