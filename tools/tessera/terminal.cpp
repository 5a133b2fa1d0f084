// The program's output on the terminal.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dsl/base/printable.h"
#include "runtime/no_write_signals.h"
#include "tools/tessera/command.h"

namespace tessera::tools {

bool print(const std::string& text) {
  const runtime::NoWriteSignals guard;
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

namespace {

void write_to_stderr(const std::string& text) {
  const runtime::NoWriteSignals guard;
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

}  // namespace

std::string painted(std::string_view text, Paint paint, int descriptor) {
  const auto is = [](const char* variable, std::string_view value) {
    const char* set = std::getenv(variable);
    return set != nullptr && set == value;
  };
  const char* no_colour = std::getenv("NO_COLOR");
  const bool is_refused = (no_colour != nullptr && *no_colour != '\0') || is("TERM", "dumb");
  if (is_refused || ::isatty(descriptor) == 0) return std::string(text);
  constexpr const char* kCodes[] = {"1", "1;31", "1;36"};
  return "\x1b[" + std::string(kCodes[static_cast<int>(paint)]) + "m" + std::string(text) +
         "\x1b[0m";
}

void tell(const std::string& text) {
  std::string shown = printable(text);
  constexpr std::string_view kName = "tessera:", kHint = "\n  hint ";
  if (const size_t hint = shown.find(kHint); hint != std::string::npos) {
    shown.replace(hint + 3, 4, painted("hint", Paint::hint, STDERR_FILENO));
  }
  if (shown.starts_with(kName)) {
    shown.replace(0, kName.size(), painted(kName, Paint::error, STDERR_FILENO));
  }
  write_to_stderr(shown);
}

void show_progress(const std::string& text) {
  if (::isatty(STDERR_FILENO) != 0) write_to_stderr("\r\x1b[K" + text);
}

}  // namespace tessera::tools
