// The public names of a Python module as a table. This is no Python parser: it knows the form that the modules of
// this repository have, a docstring under each def and class at the left margin.

#include <fmt/format.h>

#include <sstream>
#include <vector>

#include "dsl/base/error.h"
#include "tools/lib/docs/doc_pages.h"
#include "tools/lib/files/input_file.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

[[noreturn]] void fail(const std::string& file, std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = file + ": a page lists a name that has no docstring",
               .argument = file,
               .expected = std::move(expected),
               .got = std::move(got)});
}

/// The names between `__all__ = [` and `]`.
std::vector<std::string> public_names(const std::string& text) {
  std::vector<std::string> names;
  const size_t begin = text.find("__all__ = [");
  if (begin == std::string::npos) return names;
  const std::string list = text.substr(begin, text.find(']', begin) - begin);
  for (size_t at = list.find('"'); at != std::string::npos;) {
    const size_t end = list.find('"', at + 1);
    names.push_back(list.substr(at + 1, end - at - 1));
    at = list.find('"', end + 1);
  }
  return names;
}

std::string with_single_spaces(const std::string& text) {
  std::istringstream words(text);
  std::string result;
  for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

/// The first sentence of the docstring that begins behind `at`.
std::string first_sentence(const std::string& text, size_t at) {
  const size_t begin = text.find("\"\"\"", at) + 3;
  const std::string whole = text.substr(begin, text.find("\"\"\"", begin) - begin);
  std::string sentence = with_single_spaces(whole.substr(0, whole.find("\n\n")));
  for (size_t i = 0; i + 1 < sentence.size(); ++i) {
    if ((sentence[i] == '.' && sentence[i + 1] == ' ') || sentence[i] == ':') {
      return sentence.substr(0, i);
    }
  }
  if (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

/// "(x, *, repeat=10, eps=1e-6)" of "(x: Tensor, *, repeat: int = 10, eps: float = 1e-6)".
std::string bare_arguments(const std::string& text) {
  std::string result, word;
  int depth = 0;
  bool is_type = false;
  for (const char c : text) {
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ':' && depth == 0) is_type = true;
    if (c == '=' || (c == ',' && depth == 0)) is_type = false;
    if (!is_type && c != ' ' && c != '\n') result += c;
    if (!is_type && c == ',' && depth == 0) result += ' ';
  }
  while (result.ends_with(' ') || result.ends_with(',')) result.pop_back();
  if (result.starts_with("self, ")) result.erase(0, 6);
  return result == "self" ? "" : result;
}

/// The text between the parenthesis behind `at` and the one that closes it.
std::string arguments_at(const std::string& text, size_t at) {
  const size_t begin = text.find('(', at) + 1;
  int depth = 1;
  size_t end = begin;
  for (; end < text.size() && depth > 0; ++end) {
    if (text[end] == '(') ++depth;
    if (text[end] == ')') --depth;
  }
  return bare_arguments(text.substr(begin, end - 1 - begin));
}

}  // namespace

std::string python_text(const std::string& root, const std::string& file) {
  const std::string text = read_text_file(root + "/" + file, kMostBytes);
  std::string table = "| name | does |\n|---|---|\n";
  for (const std::string& name : public_names(text)) {
    const size_t function = text.find("\ndef " + name + "("),
                 type = text.find("\nclass " + name + "(");
    if (function == std::string::npos && type == std::string::npos) continue;  // of another module
    const size_t at = std::min(function, type);
    const size_t docstring = text.find("\"\"\"", at), next = text.find("\n\n\n", at);
    if (docstring == std::string::npos || docstring > next) fail(file, "a docstring", name);
    std::string call = name;
    if (function != std::string::npos) call += "(" + arguments_at(text, function) + ")";
    const size_t init =
        type == std::string::npos ? std::string::npos : text.find("def __init__(", type);
    if (init != std::string::npos && init < next) call += "(" + arguments_at(text, init) + ")";
    table += fmt::format("| `{}` | {} |\n", call, first_sentence(text, at));
  }
  return table;
}

}  // namespace tessera::tools
