#pragma once
// A first look at the JSON header of a file that nobody vouches for, in one pass and without
// building a tree.

#include <string>

namespace tessera::tools {

struct HeaderScan {
  bool too_deep = false;
  bool repeats = false;
  std::string repeated_name;  // a name that stands twice in one object, if `repeats`
};

/// Stops at the first finding. Text that is no JSON has none: the parser explains it.
/// Example: scan_header(R"({"a":1,"a":2})", 4).repeated_name == "a".
HeaderScan scan_header(const std::string& text, int most_levels);

}  // namespace tessera::tools
