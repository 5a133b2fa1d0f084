// Calls on CUDA tensors, on a fake driver: what is checked once and launched again.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kernels/jit/prepare.h"
#include "tests/runtime/fake_calls.h"
#include "tests/support/catch.h"
#include "tests/support/counted_calls.h"
#include "tests/support/named_tensors.h"
#include "tests/support/ten_tensors.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

TenTensors tensors_at(uintptr_t address, int64_t rows) {
  TenTensors tensors;
  for (TensorView& view : tensors) {
    view = TensorView(reinterpret_cast<void*>(address), DType::f32, {rows}, Device::cuda(0));
    address += 0x100000;
  }
  return tensors;
}

/// A call with these tensors; `checked` is the call in full.
template <class Checked>
void call_with_two(std::string_view op, const Pair& pair,
                   std::initializer_list<jit::OptionValue> options, const Checked& checked) {
  jit::CallMemo memo(op);
  memo.add_tensor(pair.x);
  memo.add_tensor(pair.out);
  for (const jit::OptionValue& option : options) memo.add_option(option);
  if (!memo.launch_again(nullptr)) memo.learn(checked);
}

}  // namespace

TEST_CASE("a call that was checked before allocates nothing and takes no lock (R22.18, C07)") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors tensors = tensors_at(0x10000000, 1000);
  call_sum_of_nine(function, tensors, nullptr);
  const jit::LaunchPlan plan = jit::plan(tensors, [&] { function(tensors, {}, nullptr); });
  std::array<void*, 10> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = tensors[i].data;
  on.fake.state().pushed.reserve(10000);  // the fake's own notes
  const CallCounts before = counted_calls();
  for (int i = 0; i < 1000; ++i) {
    call_sum_of_nine(function, tensors, nullptr);
    plan(data, nullptr);
  }
  const CallCounts after = counted_calls();
  CHECK(on.fake.state().num_launches == 2001);
  CHECK(after.allocations == before.allocations);
  // The fake's push and pop of a context lock twice per launch; ours adds none.
  CHECK(after.locks - before.locks == 2 * 2000);
  CHECK(on.fake.state().num_attribute_calls == 0);
}

TEST_CASE("a call like an earlier one is launched on its own addresses") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  call_sum_of_nine(function, tensors_at(0x10000000, 1000), nullptr);
  CHECK(on.fake.state().first_argument == 0x10000000);
  CHECK(on.fake.state().grid[0] == 16);
  call_sum_of_nine(function, tensors_at(0x20000000, 1000), nullptr);
  CHECK(on.fake.state().first_argument == 0x20000000);
  call_sum_of_nine(function, tensors_at(0x20000000, 64), nullptr);  // other extents
  CHECK(on.fake.state().grid[0] == 1);
  call_sum_of_nine(function, tensors_at(0x20000000, 0), nullptr);  // nothing to do, twice
  call_sum_of_nine(function, tensors_at(0x20000000, 0), nullptr);
  CHECK(on.fake.state().num_launches == 3);
}

TEST_CASE("a call that differs from an earlier one only where it is wrong is refused (C08)") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors good = tensors_at(0x10000000, 1000);
  call_sum_of_nine(function, good, nullptr);
  call_sum_of_nine(function, good, nullptr);
  const int launches = on.fake.state().num_launches;
  TenTensors bad = good;
  std::string text;
  SECTION("dtype") {
    bad[3].dtype = DType::i32;
    text = "argument 'x3' has the wrong dtype";
  }
  SECTION("rank") {
    bad[3] = TensorView(bad[3].data, DType::f32, {1000, 1}, Device::cuda(0));
    text = "argument 'x3' has the wrong rank";
  }
  SECTION("extent") {
    bad[3].shape = {999};
    text = "argument 'x3' has the wrong shape";
  }
  SECTION("stride") {
    bad[3].strides = {2};
    text = "argument 'x3' has the wrong strides";
  }
  SECTION("device") {
    bad[3].device = Device::cuda(1);
    text = "the tensors are on different devices";
  }
  SECTION("null") {
    bad[3].data = nullptr;
    text = "argument 'x3' has no data";
  }
  SECTION("misaligned") {
    bad[3].data = static_cast<char*>(bad[3].data) + 2;
    text = "argument 'x3' is not aligned";
  }
  if (text.empty()) return;
  for (int i = 0; i < 2; ++i) {
    const std::string said = error_of([&] { call_sum_of_nine(function, bad, nullptr); });
    CAPTURE(said);
    CHECK(said.find("tessera: sum_of_nine: " + text) == 0);
  }
  CHECK(on.fake.state().num_launches == launches);
}

TEST_CASE("memory that overlaps is looked for on every call") {
  OnFakes on;
  const jit::Function function = copy_function("overlap_test");
  int full_calls = 0;
  const auto call = [&](const Pair& pair) {
    call_with_two("overlap_test", pair, {}, [&] {
      ++full_calls;
      function(pair.views(), {}, nullptr);
    });
  };
  Pair pair(0x10000000, 1024);  // 4096 bytes each
  for (int i = 0; i < 2; ++i) call(pair);
  CHECK(full_calls == 1);
  std::swap(pair.x.data, pair.out.data);  // another order
  call(pair);
  for (const int64_t bytes : {4096, -4096}) {  // side by side
    pair.out.data = static_cast<char*>(pair.x.data) + bytes;
    call(pair);
  }
  CHECK(full_calls == 1);
  for (const int64_t bytes : {3840, -3840, 0}) {
    pair.out.data = static_cast<char*>(pair.x.data) + bytes;
    CHECK(error_of([&] { call(pair); }).find("'out' shares memory with 'x'") != std::string::npos);
  }
  CHECK(full_calls == 4);
}

TEST_CASE("a thread remembers the calls of a model") {
  OnFakes on;
  const jit::Function function = copy_function("many_calls");
  int full_calls = 0;
  for (int round = 0; round < 3; ++round) {
    for (int64_t layer = 0; layer < 200; ++layer) {
      const Pair pair(0x10000000, 64 + 64 * layer);
      call_with_two("many_calls", pair, {layer % 7}, [&] {
        ++full_calls;
        function(pair.views(), {}, nullptr);
      });
    }
  }
  CHECK(full_calls == 200);
}

TEST_CASE("calls with other options are other calls") {
  OnFakes on;
  const jit::Function function(sum_of_nine());
  const TenTensors t = tensors_at(0x10000000, 1000);
  int full_calls = 0;
  const auto call = [&](bool flag, const jit::OptionValue& limit, std::string_view word,
                        std::span<const int64_t> block = {}) {
    call_with_ten("options_test", t, {flag, limit, word, block}, nullptr, [&] {
      ++full_calls;
      function(t, {}, nullptr);
    });
  };
  for (int i = 0; i < 2; ++i) {
    call(false, {}, "sqrtsoftplus");
    call(true, {}, "sqrtsoftplus");
    call(false, 0.0, "sqrtsoftplus");  // zero is not the same as absent
    call(false, 1.0, "sqrtsoftplus");
    call(false, int64_t{0}, "sqrtsoftplus");
    call(false, {}, "sqrtsoftmax");
    call(false, {}, "");
    call(false, {}, "", std::array<int64_t, 2>{1, 128});
    call(false, {}, "", std::array<int64_t, 2>{128, 1});
  }
  CHECK(full_calls == 9);
}

TEST_CASE("a call with one tensor twice says nothing of a call with two") {
  OnFakes on;
  const jit::Function copy = copy_function("twice");
  Pair pair(0x10000000, 100);
  TensorView other = pair.x;
  int full_calls = 0;
  const auto call = [&] {  // copies `other`
    jit::CallMemo memo("twice");
    for (const TensorView* view : {&pair.x, &other, &pair.out}) memo.add_tensor(*view);
    const auto in_full = [&] {
      ++full_calls;
      copy(std::array{other, pair.out}, {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  };
  call();
  CHECK(on.fake.state().first_argument == 0x10000000);
  for (const uintptr_t address : {0x20000000u, 0x30000000u, 0x40000000u}) {
    other.data = reinterpret_cast<void*>(address);
    call();
    CHECK(on.fake.state().first_argument == static_cast<int64_t>(address));
  }
  CHECK(full_calls == 2);  // with two tensors, one is enough
  other.data = pair.x.data;
  const std::array views{pair.x, other, pair.out};
  CHECK(error_of([&] {
          jit::plan(views, [&] { copy(std::array{other, pair.out}, {}, nullptr); });
        }).find("tessera: this call cannot become a launch plan") == 0);
}

TEST_CASE("columns of one buffer are remembered apart") {
  OnFakes on;
  const jit::Function copy = copy_function("columns");
  // k and v [8, 2] as columns of one buffer [8, 4].
  const auto columns = [](uintptr_t address) {
    return TensorView(reinterpret_cast<void*>(address), DType::f32, {8, 2}, {4, 1},
                      Device::cuda(0));
  };
  const TensorView k = columns(0x10000000);
  TensorView v = columns(0x10000008);
  const Pair out(0x20000000, 8);
  for (const uintptr_t address : {0x10000008u, 0x30000008u, 0x40000008u}) {
    v.data = reinterpret_cast<void*>(address);
    jit::CallMemo memo("columns");
    memo.add_tensor(k);
    memo.add_tensor(v);
    memo.add_tensor(out.out);
    const auto in_full = [&] {
      const TensorView row(v.data, DType::f32, {8}, {1}, v.device);
      copy(std::array{row, out.out}, {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
    CHECK(on.fake.state().first_argument == static_cast<int64_t>(address));
  }
}

TEST_CASE("a call that leaves tensors out is remembered") {
  OnFakes on;
  const jit::Function copy = copy_function("left_out");
  const Pair pair(0x10000000, 100);
  const TensorView none;
  int full_calls = 0;
  for (int i = 0; i < 3; ++i) {
    jit::CallMemo memo("left_out");
    for (const TensorView* view : {&pair.x, &none, &none, &pair.out}) memo.add_tensor(*view);
    const auto in_full = [&] {
      ++full_calls;
      copy(pair.views(), {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  }
  CHECK(full_calls == 1);
  CHECK(on.fake.state().num_launches == 3);
}

TEST_CASE("the padding that a kernel writes is memory of its tensor") {
  OnFakes on;
  const jit::Function copy = copy_function("padded");
  Pair pair(0x10000000, 100);
  const TensorView first(pair.out.data, DType::f32, {97},
                         Device::cuda(0));  // as the caller sees it
  int full_calls = 0;
  const auto call = [&](const TensorView& neighbour) {
    jit::CallMemo memo("padded");
    memo.add_tensor(pair.x);
    memo.add_tensor(first);
    memo.add_tensor(neighbour);
    const auto in_full = [&] {
      ++full_calls;
      copy(pair.views(), {}, nullptr);
    };
    if (!memo.launch_again(nullptr)) memo.learn(in_full);
  };
  const auto behind = [&](int64_t bytes) {
    return TensorView(static_cast<char*>(pair.out.data) + bytes, DType::f32, {64}, Device::cuda(0));
  };
  call(behind(4096));
  call(behind(8192));
  CHECK(full_calls == 1);
  call(behind(384 + 16));  // behind the padding; 256 divides 4096 and 8192, so this is another call
  call(behind(384 + 16));
  CHECK(full_calls == 2);
  call(behind(384 + 8));  // in it
  call(behind(384 + 8));
  CHECK(full_calls == 4);
}
