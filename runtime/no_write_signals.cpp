#include "runtime/no_write_signals.h"

#include <pthread.h>

#include <cerrno>
#include <ctime>

namespace tessera::runtime {
namespace {

constexpr int kSignals[] = {SIGXFSZ, SIGPIPE};

}  // namespace

NoWriteSignals::NoWriteSignals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : kSignals) sigaddset(&blocked, signal);
  sigpending(&pending_);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_);
}

// The kernel delivers both signals to the writing thread. What became pending meanwhile is taken
// back before the mask opens again.
NoWriteSignals::~NoWriteSignals() {
  const int error = errno;  // of the write, for its caller
  sigset_t now;
  sigpending(&now);
  for (const int signal : kSignals) {
    if (sigismember(&now, signal) != 1 || sigismember(&pending_, signal) == 1) continue;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    const timespec at_once = {0, 0};
    while (sigtimedwait(&one, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  errno = error;
}

}  // namespace tessera::runtime
