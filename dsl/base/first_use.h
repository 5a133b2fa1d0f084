#pragma once
// Values that are made on first use. A function-local static would be simpler, but a child of fork
// waits forever for one that another thread of its parent was making.

#include <atomic>

namespace tessera {

/// While it lives, no other thread makes a first value, fork waits, and so do callbacks of this
/// thread (callbacks.h). Reentrant.
class FirstUseLock {
 public:
  FirstUseLock() { hold(); }
  ~FirstUseLock() { release(); }
  FirstUseLock(const FirstUseLock&) = delete;
  FirstUseLock& operator=(const FirstUseLock&) = delete;

  /// For fork handlers, which cannot keep an object.
  static void hold();
  static void release();
  /// Fork takes this lock last: handlers registered after this call may take their own locks before
  /// it.
  static void register_for_fork();
};

/// A value that lives until the process ends, since other threads may run that long. Declare it at
/// namespace scope. `make` returns an owned T*; if it throws, the next use tries again.
///   FirstUse<std::string> g_text;
///   const std::string& text() { return g_text.get([] { return new std::string(long_text()); }); }
template <class T>
class FirstUse {
 public:
  template <class Make>
  T& get(const Make& make) {
    if (T* known = made()) return *known;
    const FirstUseLock lock;
    T* made = made_.load(std::memory_order_relaxed);
    if (made == nullptr) {
      made = make();
      made_.store(made, std::memory_order_release);
    }
    return *made;
  }
  /// Null before the first use.
  T* made() const { return made_.load(std::memory_order_acquire); }

 private:
  std::atomic<T*> made_ = nullptr;
};

}  // namespace tessera
