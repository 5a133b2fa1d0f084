#include "dsl/base/error.h"

#include <fmt/format.h>

namespace tessera {
namespace {

/// Names and values come from files: control characters must not reach a terminal, nor a NUL end
/// the text.
std::string printable(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < ' ' && c != '\n' && c != '\t') || byte == 0x7F;
    result += control ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return result;
}

std::string render(const ErrorFields& f) {
  std::string text = "tessera: ";
  if (!f.op.empty()) text += f.op + ": ";
  text += f.what;
  if (!f.code.empty()) text += fmt::format(" [{}]", f.code);
  if (!f.expected.empty()) text += "\n  expected  " + f.expected;
  if (!f.got.empty()) text += "\n  got       " + f.got;
  if (!f.hint.empty()) text += "\n  hint      " + f.hint;
  if (f.loc.known()) {
    text += "\n  at        " + to_string(f.loc);
    const std::string lines = excerpt(f.loc);
    if (!lines.empty()) text += "\n" + lines.substr(0, lines.size() - 1);
  }
  if (f.related.known()) {
    text += "\n  and       " + to_string(f.related);
    const std::string lines = excerpt(f.related);
    if (!lines.empty()) text += "\n" + lines.substr(0, lines.size() - 1);
  }
  return printable(text);
}

}  // namespace

std::string_view name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument:
      return "argument";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::program:
      return "program";
    case ErrorKind::compile:
      return "compile";
    case ErrorKind::load:
      return "load";
    case ErrorKind::driver:
      return "driver";
    case ErrorKind::capture:
      return "capture";
    case ErrorKind::trap:
      return "trap";
    case ErrorKind::internal:
      return "internal";
  }
  return "internal";
}

Error::Error(ErrorFields fields) : std::runtime_error(render(fields)), fields_(std::move(fields)) {}

void internal_error(const std::string& message, SourceLoc loc) {
  throw Error({.kind = ErrorKind::internal,
               .what = "internal error, a bug in Tessera: " + message,
               .loc = loc});
}

}  // namespace tessera
