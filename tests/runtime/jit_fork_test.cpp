// Kernels that a child of fork prepares while its parent had threads.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "dsl/builder.h"
#include "kernels/jit/run_op.h"
#include "tests/support/catch.h"
#include "tests/support/named_tensors.h"

using namespace tessera;
using namespace tessera::test;
namespace jit = kernels::jit;

namespace {

/// Runs a kernel of its own per op and number on the executor; true if it did what it should.
bool run_filled(const std::string& op, int number) {
  std::vector<float> memory(64);
  const TensorView view(memory.data(), DType::f32, {64});
  const auto build = [&] {
    dsl::Builder k("filled");
    auto out = k.output("out", DType::f32, {64});
    k.launch({1}, {.threads = 64});
    out(k.thread()) = static_cast<float>(number);
    return k.finish();
  };
  jit::run_op(op, std::to_string(number), build, NamedTensors{{"out", view}}, nullptr);
  return memory[63] == static_cast<float>(number);
}

/// The status of a child that runs a kernel; 0 if that was right. One that waits for a thread of its
/// parent would wait for ever.
int status_of_child(int number) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(run_filled("fork_child", number) ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace

TEST_CASE("children of fork prepare kernels although another thread was at it") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP("ThreadSanitizer may wait for ever in a child that was forked beside other threads");
#endif
  std::atomic<bool> done = false;
  std::thread busy([&] {
    for (int number = 0; !done; ++number) run_filled("fork_parent", number);
  });
  int failures = 0;
  for (int i = 0; i < 40; ++i) failures += status_of_child(i) == 0 ? 0 : 1;
  done = true;
  busy.join();
  CHECK(failures == 0);
}

TEST_CASE("a child of fork does not wait for the first call that its parent's thread was in") {
#ifdef __SANITIZE_THREAD__
  TESSERA_SKIP("ThreadSanitizer may wait for ever in a child that was forked beside other threads");
#endif
  for (int delay = 0; delay < 150;
       ++delay) {  // microseconds, the time that a runtime takes to make
    const pid_t process = fork();
    if (process == 0) {
      std::thread first_call([] { run_filled("fork_parent", 0); });
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
      const int status = status_of_child(1);
      first_call.join();
      _exit(status == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(process, &status, 0) == process);
    CAPTURE(delay);
    REQUIRE(status == 0);
  }
}
