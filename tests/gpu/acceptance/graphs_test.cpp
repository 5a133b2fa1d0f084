// The runtime's acceptance list on a real GPU, 16: CUDA graphs.

#include "tests/gpu/acceptance/graphs.h"

#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tests/gpu/acceptance/vectors.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::Graphs;
using test::sum_function;
using test::Vectors;
namespace jit = kernels::jit;

namespace {

// Replays on other contents of the first input: 44 and that are the sum.
void check_replays(const Graphs& graphs, Graphs::Handle exec, Graphs::Handle stream,
                   const std::vector<Vectors*>& vectors) {
  for (int round = 0; round < 3; ++round) {
    for (Vectors* v : vectors) {
      v->fill(0, static_cast<float>(round));
      v->fill(9, -1);
    }
    REQUIRE(graphs.launch(exec, stream) == 0);
    synchronize(0, stream);
    for (Vectors* v : vectors) CHECK(v->holds(44 + static_cast<float>(round)));
  }
  CHECK(graphs.destroy_exec(exec) == 0);
}

}  // namespace

TEST_CASE("a prepared op is captured and replayed on new contents (R22.16, C09)", "[gpu]") {
  REQUIRE_GPU();
  const Graphs graphs;
  Vectors v(0);
  const OwnedStream stream(0);
  const ContextScope context(0);
  jit::prepare([&] { sum_function()(v.tensors, {}, stream.handle()); });
  const Graphs::Handle exec = graphs.captured(
      stream.handle(), [&] { test::call_sum_of_nine(sum_function(), v.tensors, stream.handle()); });
  check_replays(graphs, exec, stream.handle(), {&v});
}

TEST_CASE("an op that is not prepared is refused by name and does not spoil the capture (R22.16)",
          "[gpu]") {
  REQUIRE_GPU();
  const Graphs graphs;
  Vectors v(0);
  const OwnedStream stream(0);
  const ContextScope context(0);
  jit::prepare([&] { sum_function()(v.tensors, {}, stream.handle()); });
  const jit::Function late = test::large_kernel("late_in_capture", 50);
  const std::vector<TensorView> two = {v.tensors[0], v.tensors[9]};
  std::string refused;
  const Graphs::Handle exec = graphs.captured(stream.handle(), [&] {
    try {
      late(two, {}, stream.handle());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::capture);
      refused = error.what();
    }
    test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
  });
  CHECK(refused ==
        "tessera: late_in_capture: the kernel is not loaded yet and the stream is being captured\n"
        "  got       Spec (the text itself)\n"
        "  hint      before the capture begins make the call once, or let jit::prepare() have it");
  check_replays(graphs, exec, stream.handle(), {&v});
  late(two, {}, stream.handle());  // afterwards it may load
  synchronize(0, stream.handle());
  CHECK(v.holds(3));  // the last round's 2, and 1
}

TEST_CASE("a thread without a context launches into a capture (R22.16)", "[gpu]") {
  REQUIRE_GPU();
  const Graphs graphs;
  Vectors v(0);
  const OwnedStream stream(0);
  const ContextScope context(0);
  jit::prepare([&] { sum_function()(v.tensors, {}, stream.handle()); });
  std::string problem = "none";
  const Graphs::Handle exec = graphs.captured(stream.handle(), [&] {
    std::thread([&] {
      try {
        test::call_sum_of_nine(sum_function(), v.tensors, stream.handle());
      } catch (const Error& error) {
        problem = error.what();
      }
    }).join();
  });
  CHECK(problem == "none");
  check_replays(graphs, exec, stream.handle(), {&v});
}

TEST_CASE("one graph holds launches on two devices (R22.16)", "[gpu][multigpu]") {
  if (num_devices() < 2) TESSERA_SKIP("needs two CUDA devices");
  const Graphs graphs;
  Vectors first(0);
  Vectors second(1);
  const OwnedStream stream(0);
  const OwnedStream other(1);
  Graphs::Handle forked = nullptr;
  Graphs::Handle joined = nullptr;
  {
    const ContextScope context(0);
    REQUIRE(graphs.event_create(&forked, 0) == 0);
  }
  {
    const ContextScope context(1);
    REQUIRE(graphs.event_create(&joined, 0) == 0);
  }
  jit::prepare([&] { sum_function()(first.tensors, {}, stream.handle()); });
  jit::prepare([&] { sum_function()(second.tensors, {}, other.handle()); });
  const ContextScope context(0);
  const Graphs::Handle exec = graphs.captured(stream.handle(), [&] {
    REQUIRE(graphs.event_record(forked, stream.handle()) == 0);
    REQUIRE(graphs.stream_wait_event(other.handle(), forked, 0) == 0);
    test::call_sum_of_nine(sum_function(), first.tensors, stream.handle());
    test::call_sum_of_nine(sum_function(), second.tensors, other.handle());
    const ContextScope second_context(1);
    REQUIRE(graphs.event_record(joined, other.handle()) == 0);
    REQUIRE(graphs.stream_wait_event(stream.handle(), joined, 0) == 0);
  });
  check_replays(graphs, exec, stream.handle(), {&first, &second});
}
