#pragma once
// Throws the library's Error in one expression, with the optional fields by name.

#include <string>
#include <string_view>

#include "dsl/base/error.h"

namespace tessera::runtime {

struct ErrorDetails {
  std::string argument = {};
  std::string expected = {};
  std::string got = {};
  std::string hint = {};
  std::string code = {};
};

/// Example: raise(ErrorKind::load, "per_token_cast", "the driver refused the image", {.got =
/// "..."});
[[noreturn]] void raise(ErrorKind kind, std::string_view op, std::string what,
                        ErrorDetails details = {});

}  // namespace tessera::runtime
