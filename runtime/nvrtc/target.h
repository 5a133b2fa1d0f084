#pragma once
// What NVRTC compiles for: a compute capability and the letter that unlocks its extras.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// sm_90a = {9, 0, 'a'}. The letter 'a' means that exact capability only, 'f' its family, none the
/// same major version with an equal or higher minor.
struct Target {
  int major = 0;
  int minor = 0;
  char letter = 0;  // 0, 'a' or 'f'

  int number() const { return major * 10 + minor; }
  friend bool operator==(const Target&, const Target&) = default;
};

TESSERA_API std::string to_string(Target target);  // "sm_90a"
TESSERA_API std::optional<Target> parse_target(std::string_view word);

/// Throws an unsupported error for a target that is too old for generated code (below sm_80) or does
/// not exist: sm_89a, sm_90f.
TESSERA_API void check_supported(Target target, std::string_view op = "");

/// The target for a device: with letter 'a' from capability 9.0 on, plain below. Throws an
/// unsupported error if the compiler's list (nvrtcGetSupportedArchs, as 80, 90, ...) lacks it:
/// there is no silent downgrade.
TESSERA_API Target choose_target(int major, int minor, std::span<const int> supported,
                                 std::string_view compiler);

/// Every target whose cubins run on a device, the most specific first: for 9.0 sm_90a, sm_90.
TESSERA_API std::vector<Target> targets_that_run_on(int major, int minor);

/// Whether a cubin for `target` runs on a device of this capability.
TESSERA_API bool runs_on(Target target, int major, int minor);

}  // namespace tessera::runtime
