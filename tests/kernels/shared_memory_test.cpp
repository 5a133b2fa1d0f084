// Every op fits the shared memory of every target, from sm_80 on.

#include <algorithm>
#include <cstring>

#include "codegen/lower.h"
#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

/// Tensors of such a call that need no memory.
kernels::Tensors inputs_of(const kernels::BenchCase& example) {
  kernels::Tensors tensors;
  for (const auto& input : example.inputs) {
    const Dims strides = input.strides.rank > 0 ? input.strides : row_major_strides(input.shape);
    tensors.emplace(input.name, TensorView(reinterpret_cast<void*>(uintptr_t{1} << 40), input.dtype,
                                           input.shape, strides, Device::cpu()));
  }
  return tensors;
}

void add_outputs(const kernels::OpInfo& op, kernels::Tensors& tensors,
                 const kernels::Params& params) {
  for (const kernels::OutputInfo& out : op.outputs(tensors, params)) {
    tensors.emplace(out.name, TensorView(reinterpret_cast<void*>(uintptr_t{1} << 40), out.dtype,
                                         out.shape, out.strides, Device::cpu()));
  }
}

int64_t most_shared_bytes(const kernels::OpInfo& op, const kernels::BenchCase& example) {
  const kernels::Params params = check_params(op, example.params);
  kernels::Tensors tensors = inputs_of(example);
  add_outputs(op, tensors, params);
  int64_t most = 0;
  for (const ir::Kernel& kernel : op.kernels(tensors, params)) {
    most = std::max(most, codegen::lower(kernel).shared_bytes);
  }
  return most;
}

}  // namespace

TEST_CASE("every measured call fits the shared memory of every target",
          "[kernels][targets][slow]") {
  for (const runtime::Target target :
       {runtime::Target{8, 0, 0}, {8, 6, 0}, {9, 0, 'a'}, {12, 0, 0}}) {
    const jit::TargetScope scope(target);
    for (const char* name :
         {"norm_fn_fwd", "pre_big_fuse", "get_fused_mapping", "engram_gate_bwd"}) {
      const kernels::OpInfo& op = kernels::find_op(name);
      for (const auto* calls : {&op.examples, &op.bench}) {
        for (const kernels::BenchCase& call : *calls) {
          CAPTURE(target.major, target.minor, name, call.label);
          CHECK(most_shared_bytes(op, call) <= jit::shared_memory_limit(Device::cpu()));
        }
      }
    }
  }
}

TEST_CASE("a projection with little shared memory gives the same bytes", "[kernels][targets]") {
  const HostTensors inputs = {
      {"residual", random_tensor(DType::bf16, {131, 4, 1792}, Values::normal, 1)},
      {"fn", random_tensor(DType::f32, {24, 4 * 1792}, Values::normal, 2)}};
  const auto out_on = [&](runtime::Target target) {
    const jit::TargetScope scope(target);
    return op_runner("norm_fn_fwd", Device::cpu())(inputs, {}).at("out");
  };
  const HostTensor large = out_on({9, 0, 0}), small = out_on({8, 6, 0});
  const auto bytes = static_cast<size_t>(large.view().span_bytes());
  REQUIRE(small.view().span_bytes() == large.view().span_bytes());
  CHECK(std::memcmp(large.view().data, small.view().data, bytes) == 0);
}
