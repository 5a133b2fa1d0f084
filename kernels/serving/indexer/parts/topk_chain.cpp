#include "kernels/serving/indexer/parts/topk_chain.h"

#include "kernels/serving/indexer/parts/logits_call.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::serving {
namespace {

constexpr OutPages kPages = {"page_table", "page_size"};
constexpr OutPages kOutPages = {"out_page_table", "out_page_size"};

TensorView scores_of(const Call& c, int64_t rows, int64_t columns) {
  return {c.given("workspace").data,
          DType::f32,
          {rows, columns},
          {padded_columns(columns), 1},
          c.device()};
}

int64_t rows_of(const Call& c) {
  return c["B"] * c["n"];
}

}  // namespace

int64_t TopkOfRows::elements(const Call& c) {
  return c["S"] * padded_columns(c["T"]);
}

void TopkOfRows::add(const Call& c, Launches& go, Blocks blocks) {
  const TensorView scores = scores_of(c, c["S"], c["T"]);
  // Blocks of keys before the first of a row count with -inf.
  if (c["T"] > 0) add_logits_of_rows(c, go, {scores, blocks == Blocks::chosen});
  add_topk(c, go, scores, kPages,
           {.tensors = {{"starts", c.given("k_start")}, {"lengths", c.given("k_end")}}});
  if (blocks == Blocks::chosen) add_blocks(c, go, scores, c.given("k_end"));
}

void TopkOfRows::require(const Call& c) {
  require_heads(c);
  require_out_pages(c, kPages, c["S"]);
}

int64_t TopkOfPages::elements(const Call& c) {
  return rows_of(c) * padded_columns(c["max_len"]);
}

void TopkOfPages::add(const Call& c, Launches& go, Blocks blocks) {
  const TensorView scores = scores_of(c, rows_of(c), c["max_len"]);
  const TensorView lengths = reshaped(c.given("lengths"), {rows_of(c)});
  if (c["max_len"] > 0) add_logits_of_pages(c, go, {scores, false});
  add_topk(c, go, scores, kOutPages, {.tensors = {{"lengths", lengths}}});
  if (blocks == Blocks::chosen) add_blocks(c, go, scores, lengths);
}

void TopkOfPages::require(const Call& c) {
  require_heads(c);
  require_index_cache(c);
  require_out_pages(c, kOutPages, rows_of(c));
}

}  // namespace tessera::kernels::serving
