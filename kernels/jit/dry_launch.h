#pragma once
// The launches of a call that is not made: for code that makes them elsewhere, as an exported C file does.

#include <functional>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/argument_binder.h"
#include "runtime/request.h"

namespace tessera::kernels::jit {

struct DryLaunch {
  runtime::KernelRequest request;
  ir::Kernel kernel;
  Binding binding;  // a scalar per multiprocessor counts 132 of them
  std::vector<TensorView> tensors;
};

/// Returns the launches of `call` on CUDA tensors of a device that need not exist, in order. Reads no data: any
/// distinct, aligned addresses will do.
std::vector<DryLaunch> launches_needed(const std::function<void()>& call);

}  // namespace tessera::kernels::jit
