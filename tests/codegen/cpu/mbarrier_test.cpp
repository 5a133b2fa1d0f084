// mbarriers on the executor: programs as text, one mistake each.

#include <numeric>
#include <string>
#include <vector>

#include "codegen/cpu/executor.h"
#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using namespace tessera::codegen;

namespace {

constexpr const char* kMemory = R"(
    param g: i32[64], read only
    param y: i32[64]
    shared s: i32[64] at byte 0
    shared b: u64[2] at byte 256, mbarriers of 2 arrivals)";
constexpr const char* kInit = R"(
    if thread == 0
      mbarrier init b[0 .. +2]
      proxy fence
    barrier
    w = thread / 32)";
constexpr const char* kCopy = R"(
    bulk copy s[w * 32 .. +32] = g[cast<i64>(w * 32) .. +32], proved, mbarrier b[0], expected)";
constexpr const char* kUnexpected = R"(
    bulk copy s[w * 32 .. +32] = g[cast<i64>(w * 32) .. +32], proved, mbarrier b[0])";
constexpr const char* kArrive = R"(
    if thread % 32 == 0
      mbarrier arrive b[0])";
constexpr const char* kArriveAgain = R"(
    if thread % 16 == 4
      mbarrier arrive b[thread / 64])";
constexpr const char* kWait = R"(
    mbarrier wait b[0], phase 0)";
constexpr const char* kRead = R"(
    barrier
    x = load s[63 - thread], proved
    store y[cast<i64>(thread)] = x, proved)";

std::string join(std::initializer_list<std::string> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::string());
}

/// The contents of y after the program. The error that it raises is thrown.
std::vector<int32_t> run(const std::string& body) {
  const Program program = test::read_body(64, kMemory, body);
  std::vector<int32_t> g(64), y(64, -1);
  std::iota(g.begin(), g.end(), 0);
  cpu::Argument arguments[3];
  arguments[0].integer = 1;
  arguments[1].tensor = TensorView(g.data(), DType::i32, Dims{64});
  arguments[2].tensor = TensorView(y.data(), DType::i32, Dims{64});
  cpu::Executable(program).run(arguments, {.traps = true, .workers = 1});
  return y;
}

ErrorFields trap_of(const std::string& body) {
  try {
    run(body);
  } catch (const Error& error) {
    return error.fields();
  }
  FAIL("no trap");
  return {};
}

/// The number of the line with these words, the last one.
int line_of(const std::string& body, const std::string& words) {
  const size_t at = body.rfind(words);
  REQUIRE(at != std::string::npos);
  const auto before = body.substr(0, at);
  // Four lines of head and four of memory; the text begins with an empty line.
  return 8 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
}

void check(const std::string& body, const char* code, const std::string& what,
           const std::string& here, const std::string& related) {
  CAPTURE(body);
  const ErrorFields fields = trap_of(body);
  CAPTURE(fields.what);
  CHECK(fields.code == code);
  CHECK(fields.what.find(what) != std::string::npos);
  CHECK(fields.loc.line == line_of(body, here));
  CHECK(fields.related.line == (related.empty() ? 0 : line_of(body, related)));
}

}  // namespace

TEST_CASE("a bulk copy is there when the phase of its mbarrier has ended", "[cpu][mbarrier]") {
  const std::vector<int32_t> y = run(join({kInit, kCopy, kArrive, kWait, kRead}));
  for (int i = 0; i < 64; ++i) CHECK(y[static_cast<size_t>(i)] == 63 - i);
}

TEST_CASE("phases of an mbarrier follow each other", "[cpu][mbarrier]") {
  const std::string round = R"(
    for i = 0; < 5; += 1
      bulk copy s[w * 32 .. +32] = g[cast<i64>(w * 32) .. +32], proved, mbarrier b[i % 2], expected
      if thread % 32 == 0
        mbarrier arrive b[i % 2]
      mbarrier wait b[i % 2], phase i / 2
      barrier)";
  CHECK(run(join({kInit, round, kRead}))[0] == 63);
  // A fresh mbarrier takes the phase before its first one for ended.
  CHECK(run(join({kInit, "\n    mbarrier wait b[1], phase -1", round, kRead}))[0] == 63);
}

TEST_CASE("DEADLOCK: an arrival is missing", "[cpu][mbarrier]") {
  const char* const one = R"(
    if thread == 32
      mbarrier arrive b[0])";
  check(join({kInit, kCopy, one, kWait, kRead}), "DEADLOCK",
        "64 of 64 threads wait for phase 0 of b[0], which never ends: 1 of 2 arrivals and 0 bytes "
        "are pending; thread 32 arrived last",
        "mbarrier wait", "mbarrier arrive");
  check(join({kInit, kWait}), "DEADLOCK",
        "2 of 2 arrivals and 0 bytes are pending; thread 0 initialised it last", "mbarrier wait",
        "mbarrier init");
}

TEST_CASE("SIGNAL_COUNT: a warp arrives twice", "[cpu][mbarrier]") {
  check(join({kInit, kCopy, kArrive, kArriveAgain, kWait}), "SIGNAL_COUNT",
        "b[0] gets more arrivals than its phase 0 has pending", "mbarrier arrive b[thread",
        "mbarrier arrive b[0]");
}

TEST_CASE("SIGNAL_PHASE: an arrival at the phase after one that nobody awaited",
          "[cpu][mbarrier]") {
  check(join({kInit, kArrive, kArriveAgain, kWait}), "SIGNAL_PHASE",
        "an arrival at phase 1 of b[0], whose phase 0 no thread has awaited",
        "mbarrier arrive b[thread", "mbarrier arrive b[0]");
}

TEST_CASE("SIGNAL_COUNT: bytes are copied that no thread expects", "[cpu][mbarrier]") {
  check(join({kInit, kUnexpected, kArrive, kWait, kRead}), "SIGNAL_COUNT",
        "phase 0 of b[0] ends with 256 bytes in flight that no thread expects", "mbarrier arrive",
        "bulk copy");
}

TEST_CASE("SIGNAL_PHASE: a wait for a phase that its parity does not name", "[cpu][mbarrier]") {
  const char* const second = R"(
    mbarrier wait b[0], phase 1)";
  check(join({kInit, kArrive, kWait, kArrive, second, kWait}), "SIGNAL_PHASE",
        "a wait for phase 0 of b[0], which is in phase 2", "mbarrier wait b[0], phase 0",
        "mbarrier arrive");
  check(join({kInit, second}), "SIGNAL_PHASE", "a wait for phase 1 of b[0], which is in phase 0",
        "mbarrier wait", "");
}

TEST_CASE("SIGNAL_INIT: an mbarrier without an initialisation that comes first",
          "[cpu][mbarrier]") {
  check(kArrive, "SIGNAL_INIT", "b[0] is used before it is initialised", "mbarrier arrive", "");
  const char* const unordered = R"(
    if thread == 0
      mbarrier init b[0 .. +2])";
  check(join({unordered, kArrive}), "SIGNAL_INIT",
        "b[0] is used while another thread initialises it", "mbarrier arrive", "mbarrier init");
  check(join({kInit, "\n    barrier", unordered}), "SIGNAL_INIT", "b[0] is initialised twice",
        "mbarrier init", "\n      proxy fence");
  const char* const all = R"(
    mbarrier init b[1])";
  check(all, "SIGNAL_INIT", "b[1] is initialised twice", "mbarrier init", "mbarrier init");
}

TEST_CASE("SIGNAL_LEFT: a block ends with a bulk copy in flight", "[cpu][mbarrier]") {
  check(join({kInit, kCopy, kArrive}), "SIGNAL_LEFT",
        "the block ends while a bulk copy is in flight", "bulk copy", "mbarrier arrive");
}

TEST_CASE("a bulk copy is not read, nor stored to, before its wait", "[cpu][mbarrier]") {
  check(join({kInit, kCopy, kArrive, kRead, kWait}), "ASYNC_PENDING",
        "s[63] is read while an asynchronous copy into it is under way", "load s", "bulk copy");
  check(join({kInit, kCopy, "\n    store s[thread] = 1, proved", kArrive, kWait}), "ASYNC_PENDING",
        "s[0] is written while an asynchronous copy into it is under way", "store s", "bulk copy");
}

TEST_CASE("who waits for a phase may read what was copied in it, others need a barrier",
          "[cpu][mbarrier]") {
  const char* const read = R"(
    x = load s[63 - thread], proved
    store y[cast<i64>(thread)] = x, proved)";
  CHECK(run(join({kInit, kCopy, kArrive, kWait, read}))[0] == 63);
  const char* const half = R"(
    if thread < 32
      mbarrier wait b[0], phase 0)";
  check(join({kInit, kCopy, kArrive, half, read}), "RACE",
        "race on s[31]: read here and written by a bulk copy with no wait between", "load s",
        "bulk copy");
  CHECK(run(join({kInit, kCopy, kArrive, half, kRead}))[0] == 63);
}

TEST_CASE("where GPUs without bulk copies run it, a warp that did not copy needs a barrier",
          "[cpu][mbarrier]") {
  const char* const read = R"(
    x = load s[63 - thread], proved)";
  check(join({kInit, kCopy, "\n    commit", kArrive, kWait, read}), "RACE",
        "race on s[63]: read here and written by thread", "load s", "bulk copy");
}

TEST_CASE("PROXY: a bulk copy over what was stored without a proxy fence", "[cpu][mbarrier]") {
  const std::string store = R"(
    store s[63 - thread] = 1, proved)";
  const std::string barrier = R"(
    barrier)";
  const std::string fence = R"(
    proxy fence)";
  CHECK(run(join({kInit, store, fence, barrier, kCopy, kArrive, kWait, kRead}))[0] == 63);
  check(join({kInit, store, barrier, kCopy, kArrive, kWait, kRead}), "PROXY",
        "a bulk copy overwrites s[0], which thread 63 has stored", "bulk copy", "store s");
  check(join({kInit, fence, store, barrier, kCopy, kArrive, kWait, kRead}), "PROXY",
        "a bulk copy overwrites s[0], which thread 63 has stored", "bulk copy", "store s");
}
