#pragma once
// A line of the author's source. clang 14 with libstdc++ 12 lacks std::source_location but has the
// compiler builtins. Use `SourceLoc loc = SourceLoc::here()` as the last, defaulted parameter.

#include <string>

#include "dsl/base/api.h"

namespace tessera {

struct SourceLoc {
  const char* file = "";
  int line = 0;

  static constexpr SourceLoc here(const char* file = __builtin_FILE(),
                                  int line = __builtin_LINE()) {
    return {file, line};
  }
  bool known() const { return line > 0; }
};

/// "per_token_cast.cpp:57": the file name without folders, so that texts do not depend on the
/// checkout.
TESSERA_API std::string to_string(SourceLoc loc);

/// Two lines: the author's line, and a caret under its first character. Empty if the file cannot be
/// read.
TESSERA_API std::string excerpt(SourceLoc loc);

}  // namespace tessera
