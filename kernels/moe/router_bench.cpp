#include "kernels/moe/router_bench.h"

#include <string>

#include "kernels/moe/expert_score.h"

namespace tessera::kernels::moe {
namespace {

struct Size {
  int64_t tokens, experts, topk, groups = 0, topk_groups = 0;
};

/// Logits and bias alone.
BenchCase plain_case(const Size& size, Scoring scoring, double scale) {
  BenchCase c;
  c.label = "T=" + std::to_string(size.tokens) + " E=" + std::to_string(size.experts) +
            " K=" + std::to_string(size.topk) + " " + std::string(name(scoring));
  if (size.groups > 0) {
    c.label += " groups " + std::to_string(size.topk_groups) + " of " + std::to_string(size.groups);
  }
  c.params = {{"num_topk", size.topk},
              {"num_groups", size.groups},
              {"num_topk_groups", size.topk_groups},
              {"scoring_func", std::string(name(scoring))},
              {"routed_scaling_factor", scale}};
  c.inputs = {{"logits", DType::f32, {size.tokens, size.experts}},
              {"bias", DType::f32, {size.experts}}};
  c.bytes = 4 * size.tokens * size.experts + 4 * size.experts;
  return c;
}

/// 32 tokens and 4 that are masked, on a rank of 4 x 2, with shared experts where they fit.
BenchCase rank_case(const Size& size, int64_t num_shared, Scoring scoring) {
  BenchCase c = plain_case(size, scoring, 1.5);
  const bool shared = size.topk % num_shared == 0 && size.experts % (size.topk / num_shared) == 0;
  c.label += " rank of 4 x 2, " + std::to_string(num_shared) + " shared";
  c.params["use_shared_as_routed"] = shared;
  c.params["num_shared_experts"] = num_shared;
  c.params["num_ep_ranks"] = int64_t{4};
  c.params["tp_rank"] = int64_t{1};
  c.params["num_tp_ranks"] = int64_t{2};
  c.inputs.push_back(
      {"mask", DType::boolean, {size.tokens}, {1}, [tokens = size.tokens](int64_t t) {
         return t < tokens - 4 ? 1 : 0;
       }});
  c.inputs.push_back({"unmapped_topk_idx", DType::i64, {size.tokens, size.topk}});
  if (!shared) return c;
  const int64_t rows = size.experts + num_shared;
  c.inputs.push_back({"to_physical_map", DType::i32, {rows, 33}, {33, 1}, [](int64_t element) {
                        return element / 33;
                      }});
  c.inputs.push_back({"logical_count", DType::i32, {rows}, {1}, [](int64_t) { return 1; }});
  return c;
}

}  // namespace

std::vector<BenchCase> router_examples() {
  using enum Scoring;
  return {plain_case({65, 256, 8, 8, 4}, sigmoid, 2.5), plain_case({5, 72, 6}, sqrtsoftplus, 1),
          plain_case({7, 30, 5}, softmax, 1),           plain_case({3, 54, 4, 6, 2}, softmax, 1),
          rank_case({36, 72, 6}, 1, sigmoid),           rank_case({36, 256, 8, 8, 8}, 2, softmax)};
}

std::vector<BenchCase> router_bench() {
  using enum Scoring;
  std::vector<BenchCase> cases = {
      rank_case({36, 72, 6}, 1, sigmoid), rank_case({36, 32, 6}, 2, softmax),
      rank_case({36, 36, 6}, 2, sqrtsoftplus), rank_case({36, 128, 6}, 2, sqrtsoftplus)};
  for (const int64_t tokens : {1, 128, 4096}) {
    cases.push_back(plain_case({tokens, 256, 8, 8, 4}, sigmoid, 2.5));
    cases.push_back(plain_case({tokens, 256, 6}, sqrtsoftplus, 2.5));
  }
  cases.push_back(plain_case({4096, 256, 8}, softmax, 2.5));
  return cases;
}

}  // namespace tessera::kernels::moe
