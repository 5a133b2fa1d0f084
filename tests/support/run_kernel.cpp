#include "tests/support/run_kernel.h"

#include <algorithm>
#include <cstdlib>
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
  if (targets.size() > 2) targets = {targets.front(), targets.back()};
  for (const std::string& target : targets) {
    const std::string text =
        codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
    if (!seen.insert(target + text).second) continue;
    const Compiled compiled = nvrtc->compile(text, target);
    CAPTURE(kernel.name, target, compiled.log);
    CHECK(compiled.ok);
  }
}

bool has_float_products(const ir::Body& body) {
  return std::any_of(body.begin(), body.end(), [](const ir::Stmt& stmt) {
    return codegen::any_in(stmt, [](const ir::Stmt& inner) {
      const auto* gemm = std::get_if<ir::Gemm>(&inner.node);
      return gemm != nullptr && is_float(gemm->a.buffer->dtype);
    });
  });
}

/// The program for sm_80 as text; nothing if it has no such program or is that of sm_90a.
bool differs_on_sm_80(const ir::Kernel& kernel) {
  try {
    codegen::Program older = codegen::lower(kernel, {8, 0, 0});
    older.target = Target();
    return codegen::to_string(older) != codegen::to_string(codegen::lower(kernel));
  } catch (const Error& error) {
    if (error.code() != "GEMM") throw;
    return false;  // the author asks for wgmma
  }
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

std::string cuda_text(const ir::Kernel& kernel) {
  return codegen::cuda::emit_kernel_text(codegen::lower(kernel));
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace tessera::test
