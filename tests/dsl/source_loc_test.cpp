#include "dsl/base/source_loc.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"

using namespace tessera;

namespace {

struct Probe {
  SourceLoc first(int = 0, SourceLoc loc = SourceLoc::here()) const { return loc; }
  SourceLoc second(SourceLoc loc = SourceLoc::here()) const { return loc; }
  SourceLoc operator()(int, SourceLoc loc = SourceLoc::here()) const { return loc; }
};

/// The column of the caret, from 0, in the excerpt of a file of one line.
int caret_in(const std::string& line, int column) {
  const auto path = std::filesystem::temp_directory_path() / "tessera_source_loc_test.cpp";
  std::ofstream(path) << line << "\n";
  const std::string name = path.string(), text = excerpt({name.c_str(), 1, column});
  std::filesystem::remove(path);
  const size_t second = text.find('\n') + 1, caret = text.find('^', second);
  REQUIRE(caret != std::string::npos);
  CHECK(text.substr(second, caret - second).find_first_not_of(" \t") == std::string::npos);
  return static_cast<int>(caret - second) - 4;
}

}  // namespace

TEST_CASE("two calls on one line are told apart by the caret", "[dsl]") {
  const Probe probe;
  const SourceLoc first = probe.first(7), second = probe.second();
  const SourceLoc called = probe(probe.first().line);
  const auto expected = [](const std::string& line, const std::string& name) {
    return "    " + line + "\n    " + std::string(line.find(name), ' ') + "^\n";
  };
  const std::string two = "const SourceLoc first = probe.first(7), second = probe.second();";
  CHECK(excerpt(first) == expected(two, "first(7)"));
  CHECK(excerpt(second) == expected(two, "second()"));
  CHECK(excerpt(called) ==
        expected("const SourceLoc called = probe(probe.first().line);", "probe(probe"));
}

TEST_CASE("the caret stands under the name that the compiler's column means", "[dsl]") {
  const std::string call = "  k.copy(x.tile({0}, {4}), tile);";
  CHECK(caret_in(call, 9) == 2);     // GCC: the parenthesis of copy
  CHECK(caret_in(call, 3) == 2);     // Clang: where k.copy(..) begins
  CHECK(caret_in(call, 32) == 2);    // GCC: the end of copy, whose result is converted
  CHECK(caret_in("  4);", 4) == 1);  // of a call that began on another line
  CHECK(caret_in(call, 16) == 9);    // GCC: that of tile
  CHECK(caret_in(call, 10) == 9);    // Clang: x.tile(..)
  CHECK(caret_in("  y(3) = 1.5;", 4) == 0);
  CHECK(caret_in("  k.f(1.5);", 7) == 4);    // a value
  CHECK(caret_in("  p->f(1);", 3) == 3);     // through a pointer
  CHECK(caret_in("  k.f(a + b);", 9) == 6);  // an operator
}

TEST_CASE("without a column, or with one outside of the line, the caret stands first", "[dsl]") {
  CHECK(caret_in("  k.copy(a, b);", 0) == 0);
  CHECK(caret_in("  k.copy(a, b);", 1) == 0);
  CHECK(caret_in("  k.copy(a, b);", 99) == 0);
  CHECK(excerpt({"/nonexistent/file.cpp", 3, 1}).empty());
  CHECK(excerpt({}).empty());
}

TEST_CASE("characters of several bytes take one place before the caret", "[dsl]") {
  CHECK(caret_in("  k.s(\"\xC3\xA4\"), k.f(1);", 15) == 12);
}
