#include "tests/tools/markdown.h"

#include <cctype>
#include <regex>
#include <sstream>

#include "tests/support/places.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lib/docs/doc_pages.h"

namespace tessera::tests {
namespace {

std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '_' || c == '-') {
      anchor += static_cast<char>(std::tolower(byte));
    } else if (c == ' ') {
      anchor += '-';
    }
  }
  return anchor;
}

CodeBlock block_of(const std::string& page, int line, const std::string& info) {
  const size_t space = info.find(' ');
  return {page, line + 1, info.substr(0, space),
          space == std::string::npos ? "" : info.substr(space + 1), ""};
}

std::vector<std::string> found_in(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

Page read_page(const std::string& path) {
  Page page;
  page.path = path;
  page.text = read_text(test::in_source(path));
  std::istringstream lines(page.text);
  bool in_block = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with("```")) {
      if (!in_block) page.blocks.push_back(block_of(path, number, line.substr(3)));
      in_block = !in_block;
    } else if (in_block) {
      page.blocks.back().text += line + "\n";
    } else {
      page.prose += line + "\n";
      const size_t text = line.find_first_not_of('#');
      if (line[0] == '#' && line[text] == ' ')
        page.anchors.push_back(anchor_of(line.substr(text + 1)));
    }
  }
  static const std::regex span("`([^`\n]+)`"), link("\\]\\(([^)\\s]+)\\)");
  page.spans = found_in(page.prose, span);
  page.links = found_in(std::regex_replace(page.prose, span, ""), link);
  return page;
}

}  // namespace

const std::vector<Page>& pages() {
  static const std::vector<Page> all = [] {
    std::vector<Page> read;
    for (const std::string& path : tools::pages_below(test::in_source("."))) {
      read.push_back(read_page(path));
    }
    return read;
  }();
  return all;
}

}  // namespace tessera::tests
