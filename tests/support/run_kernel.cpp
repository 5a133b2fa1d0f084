#include "tests/support/run_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "codegen/thread_ir.h"
#include "codegen/tile_ir/effects.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/target.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/nvrtc.h"

namespace tessera::test {

HostTensor iota(DType dtype, Dims shape) {
  return tensor_by(dtype, shape, [](int64_t i) { return i; });
}

std::vector<double> values_of(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.value(i));
  return values;
}

namespace {

std::function<void(const ir::Kernel&)>& kernel_watcher() {
  static std::function<void(const ir::Kernel&)> watcher;
  return watcher;
}

/// The program for a target; nothing if its blocks have too little shared memory, or if the author asks for an
/// instruction that it has not.
std::optional<codegen::Program> program_for(const ir::Kernel& kernel, Target target) {
  try {
    return codegen::lower(kernel, target);
  } catch (const Error& error) {
    if (error.code() != "GEMM" && error.code() != "SMEM_LIMIT") throw;
    return std::nullopt;
  }
}

/// Every distinct text once per process, for the oldest target that takes it and the newest: these
/// are minutes of NVRTC, and a test compiles what is shipped for all targets (R22.12).
void check_compiles(const ir::Kernel& kernel) {
  static std::string reason;
  static const auto nvrtc = Nvrtc::open(reason);
  static std::set<std::string> seen;
  if (!nvrtc) return note_skip(reason);
  std::vector<std::string> targets;
  for (const std::string& target : kTargets) {
    const bool has_clusters = target != "sm_80" && target != "sm_89";
    if (nvrtc->supports(target) && (kernel.cluster <= 1 || has_clusters)) targets.push_back(target);
  }
  const auto compiles_for = [&](const std::string& target) {
    const auto program = program_for(kernel, parse_target(target).value());
    if (!program) return false;
    const std::string text = codegen::cuda::emit(*program).text;
    if (!seen.insert(target + text).second) return true;
    const Compiled compiled = nvrtc->compile(text, target);
    CAPTURE(kernel.name, target, compiled.log);
    CHECK(compiled.ok);
    return true;
  };
  const auto oldest = std::find_if(targets.begin(), targets.end(), compiles_for);
  static_cast<void>(
      std::find_if(targets.rbegin(), std::make_reverse_iterator(oldest), compiles_for));
}

bool has_float_products(const ir::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    return codegen::any_in(stmt, [](const ir::Stmt& inner) {
      const auto* gemm = std::get_if<ir::Gemm>(&inner.node);
      return gemm != nullptr && is_float(gemm->a.buffer->dtype);
    });
  });
}

/// Kernels that ran on the executor for sm_80 too, those that have one program for sm_80 and sm_90a, and those that
/// have none for sm_80.
struct Compared {
  int64_t different = 0, same = 0, newer = 0;
};

Compared& compared() {
  static Compared counts;
  return counts;
}

/// True if the kernel has a program for sm_80 that is not that of sm_90a, statement by statement.
bool differs_on_sm_80(const ir::Kernel& kernel) {
  auto older = program_for(kernel, {8, 0, 0});
  if (!older) {
    ++compared().newer;
    return false;
  }
  older->target = Target();
  const bool differs = codegen::to_string(*older) != codegen::to_string(codegen::lower(kernel));
  ++(differs ? compared().different : compared().same);
  return differs;
}

void run(const ir::Kernel& kernel, const std::vector<TensorView>& views) {
  kernels::jit::run(kernel, views, {}, nullptr);
}

}  // namespace

void run_on_executor(const ir::Kernel& kernel, const std::vector<TensorView>& views) {
  const kernels::jit::TrapScope traps;
  run(kernel, views);
}

void watch_kernels(std::function<void(const ir::Kernel&)> watcher) {
  kernel_watcher() = std::move(watcher);
}

void run_kernel(const ir::Kernel& kernel, const std::vector<const HostTensor*>& tensors) {
  const bool is_thorough = std::getenv("TESSERA_TEST_THOROUGH") != nullptr;
  if (is_thorough && kernel_watcher()) kernel_watcher()(kernel);
  const bool on_gpu = why_no_gpu().empty();
  std::vector<TensorView> views;
  std::vector<DeviceTensor> on_device;
  for (const HostTensor* tensor : tensors) {
    views.push_back(tensor->view());
    if (on_gpu) on_device.emplace_back(*tensor, Device::cuda(0));
  }
  std::vector<HostTensor> on_sm_80;
  if (differs_on_sm_80(kernel)) {
    std::vector<TensorView> copies;
    for (const HostTensor* tensor : tensors) on_sm_80.push_back(*tensor);
    for (const HostTensor& tensor : on_sm_80) copies.push_back(tensor.view());
    const kernels::jit::TargetScope ampere({8, 0, 0});
    run_on_executor(kernel, copies);
  }
  run_on_executor(kernel, views);
  for (const HostTensor* tensor : tensors) CHECK(tensor->damage().empty());
  for (size_t i = 0; i < on_sm_80.size(); ++i) {
    CAPTURE(kernel.name, i);
    CHECK(on_sm_80[i].damage().empty());
    if (!has_float_products(kernel.body)) CHECK(on_sm_80[i].raw() == tensors[i]->raw());
  }
  if (is_thorough) check_compiles(kernel);
  if (!on_gpu) return;
  views.clear();
  for (const DeviceTensor& tensor : on_device) views.push_back(tensor.view());
  run(kernel, views);
  for (size_t i = 0; i < tensors.size(); ++i) {
    HostTensor result = *tensors[i];
    on_device[i].download(result);
    CAPTURE(kernel.name, i);
    CHECK(result.raw() == tensors[i]->raw());
  }
}

std::string compared_programs() {
  const auto [different, same, newer] = compared();
  if (different + same + newer == 0) return {};
  return fmt::format(
      "{} runs of kernels for sm_90a: {} ran for sm_80 too, {} have the same program there, {} "
      "have none\n",
      different + same + newer, different, same, newer);
}

std::string cuda_text(const ir::Kernel& kernel) {
  return codegen::cuda::emit_kernel_text(codegen::lower(kernel));
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace tessera::test
