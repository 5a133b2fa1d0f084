#pragma once
// The rules that verifiers check between passes.

#include <fmt/format.h>

#include <string_view>
#include <type_traits>

#include "dsl/base/error.h"
#include "dsl/base/source_loc.h"

namespace tessera::codegen {

/// Throws the internal error "after PASS: RULE: WHAT (LINE)" unless `holds`. `what` is a text, or a function
/// that makes one: most rules hold, and few texts are needed.
template <class What>
void require_rule(bool holds, std::string_view pass, std::string_view rule, const What& what,
                  const SourceLoc& loc) {
  if (holds) return;
  if constexpr (std::is_invocable_v<What>) {
    require_rule(false, pass, rule, what(), loc);
  } else {
    internal_error(fmt::format("after {}: {}: {}{}", pass, rule, what,
                               loc.known() ? fmt::format(" ({})", to_string(loc)) : ""));
  }
}

}  // namespace tessera::codegen
