// The README shows the first example as it is, and the ops as their signatures say.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tools/lib/op_listing.h"

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

// TESSERA_APPROVE=1 writes it again.
TEST_CASE("the README's table of ops is what the signatures say", "[readme]") {
  std::string page = text_of("README.md");
  const std::string table = tessera::tools::list_table(tessera::kernels::ops());
  const size_t begin = page.find("| op | does | tensors |\n");
  REQUIRE(begin != std::string::npos);
  const size_t end = page.find("\n\n", begin) + 1;
  if (std::getenv("TESSERA_APPROVE") != nullptr) {
    page.replace(begin, end - begin, table);
    std::ofstream(tessera::test::in_source("README.md")) << page;
  }
  CHECK(text_of("README.md").find("\n\n" + table + "\n") != std::string::npos);
}
