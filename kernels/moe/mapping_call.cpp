#include "kernels/moe/mapping_call.h"

#include <string>

#include "kernels/moe/mapping_kernels.h"

namespace tessera::kernels {

int64_t fused_mapping_bound(int64_t num_pairs, int64_t num_experts, int64_t alignment) {
  return (num_pairs + (alignment - 1) * num_experts) / alignment * alignment;
}

namespace moe {

GetFusedMappingOptions mapping_options(const Params& params) {
  return {std::get<int64_t>(params.at("num_experts")), std::get<int64_t>(params.at("alignment")),
          std::get<int64_t>(params.at("num_expanded_tokens")),
          std::get<bool>(params.at("force_no_sync"))};
}

bool synchronises(const GetFusedMappingOptions& options) {
  return options.num_expanded_tokens == 0 && !options.force_no_sync;
}

void check_mapping_input(ArgCheck& check, const Tensors& tensors, const GetFusedMappingOptions& o) {
  check.tensor("topk_idx", tensors).dtype(DType::i64).shape("T", "K").row_major();
  constexpr int64_t kMost = (int64_t{1} << 31) - (int64_t{1} << 24) - 1;  // positions are i32
  check.param_in_range("num_experts", o.num_experts, 1, kMaxMappedExperts);
  check.param_in_range("alignment", o.alignment, 1, kMost / o.num_experts);
  check.param_in_range("num_expanded_tokens", o.num_expanded_tokens, 0, kMost);
  const int64_t pairs = check["T"] * check["K"];
  check.require(pairs + (o.alignment - 1) * o.num_experts <= kMost, "topk_idx",
                "'topk_idx' has too many pairs",
                "at most " + std::to_string(kMost) + " padded positions",
                std::to_string(pairs) + " pairs", ErrorKind::unsupported);
  check.bind("E", o.num_experts, "num_experts");
}

int64_t most_positions(const ArgCheck& check, const GetFusedMappingOptions& o) {
  if (!synchronises(o)) return o.num_expanded_tokens;
  return fused_mapping_bound(check["T"] * check["K"], o.num_experts, o.alignment);
}

std::vector<OutputInfo> mapping_outputs(const ArgCheck& check, const GetFusedMappingOptions& o) {
  const int64_t positions = most_positions(check, o);
  std::vector<OutputInfo> result;
  for (const char* name : kByPosition) {
    result.push_back(row_major_output(name, DType::i32, {positions}));
  }
  result.push_back(row_major_output("token_topk_to_pos", DType::i32, {check["T"], check["K"]}));
  for (const char* name : kByExpert) {
    result.push_back(row_major_output(name, DType::i32, {o.num_experts}));
  }
  return result;
}

void check_mapping_outputs(ArgCheck& check, const Tensors& tensors,
                           const GetFusedMappingOptions& o) {
  if (!synchronises(o)) check.bind("P", o.num_expanded_tokens, "num_expanded_tokens");
  for (const char* name : kByPosition) {
    check.output(name, tensors).dtype(DType::i32).shape("P").row_major();
  }
  check.output("token_topk_to_pos", tensors).dtype(DType::i32).shape("T", "K").row_major();
  for (const char* name : kByExpert) {
    check.output(name, tensors).dtype(DType::i32).shape("E").row_major();
  }
}

}  // namespace moe
}  // namespace tessera::kernels
