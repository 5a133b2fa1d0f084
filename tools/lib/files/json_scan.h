#pragma once
// A scan of the JSON text of an untrusted file, in one pass and without building a tree.

#include <cstddef>
#include <exception>
#include <string>

namespace tessera::tools {

struct JsonScan {
  bool too_deep = false;
  bool too_many = false;
  bool repeats = false;
  std::string repeated_name;  // a name that stands twice in one object, if `repeats`
};

/// Stops at the first finding: more than `most_levels` open objects and lists, more than
/// `most_names` names in one object, a name twice. Text that is no JSON has none: the parser
/// explains it. Example: scan_json(R"({"a":1,"a":2})", 4, 9).repeated_name == "a".
JsonScan scan_json(const std::string& text, int most_levels, size_t most_names);

/// The message of an exception of the JSON library, without the library's own prefix.
std::string json_problem(const std::exception& error);

}  // namespace tessera::tools
