#pragma once
// The one error type. Its fields are op, argument, expected, got, hint; the text is rendered from
// them.

#include <stdexcept>
#include <string>
#include <string_view>

#include "dsl/base/api.h"
#include "dsl/base/source_loc.h"

namespace tessera {

enum class ErrorKind {
  argument,     // the caller's mistake
  unsupported,  // valid but not supported: names the device or the missing form
  program,      // misuse of the DSL, reported at the author's line
  compile,      // NVRTC refused the source
  load,         // the driver refused the image
  driver,       // a driver call failed
  capture,      // would have to compile during stream capture
  trap,         // the checked executor stopped the program
  internal,     // our bug
};
/// "argument", "unsupported", ...: the names above.
TESSERA_API std::string_view name(ErrorKind kind);

/// The fields of an error; unnamed members are empty.
struct ErrorFields {
  ErrorKind kind = ErrorKind::internal;
  std::string op = {};        // op or kernel name
  std::string what = {};      // one line: "argument 'x' has the wrong shape"
  std::string argument = {};  // tensor, parameter or buffer name
  std::string expected = {};
  std::string got = {};
  std::string hint = {};  // only if certain
  /// Stable code of a rejected program or a trap, "OOB_CONST", or of an argument error, "SHAPE":
  /// dsl/ERRORS.md. Empty for errors of the driver and the compiler. The text of an argument error
  /// does not show it.
  std::string code = {};
  SourceLoc loc = {};      // the author's line
  SourceLoc related = {};  // the other line of a conflict
};

/// what() renders:
///   tessera: per_token_cast: argument 'out_sf' has the wrong shape
///     expected  f32[4096, 56]
///     got       f32[4096, 112]
///     hint      ...
///     at        file.cpp:57
///       the line
///       ^
class TESSERA_API Error : public std::runtime_error {
 public:
  explicit Error(ErrorFields fields);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  /// Defined in the library: one typeinfo, so that a catch elsewhere matches.
  ~Error() override;

  ErrorKind kind() const { return fields_.kind; }
  const std::string& op() const { return fields_.op; }
  const std::string& argument() const { return fields_.argument; }
  const std::string& expected() const { return fields_.expected; }
  const std::string& got() const { return fields_.got; }
  const std::string& hint() const { return fields_.hint; }
  const std::string& code() const { return fields_.code; }
  SourceLoc loc() const { return fields_.loc; }
  const ErrorFields& fields() const { return fields_; }

 private:
  ErrorFields fields_;
};

/// Throws an internal error ("a bug in Tessera") naming file and line.
[[noreturn]] TESSERA_API void internal_error(const std::string& message,
                                             SourceLoc loc = SourceLoc::here());

}  // namespace tessera

/// Internal invariant. Not for user input.
#define TESSERA_CHECK(condition, message)                   \
  do {                                                      \
    if (!(condition)) ::tessera::internal_error((message)); \
  } while (false)
