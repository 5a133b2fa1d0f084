// Every op fits the shared memory of every target, from sm_80 on.

#include <cstring>
#include <set>
#include <string>

#include "codegen/lower.h"
#include "dsl/base/target_facts.h"
#include "dsl/ir/tile.h"
#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tools/lib/calls/example.h"

using namespace tessera;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

/// Lowers the kernels of a call that are not in `seen`, for the target: an error if a block needs too much.
void lower_kernels(const kernels::OpInfo& op, const kernels::BenchCase& example,
                   runtime::Target target, std::set<std::string>& seen) {
  for (const ir::Kernel& kernel : tools::kernels_of(op, example)) {
    if (!seen.insert(ir::to_string(kernel)).second) continue;
    CHECK(codegen::lower(kernel, target).shared_bytes <= facts_of(target).shared_memory);
  }
}

}  // namespace

TEST_CASE("every measured call fits the shared memory of every target",
          "[kernels][targets][slow]") {
  for (const runtime::Target target :
       {runtime::Target{8, 0, 0}, {8, 6, 0}, {9, 0, 'a'}, {12, 0, 0}}) {
    const jit::TargetScope scope(target);
    std::set<std::string> seen;
    for (const kernels::OpInfo& op : kernels::ops()) {
      for (const auto* calls : {&op.examples, &op.bench}) {
        for (const kernels::BenchCase& call : *calls) {
          CAPTURE(to_string(target), op.name, call.label);
          CHECK_NOTHROW(lower_kernels(op, call, target, seen));
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
  // 163 and 99 KiB, and sums that are rounded once.
  const HostTensor large = out_on({8, 0, 0}), small = out_on({8, 6, 0});
  const auto bytes = static_cast<size_t>(large.view().span_bytes());
  REQUIRE(small.view().span_bytes() == large.view().span_bytes());
  CHECK(std::memcmp(large.view().data, small.view().data, bytes) == 0);
}
