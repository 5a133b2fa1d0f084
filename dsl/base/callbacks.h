#pragma once
// Keeps calls of user code out of the library's locks. User code, such as a log sink, may take locks of its own and call the
// library: a call of it while another thread waits for a lock of the library would be a deadlock.

#include <functional>

namespace tessera {

/// While one lives on a thread, callbacks of this thread wait. Declare it before a lock that is held, and before a value is made
/// that other threads wait for. Reentrant.
class DeferCallbacks {
 public:
  DeferCallbacks() { begin(); }
  ~DeferCallbacks() { end(); }
  DeferCallbacks(const DeferCallbacks&) = delete;
  DeferCallbacks& operator=(const DeferCallbacks&) = delete;

  /// For locks that cannot keep an object. The last end() makes the calls.
  static void begin() noexcept;
  static void end() noexcept;
};

/// Calls `callback` now, or after the outermost DeferCallbacks of this thread, in the order of the calls. Its exceptions are
/// dropped.
void call_back(std::function<void()> callback);

}  // namespace tessera
