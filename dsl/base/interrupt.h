#pragma once
// How long work of a thread learns that nobody waits for it any more: a user has pressed Ctrl-C.

#include <functional>

namespace tessera {

/// While it lives, calls of this thread that compile or run on the CPU ask `is_over` about twenty times
/// a second, on this thread. Once it has said yes they stop with an Error of code CANCELLED.
///
/// Example: const InterruptScope scope([&] { return deadline < now(); });
class InterruptScope {
 public:
  explicit InterruptScope(std::function<bool()> is_over);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  std::function<bool()> is_over_;
  const InterruptScope* const outer_;
  friend bool is_interrupted();
};

/// Whether the work of this thread is to stop: asked often, cheap.
bool is_interrupted();

}  // namespace tessera
