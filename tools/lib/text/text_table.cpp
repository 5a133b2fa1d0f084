#include "tools/lib/text/text_table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "dsl/base/error.h"

namespace tessera::tools {
namespace {

constexpr size_t kGap = 2;     // between columns
constexpr size_t kIndent = 4;  // of the further lines of a row

/// A text in lines of at most `width`, cut at blanks.
std::vector<std::string> folded(std::string_view text, size_t width) {
  std::vector<std::string> lines;
  while (text.size() > width) {
    const size_t blank = text.rfind(' ', width);
    if (blank == std::string_view::npos || blank == 0) break;  // one long word
    lines.emplace_back(text.substr(0, blank));
    text.remove_prefix(blank + 1);
  }
  lines.emplace_back(text);
  return lines;
}

}  // namespace

size_t line_width() {
  struct winsize size {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const size_t width = columns == nullptr ? 0 : std::strtoull(columns, nullptr, 10);
  return width == 0 ? SIZE_MAX : width;
}

void TextTable::row(std::vector<std::string> cells) {
  TESSERA_CHECK(cells.size() == columns_.size(), "a table row with the wrong number of cells");
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(size_t width) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t widest = columns_[c].title.size();
    for (const auto& row : rows_) widest = std::max(widest, row[c].size());
    const bool has_bound = columns_[c].align == Align::left && c > 0 && width > 4 * kIndent;
    widths.push_back(has_bound ? std::min(widest, width - kIndent) : widest);
  }
  std::vector<bool> begins_line(columns_.size());
  size_t end = 0;  // of the line so far
  for (size_t c = 0; c < columns_.size(); ++c) {
    begins_line[c] = c > 0 && end + kGap + widths[c] > width;
    end = (c == 0 ? 0 : begins_line[c] ? kIndent : end + kGap) + widths[c];
  }
  std::string text;
  const auto add_row = [&](const auto& cell_of) {
    std::string line;
    const auto end_line = [&] {
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    };
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (begins_line[c]) {
        end_line();
        line = std::string(kIndent, ' ');
      } else if (c > 0) {
        line += std::string(kGap, ' ');
      }
      std::vector<std::string> cell = folded(cell_of(c), widths[c]);
      for (size_t i = 0; i + 1 < cell.size(); ++i) {
        line += cell[i];
        end_line();
        line = std::string(kIndent, ' ');
      }
      line += columns_[c].align == Align::left ? fmt::format("{:<{}}", cell.back(), widths[c])
                                               : fmt::format("{:>{}}", cell.back(), widths[c]);
    }
    end_line();
  };
  add_row([&](size_t c) { return columns_[c].title; });
  add_row([&](size_t c) { return std::string(widths[c], '-'); });
  size_t heading = 0;
  for (size_t r = 0; r <= rows_.size(); ++r) {
    for (; heading < headings_.size() && headings_[heading].first == r; ++heading) {
      std::string indent;
      for (const std::string& line : folded(headings_[heading].second, width - kIndent)) {
        text += std::exchange(indent, std::string(kIndent, ' ')) + line + "\n";
      }
    }
    if (r < rows_.size()) add_row([&](size_t c) { return rows_[r][c]; });
  }
  return text;
}

std::string TextTable::json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& row : rows_) {
    nlohmann::ordered_json object;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = row[c];
      int64_t number = 0;
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
      const bool is_number = columns_[c].align == Align::right && error == std::errc() &&
                             end == cell.data() + cell.size();
      object[columns_[c].title] =
          is_number ? nlohmann::ordered_json(number) : nlohmann::ordered_json(cell);
    }
    list.push_back(std::move(object));
  }
  return list.dump(2) + "\n";
}

}  // namespace tessera::tools
