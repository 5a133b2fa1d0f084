#pragma once
// Keeps exit() and the threads that compile apart. The destructors of libnvrtc run in exit() and free
// what a compile uses.

namespace tessera::runtime {

/// While one lives, its thread may call the compiler. exit() cancels the compiles under way and waits for
/// their threads, up to 10 seconds.
class NvrtcUse {
 public:
  /// Once exit() has begun: the thread that exits gets an unsupported error; other threads wait for the
  /// end of the process, and get the error if that takes longer than 10 seconds.
  NvrtcUse();
  ~NvrtcUse();
  NvrtcUse(const NvrtcUse&) = delete;
  NvrtcUse& operator=(const NvrtcUse&) = delete;

  /// True if exit() waits for this compile: it should be cancelled.
  static bool should_end();
  /// In a child of fork: the threads that compiled are not there.
  static void forget_other_threads();
};

}  // namespace tessera::runtime
