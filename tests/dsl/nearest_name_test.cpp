// The word that a mistyped name probably means.

#include "dsl/base/nearest_name.h"

#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

TEST_CASE("edit distance counts single edits", "[dsl]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("num_topk", "num_topks") == 1);
  const std::vector<std::string> words = {"format", "num_topk"};
  CHECK(nearest_name("fromat", words) == "format");
  CHECK(nearest_name("completely_else", words).empty());
  const std::vector<std::string> short_words = {"e4m3", "sf", "x"};
  CHECK(nearest_name("e4m", short_words) == "e4m3");
  CHECK(nearest_name("e5m2", short_words).empty());  // half of it is other
  CHECK(nearest_name("sg", short_words) == "sf");
  CHECK(nearest_name("y", short_words).empty());
  const std::vector<std::string> sizes = {"state_page_size", "page_size"};
  CHECK(nearest_name("out_page_size", sizes) == "page_size");  // four edits from both
  CHECK(nearest_name("", short_words).empty());
  CHECK(nearest_name("fmt", words) == "format");
  CHECK(nearest_name("ntk", words) == "num_topk");
  const std::vector<std::string> both = {"num_topk", "num_groups"};
  CHECK(nearest_name("num", both).empty());  // short for either
  CHECK(did_you_mean("fromat", words) == "did you mean 'format'?");
  CHECK(did_you_mean("y", short_words).empty());
}

}  // namespace
}  // namespace tessera
