#pragma once
// Reads the documented declarations of a public header, for the generated pages.
//
// This is no C++ parser: it knows the forms that this repository's headers have (clang-format, one
// statement after another, `///` above a declaration or `//` behind it).

#include <string>
#include <string_view>
#include <vector>

namespace tessera::tools {

/// Declarations under one comment.
struct DocGroup {
  /// One line each, without SourceLoc parameters. A struct of fields alone stands here as in the header.
  std::vector<std::string> declarations;
  std::string text;     // the comment as Markdown
  std::string section;  // of the last "// ---- title" above; empty without one
  std::string scope;    // the class or struct around them; empty outside
};

struct HeaderDocs {
  std::vector<DocGroup> groups;
  std::vector<std::string> undocumented;  // "file:12: void sync()"
};

/// Reads one header. Private members, forward declarations, aliases, destructors, copy and move
/// members and defaulted members need no comment and are left out.
///
/// Example: read_header("dsl/builder.h", read_file("dsl/builder.h")).undocumented.empty()
HeaderDocs read_header(std::string_view file, std::string_view text);

/// The groups as Markdown: sections become headings of the third level. Members that share the comment
/// of their type are left out.
std::string reference_of(const HeaderDocs& docs);

/// The text of a comment, `///` taken off, as Markdown: indented lines become code blocks,
/// "Errors:" and "Example:" keep their place.
std::string markdown_of_comment(const std::vector<std::string>& lines);

}  // namespace tessera::tools
