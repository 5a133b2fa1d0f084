#pragma once
// Targets that code exists for, and which of them a device runs.

#include <span>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/target.h"

namespace tessera::runtime {

using tessera::parse_target;
using tessera::Target;
using tessera::to_string;

/// Throws an unsupported error for a target below sm_80 or one that does not exist: sm_89a, sm_90f.
TESSERA_API void check_supported(Target target, std::string_view op = "");

/// The target for a device: with letter 'a' from capability 9.0 on, plain below. Throws an
/// unsupported error if the compiler's list (nvrtcGetSupportedArchs, as 80, 90, ...) lacks it:
/// there is no silent downgrade.
TESSERA_API Target choose_target(int major, int minor, std::span<const int> supported,
                                 std::string_view compiler);

/// Every target whose cubins run on a device, the most specific first: for 9.0 sm_90a, sm_90.
TESSERA_API std::vector<Target> targets_that_run_on(int major, int minor);

/// True if a cubin for `target` runs on a device of this capability.
TESSERA_API bool runs_on(Target target, int major, int minor);

}  // namespace tessera::runtime
