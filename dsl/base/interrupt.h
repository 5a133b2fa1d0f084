#pragma once
// Cancels long work of a thread when its user no longer waits: Ctrl-C.

#include <functional>

namespace tessera {

/// While it lives, calls of this thread that compile or run on the CPU poll `is_over` about twenty
/// times a second, on this thread. When it returns true they stop with an Error of code CANCELLED.
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

/// True if the work of this thread should stop. Cheap; poll it often.
bool is_interrupted();

}  // namespace tessera
