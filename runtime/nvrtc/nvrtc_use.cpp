#include "runtime/nvrtc/nvrtc_use.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr int kMostHandlers = 1000;  // by then the library has registered all of its own handlers

// Static storage without destructors.
std::atomic<int> num_uses = 0;
std::atomic<bool> is_closed = false;
std::atomic<int> num_handlers = 0;
thread_local int own_uses = 0;
thread_local bool is_exiting = false;

void close_and_wait() {
  is_exiting = true;
  is_closed = true;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (num_uses > own_uses && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// exit() runs the newest handlers first, and the library registers its own while it opens and compiles, so
// every use registers ours again.
void register_last_handler() {
  if (num_handlers.fetch_add(1, std::memory_order_relaxed) < kMostHandlers) {
    std::atexit(close_and_wait);
  }
}

void wait_for_exit() {
  if (!is_exiting) std::this_thread::sleep_for(kPatience);
}

}  // namespace

NvrtcUse::NvrtcUse() {
  ++num_uses;
  if (is_closed) {
    --num_uses;
    wait_for_exit();
    raise(ErrorKind::unsupported, "", "the process is exiting: nothing is compiled any more", {});
  }
  ++own_uses;
  register_last_handler();
}

NvrtcUse::~NvrtcUse() {
  --own_uses;
  register_last_handler();
  --num_uses;
  if (is_closed) wait_for_exit();
}

bool NvrtcUse::should_end() {
  register_last_handler();
  return is_closed;
}

void NvrtcUse::forget_other_threads() {
  num_uses = own_uses;
}

}  // namespace tessera::runtime
