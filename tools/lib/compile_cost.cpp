#include "tools/lib/compile_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/target.h"
#include "runtime/nvrtc/compile.h"
#include "tools/lib/example.h"
#include "tools/lib/text_table.h"

namespace tessera::tools {
namespace {

/// Median CPU milliseconds of five runs, all threads of the process counted.
template <class Fn>
double median_cpu_ms(const Fn& fn) {
  std::array<double, 5> samples{};
  for (double& sample : samples) {
    const std::clock_t begin = std::clock();
    fn();
    sample = static_cast<double>(std::clock() - begin) * 1e3 / CLOCKS_PER_SEC;
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

CompileCost cost_of(const ir::Kernel& kernel, const runtime::Nvrtc& nvrtc, runtime::Target target) {
  CompileCost cost;
  cost.kernel = kernel.name;
  KernelSource source;
  cost.lower_ms = median_cpu_ms([&] { source = codegen::cuda::emit(codegen::lower(kernel)); });
  runtime::Image image;
  cost.nvrtc_ms = median_cpu_ms([&] { image = runtime::compile(nvrtc, source, target); });
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

CompileLimit compile_limit(const kernels::OpInfo& op) {
  const bool is_fused = op.name.starts_with("swiglu");
  const bool only_moves = op.family == "transpose" || (op.family == "quant" && !is_fused);
  return only_moves ? CompileLimit{15, 100} : CompileLimit{60, 400};
}

double CompileCost::share_of_limit() const {
  return std::max(lower_ms / limit.lower_ms, nvrtc_ms / limit.nvrtc_ms);
}

std::vector<const kernels::BenchCase*> representatives(const kernels::OpInfo& op) {
  constexpr size_t kMost = 10;
  const size_t count = std::min(kMost, op.examples.size());
  std::vector<const kernels::BenchCase*> chosen;
  for (size_t i = 0; i < count; ++i) {
    chosen.push_back(&op.examples[i * op.examples.size() / count]);
  }
  return chosen;
}

std::vector<CompileCost> compile_costs(const kernels::OpInfo& op, const kernels::BenchCase& example,
                                       const runtime::Nvrtc& nvrtc, runtime::Target target,
                                       double again_above) {
  constexpr int kMeasurements = 7;  // a busy machine only adds
  const kernels::jit::TargetScope scope(target);
  std::vector<CompileCost> costs;
  for (const ir::Kernel& kernel : kernels_of(op, example)) {
    CompileCost least;
    for (int i = 0; i < kMeasurements; ++i) {
      CompileCost cost = cost_of(kernel, nvrtc, target);
      cost.op = op.name;
      cost.label = example.label;
      cost.limit = compile_limit(op);
      if (i == 0 || cost.share_of_limit() < least.share_of_limit()) least = std::move(cost);
      if (least.share_of_limit() <= again_above) break;
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
                   {"", Align::left}});
  for (const CompileCost& c : costs) {
    table.row({c.op, c.label, c.kernel, fmt::format("{:.1f}", c.lower_ms),
               fmt::format("{:.1f}", c.nvrtc_ms), fmt::format("{:.1f}", c.total_ms()),
               fmt::format("{}", c.registers), fmt::format("{}", c.spill_bytes), mark_of(c)});
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
                    {"share_of_limit", c.share_of_limit()},
                    {"registers", c.registers},
                    {"spill_bytes", c.spill_bytes}});
  }
  return nlohmann::ordered_json{{"compile", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tessera::tools
