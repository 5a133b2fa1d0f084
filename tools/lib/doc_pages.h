#pragma once
// The pages of the repository: which there are, and the parts of them that are generated.
//
// A generated part stands between two comments, which stay:
//   <!-- made: NAME -->
//   ...
//   <!-- end -->
// Everything else of a page is written by hand.

#include <functional>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace tessera::tools {

/// Paths of the Markdown files below `root`, relative and in order; build folders and hidden folders but
/// .github are left out. Throws an argument error if `root` holds no Tessera.
std::vector<std::string> pages_below(const std::string& root);

/// The text of a generated part, by its name. Throws an argument error for an unknown name.
using MakePart = std::function<std::string(const std::string& name)>;

/// The page with all its generated parts made again. Errors: argument, naming page and part.
///
/// Example: filled("README.md", read_file("README.md"), make) == read_file("README.md")
std::string filled(const std::string& page, const std::string& text, const MakePart& make);

/// The parts that files of the repository and the ops decide: "include FILE" (a program as a code
/// block), "reference HEADER", "type HEADER NAME", "switches" and "ops". Throws an argument error for
/// another name.
std::string made_from_sources(const std::string& root, const std::string& name);

/// One section per op: tensors, parameters, rules, calls, and the times recorded in tools/measured.
/// Throws the argument errors of reading these.
std::string ops_text(const std::string& root);

}  // namespace tessera::tools
