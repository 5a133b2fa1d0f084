#pragma once
// Errors and results of operations, at the author's line.

#include <string>

#include "dsl/value.h"

namespace tessera::dsl {

/// Throws the program error `code` at the author's line. `recorder` supplies the kernel's name; null
/// for a value that belongs to no kernel.
[[noreturn]] void operand_error(Recorder* recorder, const char* code, std::string what,
                                SourceLoc loc, std::string expected = {}, std::string got = {},
                                std::string hint = {});

/// The result of an author's operation. EXPRESSION_SIZE if it is too large.
Value made(Recorder* recorder, ir::Expr e);

inline std::string word(DType type) {
  return std::string(name(type));
}

}  // namespace tessera::dsl
