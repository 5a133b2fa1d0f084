#include "dsl/base/error.h"

#include <fmt/format.h>

#include "dsl/base/printable.h"

namespace tessera {
namespace {

// Bytes of a name or value that a message quotes at most: they come from files and command lines.
constexpr size_t kMostQuoted = 2000;

/// The path as compiled, which terminals and editors can open.
std::string path_text(SourceLoc loc) {
  return fmt::format("{}:{}", loc.file, loc.line);
}

/// The page that explains the code of the text.
std::string page_of(const ErrorFields& f) {
  if (f.code.empty()) return "";
  return fmt::format("dsl/ERRORS.md, {}", f.code);
}

/// Fills in the hint and the code that most errors of their kind have.
ErrorFields complete(ErrorFields fields) {
  if (fields.kind == ErrorKind::argument && fields.code.empty()) fields.code = "VALUE";
  if (fields.hint.empty()) fields.hint = page_of(fields);
  return fields;
}

std::string render(const ErrorFields& f) {
  const auto quoted = [&](const std::string& field) {
    return f.kind == ErrorKind::argument ? printable_line(field, kMostQuoted) : printable(field);
  };
  std::string text = "tessera: ";
  if (!f.op.empty()) text += quoted(f.op) + ": ";
  text += quoted(f.what);
  if (!f.code.empty() && f.kind != ErrorKind::argument) text += fmt::format(" [{}]", f.code);
  if (!f.expected.empty()) text += "\n  expected  " + printable(f.expected);
  if (!f.got.empty()) text += "\n  got       " + quoted(f.got);
  if (!f.hint.empty() && f.hint != page_of(f)) text += "\n  hint      " + printable(f.hint);
  const auto add_place = [&](const char* label, const SourceLoc& loc) {
    if (!loc.known()) return;
    text += fmt::format("\n  {}       {}", label, printable(path_text(loc)));
    const std::string lines = printable(excerpt(loc));
    if (!lines.empty()) text += "\n" + lines.substr(0, lines.size() - 1);
  };
  add_place("at ", f.loc);
  add_place("and", f.related);
  return text;
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

Error::Error(ErrorFields fields)
    : std::runtime_error(render(fields)), fields_(complete(std::move(fields))) {}

Error::~Error() = default;

void internal_error(const std::string& message, SourceLoc loc) {
  throw Error({.kind = ErrorKind::internal,
               .what = "internal error, a bug in Tessera: " + message,
               .loc = loc});
}

}  // namespace tessera
