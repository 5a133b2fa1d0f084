// The documented declarations of a header as Markdown.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/lib/docs/header_docs.h"

namespace tessera::tools {
namespace {

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

/// Text outside of `code` with the characters that Markdown would take for its own.
std::string escaped(std::string_view text) {
  std::string result;
  bool is_code = false;
  for (const char c : text) {
    if (c == '`') is_code = !is_code;
    if (!is_code && (c == '*' || c == '<' || c == '[')) result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string reference_of(const HeaderDocs& docs) {
  std::string text, section, scope;
  for (const DocGroup& whole : docs.groups) {
    DocGroup group = whole;
    std::erase_if(group.declarations, [](const std::string& declaration) {
      return declaration.find("Recorder") != std::string::npos;  // private to the room
    });
    const bool says_nothing =
        group.text.empty() && !group.scope.empty() &&
        std::none_of(group.declarations.begin(), group.declarations.end(), [](const auto& one) {
          return one.find("operator") != std::string::npos || one.find("//") != std::string::npos;
        });
    const bool is_definition =  // of a template that was declared above
        group.text.empty() && group.scope.empty() && !group.declarations.empty() &&
        group.declarations.front().starts_with("template");
    if (group.declarations.empty() || says_nothing || is_definition) continue;
    if (group.section != section) text += fmt::format("### {}\n\n", escaped(group.section));
    section = group.section;
    if (group.scope != scope && !group.scope.empty() && group.section.empty()) {
      text += fmt::format("Members of `{}`:\n\n", group.scope);
    }
    scope = group.scope;
    text += fmt::format("```\n{}\n```\n\n", fmt::join(group.declarations, "\n"));
    if (!group.text.empty()) text += group.text + "\n\n";
  }
  if (!text.empty()) text.pop_back();
  return text;
}

std::string markdown_of_comment(const std::vector<std::string>& lines) {
  std::string text;
  bool is_code = false, is_errors = false;
  const auto begin_paragraph = [&] {
    if (!text.empty() && !text.ends_with("\n\n")) text += "\n";
  };
  const auto end_code = [&] {
    if (is_code) text += "```\n";
    is_code = false;
  };
  for (const std::string& line : lines) {
    const bool is_example = line.starts_with("Example:");
    if (is_example) {
      end_code();
      begin_paragraph();
      text += "```\n" + trimmed(std::string_view(line).substr(8)) + "\n";
      is_code = true;
      is_errors = false;
      continue;
    }
    if (line.starts_with("Errors:")) {
      end_code();
      begin_paragraph();
      text += "Errors: " + escaped(trimmed(std::string_view(line).substr(7))) + "\n";
      is_errors = true;
      continue;
    }
    const bool is_indented = line.starts_with("  ");
    if (is_indented && !is_errors) {
      if (!is_code) {
        begin_paragraph();
        text += "```\n";
      }
      is_code = true;
      text += line.substr(std::min(line.find_first_not_of(' '), size_t{2})) + "\n";
      continue;
    }
    if (!is_indented) is_errors = false;
    if (is_code) end_code();
    text += escaped(trimmed(line)) + "\n";
  }
  end_code();
  while (!text.empty() && text.front() == '\n') text.erase(0, 1);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace tessera::tools
