#pragma once
// Lines of C++ with indentation, broken at 100 columns.

#include <string>
#include <string_view>

namespace tessera::codegen::cuda {

class SourceText {
 public:
  /// One statement or brace line, broken where it is too long, at the spaces with the fewest
  /// brackets around them.
  void line(std::string_view text);
  /// True if line() would not break it.
  bool fits(std::string_view text) const;
  /// "// text"; each of its lines, after an empty line unless a block or another comment has just
  /// begun.
  void comment(std::string_view text);
  /// "#pragma ..." or similar: indented, never broken.
  void directive(std::string_view text);
  void empty_line();

  /// `head {`, deeper from here on.
  void open(std::string_view head);
  /// `}`, optionally with what follows on the same line, such as " else {", which opens again.
  void close(std::string_view tail = "");

  const std::string& str() const { return text_; }
  /// Lines so far.
  int num_lines() const { return num_lines_; }

 private:
  enum class Last { open, comment, other };

  void put(std::string_view text, int extra_indent);
  void end_line();

  std::string text_;
  int num_lines_ = 0;
  int depth_ = 0;
  Last last_ = Last::open;
};

}  // namespace tessera::codegen::cuda
