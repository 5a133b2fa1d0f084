#pragma once
// Turns the signals of failed writes into error codes.

#include <csignal>

namespace tessera::runtime {

/// While one lives, a write of this thread beyond the file size limit fails with EFBIG, and a write
/// into a pipe or socket without a reader fails with EPIPE. By default both end the process
/// (SIGXFSZ, SIGPIPE), which a library must not do to its caller. Other threads and the program's
/// handlers are not affected. Costs two to four system calls: keep it around the writes only.
///
///   const NoWriteSignals guard;
///   if (write(fd, bytes, size) < 0) return std::strerror(errno);
class NoWriteSignals {
 public:
  NoWriteSignals();
  ~NoWriteSignals();
  NoWriteSignals(const NoWriteSignals&) = delete;
  NoWriteSignals& operator=(const NoWriteSignals&) = delete;

 private:
  sigset_t mask_;     // of the thread, before
  sigset_t pending_;  // before
};

}  // namespace tessera::runtime
