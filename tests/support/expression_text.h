#pragma once
// Reads expressions as ir::to_string prints them.

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/ir/expr.h"

namespace tessera::test {

/// The words and signs of one line, read from the left. What does not fit throws std::invalid_argument
/// with the line.
class Line {
 public:
  explicit Line(std::string text);

  bool is_at_end() const { return next_ == tokens_.size(); }
  const std::string& peek(size_t ahead = 0) const;
  std::string take();
  /// Takes the words, separated by blanks, if they come next.
  bool accept(std::string_view words);
  void expect(std::string_view words);
  int64_t integer();
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string text_;
  std::vector<std::string> tokens_;
  size_t next_ = 0;
};

using VarLookup = std::function<ir::VarRef(const std::string& name)>;

/// The expression that comes next. Numbers take the dtype of what they meet, else `expected`, else i32
/// or, with a point, f32.
ir::Expr read_expression(Line& line, const VarLookup& lookup,
                         std::optional<DType> expected = std::nullopt);

}  // namespace tessera::test
