#include "tools/lib/bench/compile_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/target.h"
#include "runtime/nvrtc/compile.h"
#include "tools/lib/calls/example.h"
#include "tools/lib/text/text_table.h"

namespace tessera::tools {
namespace {

/// The time of NVRTC for kYardstick for sm_90a on a quiet core of the machines that build Tessera.
constexpr double kYardstickMs = 33;

/// Rounds eight floats to bf16: long enough to be timed, and never changed by what Tessera emits.
constexpr const char* kYardstick = R"(
extern "C" __global__ void tessera_yardstick(const float* __restrict__ x, float* y, int rows) {
  const int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int bits = __float_as_int(x[(long long)row * 8 + i]);
    y[(long long)row * 8 + i] = __int_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
  }
}
)";

constexpr size_t kSamples = 5;
using Samples = std::vector<double>;

double median(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// CPU milliseconds, all threads of the process counted.
template <class Fn>
double cpu_ms(const Fn& fn) {
  const std::clock_t begin = std::clock();
  fn();
  return static_cast<double>(std::clock() - begin) * 1e3 / CLOCKS_PER_SEC;
}

double yardstick_ms(const runtime::Nvrtc& nvrtc, runtime::Target target) {
  KernelSource yardstick;
  yardstick.op = "yardstick";
  yardstick.entry = "tessera_yardstick";
  yardstick.text = kYardstick;
  yardstick.threads = 128;
  return cpu_ms([&] { runtime::compile(nvrtc, yardstick, target); });
}

CompileCost cost_of(const ir::Kernel& kernel, const runtime::Nvrtc& nvrtc, runtime::Target target,
                    size_t samples) {
  KernelSource source;
  runtime::Image image;
  Samples lower, compile, compare;
  for (size_t i = 0; i < samples; ++i) {
    lower.push_back(cpu_ms([&] { source = codegen::cuda::emit(codegen::lower(kernel, target)); }));
    compile.push_back(cpu_ms([&] { image = runtime::compile(nvrtc, source, target); }));
    compare.push_back(yardstick_ms(nvrtc, target));
  }
  CompileCost cost;
  cost.kernel = kernel.name;
  cost.lower_ms = median(lower);
  cost.nvrtc_ms = median(compile);
  cost.slowness = median(compare) / kYardstickMs;
  cost.registers = image.resources.registers;
  cost.spill_bytes = image.resources.spill_bytes;
  return cost;
}

std::string mark_of(const CompileCost& cost) {
  std::string mark;
  if (cost.lower_ms > cost.limit.lower_ms) {
    mark = fmt::format("lowering over {:.0f} ms", cost.limit.lower_ms);
  }
  if (cost.nvrtc_ms > cost.limit.nvrtc_ms) {
    mark += fmt::format("{}NVRTC over {:.0f} ms", mark.empty() ? "" : ", ", cost.limit.nvrtc_ms);
  }
  return mark;
}

}  // namespace

double slowness_of_nvrtc(const runtime::Nvrtc& nvrtc, runtime::Target target) {
  Samples samples;
  for (size_t i = 0; i < kSamples; ++i) samples.push_back(yardstick_ms(nvrtc, target));
  return median(samples) / kYardstickMs;
}

CompileLimit compile_limit(const kernels::OpInfo& op) {
  const bool is_fused = op.name.starts_with("swiglu");
  const bool only_moves = op.family == "transpose" || (op.family == "quant" && !is_fused);
  // Two groups of warps, each with a softmax.
  if (op.name == "mla_decode" || op.name == "sparse_mla_fwd") return {60, 1600};
  // Several products, and what stands between them.
  const bool has_chunks = op.name == "gated_delta_fwd" || op.name == "gated_delta_varlen_fwd";
  if (op.family == "attention" || has_chunks) return {60, 800};
  return only_moves ? CompileLimit{15, 100} : CompileLimit{60, 400};
}

double CompileCost::share_of_limit() const {
  return std::max(lower_ms / limit.lower_ms, nvrtc_ms / limit.nvrtc_ms) / std::max(1.0, slowness);
}

std::vector<const kernels::BenchCase*> representatives(const kernels::OpInfo& op) {
  constexpr size_t kMost = 4;
  const size_t count = std::min(kMost, op.examples.size());
  std::vector<const kernels::BenchCase*> chosen;
  for (size_t i = 0; i < count; ++i) {
    chosen.push_back(&op.examples[i * op.examples.size() / count]);
  }
  return chosen;
}

std::vector<CompileCost> compile_costs(const kernels::OpInfo& op, const kernels::BenchCase& example,
                                       const runtime::Nvrtc& nvrtc, runtime::Target target,
                                       std::optional<double> remeasure_above) {
  constexpr int kMeasurements = 3;
  const kernels::jit::TargetScope scope(target);
  std::vector<CompileCost> costs;
  for (const ir::Kernel& kernel : kernels_of(op, example)) {
    CompileCost least;
    // With a bound, one sample decides most kernels: it is enough below half of the bound, else the kernel is measured in
    // full, again while it is above the bound.
    for (int i = 0; i < kMeasurements; ++i) {
      const bool is_single = remeasure_above && i == 0;
      CompileCost cost = cost_of(kernel, nvrtc, target, is_single ? 1 : kSamples);
      cost.op = op.name;
      cost.label = example.label;
      cost.limit = compile_limit(op);
      if (i == 0 || cost.share_of_limit() < least.share_of_limit()) least = std::move(cost);
      if (!remeasure_above || least.share_of_limit() <= *remeasure_above * (is_single ? 0.5 : 1))
        break;
    }
    costs.push_back(std::move(least));
  }
  return costs;
}

std::string compile_table(const std::vector<CompileCost>& costs) {
  TextTable table({{"op", Align::left},
                   {"case", Align::left},
                   {"kernel", Align::left},
                   {"lower ms", Align::right},
                   {"NVRTC ms", Align::right},
                   {"total ms", Align::right},
                   {"registers", Align::right},
                   {"spilled", Align::right},
                   {"machine", Align::right},
                   {"", Align::left}});
  for (const CompileCost& c : costs) {
    table.row({c.op, c.label, c.kernel, fmt::format("{:.1f}", c.lower_ms),
               fmt::format("{:.1f}", c.nvrtc_ms), fmt::format("{:.1f}", c.total_ms()),
               fmt::format("{}", c.registers), fmt::format("{}", c.spill_bytes),
               fmt::format("{:.2f}", c.slowness), mark_of(c)});
  }
  return table.text();
}

std::string compile_json(const std::vector<CompileCost>& costs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CompileCost& c : costs) {
    list.push_back({{"op", c.op},
                    {"case", c.label},
                    {"kernel", c.kernel},
                    {"lower_ms", c.lower_ms},
                    {"nvrtc_ms", c.nvrtc_ms},
                    {"machine", c.slowness},
                    {"share_of_limit", c.share_of_limit()},
                    {"registers", c.registers},
                    {"spill_bytes", c.spill_bytes}});
  }
  return nlohmann::ordered_json{{"compile", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tessera::tools
