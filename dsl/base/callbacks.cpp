#include "dsl/base/callbacks.h"

#include <memory>
#include <utility>
#include <vector>

namespace tessera {
namespace {

constinit thread_local int t_depth = 0;
// Owned. A plain pointer: threads may end with destructors that write messages.
constinit thread_local std::vector<std::function<void()>>* t_waiting = nullptr;

void call(const std::function<void()>& callback) noexcept {
  try {
    callback();
  } catch (...) {
    // No call fails because of its messages.
  }
}

}  // namespace

void DeferCallbacks::begin() noexcept {
  ++t_depth;
}

void DeferCallbacks::end() noexcept {
  if (--t_depth > 0 || t_waiting == nullptr) return;
  // A callback may use the library and defer callbacks itself.
  const std::unique_ptr<const std::vector<std::function<void()>>> waiting(
      std::exchange(t_waiting, nullptr));
  for (const std::function<void()>& callback : *waiting) call(callback);
}

void call_back(std::function<void()> callback) {
  if (t_depth == 0) return call(callback);
  if (t_waiting == nullptr) t_waiting = new std::vector<std::function<void()>>;
  t_waiting->push_back(std::move(callback));
}

}  // namespace tessera
