#pragma once
// The target that is compiled for a device.

#include <span>
#include <string_view>

#include "dsl/base/api.h"
#include "dsl/base/target.h"

namespace tessera::runtime {

using tessera::parse_target;
using tessera::runs_on;
using tessera::Target;
using tessera::targets_that_run_on;
using tessera::to_string;

/// Throws an unsupported error for a target below sm_80 or one that does not exist: sm_89a, sm_90f.
TESSERA_API void check_supported(Target target, std::string_view op = "");

/// The target for a device: with letter 'a' from capability 9.0 on, plain below. Throws an
/// unsupported error if the compiler's list (nvrtcGetSupportedArchs, as 80, 90, ...) lacks it:
/// there is no silent downgrade.
TESSERA_API Target choose_target(int major, int minor, std::span<const int> supported,
                                 std::string_view compiler);

}  // namespace tessera::runtime
