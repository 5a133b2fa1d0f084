#pragma once
// The target of a kernel: a compute capability and the letter of its feature set. target_facts.h says what
// each target can do.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"

namespace tessera {

/// sm_90a = {9, 0, 'a'}. 'a' runs on exactly that capability, 'f' on its family, no letter on the
/// same major version with an equal or higher minor.
struct Target {
  int major, minor;
  char letter;  // 0, 'a' or 'f'

  TESSERA_API Target();  // sm_90a
  constexpr Target(int the_major, int the_minor, char the_letter)
      : major(the_major), minor(the_minor), letter(the_letter) {}

  constexpr int number() const { return major * 10 + minor; }
  friend bool operator==(const Target&, const Target&) = default;
};

TESSERA_API std::string to_string(Target target);  // "sm_90a"
/// Parses a target; nothing if `word` names none.
///
///   parse_target("sm_90a")  // {9, 0, 'a'}
TESSERA_API std::optional<Target> parse_target(std::string_view word);

/// True for sm_80 and newer, the letter a from sm_90a on, f from sm_100f on.
TESSERA_API bool exists(Target target);

/// Every target whose cubins run on a device of this capability, the most specific first: for 9.0 sm_90a, sm_90.
TESSERA_API std::vector<Target> targets_that_run_on(int major, int minor);

/// True if a cubin for `target` runs on a device of this capability.
TESSERA_API bool runs_on(Target target, int major, int minor);

}  // namespace tessera
