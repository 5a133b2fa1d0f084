// Timelines of calls on the CPU: what a scope gets, and that calls without one are as before.

#include "kernels/jit/jit.h"
#include "kernels/jit/marked_warps.h"
#include "kernels/jit/prepare.h"
#include "tests/runtime/fake_calls.h"
#include "tests/support/catch.h"
#include "tests/support/host_tensor.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using kernels::jit::Function;
using kernels::jit::Timeline;
using kernels::jit::TimelineScope;
using test::HostTensor;

ir::Kernel doubled(bool has_marks = true) {
  Builder k("doubled");
  auto x = k.input("x", DType::f32, {4, 64});
  auto y = k.output("y", DType::f32, {4, 64});
  auto at = k.launch({4}, {.threads = 64});
  const auto body = [&] { k.parallel({64}, [&](Value i) { y(at.x, i) = x(at.x, i) * 2.0f; }); };
  if (has_marks) {
    k.mark("all", [&] { k.mark("double", body); });
  } else {
    body();
  }
  return k.finish();
}

}  // namespace

TEST_CASE("a scope gets the marks of one block of each kernel that runs", "[jit][timeline]") {
  const HostTensor x = test::iota(DType::f32, {4, 64});
  const HostTensor y(DType::f32, {4, 64});
  const std::vector<TensorView> tensors = {x.view(), y.view()};
  const Function function(doubled());
  function(tensors, {}, nullptr);
  {
    const TimelineScope scope(3);
    function(tensors, {}, nullptr);
    function(tensors, {}, nullptr);
    {
      const TimelineScope inner(4);  // there is no such block
      function(tensors, {}, nullptr);
      REQUIRE(inner.timelines().size() == 1);
      CHECK(inner.timelines()[0].rows.empty());
    }
    REQUIRE(scope.timelines().size() == 2);
    const Timeline& one = scope.timelines()[1];
    CHECK(one.kernel == "doubled");
    CHECK(one.block == 3);
    CHECK(one.unit == "steps");
    CHECK(one.marks == std::vector<std::string>{"all", "double", "wait"});
    REQUIRE(one.rows.size() == 2);
    for (const Timeline::Row& row : one.rows) {
      CHECK(row.role.empty());
      CHECK(row.dropped == 0);
      REQUIRE(row.bars.size() == 2);
      CHECK(row.bars[0].mark == 0);
      CHECK(row.bars[0].begin == 0);
      CHECK(row.bars[1].depth == 1);
      CHECK(row.bars[1].end > row.bars[1].begin);
      CHECK(row.bars[1].end <= row.bars[0].end);
    }
  }
  function(tensors, {}, nullptr);
  CHECK(y.value(200) == 400);
}

TEST_CASE("marks change a kernel's text and key for a scope alone", "[jit][timeline]") {
  const HostTensor x = test::iota(DType::f32, {4, 64});
  const HostTensor y(DType::f32, {4, 64});
  const auto text_of = [&](const Function& function) {
    const auto needed = kernels::jit::kernels_needed([&] {
      function(std::vector<TensorView>{x.view(), y.view()}, {}, nullptr);
    });
    REQUIRE(needed.size() == 1);
    CHECK(!needed[0].spec);  // the text identifies the kernel
    return needed[0].emit(Target{}).text;
  };
  const Function with(doubled()), without(doubled(false));
  CHECK(text_of(with) == text_of(without));
  const TimelineScope scope;
  CHECK(text_of(with).find("note_mark(next_mark, 3);") != std::string::npos);
}

TEST_CASE("words of a GPU become bars, and what did not fit is counted", "[jit][timeline]") {
  const kernels::jit::MarkedProgram program{"kernel", 0, {"load", "wait"}, {"loads", ""}};
  std::vector<uint64_t> words(32 * 1024);
  const auto word = [](uint64_t clock, uint64_t event) { return clock << 8 | (event + 1); };
  words[0] = word(1000, 0);
  words[1] = word(1010, 2);
  words[2] = word(1030, 3);
  words[3] = word(1040, 1);
  words[1024] = word(990, 0);
  words[1025] = word(1100, 2);
  words[2047] = 5;
  const Timeline timeline = kernels::jit::timeline_of(program, words);
  CHECK(timeline.unit == "cycles");
  REQUIRE(timeline.rows.size() == 2);
  CHECK(timeline.rows[0].role == "loads");
  const std::vector<Timeline::Bar>& bars = timeline.rows[0].bars;
  REQUIRE(bars.size() == 2);
  CHECK(bars[0].begin == 10);
  CHECK(bars[0].end == 50);
  CHECK(bars[1].mark == 1);
  CHECK(bars[1].begin == 20);
  CHECK(bars[1].end == 40);
  CHECK(bars[1].depth == 1);
  CHECK(timeline.rows[1].dropped == 5);
  CHECK(timeline.rows[1].bars[0].end == 110);  // with the last that fitted
}

TEST_CASE("a scope takes the marks of a GPU, of a kernel that is compiled for it",
          "[jit][timeline]") {
  test::OnFakes on;
  const TensorView x(reinterpret_cast<void*>(0x10000000), DType::f32, {4, 64}, Device::cuda(0));
  const TensorView y(reinterpret_cast<void*>(0x20000000), DType::f32, {4, 64}, Device::cuda(0));
  const std::vector<TensorView> tensors = {x, y};
  const Function function(doubled());
  function(tensors, {}, nullptr);
  CHECK(on.fake.state().num_compiles == 1);
  {
    const TimelineScope scope(2);
    on.fake.state().marks[1024] = 500 << 8 | 1;
    on.fake.state().marks[1025] = 700 << 8 | 2;
    function(tensors, {}, nullptr);
    function(tensors, {}, nullptr);
    CHECK(on.fake.state().num_compiles == 2);
    REQUIRE(scope.timelines().size() == 2);
    const Timeline& first = scope.timelines()[0];
    CHECK(first.unit == "cycles");
    REQUIRE(first.rows.size() == 1);
    CHECK(first.rows[0].warp == 1);
    REQUIRE(first.rows[0].bars.size() == 1);
    CHECK(first.rows[0].bars[0].end == 200);
    CHECK(scope.timelines()[1].rows.empty());  // they were taken
  }
  function(tensors, {}, nullptr);
  CHECK(on.fake.state().num_compiles == 2);
  CHECK(on.fake.state().num_launches == 4);
}

}  // namespace tessera
