#include "tools/lib/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"

namespace tessera::tools {

void TextTable::row(std::vector<std::string> cells) {
  TESSERA_CHECK(cells.size() == columns_.size(), "a table row with the wrong number of cells");
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = columns_[c].title.size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (c > 0) line += "  ";
      line += columns_[c].align == Align::left ? fmt::format("{:<{}}", cell_of(c), widths[c])
                                               : fmt::format("{:>{}}", cell_of(c), widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) { return columns_[c].title; });
  add_line([&](size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) add_line([&](size_t c) { return row[c]; });
  return text;
}

}  // namespace tessera::tools
