#pragma once
// A program started by a test, and what it said.

#include <string>
#include <vector>

namespace tessera::test {

struct ChildResult {
  int exit_code = -1;  // 128 + N if signal N ended it, 127 if it could not be started
  std::string output;  // stdout and stderr
};

/// Starts words[0] (searched in PATH) without a shell and waits for its end. Of the variables
/// TESSERA_* it sees those given as "NAME=value", and this process's TESSERA_NVRTC unless that is
/// given too.
///
/// Example: run_program({in_build("tools/tessera"), "doctor"}, {"TESSERA_CACHE=off"}).output
ChildResult run_program(const std::vector<std::string>& words,
                        const std::vector<std::string>& variables);

}  // namespace tessera::test
