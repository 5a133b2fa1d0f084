#include "kernels/moe/mapping_bench.h"

#include <algorithm>

namespace tessera::kernels::moe {
namespace {

/// `valid` pairs that have an expert, spread evenly over pairs and experts.
BenchCase bench_case(int64_t tokens, int64_t topk, int64_t experts, int64_t alignment,
                     int64_t valid, int64_t capacity = 0) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " K=" + std::to_string(topk) +
            " E=" + std::to_string(experts) + " A=" + std::to_string(alignment);
  c.params = {{"num_experts", experts}, {"alignment", alignment}};
  if (capacity > 0) {
    c.label += " P=" + std::to_string(capacity);
    c.params["num_expanded_tokens"] = capacity;
    c.params["force_no_sync"] = true;
  }
  const int64_t pairs = tokens * topk;
  c.inputs = {{"topk_idx", DType::i64, {tokens, topk}, {topk, 1}, [=](int64_t pair) {
                 const int64_t step = pair * valid / pairs;
                 return step == (pair + 1) * valid / pairs ? int64_t{-1} : step % experts;
               }}};
  int64_t positions = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t size = (valid - e + experts - 1) / experts;
    positions += (size + alignment - 1) / alignment * alignment;
  }
  c.bytes = 12 * pairs + 12 * (std::max(positions, capacity) + experts);
  return c;
}

}  // namespace

std::vector<BenchCase> mapping_examples() {
  return {bench_case(65, 8, 9, 16, 300), bench_case(700, 6, 256, 128, 2000),
          bench_case(9, 2, 1024, 1, 18, 40)};
}

std::vector<BenchCase> mapping_bench() {
  return {bench_case(7902, 2, 9, 128, 8640),   bench_case(9813, 2, 4, 128, 9856),
          bench_case(21779, 8, 9, 128, 32448), bench_case(32506, 8, 4, 128, 33920),
          bench_case(1, 8, 256, 16, 8, 4104),  bench_case(128, 8, 256, 16, 1024, 5120)};
}

}  // namespace tessera::kernels::moe
