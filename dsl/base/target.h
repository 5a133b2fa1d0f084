#pragma once
// The target of a kernel: a compute capability and the letter of its feature set.

#include <optional>
#include <string>
#include <string_view>

#include "dsl/base/api.h"

namespace tessera {

/// sm_90a = {9, 0, 'a'}. 'a' runs on exactly that capability, 'f' on its family, no letter on the
/// same major version with an equal or higher minor.
struct Target {
  int major = 0;
  int minor = 0;
  char letter = 0;  // 0, 'a' or 'f'

  int number() const { return major * 10 + minor; }
  friend bool operator==(const Target&, const Target&) = default;
};

TESSERA_API std::string to_string(Target target);  // "sm_90a"
/// Parses a target; nothing if `word` names none.
///
///   parse_target("sm_90a")  // {9, 0, 'a'}
TESSERA_API std::optional<Target> parse_target(std::string_view word);

}  // namespace tessera
