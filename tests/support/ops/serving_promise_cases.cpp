#include <cmath>

#include "tests/support/ops/promise_cases.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Hashed {
  double token = 1, expert = 2, logit = 0;
  double num_tokens = 2;
};

PromiseCase hashed(const std::string& label, const Hashed& values, const std::string& refusal) {
  return {label,
          "hash_gate",
          {{"token_ids", tensor_of(DType::i64, {2}, {0, values.token})},
           {"table", tensor_of(DType::i32, {2, 2}, {0, 1, 0, values.expert})},
           {"logits", tensor_of(DType::f32, {2, 3}, {0, 0, 0, 0, 0, values.logit})},
           {"num_tokens", tensor_of(DType::i32, {1}, {values.num_tokens})}},
          {},
          refusal};
}

PromiseCase rotation(const std::string& label, const std::vector<double>& positions, int64_t offset,
                     const std::string& refusal) {
  PromiseCase test = {label,
                      "apply_rotary",
                      {{"cos_sin", tensor_of(DType::f32, {4, 64}, {0.5, 2, -1})},
                       {"query", tensor_of(DType::f32, {2, 1, 64}, {1, 2, 3, 4, 5})}},
                      {{"position_offset", offset}},
                      refusal};
  if (!positions.empty()) test.inputs["positions"] = tensor_of(DType::i64, {2}, positions);
  return test;
}

PromiseCase experts(const std::string& label, const std::vector<double>& ends,
                    const std::string& refusal) {
  return {label,
          "swiglu_fwd",
          {{"x", tensor_of(DType::f32, {4, 16}, {0})}, {"psum", tensor_of(DType::i32, {2}, ends)}},
          {{"out_dtype", std::string("f32")}, {"alignment", int64_t{2}}},
          refusal};
}

PromiseCase experts_backward(PromiseCase test) {
  test.op = "swiglu_bwd";
  test.inputs["grad_out"] = tensor_of(DType::f32, {4, 8}, {1});
  if (!test.refusal.empty()) test.refusal.replace(9, 10, "swiglu_bwd");
  return test;
}

PromiseCase plan(const std::string& label, const std::vector<double>& ids, int64_t rows,
                 const std::string& refusal) {
  return {label,
          "moe_plan",
          {{"topk_idx", tensor_of(DType::i32, {3, 1}, ids)},
           {"num_tokens", tensor_of(DType::i32, {1}, {2})}},
          {{"num_experts", int64_t{3}}, {"alignment", int64_t{2}}, {"num_rows", rows}},
          refusal};
}

PromiseCase gathered(const std::string& label, double pair, const std::string& refusal) {
  return {label,
          "moe_gather_cast",
          {{"x", tensor_of(DType::bf16, {2, 32}, {1, 2})},
           {"pos_to_pair", tensor_of(DType::i32, {2}, {3, pair})}},
          {{"num_topk", int64_t{2}}},
          refusal};
}

PromiseCase activated(const std::string& label, const std::vector<double>& ends,
                      const std::string& refusal) {
  return {
      label,
      "swiglu_psum_cast",
      {{"x", tensor_of(DType::bf16, {4, 256}, {0})}, {"psum", tensor_of(DType::i32, {2}, ends)}},
      {{"alignment", int64_t{2}}},
      refusal};
}

PromiseCase combined(const std::string& label, double row, const std::string& refusal) {
  return {label,
          "combine_reduce",
          {{"x", tensor_of(DType::bf16, {3, 8}, {1, 2})},
           {"pos", tensor_of(DType::i32, {2, 1}, {2, row})}},
          {},
          refusal};
}

PromiseCase layered(const std::string& label, double expert, const std::string& refusal) {
  PromiseCase test = {label,
                      "moe_forward",
                      {{"x", tensor_of(DType::bf16, {2, 128}, {1, 2})},
                       {"topk_idx", tensor_of(DType::i64, {2, 1}, {0, expert})},
                       {"topk_weights", tensor_of(DType::f32, {2, 1}, {1})},
                       {"w13", tensor_of(DType::e4m3, {1, 256, 128}, {0})},
                       {"w13_sf", tensor_of(DType::f32, {1, 2, 1}, {1})},
                       {"w2", tensor_of(DType::e4m3, {1, 128, 128}, {1})},
                       {"w2_sf", tensor_of(DType::f32, {1, 1, 1}, {1})}},
                      {},
                      refusal};
  test.part = "moe_plan";
  return test;
}

struct Gated {
  double logit = 0, mask = 1, kept = 1;
};

PromiseCase gated(const std::string& label, const Gated& values, const std::string& refusal) {
  return {label,
          "moe_topk_gate_fwd",
          {{"logits", tensor_of(DType::f32, {2, 3}, {0, 0, 0, 0, 0, values.logit})},
           {"mask", tensor_of(DType::boolean, {2}, {1, values.mask})},
           {"fix_routing_mask", tensor_of(DType::boolean, {2}, {1, 1})},
           {"unmapped_topk_idx", tensor_of(DType::i64, {2, 2}, {0, 1, 0, values.kept})}},
          {{"num_topk", int64_t{2}}},
          refusal};
}

PromiseCase gate_gradient(const std::string& label, double expert, double score,
                          const std::string& refusal) {
  return {label,
          "moe_topk_gate_bwd",
          {{"scores", tensor_of(DType::f32, {2, 3}, {0.5, 0.5, 0.5, score, score, score})},
           {"topk_idx", tensor_of(DType::i64, {2, 2}, {0, 1, 0, expert})},
           {"topk_weights", tensor_of(DType::f32, {2, 2}, {0.5})},
           {"grad_topk_weights", tensor_of(DType::f32, {2, 2}, {1, 2})},
           {"mask", tensor_of(DType::boolean, {2}, {1})},
           {"grad_scores_sum", tensor_of(DType::f32, {1, 3}, {1, 2, 3})}},
          {},
          refusal};
}

PromiseCase entries(const std::string& label, double index, double page,
                    const std::string& refusal) {
  return {label,
          "gather_pages",
          {{"indices", tensor_of(DType::i32, {2, 2}, {0, 1, 2, index})},
           {"page_table", tensor_of(DType::i32, {2, 2}, {1, 0, 0, page})}},
          {{"page_size", int64_t{4}}},
          refusal};
}

PromiseCase pools(const std::string& label, double position, double page,
                  const std::string& refusal) {
  return {label,
          "slot_plan",
          {{"positions", tensor_of(DType::i32, {2}, {0, position})},
           {"window_pages", tensor_of(DType::i32, {2, 2}, {3, 4, 5, 6})},
           {"c4_pages", tensor_of(DType::i32, {2, 1}, {7, page})}},
          {{"window_page_size", int64_t{4}}, {"c4_page_size", int64_t{1}}},
          refusal};
}

PromiseCase length(const std::string& label, double value, const std::string& refusal) {
  return {label,
          "paged_lengths",
          {{"lengths", tensor_of(DType::i32, {2}, {9, value})}},
          {{"ratio", int64_t{4}}, {"page_size", int64_t{2}}},
          refusal};
}

PromiseCase step(const std::string& label, double start, double last, const std::string& refusal) {
  return {label,
          "serving_plan",
          {{"row_start", tensor_of(DType::i32, {3}, {0, 2, last})},
           {"start", tensor_of(DType::i32, {2}, {0, start})},
           {"page_table", tensor_of(DType::i32, {2, 2}, {3, -1, 5, 536870912})}},
          {{"num_rows", int64_t{5}}, {"page_size", int64_t{4}}},
          refusal};
}

struct Ranges {
  double start = 0, end = 4;
};

PromiseCase selection(const std::string& label, const Ranges& ranges, const std::string& refusal) {
  return {label,
          "topk_select",
          {{"scores", tensor_of(DType::f32, {2, 4}, {1, 2, 3})},
           {"starts", tensor_of(DType::i32, {2}, {0, ranges.start})},
           {"lengths", tensor_of(DType::i32, {2}, {4, ranges.end})}},
          {{"topk", int64_t{2}}},
          refusal};
}

PromiseCase planned(const std::string& label, const std::vector<double>& plan,
                    const std::string& refusal) {
  return {label,
          "topk_select",
          {{"scores", tensor_of(DType::f32, {2, 4}, {1, 2, 3})},
           {"plan", tensor_of(DType::i32, {3, 2}, plan)}},
          {{"topk", int64_t{2}}},
          refusal,
          false};
}

PromiseCase paged(const std::string& label, int64_t page_size, const std::string& refusal,
                  double page = 6) {
  return {label,
          "topk_select",
          {{"scores", tensor_of(DType::f32, {1, 4}, {1, 2, 3, 4})},
           {"page_table", tensor_of(DType::i32, {1, 2}, {5, page})}},
          {{"topk", int64_t{2}}, {"page_size", page_size}},
          refusal};
}

PromiseCase plan(const std::string& label, double length, const std::string& refusal) {
  return {label,
          "topk_plan",
          {{"lengths", tensor_of(DType::i32, {2}, {3, length})}},
          {{"topk", int64_t{2}}, {"max_length", int64_t{4}}},
          refusal};
}

PromiseCase decode(const std::string& label, double position, double slot,
                   const std::string& refusal) {
  return {label,
          "compress_plan_decode",
          {{"positions", tensor_of(DType::i32, {2}, {3, position})},
           {"state_slot", tensor_of(DType::i32, {2}, {0, slot})}},
          {{"ratio", int64_t{4}}, {"ring", int64_t{8}}},
          refusal};
}

PromiseCase located(const std::string& label, double page, const std::string& refusal) {
  PromiseCase test = decode(label, -1, 1, refusal);
  test.inputs["page_table"] = tensor_of(DType::i32, {2, 1}, {page});
  return test;
}

struct Chunk {
  double start = 0, end = 8;
  int64_t windows = 2;
};

PromiseCase chunk(const std::string& label, const Chunk& values, const std::string& refusal) {
  return {label,
          "compress_plan",
          {{"start", tensor_of(DType::i32, {1}, {values.start})},
           {"row_start", tensor_of(DType::i32, {2}, {0, values.end})},
           {"state_slot", tensor_of(DType::i32, {1}, {0})}},
          {{"ratio", int64_t{4}},
           {"ring", int64_t{8}},
           {"num_windows", values.windows},
           {"num_writes", int64_t{8}}},
          refusal};
}

/// Ratio 4, 128 channels, pages of 64; the slots and rows of one window are there.
PromiseCase window(const std::string& op, const std::string& label, std::vector<double> plan,
                   const std::string& refusal) {
  const bool is_decode = op.find("decode") != std::string::npos;
  const bool is_stored = op.find("store") != std::string::npos;
  if (is_stored && plan[7] == 0) plan[7] = 64;
  PromiseCase test = {label,
                      op,
                      {{"x", tensor_of(DType::f32, {is_decode ? 1 : 8, 512}, {0})},
                       {"ape", tensor_of(DType::f32, {8, 128}, {0})},
                       {"state", tensor_of(DType::f32, {8, 512}, {0})},
                       {"plan", tensor_of(DType::i32, {1, 8}, plan)}},
                      {{"ratio", int64_t{4}}},
                      refusal};
  if (is_stored) {
    test.inputs["norm_weight"] = tensor_of(DType::f32, {128}, {1});
    test.inputs["cos_sin"] = tensor_of(DType::f32, {9, 64}, {1});
    test.inputs["cache"] = tensor_of(DType::bf16, {5, 128}, {0});
    test.params["format"] = std::string("bf16");
  }
  return test;
}

PromiseCase write(const std::string& label, const std::vector<double>& plan,
                  const std::string& refusal) {
  return {label,
          "compress_state_write",
          {{"x", tensor_of(DType::f32, {8, 512}, {0})},
           {"write_plan", tensor_of(DType::i32, {2, 2}, plan)},
           {"state", tensor_of(DType::f32, {8, 512}, {0})}},
          {{"ratio", int64_t{4}}},
          refusal};
}

std::string out_of_plan(const std::string& op, const std::string& expected,
                        const std::string& got) {
  return "tessera: " + op + ": argument 'plan' has a value out of range\n  expected  " + expected +
         "\n  got       " + got;
}

PromiseCase prefill(const std::string& label, double row, double slot, const std::string& refusal) {
  PromiseCase test = window("compress_prefill", label, {row, 7, 0, -1, -1, -1, 0, 0}, refusal);
  test.inputs["write_plan"] = tensor_of(DType::i32, {1, 2}, {3, slot});
  test.part = slot > 7 ? "compress_state_write" : "compress_fwd";
  return test;
}

std::vector<PromiseCase> compressor_promise_cases() {
  std::vector<PromiseCase> cases;
  for (const char* op : {"compress_fwd", "compress_store"}) {
    cases.push_back(window(op, "a window in range", {7, 7, 0, -1, -1, 4, 0, 0}, ""));
    cases.push_back(window(op, "padding", {-1, -1, -1, -1, -1, -1, -1, -1}, ""));
    cases.push_back(window(op, "a row beyond x", {8, 7, 0, -1, -1, -1, 0, 0},
                           out_of_plan(op, "-1, or 7 .. 7", "8 at [0, 0]")));
    cases.push_back(window(op, "a slot beyond the state", {5, 7, 2, 7, -1, -1, 0, 0},
                           out_of_plan(op, "0 .. 6", "7 at [0, 3]")));
    cases.push_back(window(op, "more slots than a window has", {7, 7, 9, 0, 4, -1, 0, 0},
                           out_of_plan(op, "0 .. 8", "9 at [0, 2]")));
  }
  for (const char* op : {"compress_decode", "compress_decode_store"}) {
    cases.push_back(window(op, "a token in range", {0, 7, 8, 0, 4, 4, 0, 0}, ""));
    cases.push_back(window(op, "a slot beyond the state", {0, 6, 8, 0, 6, -1, 0, 0},
                           out_of_plan(op, "0 .. 5", "6 at [0, 4]")));
    cases.push_back(window(op, "an older slot that is not there", {0, 7, 8, -1, 4, -1, 0, 0},
                           out_of_plan(op, "0 .. 4", "-1 at [0, 3]")));
  }
  cases.push_back(window("compress_store", "a location beyond the cache",
                         {7, 7, 0, -1, -1, 5, 0, 0},
                         out_of_plan("compress_store", "-1, or 0 .. 4", "5 at [0, 5]")));
  cases.push_back(window("compress_store", "a position without an angle",
                         {7, 15, 0, -1, -1, 4, 0, 0},
                         "tessera: compress_store: argument 'cos_sin' has too few rows\n"
                         "  expected  a row of position 12\n"
                         "  got       9 rows"));
  for (const char* op : {"compress_store", "compress_decode_store"}) {
    const bool is_decode = std::string(op) == "compress_decode_store";
    const std::vector<double> plan = is_decode ? std::vector<double>{0, 7, 8, 0, 4, 4, 0, 16}
                                               : std::vector<double>{7, 7, 0, -1, -1, 4, 0, 16};
    cases.push_back(window(op, "a plan that was made for pages of 16", plan,
                           std::string("tessera: ") + op +
                               ": argument 'plan' was made for another page size\n"
                               "  expected  64, the page_size of this call\n"
                               "  got       16 at [0, 7]"));
  }
  cases.push_back(window("compress_decode_store", "a token of no window, planned for pages of 16",
                         {0, 6, 8, 0, 4, -1, 0, 16},
                         "tessera: compress_decode_store: argument 'plan' was made for another "
                         "page size\n"
                         "  expected  64, the page_size of this call\n"
                         "  got       16 at [0, 7]"));
  cases.push_back(window("compress_decode_store", "a location beyond the cache",
                         {0, 7, 8, 0, 4, 5, 0, 0},
                         out_of_plan("compress_decode_store", "-1, or 0 .. 4", "5 at [0, 5]")));
  cases.push_back(window("compress_decode_store", "a position without an angle",
                         {0, 15, 8, 0, 4, 4, 0, 0},
                         "tessera: compress_decode_store: argument 'cos_sin' has too few rows\n"
                         "  expected  a row of position 12\n"
                         "  got       9 rows"));
  cases.push_back(prefill("a window and a row in range", 7, 3, ""));
  cases.push_back(prefill("a row beyond x", 8, 3,
                          out_of_plan("compress_prefill", "-1, or 7 .. 7", "8 at [0, 0]")));
  cases.push_back(prefill("a slot beyond the state", 7, 8,
                          "tessera: compress_prefill: argument 'write_plan' has a value out of "
                          "range\n"
                          "  expected  -1, or 0 .. 7\n"
                          "  got       8 at [0, 1]"));
  cases.push_back(write("slots in range, and padding", {3, 7, -1, -1}, ""));
  cases.push_back(write("a slot beyond the state", {3, 8, -1, -1},
                        "tessera: compress_state_write: argument 'write_plan' has a value out of "
                        "range\n"
                        "  expected  -1, or 0 .. 7\n"
                        "  got       8 at [0, 1]"));
  return cases;
}

std::vector<PromiseCase> expert_promise_cases() {
  return {layered("experts and none", -1, ""),
          layered("an expert that is none", 1,
                  "tessera: moe_forward: argument 'topk_idx' has a value out of range\n"
                  "  expected  -1 .. 0\n"
                  "  got       1 at [1, 0]"),
          gathered("pairs and padding", -1, ""),
          gathered("a pair beyond the tokens", 4,
                   "tessera: moe_gather_cast: argument 'pos_to_pair' has a value out of range\n"
                   "  expected  -1 .. 3\n"
                   "  got       4 at [1]"),
          activated("ends that ascend", {1, 4}, ""),
          activated("an end before the one before", {3, 2},
                    "tessera: swiglu_psum_cast: argument 'psum' has a value out of range\n"
                    "  expected  3 .. 4\n"
                    "  got       2 at [1]"),
          combined("rows and none", -1, ""),
          combined("a row that is none", 3,
                   "tessera: combine_reduce: argument 'pos' has a value out of range\n"
                   "  expected  -1 .. 2\n"
                   "  got       3 at [1, 0]"),
          plan("pairs with room", {2, -1, 7}, 4, ""),
          plan("an expert that is none", {0, 3, 0}, 4,
               "tessera: moe_plan: argument 'topk_idx' has a value out of range\n"
               "  expected  -1 .. 2\n"
               "  got       3 at [1, 0]"),
          plan("more experts than rows", {0, 1, 2}, 3,
               "tessera: moe_plan: the experts of 'topk_idx' need more rows than 'num_rows'\n"
               "  expected  at least 4\n"
               "  got       3"),
          experts("experts with padding between them", {1, 4}, ""),
          experts("ends that do not ascend", {3, 2},
                  "tessera: swiglu_fwd: argument 'psum' has a value out of range\n"
                  "  expected  3 .. 4\n"
                  "  got       2 at [1]"),
          experts("an end beyond the rows", {1, 5},
                  "tessera: swiglu_fwd: argument 'psum' has a value out of range\n"
                  "  expected  1 .. 4\n"
                  "  got       5 at [1]"),
          experts("an end below 0", {-1, 3},
                  "tessera: swiglu_fwd: argument 'psum' has a value out of range\n"
                  "  expected  0 .. 4\n"
                  "  got       -1 at [0]")};
}

std::vector<PromiseCase> other_promise_cases() {
  return {
      hashed("all in range", {}, ""),
      hashed("a row of padding, of which nothing is read", {.token = 7, .num_tokens = 1}, ""),
      hashed("fewer rows than none", {.token = 7, .num_tokens = -3}, ""),
      hashed("a logit that no token is sent to", {.token = 0, .logit = NAN}, ""),
      hashed("a token beyond the table", {.token = 2},
             "tessera: hash_gate: argument 'token_ids' has a value out of range\n"
             "  expected  0 .. 1\n"
             "  got       2 at [1]"),
      hashed("a token that 32 bits do not hold", {.token = 4294967297},
             "tessera: hash_gate: argument 'token_ids' has a value out of range\n"
             "  expected  0 .. 1\n"
             "  got       4294967297 at [1]"),
      hashed("an expert beyond the logits", {.expert = 3},
             "tessera: hash_gate: argument 'table' has a value out of range\n"
             "  expected  0 .. 2\n"
             "  got       3 at [1, 1]"),
      hashed("an expert below 0", {.expert = -1},
             "tessera: hash_gate: argument 'table' has a value out of range\n"
             "  expected  0 .. 2\n"
             "  got       -1 at [1, 1]"),
      hashed("a logit that is not finite", {.logit = INFINITY},
             "tessera: hash_gate: argument 'logits' has a value out of range\n"
             "  expected  finite logits of the experts that tokens are sent to\n"
             "  got       inf at [1, 2]"),
      entries("pages of all entries", 7, 9, ""),
      entries("no entry, no page", -2, -1, ""),
      entries("an entry beyond the pages", 8, 9,
              "tessera: gather_pages: argument 'indices' has a value out of range\n"
              "  expected  at most 7\n"
              "  got       8 at [1, 1]"),
      entries("a page whose slots 32 bits do not hold", 5, 536870912,
              "tessera: gather_pages: argument 'page_table' has a value out of range\n"
              "  expected  at most 536870911, or -1\n"
              "  got       536870912 at [1, 1]"),
      pools("a token that ends a window", 3, 8, ""),
      pools("padding", -1, 8, ""),
      pools("a position below -1", -2, 8,
            "tessera: slot_plan: argument 'positions' has a value out of range\n"
            "  expected  -1 .. 2147483647\n"
            "  got       -2 at [1]"),
      pools("a position without a page", 8, 8,
            "tessera: slot_plan: argument 'positions' has a value out of range\n"
            "  expected  at most 7\n"
            "  got       8 at [1]"),
      pools("an entry without a page", 7, 8,
            "tessera: slot_plan: argument 'positions' has a value out of range\n"
            "  expected  at most 3\n"
            "  got       7 at [1]"),
      step("rows and positions in range", 1, 5, ""),
      step("rows that descend", 1, 1,
           "tessera: serving_plan: argument 'row_start' has a value out of range\n"
           "  expected  2 .. 5\n"
           "  got       1 at [2]"),
      step("more rows than there are", 1, 6,
           "tessera: serving_plan: argument 'row_start' has a value out of range\n"
           "  expected  2 .. 5\n"
           "  got       6 at [2]"),
      step("a start below 0", -1, 5,
           "tessera: serving_plan: argument 'start' has a value out of range\n"
           "  expected  0 .. 2147483644\n"
           "  got       -1 at [1]"),
      step("a position without a page", 8, 5,
           "tessera: serving_plan: argument 'start' has a value out of range\n"
           "  expected  at most 7\n"
           "  got       8 at [1]"),
      step("a page whose slots 32 bits do not hold", 4, 5,
           "tessera: serving_plan: argument 'page_table' has a value out of range\n"
           "  expected  at most 536870911, or -1\n"
           "  got       536870912 at [1, 1]"),
      length("a length below 0", -1,
             "tessera: paged_lengths: argument 'lengths' has a value out of range\n"
             "  expected  0 .. 2147483647\n"
             "  got       -1 at [1]"),
      gated("finite logits, kept experts that exist", {}, ""),
      gated("a row of padding, of which nothing is read", {.logit = NAN, .mask = 0, .kept = 9}, ""),
      gated("a logit that is not finite", {.logit = INFINITY},
            "tessera: moe_topk_gate_fwd: argument 'logits' has a value out of range\n"
            "  expected  finite logits of tokens that are not masked\n"
            "  got       inf at [1, 2]"),
      gated("a kept expert beyond the logits", {.kept = 3},
            "tessera: moe_topk_gate_fwd: argument 'unmapped_topk_idx' has a value out of range\n"
            "  expected  0 .. 2 where fix_routing_mask is true\n"
            "  got       3 at [1, 1]"),
      gate_gradient("experts and scores in range", 2, 0.5, ""),
      gate_gradient("an empty slot", -1, 0.5, ""),
      gate_gradient("an expert beyond the scores", 3, 0.5,
                    "tessera: moe_topk_gate_bwd: argument 'topk_idx' has a value out of range\n"
                    "  expected  -9223372036854775808 .. 2\n"
                    "  got       3 at [1, 1]"),
      gate_gradient("a token that counts without scores", 2, 0,
                    "tessera: moe_topk_gate_bwd: argument 'scores' has a row of zeros\n"
                    "  expected  a score in each row that 'mask' counts\n"
                    "  got       none at [1]"),
      rotation("positions with an angle", {0, 3}, 0, ""),
      rotation("positions that the offset moves into the table", {-2, 1}, 2, ""),
      rotation("tokens with an angle each", {}, 2, ""),
      rotation("a position beyond the table", {0, 4}, 0,
               "tessera: apply_rotary: argument 'positions' has a value out of range\n"
               "  expected  0 .. 3\n"
               "  got       4 at [1]"),
      rotation("a position that 32 bits do not hold", {0, 4294967297}, 0,
               "tessera: apply_rotary: argument 'positions' has a value out of range\n"
               "  expected  0 .. 3\n"
               "  got       4294967297 at [1]"),
      rotation("a position below 0", {0, -1}, 0,
               "tessera: apply_rotary: argument 'positions' has a value out of range\n"
               "  expected  0 .. 3\n"
               "  got       -1 at [1]"),
      rotation("a position that the offset moves beyond the table", {0, 2}, 2,
               "tessera: apply_rotary: argument 'positions' has a value out of range\n"
               "  expected  -2 .. 1\n"
               "  got       2 at [1]"),
      rotation("more tokens than angles", {}, 3,
               "tessera: apply_rotary: argument 'cos_sin' has too few rows\n"
               "  expected  a row for each position\n"
               "  got       positions 3 .. 4 with 4 rows"),
      selection("ranges in the row", {.start = 1, .end = 3}, ""),
      selection("an empty range at the end", {.start = 4, .end = 4}, ""),
      selection("an end beyond the row", {.end = 5},
                "tessera: topk_select: argument 'lengths' has a value out of range\n"
                "  expected  0 .. 4\n"
                "  got       5 at [1]"),
      selection("a start behind the end", {.start = 3, .end = 2},
                "tessera: topk_select: argument 'starts' has a value out of range\n"
                "  expected  0 .. 2\n"
                "  got       3 at [1]"),
      selection("a start below 0", {.start = -1},
                "tessera: topk_select: argument 'starts' has a value out of range\n"
                "  expected  0 .. 4\n"
                "  got       -1 at [1]"),
      planned("each row once", {1, 2, 1, 4, 0, 4}, ""),
      planned("a row twice", {1, 2, 1, 4, 1, 4},
              "tessera: topk_select: argument 'plan' has a value out of range\n"
              "  expected  0 .. 1, each row once\n"
              "  got       1 at [2, 0]"),
      planned("a row that is not there", {1, 1, 2, 4, -1, -1},
              "tessera: topk_select: argument 'plan' has a value out of range\n"
              "  expected  0 .. 1, each row once\n"
              "  got       2 at [1, 0]"),
      planned("more rows than there are", {1, 3, 0, 4, 1, 4},
              "tessera: topk_select: argument 'plan' has a value out of range\n"
              "  expected  0 .. 2 rows\n"
              "  got       3 at [0, 1]"),
      paged("pages of all columns", 2, ""),
      paged("a page that is not there", 2, "", -7),
      paged("a chosen column without a page", 1,
            "tessera: topk_select: argument 'page_table' has too few columns\n"
            "  expected  a page of column 2\n"
            "  got       2 columns"),
      paged("a page whose places 32 bits do not hold", 2,
            "tessera: topk_select: argument 'page_table' has a value out of range\n"
            "  expected  at most 1073741823, or -1\n"
            "  got       1073741824 at [0, 1]",
            1073741824),
      plan("lengths in range", 4, ""),
      plan("a length beyond the longest", 5,
           "tessera: topk_plan: argument 'lengths' has a value out of range\n"
           "  expected  0 .. 4\n"
           "  got       5 at [1]"),
      decode("positions and slots in range", 5, 1, ""),
      decode("padding without a slot", -1, -1, ""),
      decode("a ring that is not there", 5, -1,
             "tessera: compress_plan_decode: argument 'state_slot' has a value out of range\n"
             "  expected  0 .. 268435455 where a slot is needed\n"
             "  got       -1 at [1]"),
      decode("a ring whose slots 32 bits do not hold", 5, 536870912,
             "tessera: compress_plan_decode: argument 'state_slot' has a value out of range\n"
             "  expected  0 .. 268435455 where a slot is needed\n"
             "  got       536870912 at [1]"),
      located("a page of the window", 5, ""),
      located("no page", -1, ""),
      located("a page whose places 32 bits do not hold", 67108864,
              "tessera: compress_plan_decode: argument 'page_table' has a value out of range\n"
              "  expected  at most 33554431, or -1\n"
              "  got       67108864 at [0, 0]"),
      decode("a position below -1", -2, 1,
             "tessera: compress_plan_decode: argument 'positions' has a value out of range\n"
             "  expected  -1 .. 2147483647\n"
             "  got       -2 at [1]"),
      chunk("room for all windows", {}, ""),
      chunk("a request that begins below 0", {.start = -1},
            "tessera: compress_plan: argument 'start' has a value out of range\n"
            "  expected  0 .. 2147483647\n"
            "  got       -1 at [0]"),
      chunk("a request that grows beyond 32 bits", {.start = 2147483640},
            "tessera: compress_plan: argument 'start' has a value out of range\n"
            "  expected  0 .. 2147483639\n"
            "  got       2147483640 at [0]"),
      chunk("rows that go backwards", {.end = -1},
            "tessera: compress_plan: argument 'row_start' has a value out of range\n"
            "  expected  at least 0\n"
            "  got       -1 at [1]"),
      chunk("no room for a window", {.windows = 1},
            "tessera: compress_plan: parameter 'num_windows' is too small\n"
            "  expected  at least 2\n"
            "  got       1"),
  };
}

/// Two rows to slots of a cache of five.
PromiseCase stored(const std::string& op, const std::string& label, const std::vector<double>& loc,
                   const std::string& refusal) {
  PromiseCase test = {
      label,
      op,
      {{"loc", tensor_of(DType::i64, {2}, loc)}, {"cache", tensor_of(DType::bf16, {5, 128}, {3})}},
      {{"format", std::string("bf16")}},
      refusal.empty() ? "" : "tessera: " + op + ": " + refusal};
  if (op != "kv_load") test.inputs["x"] = tensor_of(DType::f32, {2, 128}, {0});
  if (op == "kv_norm_rope_store") {
    test.inputs["norm_weight"] = tensor_of(DType::f32, {128}, {1});
    test.inputs["cos_sin"] = tensor_of(DType::f32, {9, 64}, {1});
    test.inputs["positions"] = tensor_of(DType::i32, {2}, {0, 8});
  }
  return test;
}

/// Two queries at positions of a table of nine.
PromiseCase query(const std::string& op, const std::string& label,
                  const std::vector<double>& positions, const std::string& refusal) {
  PromiseCase test = {label,
                      op,
                      {{"q", tensor_of(DType::bf16, {2, 1, 128}, {0})},
                       {"cos_sin", tensor_of(DType::f32, {9, 64}, {1})},
                       {"positions", tensor_of(DType::i64, {2}, positions)}},
                      {},
                      refusal.empty() ? "" : "tessera: " + op + ": " + refusal};
  if (op == "index_q_store") {
    test.inputs["weight"] = tensor_of(DType::f32, {2, 1}, {1});
    test.params["weight_scale"] = 1.0;
  }
  return test;
}

std::vector<PromiseCase> cache_promise_cases() {
  const std::string far = "argument 'positions' has a value out of range\n  expected  -1 .. 8\n";
  const std::string no_slot = "argument 'loc' has a value out of range\n  expected  ";
  std::vector<PromiseCase> cases;
  for (const char* op : {"kv_store", "kv_load", "kv_norm_rope_store"}) {
    cases.push_back(stored(op, "slots in range, and none", {4, -3}, ""));
    cases.push_back(stored(op, "a slot beyond the cache", {5, 4},
                           no_slot + "-1, or 0 .. 4\n  got       5 at [0]"));
    cases.push_back(stored(op, "a slot beyond 32 bits", {4, 4294967296},
                           no_slot + "-1, or 0 .. 4\n  got       4294967296 at [1]"));
    if (std::string(op) == "kv_load") {
      cases.push_back(stored(op, "a slot twice", {4, 4}, ""));
      continue;
    }
    cases.push_back(
        stored(op, "a slot twice", {4, 4}, no_slot + "each slot once\n  got       4 at [1]"));
    cases.back().is_reported = false;  // one of the rows is stored
  }
  PromiseCase test = stored("kv_norm_rope_store", "a position without an angle", {4, 3},
                            far + "  got       9 at [1]");
  test.inputs["positions"] = tensor_of(DType::i32, {2}, {-1, 9});
  cases.push_back(test);
  for (const char* op : {"q_norm_rope", "index_q_store"}) {
    cases.push_back(query(op, "positions in range, and padding", {8, -1}, ""));
    cases.push_back(query(op, "a position without an angle", {8, 9}, far + "  got       9 at [1]"));
    cases.push_back(query(op, "a position below 0", {-2, 0}, far + "  got       -2 at [0]"));
  }
  return cases;
}

}  // namespace

std::vector<PromiseCase> serving_promise_cases() {
  std::vector<PromiseCase> cases = compressor_promise_cases();
  for (const PromiseCase& test : expert_promise_cases()) {
    cases.push_back(test);
    if (test.op == "swiglu_fwd") cases.push_back(experts_backward(test));
  }
  for (const std::vector<PromiseCase>& more : {cache_promise_cases(), other_promise_cases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace tessera::test
