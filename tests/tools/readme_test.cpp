// The README shows the first example as it is.

#include <fstream>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(tessera::test::in_source(path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the README shows the first example as it is", "[readme]") {
  const std::string example = text_of("examples/01_hello_tile.cpp");
  REQUIRE(!example.empty());
  CHECK(text_of("README.md").find("```cpp\n" + example + "```\n") != std::string::npos);
}
