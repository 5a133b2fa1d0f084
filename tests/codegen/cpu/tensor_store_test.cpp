// Tensor stores on the executor: programs as text, one mistake each.

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
    param g: i32[6, 16]
    param y: i32[64]
    map box: g strides [pitch, 1] box [8, 8], swizzle 32
    shared s: i32[72] at byte 0)";
constexpr const char* kFill = R"(
    store s[thread] = thread + 100, proved
    store s[thread + 32] = thread + 132, proved)";
constexpr const char* kFence = R"(
    proxy fence)";
constexpr const char* kBarrier = R"(
    barrier)";
constexpr const char* kStore = R"(
    tensor store g box[2, 8] = s[0 .. +4]
    commit stores)";
constexpr const char* kAdd = R"(
    tensor add g box[2, 8] = s[0 .. +4]
    commit stores)";
constexpr const char* kReads = R"(
    wait until 0 groups pending of reads of stores)";
constexpr const char* kWait = R"(
    wait until 0 groups pending of stores)";
constexpr const char* kOverwrite = R"(
    store s[thread] = 7, proved)";
constexpr const char* kLoad = R"(
    x = load g[cast<i64>(thread + 40)], proved
    store y[cast<i64>(thread)] = x, proved)";

std::string join(std::initializer_list<std::string> parts) {
  return std::accumulate(parts.begin(), parts.end(), std::string());
}

struct Result {
  std::vector<int32_t> g, y;
  cpu::Counts counts;
};

/// The contents, after the program of one warp, of g, whose rows are `pitch` elements apart and that counts from 0, and of y.
/// The error that it raises is thrown.
Result run(const std::string& body, int64_t pitch = kColumns, const char* memory = kMemory) {
  const Program program = test::read_body(32, memory, body);
  Result result;
  result.g.resize(static_cast<size_t>(kRows * pitch));
  result.y.resize(64, -1);
  std::iota(result.g.begin(), result.g.end(), 0);
  cpu::Argument arguments[4];
  arguments[0].integer = 1;
  arguments[1].integer = pitch;
  arguments[2].tensor =
      TensorView(result.g.data(), DType::i32, Dims{kRows, kColumns}, Dims{pitch, 1}, Device::cpu());
  arguments[3].tensor = TensorView(result.y.data(), DType::i32, Dims{64});
  cpu::Executable(program).run(arguments, {.traps = true, .workers = 1, .counts = &result.counts});
  return result;
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

/// The line of the text at which a statement stands that has these words.
int line_of(const std::string& body, const std::string& words) {
  const std::string text = to_string(test::read_body(32, kMemory, body));
  const size_t at = text.find(words);
  REQUIRE(at != std::string::npos);
  return 1 + static_cast<int>(
                 std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

/// The value in the swizzled tile for an element of the box.
int32_t stored(int64_t row, int64_t column) {
  const int64_t piece = (column / 4) ^ (row / 4 % 2);  // rows of 32 bytes: two pieces of 16
  return static_cast<int32_t>(100 + row * 8 + piece * 4 + column % 4);
}

void check_box(const std::vector<int32_t>& g, int32_t times_before) {
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const int64_t row = i / kColumns - 2, column = i % kColumns - 8;
    const bool is_inside = row >= 0 && column >= 0;
    const auto before = static_cast<int32_t>(i);
    const int32_t want = is_inside ? stored(row, column) + times_before * before : before;
    CHECK(g[static_cast<size_t>(i)] == want);
  }
}

}  // namespace

TEST_CASE("a box is stored from the swizzle of its map, without what is outside", "[executor]") {
  const Result full = run(join({kFill, kFence, kBarrier, kStore, kWait}));
  check_box(full.g, 0);
  CHECK(full.counts.global_store_requests == 1);
  CHECK(full.counts.global_store_bytes == 4 * 8 * 4);
  CHECK(full.counts.global_store_sectors == 4);
  // Waited for until it is read, it lands before the kernel ends.
  check_box(run(join({kFill, kFence, kBarrier, kStore, kReads})).g, 0);
}

TEST_CASE("a box is added, without what is outside", "[executor]") {
  check_box(run(join({kFill, kFence, kBarrier, kAdd, kReads})).g, 1);
  // Two additions of one element, in flight together.
  const Result twice = run(join({kFill, kFence, kBarrier, kAdd, kAdd, kWait}));
  CHECK(twice.g[2 * kColumns + 8] == 2 * kColumns + 8 + 2 * 100);
}

TEST_CASE("a source that is written before its store has read it traps", "[executor]") {
  const std::string early = join({kFill, kFence, kBarrier, kStore, kBarrier, kOverwrite, kReads});
  const ErrorFields trap = trap_of(early);
  CHECK(trap.code == "STORE_BUSY");
  CHECK(trap.what.find("s[0] is written while a tensor store that reads it is in flight") == 0);
  CHECK(trap.argument == "s");
  CHECK(trap.expected == "a wait for the reads of the store before this access");
  CHECK(trap.loc.line - trap.related.line ==
        line_of(early, "store s[thread] = 7") - line_of(early, "tensor store"));
  CHECK(trap.related.line > 0);
  // In time, the box has what the tile had before.
  const Result late = run(join({kFill, kFence, kBarrier, kStore, kReads, kBarrier, kOverwrite}));
  check_box(late.g, 0);
}

TEST_CASE("a wait for all groups but the last leaves its source busy", "[executor]") {
  constexpr const char* kTwo = R"(
    dim pitch: i32
    param g: i32[6, 16]
    param y: i32[64]
    map box: g strides [pitch, 1] box [4, 4]
    shared s: i32[16] at byte 0
    shared t: i32[16] at byte 128)";
  const std::string begin = R"(
    if thread < 16
      store s[thread] = 1, proved
      store t[thread] = 2, proved
    proxy fence
    barrier
    tensor store g box[0, 0] = s[0 .. +4]
    commit stores
    tensor store g box[0, 8] = t[0 .. +4]
    commit stores
    wait until 1 groups pending of reads of stores
    barrier)";
  const auto overwrite = [](const char* name) {
    return std::string("\n    if thread < 16\n      store ") + name + "[thread] = 3, proved";
  };
  const Result result = run(join({begin, overwrite("s"), kReads}), kColumns, kTwo);
  CHECK(result.g[0] == 1);
  CHECK(result.g[8] == 2);
  try {
    run(join({begin, overwrite("t"), kReads}), kColumns, kTwo);
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(error.fields().code == "STORE_BUSY");
  }
}

TEST_CASE("a wait does not order other threads", "[executor]") {
  const std::string store = join({kFill, kFence, kBarrier, kStore, kReads});
  CHECK(trap_of(join({store, kOverwrite})).code == "RACE");
  // The elements are those of the thread that waits, as if it had stored them.
  const std::string full = join({kFill, kFence, kBarrier, kStore, kWait});
  CHECK(trap_of(join({full, kLoad})).code == "RACE");
  const Result ordered = run(join({full, kBarrier, kLoad}));
  CHECK(ordered.y[0] == stored(0, 0));
}

TEST_CASE("a tensor that is read before a wait for its elements traps", "[executor]") {
  const std::string early = join({kFill, kFence, kBarrier, kStore, kReads, kBarrier, kLoad});
  const ErrorFields trap = trap_of(early);
  CHECK(trap.code == "STORE_BUSY");
  CHECK(trap.what.find("g[40] is read while a tensor store to it is in flight") == 0);
  CHECK(trap.expected == "a wait for the store before this access");
  CHECK(trap.loc.line - trap.related.line ==
        line_of(early, "x = load g") - line_of(early, "tensor store"));
  CHECK(trap.related.line > 0);
  const ErrorFields twice = trap_of(join({kFill, kFence, kBarrier, kStore, kStore, kWait}));
  CHECK(twice.code == "STORE_BUSY");
  CHECK(twice.what.find("g[2, 8] is stored while another tensor store to it is in flight") == 0);
  CHECK(trap_of(join({kFill, kFence, kBarrier, kAdd, kStore, kWait})).code == "STORE_BUSY");
}

TEST_CASE("a store of what a thread has not fenced traps", "[executor]") {
  const std::string open = join({kFill, kBarrier, kStore, kReads});
  const ErrorFields trap = trap_of(open);
  CHECK(trap.code == "PROXY");
  CHECK(trap.what.find("a tensor store reads s[0], which thread 0 has stored") == 0);
  CHECK(trap.loc.line - trap.related.line ==
        line_of(open, "tensor store") - line_of(open, "store s[thread] ="));
  CHECK(trap.related.line > 0);
  CHECK(trap_of(join({kFill, kFence, kStore, kReads})).code == "RACE");
  CHECK(trap_of(join({kFence, kBarrier, kStore, kReads})).code == "UNINITIALISED");
}

TEST_CASE("a block that ends while a store reads its memory traps", "[executor]") {
  const ErrorFields trap = trap_of(join({kFill, kFence, kBarrier, kStore}));
  CHECK(trap.code == "STORE_LEFT");
  CHECK(trap.what.find("the block ends while a tensor store reads 's'") == 0);
  CHECK(trap.expected == "a wait for the reads of the store");
}

TEST_CASE("a box that the hardware cannot store traps", "[executor]") {
  const auto store = [](const std::string& words) {
    return join({kFill, kFence, kBarrier, "\n    tensor store g box", words, "\n    commit stores",
                 kReads});
  };
  const ErrorFields column = trap_of(store("[2, 6] = s[0 .. +4]"));
  CHECK(column.code == "TENSOR_MAP");
  CHECK(column.what.find("a tensor store of 's' to 'g': the first column") == 0);
  CHECK(column.expected == "a multiple of 16 bytes");
  const ErrorFields before = trap_of(store("[-2, 8] = s[0 .. +4]"));
  CHECK(before.what.find("a place before the tensor") != std::string::npos);
  CHECK(before.expected == "0 or more");
  CHECK(before.got == "-2");
  CHECK(trap_of(store("[2, 8] = s[8 .. +4]")).expected == "a multiple of 256 bytes");
  CHECK(trap_of(store("[2, 8] = s[0 .. +4]"), 18).code == "TENSOR_MAP");
}

TEST_CASE("the verifier refuses tensor stores that the hardware cannot have", "[executor]") {
  const auto refusal = [](std::string memory, const std::string& statement) {
    const Program program = test::read_body(32, memory, statement + kReads);
    try {
      verify(program, {}, {.is_shared_placed = true}, "a test");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(kMemory, kStore) == "");
  CHECK(refusal(kMemory, kAdd) == "");
  CHECK(refusal(kMemory, "\n    tensor store g box[2, 8] = s[0 .. +4]")
            .find("closed before a wait") != std::string::npos);
  CHECK(refusal(kMemory, "\n    tensor store y box[2, 8] = s[0 .. +4]\n    commit stores")
            .find("to the tensor of its map") != std::string::npos);
  const auto with = [](const std::string& before, const std::string& after) {
    std::string memory = kMemory;
    for (size_t at = memory.find(before); at != std::string::npos;
         at = memory.find(before, at + 1)) {
      memory.replace(at, before.size(), after);
    }
    return memory;
  };
  CHECK(refusal(with("i32[6, 16]", "i32[6, 16], read only"), kStore).find("read only") !=
        std::string::npos);
  CHECK(
      refusal(with("box [8, 8], swizzle 32", "box [300, 8]"), kStore).find("extents of 1 to 256") !=
      std::string::npos);
  CHECK(refusal(with("s: i32[72]", "s: f32[72]"), kStore).find("neither converts") !=
        std::string::npos);
  CHECK(refusal(with("at byte 0", "at byte 128"), kStore).find("begins where its pattern does") !=
        std::string::npos);
}
