#include "dsl/base/source_loc.h"

#include <fmt/format.h>

#include <fstream>

namespace tessera {
namespace {

bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Where the caret belongs: a call's name begins before its parentheses, of which GCC means one, or follows the objects
/// that it is called on, whose first Clang means.
size_t caret_of(const std::string& line, size_t at) {
  if (at >= line.size()) return std::string::npos;
  const size_t given = at;
  for (int open = 0; line[at] == ')' || open > 0; --at) {
    open += line[at] == ')' ? 1 : line[at] == '(' ? -1 : 0;
    if (open == 0) break;
    if (at == 0) return given;
  }
  size_t end = at;
  while (end < line.size() && (in_name(line[end]) || line[end] == '.' || line[end] == ':' ||
                               line.compare(end, 2, "->") == 0)) {
    end += line[end] == '-' ? 2 : 1;
  }
  if (end >= line.size() || line[end] != '(') return at;
  size_t begin = end;
  while (begin > 0 && in_name(line[begin - 1])) --begin;
  return begin == end ? at : begin;
}

}  // namespace

std::string to_string(SourceLoc loc) {
  if (!loc.known()) return "unknown location";
  std::string path = loc.file;
  return fmt::format("{}:{}", path.substr(path.find_last_of('/') + 1), loc.line);
}

std::string excerpt(SourceLoc loc) {
  if (!loc.known()) return {};
  std::ifstream file(loc.file);
  std::string line;
  for (int i = 0; i < loc.line; ++i) {
    if (!std::getline(file, line)) return {};
  }
  const auto first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  size_t caret = loc.column > 0 ? caret_of(line, static_cast<size_t>(loc.column) - 1) : first;
  if (caret == std::string::npos || caret < first) caret = first;
  std::string before;  // as wide as the text above it
  for (const char c : line.substr(first, caret - first)) {
    if ((c & 0xC0) != 0x80) before += c == '\t' ? '\t' : ' ';
  }
  return fmt::format("    {}\n    {}^\n", line.substr(first), before);
}

}  // namespace tessera
