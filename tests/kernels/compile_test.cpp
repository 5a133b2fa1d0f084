// NVRTC compiles every shipped kernel for every target, without a GPU. One compilation answers all questions: does it
// compile, what does it spill, does the assembler warn, and for sm_90a, how long did it take.

#include "runtime/nvrtc/compile.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/base/error.h"
#include "kernels/jit/target.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/runtime.h"
#include "tests/support/each_family.h"
#include "tools/lib/bench/compile_cost.h"
#include "tools/lib/calls/example.h"

namespace tessera {
namespace {

const runtime::Nvrtc* nvrtc_here(std::string& why) {
  try {
    return &runtime::Runtime::instance().nvrtc();
  } catch (const Error& error) {
    why = error.what();
    return nullptr;
  }
}

/// Bytes that a thread of some example spills on some target; nothing else may spill. These keep a
/// whole row of several tensors in registers, and a few bytes of it in L1 cost less than a second
/// pass over the row.
int known_spill(const std::string& op, int nvrtc_version) {
  // On sm_90a the gate's gradients, per_block_cast and swiglu_forward_and_per_channel_cast spill nothing,
  // per_channel_cast_fused 4 bytes.
  static const std::map<std::string, int> known = {
      {"engram_gate_fwd", 4},
      {"engram_gate_bwd", 16},
      {"engram_bwd", 16},
      {"per_block_cast", 20},
      {"per_channel_cast_fused", 12},
      {"swiglu_forward_and_per_channel_cast", 12},
      {"norm_bwd", 4},                 // of f32 with a second gradient, in blocks of 1024 threads
      {"gate_scores_sum", 4},          // on sm_80 alone
      {"attention_bwd", 4},            // heads of 64 by mma.sync
      {"attention_varlen_bwd", 16},    // the same: on sm_80 4, on sm_89 8, on sm_120a 16
      {"attention_decode", 140},       // heads of 96 on sm_80; of 256 there 84, on sm_90a 16
      {"topk_select", 8},              // of bf16, on sm_80 alone
      {"gemm_fp8_masked", 28},         // on sm_100a alone
      {"gemm_fp8_grouped", 32},        // the same, where ids may change within 128 rows
      {"gemm_fp8_k_grouped", 4},       // the same
      {"gemm_fp8_block", 16},          // byte by byte, on sm_89
      {"gemm_mxfp4", 16},              // on sm_100a; on sm_80 8
      {"gemm_mxfp4_grouped", 16},      // the same; on sm_89 12
      {"gemm_mxfp4_masked", 12},       // on sm_80 and sm_100a
      {"attention_fwd", 48},           // heads of 256 by mma.sync: on sm_80 44, on sm_120a 32 to 48
      {"attention_varlen_fwd", 172}};  // the same: on sm_80 116, on sm_89 172
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

/// `at_once` is the cost of one compilation. A kernel above its limit is measured again, beside a fixed kernel that tells
/// how slow the machine is: it may take at most twice its limit (C06).
void check_cost(const kernels::OpInfo& op, const kernels::BenchCase& example,
                const tools::CompileCost& at_once, const runtime::Nvrtc& nvrtc,
                runtime::Target target) {
  if (at_once.share_of_limit() <= 1) return;
  for (const tools::CompileCost& cost : tools::compile_costs(op, example, nvrtc, target, 2)) {
    CAPTURE(cost.kernel, cost.lower_ms, cost.nvrtc_ms, cost.slowness);
    CHECK(cost.share_of_limit() <= 2);
  }
}

/// `has_limits`: the time that a kernel may take holds for these targets.
void compile_family(const std::string& family, const std::vector<std::string>& words,
                    bool has_limits = false) {
  std::string why;
  const runtime::Nvrtc* const nvrtc = nvrtc_here(why);
  if (nvrtc == nullptr) TESSERA_SKIP(why);
  std::vector<runtime::Target> targets;
  for (const std::string& word : words) {
    const runtime::Target target = runtime::parse_target(word).value();
    const bool listed = std::count(nvrtc->archs.begin(), nvrtc->archs.end(), target.number()) > 0;
    if (listed) targets.push_back(target);
    if (listed) continue;
    WARN(nvrtc->describe() << " does not list " << word);
    CHECK(target.major >= 10);  // all from 12.3 on list the older ones
  }
  if (targets.empty()) TESSERA_SKIP(nvrtc->describe() + " lists none of these targets");
  std::set<std::pair<std::string, int>> seen;  // texts and targets: many examples share a kernel
  for (const kernels::OpInfo& op : kernels::ops()) {
    if (op.family != family) continue;
    REQUIRE_FALSE(op.examples.empty());
    for (const kernels::BenchCase& example : op.examples) {
      for (const runtime::Target target : targets) {
        const kernels::jit::TargetScope scope(target);
        for (const ir::Kernel& kernel : tools::kernels_of(op, example)) {
          tools::CompileCost cost;
          const double begin = cpu_ms();
          const KernelSource source = codegen::cuda::emit(codegen::lower(kernel, target));
          if (!seen.emplace(source.text, target.number()).second) continue;
          CAPTURE(op.name, example.label, to_string(target));
          const double lowered = cpu_ms();
          const runtime::Image image = runtime::compile(*nvrtc, source, target);
          cost.nvrtc_ms = cpu_ms() - lowered;
          cost.lower_ms = lowered - begin;
          cost.limit = tools::compile_limit(op);
          if (has_limits) check_cost(op, example, cost, *nvrtc, target);
          CHECK(image.resources.spill_bytes <= known_spill(op.name, nvrtc->version));
          // C7508 to C7517: wgmma that the assembler had to serialise, registers that it could not give.
          CHECK(image.log.find("(C75") == std::string::npos);
        }
      }
    }
  }
}

void compile_for_the_oldest(const std::string& family) {
  compile_family(family, {"sm_80", "sm_89"});
}
void compile_for_the_tuned(const std::string& family) {
  compile_family(family, {"sm_90a"}, true);
}
void compile_for_the_newest(const std::string& family) {
  compile_family(family, {"sm_100a", "sm_120a"});
}

}  // namespace

TESSERA_TEST_EACH_FAMILY("every shipped kernel compiles for sm_80 and sm_89 (R22.12)",
                         "[kernels][compile][slow]", compile_for_the_oldest)
TESSERA_TEST_EACH_FAMILY("every shipped kernel compiles for sm_90a in time (R22.12, C06)",
                         "[kernels][compile][slow]", compile_for_the_tuned)
TESSERA_TEST_EACH_FAMILY("every shipped kernel compiles for sm_100a and sm_120a (R22.12)",
                         "[kernels][compile][slow]", compile_for_the_newest)

}  // namespace tessera
