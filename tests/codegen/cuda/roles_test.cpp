// How groups of threads that part are printed, and that NVRTC takes the text.

#include "codegen/cuda/emit.h"
#include "tests/support/catch.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program_text.h"

namespace tessera {
namespace {

const char* const kMemory = "param out: i32[128]\nshared s: i32[64] at byte 0";
const char* const kBody = R"(
  store s[thread % 64] = 0, proved, if thread < 64
  barrier
  roles
    load: threads 0 .. +32 as t
      store s[t] = t, proved
      arrive at named barrier 1 of 96 threads
    add_up: threads 64 .. +64 as t
      named barrier 1 of 96 threads
      x = load s[t], proved
      y = x + thread
      store out[cast<i64>(t)] = y, proved)";

}  // namespace

TEST_CASE("roles are one chain on an index that is the same in a warp", "[codegen][cuda][roles]") {
  const codegen::Program program = test::read_body(128, kMemory, kBody);
  const std::string text = codegen::cuda::emit_kernel_text(program);
  INFO(text);
  const std::string expected = R"(
  const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0);
  if (warp < 1) {
    // load
    const int t = threadIdx.x;
    s[t] = t;
    arrive_at_barrier<1, 96>();
  } else if (warp >= 2 && warp < 4) {
    // add_up
    const int t = threadIdx.x - 64;
    named_barrier<1, 96>();
)";
  CHECK(text.find(expected) != std::string::npos);
}

TEST_CASE("NVRTC takes the text of roles for every target", "[codegen][cuda][nvrtc][roles]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  codegen::Program program = test::read_body(128, kMemory, kBody);
  for (const std::string& target : test::kTargets) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(target);
    program.target = parse_target(target).value();
    const test::Compiled compiled = nvrtc->compile(codegen::cuda::emit(program).text, target);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}

}  // namespace tessera
