// Passes for tensor stores on small programs of the thread IR: waits, barriers, proxy fences, panels.

#include <string>

#include "codegen/passes/arrange_shared.h"
#include "codegen/passes/fence_proxies.h"
#include "codegen/passes/insert_barriers.h"
#include "codegen/passes/lower_bulk_copies.h"
#include "codegen/passes/place_arena.h"
#include "codegen/verify/thread_ir.h"
#include "codegen/waits/place_waits.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using test::body_text;
using test::count;
using test::read_body;

namespace {

constexpr const char* kMemory = R"(
  param g: i32[64, 8]
  param flag: i32[1]
  map box: g strides [8, 1] box [8, 8]
  shared s: i32[64] at byte 0
  shared t: i32[64] at byte 256
)";
const std::string kFill = "store s[thread] = 1, proved\n";
const std::string kFillOther = "store t[thread] = 1, proved\n";
const std::string kReads = "wait until 0 groups pending of reads of stores\n";
const std::string kFull = "wait until 0 groups pending of stores\n";
const std::string kSignal = "atomic exchange flag[cast<i64>(0)] with 1, acq_rel, proved\n";

std::string store(const std::string& tile = "s", const std::string& token = "") {
  return "tensor store g box[0, 0] = " + tile + "[0 .. +4]\ncommit stores" + token + "\n";
}
std::string indented(const std::string& text) {
  std::string result = "  " + text;
  for (size_t at = result.find('\n'); at + 1 < result.size(); at = result.find('\n', at + 1)) {
    result.insert(at + 1, "  ");
  }
  return result;
}
std::string in_loop(const std::string& body) {
  return "for i = 0; < n; += 1\n" + indented(body);
}

std::string awaited(const std::string& body, const char* memory = kMemory) {
  codegen::Program program = read_body(64, memory, body);
  codegen::number_groups(program);
  codegen::place_store_waits(program);
  verify(program, {}, {.is_shared_placed = true}, "place_store_waits");
  return body_text(program);
}
/// The same without a pass.
std::string unchanged(const std::string& body) {
  return body_text(read_body(64, kMemory, body));
}

}  // namespace

TEST_CASE("a store is awaited at the end, and before its source is written", "[passes]") {
  CHECK(awaited(store()) == unchanged(store() + kReads));
  CHECK(awaited(store() + kFillOther) == unchanged(store() + kFillOther + kReads));
  CHECK(awaited(store() + kFill) == unchanged(store() + kReads + kFill));
  CHECK(awaited(kFill + store() + kReads) == unchanged(kFill + store() + kReads));
  const std::string fills = "unrolled i = 0; < 2; += 1\n" + indented(kFill);
  CHECK(awaited(store() + fills) == unchanged(store() + kReads + fills));
}

TEST_CASE("a write of memory that a source shares waits for the store", "[passes]") {
  std::string memory = kMemory;
  memory.replace(memory.find("at byte 256"), 11, "at byte 128");
  const std::string text = awaited(store() + kFillOther, memory.c_str());
  CHECK(text.find("reads of stores") < text.find("store t"));
}

TEST_CASE("a round waits for the stores of the one before", "[passes]") {
  CHECK(awaited(in_loop(kFill + store())) == unchanged(in_loop(kReads + kFill + store()) + kReads));
  const std::string last = "wait until 1 groups pending of reads of stores\n";
  CHECK(awaited(in_loop(kFill + store() + kFillOther + store("t"))) ==
        unchanged(in_loop(last + kFill + store() + last + kFillOther + store("t")) + kReads));
}

TEST_CASE("a branch that may have stored is waited for", "[passes]") {
  const std::string branch = "if n < 3\n" + indented(store());
  CHECK(awaited(branch + kFill) == unchanged(branch + kReads + kFill));
  CHECK(awaited(store() + "return if n < 3\n") ==
        unchanged(store() + kReads + "return if n < 3\n"));
}

TEST_CASE("waits of tokens count the groups since their store", "[passes]") {
  const std::string two = store("s", " of token 0") + store("t", " of token 1");
  CHECK(awaited(two + "wait until token 0 of reads of stores\n" + kFill) ==
        unchanged(store() + store("t") + "wait until 1 groups pending of reads of stores\n" +
                  kFill + kReads));
  CHECK(awaited(two + "wait until token 1 of stores\n") == unchanged(store() + store("t") + kFull));
  // A store by threads leaves no token.
  CHECK(awaited("wait until token 0 of stores\n" + kFill) == unchanged(kFill));
}

TEST_CASE("elements are in memory before the kernel reads or signals them", "[passes]") {
  const std::string load = "x = load g[cast<i64>(thread)], proved\n";
  CHECK(awaited(store() + load) == unchanged(store() + kFull + load));
  // At the barrier: afterwards other threads read.
  CHECK(awaited(store() + "barrier\n" + load) == unchanged(store() + kFull + "barrier\n" + load));
  CHECK(awaited(store() + "barrier\n") == unchanged(store() + "barrier\n" + kReads));
  const std::string signal = "if thread == 0\n" + indented(kSignal);
  CHECK(awaited(store() + "barrier\n" + signal) ==
        unchanged(store() + kFull + "barrier\n" + signal));
}

TEST_CASE("stores begin after a proxy fence and a barrier, and end before one", "[passes]") {
  codegen::Program program = read_body(64, kMemory, in_loop(kFill + store()));
  codegen::place_store_waits(program);
  codegen::insert_barriers(program, {});
  codegen::fence_proxies(program);
  CHECK(body_text(program) ==
        unchanged(in_loop(kReads + "barrier\n" + kFill + "proxy fence\nbarrier\n" + store()) +
                  kReads));
  // One warp: its own barrier orders it, after a fence too.
  codegen::Program warp = read_body(32, kMemory, kFill + store());
  codegen::place_store_waits(warp);
  codegen::insert_barriers(warp, {});
  codegen::fence_proxies(warp);
  CHECK(body_text(warp) == unchanged(kFill + "proxy fence\nwarp barrier\n" + store() + kReads));
}

TEST_CASE("a store over what threads have written to the tensor follows a fence for it",
          "[passes]") {
  const std::string zero = "store g[cast<i64>(thread)] = 0, proved\n";
  codegen::Program program = read_body(64, kMemory, zero + "barrier\n" + store() + kReads);
  codegen::fence_proxies(program);
  CHECK(body_text(program) ==
        unchanged(zero + "proxy fence of global\nbarrier\n" + store() + kReads));
}

TEST_CASE("a store takes the panels of its tile one by one, in one group", "[passes]") {
  constexpr const char* kOpen = R"(
    param g: bf16[64, 128]
    map box: g strides [128, 1] box [64, 128]
    shared a: bf16[64, 128]
    undeclared registers c: f32[32]
  )";
  // The product asks for panels of 128 bytes.
  const std::string body = R"(
c[0 .. +32] += wgmma matrix of 64 rows a[open .. +8] at [0, 64], proved * matrix of 64 rows a[open .. +8] at [0, 0], proved
if thread < 32
  tensor store g box[block_x, 0] = a[open .. +8] at [0, 0]
commit stores
)";
  codegen::Program program = read_body(128, kOpen, body);
  codegen::arrange_shared(program);
  codegen::place_arena(program);
  codegen::place_store_waits(program);
  codegen::lower_bulk_copies(program);
  const std::string text = body_text(program);
  CHECK(count(text, "tensor store") == 2);
  CHECK(count(text, "[block_x, 64] = a[4096 .. +8]") == 1);
  CHECK(count(text, "commit stores") == 1);
  REQUIRE(program.maps.size() == 1);
  CHECK(program.maps[0]->box == std::vector<int64_t>{64, 64});
  CHECK(program.maps[0]->swizzle == 128);
}
