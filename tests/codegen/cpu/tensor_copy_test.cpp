// Tensor copies on the executor: programs as text, one mistake each.

#include <numeric>
#include <string>
#include <vector>

#include "codegen/cpu/executor.h"
#include "codegen/verify/thread_ir.h"
#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"

using namespace tessera;
using namespace tessera::codegen;

namespace {

constexpr int64_t kRows = 6, kColumns = 16;

constexpr const char* kMemory = R"(
    dim pitch: i32
    param g: i32[6, 16], read only
    param y: i32[64]
    map box: g strides [pitch, 1] box [8, 8], swizzle 32
    shared s: i32[72] at byte 0
    shared b: u64[1] at byte 512, mbarriers of 1 arrivals)";
constexpr const char* kInit = R"(
    if thread == 0
      mbarrier init b[0 .. +1]
      proxy fence
    barrier)";
constexpr const char* kCopy = R"(
    tensor copy s[0 .. +4] = box[2, 8], mbarrier b[0], expected)";
constexpr const char* kArrive = R"(
    if thread == 0
      mbarrier arrive b[0])";
constexpr const char* kWait = R"(
    mbarrier wait b[0], phase 0)";
constexpr const char* kRead = R"(
    x = load s[thread], proved
    store y[cast<i64>(thread)] = x, proved
    z = load s[thread + 32], proved
    store y[cast<i64>(thread + 32)] = z, proved)";

std::string join(std::initializer_list<std::string> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::string());
}

/// The contents of y after the program of one warp, from g of rows `pitch` elements apart. The error that it raises is
/// thrown.
std::vector<int32_t> run(const std::string& body, int64_t pitch = kColumns) {
  const Program program = test::read_body(32, kMemory, body);
  std::vector<int32_t> g(static_cast<size_t>(kRows * pitch)), y(64, -1);
  std::iota(g.begin(), g.end(), 0);
  cpu::Argument arguments[4];
  arguments[0].integer = 1;
  arguments[1].integer = pitch;
  arguments[2].tensor =
      TensorView(g.data(), DType::i32, Dims{kRows, kColumns}, Dims{pitch, 1}, Device::cpu());
  arguments[3].tensor = TensorView(y.data(), DType::i32, Dims{64});
  cpu::Executable(program).run(arguments, {.traps = true, .workers = 1});
  return y;
}

ErrorFields trap_of(const std::string& body, int64_t pitch = kColumns) {
  try {
    run(body, pitch);
  } catch (const Error& error) {
    return error.fields();
  }
  FAIL("no trap");
  return {};
}

}  // namespace

TEST_CASE("a box lands in the swizzle of its map, with zeros outside", "[executor]") {
  const std::vector<int32_t> y = run(join({kInit, kCopy, kArrive, kWait, kRead}));
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 8; ++column) {
      // Rows of 32 bytes: two pieces of 16, exchanged in rows 4 to 7.
      const int piece = (column / 4) ^ (row / 4 % 2);
      const int want = row + 2 < kRows ? (row + 2) * 16 + 8 + column : 0;
      CHECK(y[static_cast<size_t>(row * 8 + piece * 4 + column % 4)] == want);
    }
  }
}

TEST_CASE("a box that is read too early traps", "[executor]") {
  CHECK(trap_of(join({kInit, kCopy, kArrive, kRead})).code == "ASYNC_PENDING");
}

TEST_CASE("a phase waits for the whole box, what is outside included", "[executor]") {
  const std::string unexpected = R"(
    tensor copy s[0 .. +4] = box[2, 8], mbarrier b[0])";
  CHECK(trap_of(join({kInit, unexpected, kArrive, kWait})).code == "SIGNAL_COUNT");
  CHECK(trap_of(join({kInit, kCopy, kArrive})).code == "SIGNAL_LEFT");
  CHECK(trap_of(join({kInit, kCopy, kWait})).code == "DEADLOCK");
}

TEST_CASE("a box that the hardware cannot copy traps", "[executor]") {
  const auto copy = [](const std::string& words) {
    return join({kInit, "\n    tensor copy ", words, ", mbarrier b[0], expected", kArrive, kWait});
  };
  const ErrorFields column = trap_of(copy("s[0 .. +4] = box[2, 6]"));
  CHECK(column.code == "TENSOR_MAP");
  CHECK(column.argument == "g");
  CHECK(column.expected == "a multiple of 16 bytes");
  CHECK(column.got == "24");
  const ErrorFields target = trap_of(copy("s[8 .. +4] = box[2, 8]"));
  CHECK(target.code == "TENSOR_MAP");
  CHECK(target.expected == "a multiple of 256 bytes");
  CHECK(trap_of(join({kInit, kCopy, kArrive, kWait}), 18).code == "TENSOR_MAP");
}

TEST_CASE("a box over what a thread has stored needs its proxy fence", "[executor]") {
  const std::string store = R"(
    store s[thread] = 1, proved)";
  CHECK(trap_of(join({kInit, store, "\n    barrier", kCopy, kArrive, kWait})).code == "PROXY");
  CHECK(run(join({kInit, store, "\n    proxy fence\n    barrier", kCopy, kArrive, kWait, kRead}))
            .size() == 64);
}

TEST_CASE("the verifier refuses boxes that the hardware cannot have", "[executor]") {
  const auto refusal = [](const std::string& map) {
    std::string memory = kMemory;
    const std::string known = "strides [pitch, 1] box [8, 8], swizzle 32";
    memory.replace(memory.find(known), known.size(), map);
    const Program program = test::read_body(32, memory, join({kInit, kCopy, kArrive, kWait}));
    try {
      verify(program, {}, {.is_shared_placed = true, .are_bulk_copies_lowered = true}, "a test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal("strides [pitch, 1] box [8, 8], swizzle 32") == "");
  CHECK(refusal("strides [pitch, 1] box [300, 8], swizzle 32").find("extents of 1 to 256") !=
        std::string::npos);
  CHECK(refusal("strides [pitch, 1] box [8, 6]").find("multiples of 16 bytes") !=
        std::string::npos);
  CHECK(refusal("strides [pitch, 1] box [8, 16], swizzle 32").find("no wider than the swizzle") !=
        std::string::npos);
  CHECK(refusal("strides [1] box [8]").find("one per dimension") != std::string::npos);
}
