#pragma once
// Separates exit() from threads that compile: libnvrtc's destructors run in exit() and free what a
// compile uses.

namespace tessera::runtime {

/// While one lives, its thread may call the compiler. exit() cancels the compiles in progress and waits
/// for their threads, up to 10 seconds.
class NvrtcUse {
 public:
  /// After exit() has begun, the exiting thread gets an unsupported error. Other threads wait for the
  /// end of the process, and get the error after 10 seconds.
  NvrtcUse();
  ~NvrtcUse();
  NvrtcUse(const NvrtcUse&) = delete;
  NvrtcUse& operator=(const NvrtcUse&) = delete;

  /// True if exit() waits for this compile: it should cancel.
  static bool should_end();
  /// In a child of fork: the threads that compiled do not exist.
  static void forget_other_threads();
};

}  // namespace tessera::runtime
