#pragma once
// A place in the author's source: `SourceLoc loc = SourceLoc::here()` as the last, defaulted parameter. GCC 12 has the
// column in std::source_location alone, clang 14 with libstdc++ 12 as a builtin alone.

#include <string>

#include "dsl/base/api.h"

#if !__has_builtin(__builtin_COLUMN)
#include <source_location>
#endif

namespace tessera {

struct SourceLoc {
  const char* file = "";
  int line = 0;
  /// From 1, in bytes; 0 = unknown. Compilers differ: GCC gives the parenthesis of a call, Clang where its expression
  /// begins. No generated text may depend on it.
  int column = 0;

#if __has_builtin(__builtin_COLUMN)
  static constexpr SourceLoc here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                  int column = __builtin_COLUMN()) {
    return {file, line, column};
  }
#else
  static constexpr SourceLoc here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                  std::source_location place = std::source_location::current()) {
    return {file, line, static_cast<int>(place.column())};
  }
#endif
  bool known() const {
    return line > 0;
  }
};

/// "per_token_cast.cpp:57": the file name without folders, so that texts do not depend on the
/// checkout.
TESSERA_API std::string to_string(SourceLoc loc);

/// Two lines: the author's line, and a caret under the name of the function that the column means, under the first
/// character where there is none. Empty if the file cannot be read.
TESSERA_API std::string excerpt(SourceLoc loc);

}  // namespace tessera
