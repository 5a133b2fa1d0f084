#include "tools/lib/docs/example_source.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "dsl/base/error.h"
#include "tools/lib/files/input_file.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_text_file(path, kMostBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

[[noreturn]] void fail(const std::string& path, std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = path + ": a page shows a part that is not there",
               .argument = path,
               .expected = std::move(expected),
               .got = std::move(got)});
}

/// The lines of the first function whose first line holds `words`.
std::vector<std::string> function_lines(const std::string& path, const std::string& words) {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(path)) {
    const bool begins = found.empty() && !line.empty() && line[0] != ' ' && line[0] != '/' &&
                        line.find(words) != std::string::npos && line.back() == '{';
    if (begins || !found.empty()) found.push_back(line);
    if (!found.empty() && line == "}") return found;
  }
  fail(path, "a function at the left margin, and its closing brace", words);
}

}  // namespace

std::string function_text(const std::string& path, const std::string& name) {
  std::string text;
  for (const std::string& line : function_lines(path, " " + name + "(")) text += line + "\n";
  return text;
}

int kernel_lines(const std::string& path) {
  int count = 0;
  for (const std::string& line : function_lines(path, "ir::Kernel ")) count += line.empty() ? 0 : 1;
  return count;
}

std::string lines_text(const std::string& path, const std::string& ranges) {
  const std::vector<std::string> lines = lines_of(path);
  std::istringstream words(ranges);
  std::string text;
  for (std::string range; std::getline(words, range, ',');) {
    char* end = nullptr;
    const int64_t first = std::strtoll(range.c_str(), &end, 10);
    const int64_t last = *end == '-' ? std::strtoll(end + 1, &end, 10) : first;
    if (*end != '\0' || first < 1 || last < first || last > static_cast<int64_t>(lines.size())) {
      fail(path, fmt::format("lines 1 to {}", lines.size()), range);
    }
    if (!text.empty()) text += "...\n";
    for (int64_t i = first; i <= last; ++i) text += lines[static_cast<size_t>(i - 1)] + "\n";
  }
  return text;
}

}  // namespace tessera::tools
