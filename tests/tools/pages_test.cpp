// The pages of the repository: generated parts are up to date, links lead somewhere, names exist.

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "runtime/options.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tests/tools/markdown.h"
#include "tests/tools/program.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

namespace fs = std::filesystem;

const Page& page_of(const std::string& path) {
  const auto found = std::find_if(pages().begin(), pages().end(),
                                  [&](const Page& page) { return page.path == path; });
  REQUIRE(found != pages().end());
  return *found;
}

/// Every word of the sources, scripts and build files.
const std::set<std::string>& source_words() {
  static const std::set<std::string> all = [] {
    std::set<std::string> words;
    const auto add = [&](const fs::path& path) {
      std::string word;
      for (const char c : read_text(path.string()) + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
          word += c;
        } else if (!word.empty()) {
          words.insert(std::exchange(word, ""));
        }
      }
      words.insert(path.stem().string());
    };
    for (const char* room :
         {"dsl", "codegen", "runtime", "kernels", "tools", "tests", "examples"}) {
      for (const auto& entry : fs::recursive_directory_iterator(test::in_source(room))) {
        if (entry.is_regular_file() && entry.path().extension() != ".md") add(entry.path());
      }
    }
    add(test::in_source("CMakeLists.txt"));
    return words;
  }();
  return all;
}

/// The output of `tessera help COMMAND` for all commands.
const std::string& help_text() {
  static const std::string all = [] {
    std::string text = run_tessera({"--help"}).out;
    for (const char* command : {"list", "run", "show", "check", "bench", "tune", "report",
                                "compile", "cache", "doctor", "docs", "completion"}) {
      text += run_tessera({"help", command}).out;
    }
    for (const char* command : {"ls", "clear", "extract"}) {
      text += run_tessera({"help", "cache", command}).out;
    }
    text += run_tessera({"help", "tune", "export"}).out;
    return text;
  }();
  return all;
}

TEST_CASE("generated parts of pages are up to date (U49)", "[pages]") {
  const ProgramResult docs = run_tessera({"docs", test::in_source("."), "--check"});
  CHECK(docs.err == "");
  CHECK(docs.exit_code == 0);
}

TEST_CASE("every header that a page for users names is installed", "[pages]") {
  const std::string text = read_text(test::in_source("tools/cmake/public_headers.txt"));
  std::set<std::string> installed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) installed.insert(line);
  const std::regex header("(?:dsl|runtime|kernels|tools)/[a-z0-9_/]+\\.h\\b");
  int count = 0;
  for (const Page& page : pages()) {
    // Pages for those who change Tessera name its inside.
    if (page.path.starts_with("codegen/") || page.path.starts_with(".github/")) continue;
    const std::sregex_iterator end;
    for (std::sregex_iterator at(page.text.begin(), page.text.end(), header); at != end; ++at) {
      CAPTURE(page.path, at->str());
      CHECK(installed.count(at->str()) == 1);
      ++count;
    }
  }
  CHECK(count > 10);
}

TEST_CASE("the README has at most 140 lines, a page of ops at most 2600 (U50)", "[pages]") {
  const auto lines = [](const Page& page) {
    return std::count(page.text.begin(), page.text.end(), '\n');
  };
  CHECK(lines(page_of("README.md")) <= 140);
  for (const Page& page : pages()) {
    CAPTURE(page.path);
    if (page.path.starts_with("kernels/")) CHECK(lines(page) <= 2600);
  }
}

TEST_CASE("links of pages lead to files and headings (U50)", "[pages]") {
  for (const Page& page : pages()) {
    for (const std::string& link : page.links) {
      CAPTURE(page.path, link);
      if (link.starts_with("https://")) continue;
      const size_t hash = link.find('#');
      const std::string file = link.substr(0, hash);
      const fs::path target = file.empty()
                                  ? fs::path(page.path)
                                  : (fs::path(page.path).parent_path() / file).lexically_normal();
      CHECK(fs::exists(test::in_source(target.string())));
      if (hash == std::string::npos) continue;
      const std::vector<std::string>& anchors = page_of(target.string()).anchors;
      CHECK(std::find(anchors.begin(), anchors.end(), link.substr(hash + 1)) != anchors.end());
    }
  }
}

TEST_CASE("switches and CMake options that pages name exist (U50)", "[pages]") {
  std::set<std::string> known;
  for (const runtime::SwitchInfo& one : runtime::switches()) known.emplace(one.name);
  static const std::regex name("TESSERA_[A-Z_]*[A-Z]");
  std::string build = read_text(test::in_source("CMakeLists.txt"));
  for (const auto& file : fs::directory_iterator(test::in_source("tools/cmake"))) {
    if (file.path().extension() != ".md") build += read_text(file.path().string());
  }
  for (const Page& page : pages()) {
    if (page.path == ".github/CHANGELOG.md") continue;  // of older versions
    for (std::sregex_iterator at(page.text.begin(), page.text.end(), name), end; at != end; ++at) {
      CAPTURE(page.path, at->str());
      CHECK((known.contains(at->str()) || build.find(at->str()) != std::string::npos));
    }
  }
}

TEST_CASE("options of the program that pages name exist (U50)", "[pages]") {
  static const std::regex call("\\btessera ([a-z]+)((?: [^`\n#]*)?)"), option("(?:^| )(--[a-z-]+)");
  for (const Page& page : pages()) {
    if (page.path == ".github/CHANGELOG.md") continue;
    std::vector<std::string> texts = page.spans;
    for (const CodeBlock& block : page.blocks) {
      if (block.language == "sh") texts.push_back(block.text);
    }
    for (const std::string& text : texts) {
      for (std::sregex_iterator at(text.begin(), text.end(), call), end; at != end; ++at) {
        CAPTURE(page.path, at->str());
        const std::string command = (*at)[1], words = (*at)[2];
        if (!text.starts_with("tessera") &&
            text.find("tools/tessera " + command) == std::string::npos) {
          continue;
        }
        if (command != "help") {
          CHECK(help_text().find("  " + command + " ") != std::string::npos);
        }
        for (std::sregex_iterator one(words.begin(), words.end(), option); one != end; ++one) {
          CAPTURE((*one)[1].str());
          CHECK(help_text().find((*one)[1].str()) != std::string::npos);
        }
      }
    }
    for (const std::string& span : page.spans) {
      if (!span.starts_with("--") || page.path != "tools/README.md") continue;
      CAPTURE(page.path, span);
      CHECK(help_text().find(span.substr(0, span.find(' '))) != std::string::npos);
    }
  }
}

TEST_CASE("names and paths that pages put into code exist in the sources (U50)", "[pages]") {
  static const std::regex identifier("[a-z][a-z0-9]*(_[a-z0-9]+)+"),
      path("(dsl|codegen|runtime|kernels|tools|tests|examples)/[A-Za-z0-9_./-]+");
  for (const Page& page : pages()) {
    // Older versions, the contract's own words, and another library's.
    if (page.path == ".github/CHANGELOG.md" || page.path == "tests/tools/contract.md" ||
        page.path == "tools/python/FROM_TILEKERNELS.md") {
      continue;
    }
    for (const std::string& span : page.spans) {
      CAPTURE(page.path, span);
      if (std::regex_match(span, identifier)) CHECK(source_words().contains(span));
      if (std::regex_match(span, path)) CHECK(fs::exists(test::in_source(span)));
    }
  }
}

TEST_CASE("every error code has an entry, and every entry is a code", "[pages]") {
  static const std::regex entry("\\| `([A-Z0-9_]+)` \\|"),
      code(
          "(?:fail|refuse)\\(\\s*(?:[\\w.()>-]+,\\s*)?\"([A-Z][A-Z0-9_]+)\"|"
          "[cC]ode = \"([A-Z0-9_]+)\"|kCancelled = \"([A-Z]+)\"");
  std::set<std::string> entries, words;
  const std::string& page = page_of("dsl/ERRORS.md").text;
  for (std::sregex_iterator at(page.begin(), page.end(), entry), end; at != end; ++at) {
    CHECK(entries.insert((*at)[1]).second);
  }
  REQUIRE(entries.size() > 70);
  for (const char* room : {"dsl", "codegen", "runtime", "kernels"}) {
    for (const auto& file : fs::recursive_directory_iterator(test::in_source(room))) {
      if (!file.is_regular_file() || file.path().extension() == ".md") continue;
      const std::string text = read_text(file.path().string());
      for (std::sregex_iterator at(text.begin(), text.end(), code), end; at != end; ++at) {
        const std::string found = (*at)[1].str() + (*at)[2].str() + (*at)[3].str();
        CAPTURE(file.path().string(), found);
        CHECK(entries.contains(found));
      }
      for (const std::string& one : entries) {
        if (text.find('"' + one + '"') != std::string::npos) words.insert(one);
      }
    }
  }
  for (const std::string& one : entries) {
    CAPTURE(one);
    CHECK(words.contains(one));
  }
}

}  // namespace
}  // namespace tessera::tests
