// Warm-up by name with the real compiler and driver.

#include <string>

#include "kernels/op.h"
#include "kernels/warm_up.h"
#include "runtime/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tools/lib/calls/op_call.h"

namespace tessera {
namespace {

TEST_CASE("after warm_up no number of tokens loads a kernel on the GPU", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  const std::string name = "reduce_fused";
  const std::string rest = " K=6 E=9 H=2304 x=bf16 topk_weights=given";
  kernels::warm_up(name, "T=13" + rest, Device::cuda(0));
  const runtime::CounterValues warm = runtime::Runtime::instance().counters();
  CHECK(warm.loads > 0);
  const kernels::OpInfo& op = kernels::find_op(name);
  for (const int64_t tokens : {0, 1, 13, 129, 1025, 4097, 20'000}) {
    CAPTURE(tokens);
    tools::OpCall call(op, op.case_of("T=" + std::to_string(tokens) + rest), Device::cuda(0), 1);
    call.run();
    call.results();  // waits
    CHECK(runtime::Runtime::instance().counters().loads == warm.loads);
    CHECK(runtime::Runtime::instance().counters().compiles == warm.compiles);
  }
}

}  // namespace
}  // namespace tessera
