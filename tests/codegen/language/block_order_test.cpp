// Tile programs whose blocks are ordered by acq_rel atomics: what the checked executor accepts, and
// what it still calls a race.

#include <string>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::MemoryOrder;
using dsl::Value;

namespace {

struct LastBlock {
  MemoryOrder order = MemoryOrder::acq_rel;
  bool syncs_before = true;    // between the parts of all threads and the release
  bool by_one_thread = false;  // the part is written by the thread that releases
  int waits_for = 8;           // arrivals
};

/// Eight blocks leave a part each; the last one to arrive adds them up.
ir::Kernel last_block(const LastBlock& options) {
  Builder k("last_block");
  auto parts = k.output("parts", DType::i32, {8, 64});
  auto count = k.output("count", DType::i32, {1});
  auto y = k.output("y", DType::i32, {64});
  const dsl::BlockIndex at = k.launch({8}, {.threads = 64});
  auto last = k.shared(DType::i32, {1}, "last");
  if (options.by_one_thread) {
    k.if_(k.thread() == 0, [&] { k.serial(0, 64, [&](Value i) { parts(at.x, i) = at.x + i; }); });
  } else {
    parts(at.x, k.thread()) = at.x + k.thread();
  }
  if (options.syncs_before) k.sync();
  k.if_(k.thread() == 0, [&] { last(0) = k.atomic_fetch_add(count(0), 1, options.order); });
  k.if_(last(0) == options.waits_for - 1, [&] {
    auto sum = k.var(DType::i32, 0, "sum");
    k.serial(0, 8, [&](Value b) { sum += parts(b, k.thread()); });
    y(k.thread()) = sum;
    k.sync();
    k.if_(k.thread() == 0, [&] { count(0) = 0; });  // for the next launch
  });
  return k.finish();
}

std::string run(const ir::Kernel& kernel) {
  const HostTensor parts(DType::i32, {8, 64});
  const HostTensor count = tensor_of(DType::i32, {1}, {0});
  const HostTensor y(DType::i32, {64});
  const std::string error = error_of([&] { run_kernel(kernel, {&parts, &count, &y}); });
  if (error.empty()) {
    CHECK_THAT(y, HasValues([](int64_t i) { return 28 + 8 * i; }));
    CHECK(count.value(0) == 0);
  }
  return error;
}

}  // namespace

TEST_CASE("the last block adds up the parts that acq_rel atomics order", "[language][traps]") {
  CHECK(run(last_block({})).empty());
  CHECK(run(last_block({.syncs_before = false, .by_one_thread = true})).empty());
}

TEST_CASE("a last block without the order of its atomics is a race", "[language][traps]") {
  const std::string relaxed = run(last_block({.order = MemoryOrder::relaxed}));
  CHECK(relaxed.find("race on parts[") != std::string::npos);
  CHECK(relaxed.find("with no barrier of the grid between") != std::string::npos);
  // Only what the releasing thread wrote, or what stands before a barrier of the block, is released.
  const std::string unsynced = run(last_block({.syncs_before = false}));
  CHECK(unsynced.find("race on parts[0, 1]: written by block (0, 0, 0) and read by block (7, 0, 0) "
                      "with no barrier of the grid or order by acq_rel atomics between") !=
        std::string::npos);
  // The fourth block to arrive reads what the others have not written yet.
  const std::string early = run(last_block({.waits_for = 4}));
  CHECK(early.find("race on parts[4, 0]") != std::string::npos);
}

// A block's view of another depends on when it runs: the executor runs them in turn.
TEST_CASE("a thread that did not acquire sees nothing before a barrier", "[language][traps]") {
  const bool syncs = GENERATE(true, false);
  CAPTURE(syncs);
  Builder k("acquired_by_one");
  auto part = k.output("part", DType::i32, {2});
  auto count = k.output("count", DType::i32, {1});
  auto y = k.output("y", DType::i32, {2, 64});
  const dsl::BlockIndex at = k.launch({2}, {.threads = 64});
  k.if_(k.thread() == 0, [&] {
    part(at.x) = at.x + 1;
    const Value old = k.atomic_fetch_add(count(0), 1, MemoryOrder::acq_rel);
    k.device_assert(old >= 0, "a count below 0");
  });
  if (syncs) k.sync();
  k.if_(at.x == 1, [&] { y(1, k.thread()) = part(0); });
  const HostTensor parts(DType::i32, {2});
  const HostTensor counts = tensor_of(DType::i32, {1}, {0});
  const HostTensor result(DType::i32, {2, 64});
  const std::string error = error_of([&] {
    run_on_executor(k.finish(), {parts.view(), counts.view(), result.view()});
  });
  CHECK(error.empty() == syncs);
  if (!syncs) CHECK(error.find("race on part[0]") != std::string::npos);
}

TEST_CASE("acq_rel atomics order blocks through a third one", "[language][traps]") {
  const bool chained = GENERATE(true, false);
  CAPTURE(chained);
  Builder k("chain");
  auto part = k.output("part", DType::i32, {1});
  auto flags = k.output("flags", DType::i32, {2});
  auto y = k.output("y", DType::i32, {1});
  const dsl::BlockIndex at = k.launch({3}, {.threads = 32});
  k.if_(k.thread() == 0, [&] {
    k.if_(at.x == 0, [&] {
      part(0) = 7;
      k.atomic_add(flags(0), 1, MemoryOrder::acq_rel);
    });
    k.if_(at.x == 1, [&] {
      const Value first = k.atomic_fetch_add(flags(chained ? 0 : 1), 0, MemoryOrder::acq_rel);
      k.atomic_add(flags(1), first + 1, MemoryOrder::acq_rel);
    });
    k.if_(at.x == 2, [&] {
      const Value second = k.atomic_fetch_add(flags(1), 0, MemoryOrder::acq_rel);
      k.if_(second > 0, [&] { y(0) = part(0); });
    });
  });
  const HostTensor parts(DType::i32, {1});
  const HostTensor both = tensor_of(DType::i32, {2}, {0, 0});
  const HostTensor result(DType::i32, {1});
  const std::string error = error_of([&] {
    run_on_executor(k.finish(), {parts.view(), both.view(), result.view()});
  });
  CHECK(error.empty() == chained);
  if (!chained) CHECK(error.find("race on part[0]") != std::string::npos);
}
