#include "tools/lib/compile_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
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

}  // namespace

std::vector<CompileCost> compile_costs(const kernels::OpInfo& op, const kernels::BenchCase& example,
                                       const runtime::Nvrtc& nvrtc, runtime::Target target) {
  std::vector<CompileCost> costs;
  for (const ir::Kernel& kernel : kernels_of(op, example)) {
    CompileCost cost;
    cost.op = op.name;
    cost.label = example.label;
    cost.kernel = kernel.name;
    KernelSource source;
    cost.lower_ms = median_cpu_ms([&] { source = codegen::cuda::emit(codegen::lower(kernel)); });
    runtime::Image image;
    cost.nvrtc_ms = median_cpu_ms([&] { image = runtime::compile(nvrtc, source, target); });
    cost.registers = image.resources.registers;
    cost.spill_bytes = image.resources.spill_bytes;
    costs.push_back(std::move(cost));
  }
  return costs;
}

std::string compile_table(const std::vector<CompileCost>& costs, std::optional<double> limit_ms) {
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
               fmt::format("{}", c.registers), fmt::format("{}", c.spill_bytes),
               limit_ms && c.total_ms() > *limit_ms ? "over the limit" : ""});
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
                    {"registers", c.registers},
                    {"spill_bytes", c.spill_bytes}});
  }
  return nlohmann::ordered_json{{"compile", std::move(list)}}.dump(2) + "\n";
}

}  // namespace tessera::tools
