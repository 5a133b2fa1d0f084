#pragma once
// Where the author wrote something. std::source_location is missing in clang 14 with libstdc++ 12,
// the compiler builtins are not: use `SourceLoc loc = SourceLoc::here()` as the last, defaulted
// parameter.

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

/// "per_token_cast.cpp:57": file name without its folders, so that text does not depend on the
/// checkout.
TESSERA_API std::string to_string(SourceLoc loc);

/// The author's line with a caret under its first character, two lines; empty if the file cannot be
/// read.
TESSERA_API std::string excerpt(SourceLoc loc);

}  // namespace tessera
