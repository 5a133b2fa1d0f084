// get_fused_mapping: the expert-major layout of the pairs of a routing.
//
// Shapes   topk_idx and token_topk_to_pos [tokens, num_topk], pos_to_expert, pos_to_token and
//          pos_to_token_topk [positions], expert_start, expert_end and num_tokens_per_expert [experts]
// Dtypes   topk_idx i64, the rest i32
// Method   a stable counting sort; up to 2048 pairs by one block, up to 2^16 by one cluster, where
//          a pair stays in a register from the load to the store. Beyond, and on devices without
//          clusters of 16, three kernels over chunks of 1024 to 2048 pairs: counts per chunk, their
//          sums over chunks, positions. Counts wait in token_topk_to_pos, which the last kernel
//          overwrites. A few bytes per pair: the bound is latency.
// Maths    position = start of the expert + pairs of the expert before this one

#include "kernels/moe/get_fused_mapping.h"

#include <algorithm>

#include "kernels/arg_check.h"
#include "kernels/jit/host_copy.h"
#include "kernels/jit/run_op.h"
#include "kernels/jit/target.h"
#include "kernels/moe/mapping_bench.h"
#include "kernels/moe/mapping_call.h"
#include "kernels/moe/mapping_kernels.h"
#include "kernels/moe/mapping_values.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec: MappingSpec; 2. Builder: build_mapping
using moe::MappingPhase;
using Spec = moe::MappingSpec;

// 3. Host function
constexpr const char* kOp = "get_fused_mapping";

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  const GetFusedMappingOptions options = moe::mapping_options(params);
  moe::check_mapping_input(check, inputs, options);
  return moe::mapping_outputs(check, options);
}

Spec spec_of(const ArgCheck& check, int64_t positions, MappingPhase phase, bool fills) {
  Spec s;
  s.experts = static_cast<int32_t>(check["E"]);
  s.topk = static_cast<int32_t>(check["K"]);
  s.phase = phase;
  s.has_pairs = check["T"] * check["K"] > 0;
  s.has_positions = positions > 0;
  s.fills = fills;
  return s;
}

TensorView flat(const TensorView& view) {
  return {view.data, view.dtype, {view.size()}, view.device};
}

void launch(const ArgCheck& check, const Tensors& tensors, const GetFusedMappingOptions& o,
            Stream stream) {
  const int64_t pairs = check["T"] * check["K"], positions = check["P"];
  std::vector<TensorView> arguments;
  if (pairs > 0) {
    arguments = {flat(tensors.at("topk_idx")), flat(tensors.at("token_topk_to_pos"))};
  }
  for (const char* name : moe::kByPosition) {
    if (positions > 0) arguments.push_back(tensors.at(name));
  }
  for (const char* name : moe::kByExpert) arguments.push_back(tensors.at(name));
  const int64_t chunks = (pairs + moe::kPairsPerChunk - 1) / moe::kPairsPerChunk;
  const jit::Scalar scalars[] = {o.alignment, std::max<int64_t>(chunks, 1)};
  const Device device = tensors.at("topk_idx").device;
  jit::launch_in_clusters(device, [&](int cluster_limit) {
    for (const MappingPhase phase :
         moe::mapping_phases(pairs, check["E"], cluster_limit, jit::shared_memory_limit(device))) {
      const Spec spec = spec_of(check, positions, phase, !moe::synchronises(o));
      jit::run_op(kOp, spec, moe::build_mapping, arguments, scalars, stream);
    }
  });
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const GetFusedMappingOptions options = moe::mapping_options(params);
  moe::check_mapping_input(check, tensors, options);
  moe::check_mapping_outputs(check, tensors, options);
  check.memory();
  moe::require_routing(check, tensors.at("topk_idx"), options.alignment);
  launch(check, tensors, options, stream);
}

void trim(Tensors& tensors, const Params& params, Stream stream) {
  if (!moe::synchronises(moe::mapping_options(params))) return;
  int64_t needed = 0;
  for (const int32_t size : jit::to_host<int32_t>(tensors.at("num_tokens_per_expert"), stream)) {
    needed += size;
  }
  for (const char* name : moe::kByPosition) tensors.at(name).shape[0] = needed;
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  const GetFusedMappingOptions options = moe::mapping_options(params);
  moe::check_mapping_input(check, tensors, options);
  const int64_t positions = moe::most_positions(check, options);
  std::vector<ir::Kernel> result;
  const Device device = tensors.at("topk_idx").device;
  for (const MappingPhase phase :
       moe::mapping_phases(check["T"] * check["K"], check["E"], jit::cluster_limit(device),
                           jit::shared_memory_limit(device))) {
    result.push_back(
        moe::build_mapping(spec_of(check, positions, phase, !moe::synchronises(options))));
  }
  return result;
}

// 4. Registration
OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "moe";
  op.purpose = "positions of the pairs of a routing, sorted by expert";
  op.tensors = {input("topk_idx", {"i64"}, {"T", "K"})};
  const auto add = [&](const char* name, std::vector<std::string> shape) {
    op.tensors.push_back(output(name, {"i32"}, shape));
  };
  for (const char* name : moe::kByPosition) add(name, {"P"});
  add("token_topk_to_pos", {"T", "K"});
  for (const char* name : moe::kByExpert) add(name, {"E"});
  op.params = {count("num_experts", "1..1024"), count("alignment", ""),
               count("num_expanded_tokens", "", 0, 0), flag("force_no_sync", false)};
  op.outputs = outputs;
  op.run = run;
  op.trim = trim;
  op.kernels = kernels;
  op.examples = moe::mapping_examples();
  op.bench = moe::mapping_bench();
  return op;
}

}  // namespace

std::vector<int32_t> get_fused_mapping(const TensorView& topk_idx, const FusedMapping& mapping,
                                       const GetFusedMappingOptions& o, Stream stream) {
  call_op(get_fused_mapping_op(),
          {{"topk_idx", topk_idx},
           {"pos_to_expert", mapping.pos_to_expert},
           {"pos_to_token", mapping.pos_to_token},
           {"pos_to_token_topk", mapping.pos_to_token_topk},
           {"token_topk_to_pos", mapping.token_topk_to_pos},
           {"expert_start", mapping.expert_start},
           {"expert_end", mapping.expert_end},
           {"num_tokens_per_expert", mapping.num_tokens_per_expert}},
          {{"num_experts", o.num_experts},
           {"alignment", o.alignment},
           {"num_expanded_tokens", o.num_expanded_tokens},
           {"force_no_sync", o.force_no_sync}},
          stream);
  if (!moe::synchronises(o)) return {};
  return jit::to_host<int32_t>(mapping.num_tokens_per_expert, stream);
}

const OpInfo& get_fused_mapping_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
