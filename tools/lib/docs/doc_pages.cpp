#include "tools/lib/docs/doc_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "dsl/base/error.h"
#include "kernels/op.h"
#include "runtime/options.h"
#include "tools/lib/calls/op_listing.h"
#include "tools/lib/docs/example_source.h"
#include "tools/lib/docs/header_docs.h"
#include "tools/lib/docs/measured_page.h"
#include "tools/lib/files/input_file.h"

namespace tessera::tools {
namespace {

constexpr int64_t kMostBytes = 1 << 22;  // of a page or a header
constexpr std::string_view kBegin = "<!-- made: ", kBeginEnd = " -->\n", kEnd = "<!-- end -->";

[[noreturn]] void fail(std::string what, std::string expected, std::string got) {
  throw Error({.kind = ErrorKind::argument,
               .what = std::move(what),
               .expected = std::move(expected),
               .got = std::move(got)});
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c != ' ') {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

HeaderDocs docs_of(const std::string& root, const std::string& header) {
  return read_header(header, read_text_file(root + "/" + header, kMostBytes));
}

/// One type of a header, as it stands there.
std::string type_text(const std::string& root, const std::string& header, const std::string& name) {
  HeaderDocs docs = docs_of(root, header);
  std::erase_if(docs.groups, [&](const DocGroup& group) {
    const std::string& first = group.declarations.front();
    return first.find("struct " + name + " ") != 0 && first.find("enum class " + name + " ") != 0;
  });
  if (docs.groups.empty()) fail("a page asks for a type that is not there", header, name);
  return reference_of(docs);
}

/// A class of a header with its members.
std::string class_text(const std::string& root, const std::string& header,
                       const std::string& name) {
  HeaderDocs docs = docs_of(root, header);
  std::erase_if(docs.groups, [&](const DocGroup& group) {
    const std::string& first = group.declarations.front();
    return group.scope != name && first != "class " + name && first != "struct " + name;
  });
  if (docs.groups.empty()) fail("a page asks for a class that is not there", header, name);
  for (DocGroup& group : docs.groups) group.section.clear();
  return reference_of(docs);
}

/// A part of an example, whose test compiles it; generated CUDA; or what a program printed.
std::string block_of(const std::string& file, const std::string& text) {
  const std::string fence = file.ends_with(".cpp")  ? "```cpp from: " + file
                            : file.ends_with(".cu") ? "```cpp no-run: generated"
                                                    : "```";
  return fence + "\n" + text + "```\n";
}

std::string switches_text() {
  std::string text = "| variable | meaning |\n|---|---|\n";
  for (const runtime::SwitchInfo& one : runtime::switches()) {
    text += fmt::format("| `{}` | {} |\n", one.name, one.meaning);
  }
  return text;
}

}  // namespace

std::vector<std::string> pages_below(const std::string& root) {
  namespace fs = std::filesystem;
  if (!fs::exists(root + "/dsl/builder.h")) {
    fail("this folder is no checkout of Tessera", "a folder with dsl/builder.h", root);
  }
  std::vector<std::string> pages;
  for (fs::recursive_directory_iterator at(root), end; at != end; ++at) {
    const std::string name = at->path().filename().string();
    const bool is_hidden = name[0] == '.' && name != ".github";
    if (at->is_directory() && (is_hidden || (at.depth() == 0 && name.starts_with("build")))) {
      at.disable_recursion_pending();
    } else if (at->is_regular_file() && at->path().extension() == ".md") {
      pages.push_back(fs::relative(at->path(), root).string());
    }
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

std::string filled(const std::string& page, const std::string& text, const MakePart& make) {
  std::string result;
  size_t at = 0;
  while (true) {
    const size_t begin = text.find(kBegin, at);
    if (begin == std::string::npos) return result + text.substr(at);
    const size_t name_at = begin + kBegin.size();
    const size_t name_end = text.find(kBeginEnd, name_at);
    const size_t end = text.find(kEnd, name_at);
    if (name_end == std::string::npos || end == std::string::npos || end < name_end) {
      fail("a generated part of a page has no end", std::string(kEnd),
           fmt::format("{}: {}", page, text.substr(begin, 60)));
    }
    const size_t body = name_end + kBeginEnd.size();
    result += text.substr(at, body - at);
    result += "\n" + make(text.substr(name_at, name_end - name_at)) + "\n";
    at = end;
  }
}

std::string made_from_sources(const std::string& root, const std::string& name) {
  const std::vector<std::string> words = words_of(name);
  if (words[0] == "include" && words.size() == 2) {
    return "```cpp\n" + read_text_file(root + "/" + words[1], kMostBytes) + "```\n";
  }
  if (words[0] == "reference" && words.size() == 2) return reference_of(docs_of(root, words[1]));
  if (words[0] == "type" && words.size() == 3) return type_text(root, words[1], words[2]);
  if (words[0] == "class" && words.size() == 3) return class_text(root, words[1], words[2]);
  if (words[0] == "function" && words.size() == 3) {
    return block_of(words[1], function_text(root + "/" + words[1], words[2]));
  }
  if (words[0] == "lines" && words.size() == 3) {
    return block_of(words[1], lines_text(root + "/" + words[1], words[2]));
  }
  if (words[0] == "python" && words.size() == 2) return python_text(root, words[1]);
  if (name == "switches") return switches_text();
  if (name == "synonyms") return synonyms_text(kernels::ops());
  if (name == "ops index") return ops_index();
  if (words[0] == "ops" && words.size() == 2) return ops_text(root, words[1]);
  if (name == "speed") return speed_text(Records::load(root));
  if (name == "ratios") return ratios_text(Records::load(root));
  if (name == "measured") return measured_text(Records::load(root));
  if (name == "languages") return languages_text(root, Records::load(root));
  fail("a page asks for a part that nothing makes",
       "include FILE, function FILE NAME, lines FILE RANGES, reference HEADER, type HEADER NAME, "
       "class HEADER "
       "NAME, python FILE, switches, synonyms, ops index, ops FAMILY, ratios, measured, languages, "
       "commands",
       name);
}

std::vector<MadeFile> made_files(const std::string& root) {
  return {{"tools/measured/roofline.svg", roofline_picture(Records::load(root))}};
}

}  // namespace tessera::tools
