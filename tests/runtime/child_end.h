#pragma once
// A part of a test that may end its process, run in a child.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

namespace tessera::test {

struct ChildEnd {
  int exit_code = -1;
  int signal = 0;  // that ended it
};

/// Forks and runs `action` with the default handling of SIGXFSZ and SIGPIPE. A child that hangs is
/// ended by SIGALRM after `seconds`.
inline ChildEnd in_child(const std::function<int()>& action, unsigned seconds = 60) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_DFL);
    ::signal(SIGPIPE, SIG_DFL);
    alarm(seconds);
    _exit(action());
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("cannot wait");
  if (WIFSIGNALED(status)) return {-1, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace tessera::test
