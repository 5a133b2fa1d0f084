#pragma once
// NVRTC opened by the test itself, so that generated text is judged without the runtime.

#include <optional>
#include <string>
#include <vector>

namespace tessera::test {

struct Compiled {
  bool ok = false;
  std::string log;    // everything the compiler said; "" means no warning either
  double cpu_ms = 0;  // CPU time of the compilation
};

class Nvrtc {
 public:
  /// The first libnvrtc found: TESSERA_NVRTC, the loader's path, the toolkit, the project-local
  /// folder .deps. Nothing if there is none; `reason` then names the places tried.
  static std::optional<Nvrtc> open(std::string& reason);

  /// Compiles for a target such as "sm_90a", with the options that the runtime gives.
  Compiled compile(const std::string& text, const std::string& target) const;

  /// True if this version knows the target.
  bool supports(const std::string& target) const;

 private:
  void* handle_ = nullptr;
};

/// The targets that generated text is written for.
inline const std::vector<std::string> kTargets = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

}  // namespace tessera::test
