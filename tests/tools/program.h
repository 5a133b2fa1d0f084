#pragma once
// The program tessera as a subprocess.

#include <string>
#include <vector>

namespace tessera::tests {

struct ProgramResult {
  int exit_code = -1;
  std::string out, err;
};

/// Runs build/tools/tessera with these words, without a shell, and collects what it prints. The
/// kernel cache is `cache` when given, else off; "NAME=value" strings in `environment` are added.
ProgramResult run_tessera(const std::vector<std::string>& words, const std::string& cache = "",
                          const std::vector<std::string>& environment = {});
/// The same of build/own_kernels_program, which has kernels of its own.
ProgramResult run_own_program(const std::vector<std::string>& words, const std::string& cache = "",
                              const std::vector<std::string>& environment = {});
/// True if the program finds an NVRTC.
bool has_nvrtc();

}  // namespace tessera::tests
