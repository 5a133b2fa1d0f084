// A write that the system refuses is an error of that write, never the end of the process.

#include "runtime/no_write_signals.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "runtime/log_writer.h"
#include "tests/runtime/child_end.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera::runtime;
using tessera::test::in_child;
using tessera::test::ScratchFolder;

namespace {

int write_beyond_the_limit(const std::string& path) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_FSIZE, &none);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  return write(fd, "x", 1) < 0 ? errno : 0;
}

int write_into_a_closed_pipe() {
  int ends[2] = {};
  if (pipe(ends) != 0) return 0;
  close(ends[0]);
  return write(ends[1], "x", 1) < 0 ? errno : 0;
}

}  // namespace

TEST_CASE("a write beyond the file size limit is an error and not the end of the process") {
  const ScratchFolder scratch;
  CHECK(in_child([&] { return write_beyond_the_limit(scratch / "file"); }).signal == SIGXFSZ);
  CHECK(in_child([&] {
          int error = 0;
          {
            const NoWriteSignals guard;
            error = write_beyond_the_limit(scratch / "file");
          }
          return error;  // and no signal has waited for the end of the guard
        }).exit_code == EFBIG);
}

TEST_CASE("a write into a pipe without a reader is an error and not the end of the process") {
  CHECK(in_child(write_into_a_closed_pipe).signal == SIGPIPE);
  CHECK(in_child([] {
          int error = 0;
          {
            const NoWriteSignals guard;
            error = write_into_a_closed_pipe();
          }
          return error;
        }).exit_code == EPIPE);
}

TEST_CASE("a signal that was pending before a guarded write is still delivered after it") {
  CHECK(in_child([] {
          sigset_t pipes;
          sigemptyset(&pipes);
          sigaddset(&pipes, SIGPIPE);
          pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
          raise(SIGPIPE);
          {
            const NoWriteSignals guard;
            write_into_a_closed_pipe();
          }
          pthread_sigmask(SIG_UNBLOCK, &pipes, nullptr);
          return 0;
        }).signal == SIGPIPE);
}

TEST_CASE("a warning for a stderr that nobody reads is lost and ends nothing") {
  CHECK(in_child([] {
          int ends[2] = {};
          if (pipe(ends) != 0) return 1;
          dup2(ends[1], STDERR_FILENO);
          close(ends[0]);
          close(ends[1]);
          print_to_stderr(LogLevel::warn, "a folder cannot be used");
          return 0;
        }).exit_code == 0);
}
