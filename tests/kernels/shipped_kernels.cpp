#include "tests/kernels/shipped_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/runtime.h"
#include "tests/support/catch.h"
#include "tools/lib/bench/compile_cost.h"

namespace tessera::test {
namespace {

/// Bytes that a thread of some example spills on some target; nothing else may spill. These keep a
/// whole row of several tensors in registers, and a few bytes of it in L1 cost less than a second
/// pass over the row.
int known_spill(const std::string& op, int nvrtc_version) {
  // On sm_90a the gate's gradients, per_block_cast and swiglu_forward_and_per_channel_cast spill nothing,
  // per_channel_cast_fused 4 bytes.
  static const std::map<std::string, int> known = {
      {"engram_gate_fwd", 12},        // with a mask of image tokens, on sm_100a
      {"pre_big_fuse_and_norm", 12},  // on sm_100a alone
      {"mla_decode", 16},             // by mma.sync, on sm_80
      {"sparse_mla_fwd", 20},         // the same
      {"sparse_mla_decode", 40},      // the same
      {"engram_gate_bwd", 16},
      {"engram_bwd", 16},
      {"per_block_cast", 20},
      {"per_channel_cast_fused", 12},
      {"swiglu_forward_and_per_channel_cast", 12},
      {"swiglu_backward_and_per_token_cast",
       28},                          // with a clamp: on sm_90a 16, on sm_80 20, on sm_89 28
      {"norm_bwd", 4},               // of f32 with a second gradient, in blocks of 1024 threads
      {"gate_scores_sum", 4},        // on sm_80 alone
      {"attention_bwd", 4},          // heads of 64 by mma.sync
      {"attention_varlen_bwd", 16},  // the same: on sm_80 4, on sm_89 8, on sm_120a 16
      {"attention_decode", 140},     // heads of 96 on sm_80; of 256 there 84, on sm_90a 16
      {"topk_select", 8},            // of bf16, on sm_80 alone
      {"mqa_logits", 16},            // 64 heads, on sm_80 alone
      {"mqa_topk", 16},              // the same
      {"mqa_topk_blocks", 16},
      {"paged_mqa_topk_blocks", 4},    // on sm_120a alone
      {"gemm_fp8_masked", 28},         // on sm_100a alone
      {"gemm_fp8_grouped", 32},        // the same, where ids may change within 128 rows
      {"gemm_fp8_k_grouped", 4},       // the same
      {"gemm_fp8_block", 16},          // byte by byte, on sm_89
      {"gemm_mxfp4", 20},              // on sm_100a 16; on sm_80 20
      {"moe_forward", 2},              // its product by MXFP4 weights of bf16 rows, on sm_100a
      {"gemm_mxfp4_grouped", 24},      // on sm_100a; on sm_80 20, on sm_89 12
      {"gemm_mxfp4_masked", 24},       // on sm_100a; on sm_80 and sm_89 16
      {"attention_fwd", 48},           // heads of 256 by mma.sync: on sm_80 44, on sm_120a 32 to 48
      {"attention_varlen_fwd", 172},   // the same: on sm_80 116, on sm_89 172
      {"gated_delta_fwd", 8},          // of requests with lengths, on sm_100a alone
      {"gated_delta_varlen_fwd", 8}};  // on sm_100a; on sm_80 of normed rows
  // Tiles were chosen with NVRTC 13.0. Seen elsewhere: 4 bytes in cast_back_e5m6 (12.8 and 12.9 for
  // sm_100a), 8 in reduce_fused (13.1 for sm_100a and sm_120a).
  const int least = nvrtc_version == 13000 ? 0 : 8;
  const auto found = known.find(op);
  return std::max(least, found == known.end() ? 0 : found->second);
}

/// CPU milliseconds of this process so far, all its threads counted.
double cpu_ms() {
  return static_cast<double>(std::clock()) * 1e3 / CLOCKS_PER_SEC;
}

}  // namespace

const runtime::Nvrtc* nvrtc_here(std::string& why) {
  try {
    return &runtime::Runtime::instance().nvrtc();
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

const runtime::Image& ShippedKernels::image(const kernels::OpInfo& op,
                                            const kernels::BenchCase& example,
                                            const ir::Kernel& kernel, runtime::Target target,
                                            CompileTime time) {
  tools::CompileCost cost;
  const double begin = cpu_ms();
  const KernelSource source = codegen::cuda::emit(codegen::lower(kernel, target));
  static const bool is_thorough = std::getenv("TESSERA_TEST_EVERY_TARGET") != nullptr;
  const auto [found, is_new] =
      images_.try_emplace(is_thorough ? to_string(target) + source.text : source.text);
  if (!is_new) return found->second;
  CAPTURE(op.name, example.label, to_string(target));
  const double lowered = cpu_ms();
  const runtime::Image& image = found->second = runtime::compile(nvrtc_, source, target);
  CHECK(image.resources.spill_bytes <= known_spill(op.name, nvrtc_.version));
  // C7508 to C7517: wgmma that the assembler had to serialise, registers that it could not give.
  CHECK(image.log.find("(C75") == std::string::npos);
  if (time == CompileTime::any) return image;
  cost.nvrtc_ms = cpu_ms() - lowered;
  cost.lower_ms = lowered - begin;
  cost.limit = tools::compile_limit(op);
  if (cost.share_of_limit() <= 1) return image;
  if (slowness_ == 0) slowness_ = tools::slowness_of_nvrtc(nvrtc_, target);
  cost.slowness = slowness_;
  if (cost.share_of_limit() <= 2) return image;
  for (const tools::CompileCost& again : tools::compile_costs(op, example, nvrtc_, target, 2)) {
    CAPTURE(again.kernel, again.lower_ms, again.nvrtc_ms, again.slowness);
    CHECK(again.share_of_limit() <= 2);
  }
  return image;
}

}  // namespace tessera::test
