#pragma once
// Columns of text for people.

#include <string>
#include <vector>

namespace tessera::tools {

enum class Align : unsigned char { left, right };

/// Example:
///   TextTable table({{"op", Align::left}, {"us", Align::right}});
///   table.row({"transpose", "59.3"});
///   fmt::print("{}", table.text());
class TextTable {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// One cell per column.
  void row(std::vector<std::string> cells);
  /// Title line, rule, rows; two spaces between columns, none at the end of a line.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tessera::tools
