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

/// The parts that files of the repository, records and the ops decide. Throws an argument error for another name.
///
///   include FILE               a program as a code block
///   function FILE NAME         one function of it
///   lines FILE 45-60,125-143   lines of what a program printed
///   reference HEADER           the documented declarations of a header
///   type HEADER NAME           one type of it
///   class HEADER NAME          a class with its members
///   python FILE                the public names of a Python module, with what each does
///   switches                   the environment variables
///   ops index, ops FAMILY      kernels/OPS.md and the page of a family
///   synonyms                   a user's words, and the ops that they find
///   speed, ratios, measured, languages    tools/measured
std::string made_from_sources(const std::string& root, const std::string& name);

/// A file that is wholly generated.
struct MadeFile {
  std::string path, text;
};
/// The generated files that are no pages: pictures.
std::vector<MadeFile> made_files(const std::string& root);

/// The ops by family, a line each; the section of each op of a family: tensors, parameters, rules, calls, and the
/// times recorded in tools/measured. Throws the argument errors of reading these.
std::string ops_index();
std::string ops_text(const std::string& root, const std::string& family);

/// A table of what `__all__` of a Python module names: signature and first sentence. Throws an argument error if
/// one has no docstring.
std::string python_text(const std::string& root, const std::string& file);

}  // namespace tessera::tools
