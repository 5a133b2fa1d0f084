// Limits in the table of compile costs.

#include "tools/lib/bench/compile_cost.h"

#include <algorithm>
#include <set>

#include "tests/support/catch.h"

namespace tessera::tests {

TEST_CASE("a table of compile costs marks what is over its limit", "[bench]") {
  const tools::CompileLimit cast = tools::compile_limit(kernels::find_op("per_token_cast"));
  const tools::CompileLimit other = tools::compile_limit(kernels::find_op("pre_big_fuse"));
  CHECK(cast.lower_ms == 15);
  CHECK(cast.nvrtc_ms == 100);
  CHECK(tools::compile_limit(kernels::find_op("batched_transpose")).nvrtc_ms == 100);
  CHECK(other.lower_ms == 60);
  CHECK(other.nvrtc_ms == 400);
  CHECK(tools::compile_limit(kernels::find_op("swiglu_forward_and_per_token_cast")).nvrtc_ms ==
        400);
  std::vector<tools::CompileCost> costs(4);
  costs[0] = {"a", "T=1", "a", 3, 50, 32, 0, cast};
  costs[1] = {"b", "T=1", "b", 3, 130, 32, 0, cast};
  costs[2] = {"b", "T=2", "b", 30.25, 250, 32, 8, cast};
  costs[3] = {"c", "T=2", "c", 30.25, 250, 255, 0, other};
  CHECK(costs[0].share_of_limit() == 0.5);
  CHECK(costs[2].share_of_limit() == 2.5);
  costs[1].slowness = 1.25;  // a slow machine may take longer
  CHECK(costs[1].share_of_limit() == 130 / 100.0 / 1.25);
  costs[2].slowness = 0.5;  // a fast one gets no less
  CHECK(costs[2].share_of_limit() == 2.5);
  CHECK(tools::compile_table(costs) ==
        "op  case  kernel  lower ms  NVRTC ms  total ms  registers  spilled  machine\n"
        "--  ----  ------  --------  --------  --------  ---------  -------  -------  "
        "--------------------------------------\n"
        "a   T=1   a            3.0      50.0      53.0         32        0     1.00\n"
        "b   T=1   b            3.0     130.0     133.0         32        0     1.25  "
        "NVRTC over 100 ms\n"
        "b   T=2   b           30.2     250.0     280.2         32        8     0.50  "
        "lowering over 15 ms, NVRTC over 100 ms\n"
        "c   T=2   c           30.2     250.0     280.2        255        0     1.00\n");
}

TEST_CASE("at most four examples stand for an op, the first among them", "[bench]") {
  for (const kernels::OpInfo& op : kernels::ops()) {
    CAPTURE(op.name);
    const auto chosen = tools::representatives(op);
    CHECK(chosen.size() == std::min<size_t>(4, op.examples.size()));
    CHECK(chosen.front() == &op.examples.front());
    CHECK(std::set(chosen.begin(), chosen.end()).size() == chosen.size());
  }
}

}  // namespace tessera::tests
