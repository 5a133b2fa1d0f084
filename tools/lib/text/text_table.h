#pragma once
// Columns of text for people.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tools {

/// Columns of a line of stdout: those of the terminal, else of the variable COLUMNS, else no bound (a
/// pipe or a file, where one row per line is easiest to search).
size_t line_width();

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
  /// A line of its own above the rows that follow, in no column. JSON has none.
  void heading(std::string text) { headings_.emplace_back(rows_.size(), std::move(text)); }
  /// Title line, rule, rows; two spaces between columns, none at the end of a line. A row that is
  /// wider than `width` goes on in further lines, indented and in columns of their own;
  /// a cell that is wider goes on in the next line.
  std::string text(size_t width = line_width()) const;

  /// A list of objects, a member per column; whole numbers of right columns are numbers.
  std::string json() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::pair<size_t, std::string>> headings_;  // number of the row below, text
};

}  // namespace tessera::tools
