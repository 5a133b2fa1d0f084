#pragma once
// Parts of the sources and outputs of examples, for pages that show them.

#include <string>

namespace tessera::tools {

/// The text of a function at the left margin, from its first line to the brace that closes it. Errors: argument,
/// if the file has none of this name.
///
/// Example: function_text("examples/06_rms_norm.cpp", "rms_norm")
std::string function_text(const std::string& path, const std::string& name);

/// How many lines, blank ones left out, the first function of a file that returns a kernel has.
int kernel_lines(const std::string& path);

/// Lines of a text by their numbers: "45-60,125-143", with "..." between ranges. Errors: argument, if it has not so
/// many.
std::string lines_text(const std::string& path, const std::string& ranges);

}  // namespace tessera::tools
