#include "tests/tools/spec_tables.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <sstream>

namespace tessera::tests {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNameLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

std::string trim(std::string text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// Splits at `separator` where no bracket is open.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
    depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = trim(part);
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

/// Without remarks: a parenthesis that follows a space.
std::string without_remarks(const std::string& text) {
  std::string result;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' && (depth > 0 || (i > 0 && text[i - 1] == ' '))) ++depth;
    if (depth == 0) result += text[i];
    if (text[i] == ')' && depth > 0) --depth;
  }
  return trim(result);
}

/// "[..,W], rank >= 1" without what follows the type.
std::string without_rule(const std::string& text) {
  const size_t end = text.find(text.rfind("SF(", 0) == 0 ? ')' : ']');
  return trim(text.substr(0, text.find(',', end == std::string::npos ? 0 : end)));
}

Json tensor_of(std::string name, const std::string& kind, const std::string& text, bool is_output) {
  const std::string type = without_rule(text);
  const bool accumulate = kind == "acc", list = kind == "list";
  const std::string role = kind == "inout" || accumulate ? "inout" : is_output ? "out" : "in";
  const bool optional = name.back() == '?';
  if (optional) name.pop_back();
  Json tensor = {{"name", name},           {"role", role},
                 {"optional", optional},   {"accumulate", accumulate},
                 {"list", list},           {"dtypes", Json::array()},
                 {"shape", Json::array()}, {"layout", "row_major"}};
  if (type.rfind("SF(", 0) == 0) {
    tensor["layout"] = type;
    return tensor;
  }
  const size_t open = type.find('['), close = type.find(']');
  for (const std::string& dtype : split(trim(type.substr(0, open)), '/')) {
    tensor["dtypes"].push_back(dtype);
  }
  if (open == std::string::npos) return tensor;  // a gradient, of its tensor's shape
  for (const std::string& extent : split(type.substr(open + 1, close - open - 1), ',')) {
    tensor["shape"].push_back(extent);
  }
  const std::string layout = trim(type.substr(close + 1));
  if (!layout.empty()) tensor["layout"] = layout;
  return tensor;
}

Json tensors_of(const std::vector<std::string>& entries, bool is_output) {
  Json tensors = Json::array();
  for (const std::string& entry : entries) {
    const size_t colon = entry.find(':');
    if (colon == std::string::npos) continue;  // a rule for lengths: "Q = L or L-1"
    const std::string type = without_remarks(entry.substr(colon + 1));
    // A word before the first name holds for all of them.
    std::string names = entry.substr(0, colon), kind;
    for (const std::string word : {"inout", "acc", "list"}) {
      if (names.rfind(word + " ", 0) != 0) continue;
      kind = word;
      names = trim(names.substr(word.size()));
    }
    if (entry.find(": inout)") != std::string::npos)
      kind = "inout";  // "(skipped rows untouched: inout)"
    for (const std::string& name : split(names, ',')) {
      tensors.push_back(tensor_of(without_remarks(name), kind, type, is_output));  // "list x (L)"
    }
  }
  return tensors;
}

bool is_number(const std::string& word) {
  return !word.empty() &&
         std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Json value_of(const std::string& word, const std::string& type) {
  if (word == "none") return nullptr;
  if (word == "true" || word == "false") return word == "true";
  if (type == "int") return std::stoll(word);
  if (type == "float") return std::stod(word);
  return word;
}

/// "round_sf bool = false", "format {e4m3, e2m1}", "num_topk int 1..E", "sf_layout = row_major".
Json param_of(const std::string& entry) {
  std::string text = without_remarks(entry);
  std::optional<std::string> standard;
  const size_t equals = text.find(" = ");
  if (equals != std::string::npos) {
    standard = trim(text.substr(equals + 3));
    text = trim(text.substr(0, equals));
  }
  const size_t space = text.find(' ');
  Json param = {{"name", text.substr(0, space)}};
  std::string rest = space == std::string::npos ? "" : trim(text.substr(space));
  if (rest.empty()) rest = "{row_major, col_major_tma, packed_ue8m0}";  // *sf_layout, stated once
  Json allowed;
  std::string type;
  const size_t open = rest.find('{');
  if (open != std::string::npos) {
    const std::vector<std::string> words =
        split(rest.substr(open + 1, rest.find('}') - open - 1), ',');
    const bool numbers = std::any_of(words.begin(), words.end(), is_number);
    type = rest.rfind("tuple", 0) == 0 ? "tuple" : numbers ? "int" : "enum";
    allowed = Json::array();
    for (const std::string& word : words) {
      allowed.push_back(is_number(word) ? Json(std::stoll(word)) : Json(word));
    }
  } else {
    type = rest.substr(0, rest.find(' '));
    const std::string range = trim(rest.substr(type.size()));
    if (!range.empty()) allowed = range;
  }
  param["type"] = type;
  if (standard) param["default"] = value_of(*standard, type);
  param["allowed"] = allowed;
  return param;
}

/// "a, b float = 1" is "a float = 1" and "b float = 1".
std::vector<std::string> one_by_one(const std::string& entry) {
  std::vector<std::string> parts = split(entry, ',');
  const size_t space = parts.back().find(' ');
  if (parts.size() == 1 || parts[0].find(' ') != std::string::npos || space == std::string::npos) {
    return {entry};
  }
  for (size_t i = 0; i + 1 < parts.size(); ++i) parts[i] += parts.back().substr(space);
  return parts;
}

struct Row {
  std::string family;
  std::vector<std::string> cells;
};

std::vector<Row> rows(const std::string& markdown) {
  std::vector<Row> result;
  std::string family, line;
  std::istringstream text(markdown);
  const std::regex heading(R"(### 2\.\d+ (\w+) .*)");
  bool inside = false;
  while (std::getline(text, line)) {
    std::smatch match;
    if (std::regex_match(line, match, heading)) family = match[1].str();
    const bool heads_ops = line.rfind("| op | in |", 0) == 0;
    if (heads_ops || line.rfind('|', 0) != 0) inside = heads_ops;
    if (!inside || heads_ops || line.rfind("| ", 0) != 0) continue;
    std::string body;
    for (size_t i = 0; i < line.size(); ++i) {  // "\|" is no separator; it only stands in remarks
      if (line[i] == '\\') continue;
      body += line[i];
    }
    Row row{family, {}};
    std::istringstream cells(body.substr(1));
    for (std::string cell; std::getline(cells, cell, '|');) row.cells.push_back(trim(cell));
    if (row.cells.size() >= 4) result.push_back(std::move(row));
  }
  return result;
}

/// The row that "as OP" or "as above" in `row` names, else null: "as x" is the dtype of x.
const Row* row_meant(const std::vector<Row>& all, const Row& row, const std::string& text) {
  if (text.rfind("as ", 0) != 0) return nullptr;
  const std::string word = text.substr(3);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].cells[0] == word) return &all[i];
    if (word == "above" && i > 0 && &all[i] == &row) return &all[i - 1];
  }
  for (const Row& other : all) {  // "as grouped" of gemm_fp8_grouped
    if (other.family == row.family && other.cells[0].ends_with("_" + word)) return &other;
  }
  return nullptr;
}

std::string without_mark(const std::string& name) {
  return name.substr(0, name.find('?'));
}

std::vector<std::string> entries_of(const std::vector<Row>& all, const Row& row, size_t column);

/// The meaning of a name alone, as "x", "inout state" or "ratio": the entry of that name in the nearest
/// row above. Empty if it is more than a name or there is no such row; scale layouts are stated once.
std::string entry_above(const std::vector<Row>& all, const Row& row, size_t column,
                        const std::string& entry) {
  const std::string role = entry.rfind("inout ", 0) == 0 ? "inout " : "";
  const std::string name = entry.substr(role.size());
  const bool is_layout = name.size() >= 9 && name.compare(name.size() - 9, 9, "sf_layout") == 0;
  if (name.empty() || is_layout || name.find_first_not_of(kNameLetters) != std::string::npos) {
    return {};
  }
  for (auto above = static_cast<size_t>(&row - all.data()); above-- > 0;) {
    for (const size_t from : column < 3 ? std::vector<size_t>{1, 2} : std::vector<size_t>{3}) {
      for (const std::string& one : entries_of(all, all[above], from)) {
        const std::string theirs = one.rfind("inout ", 0) == 0 ? one.substr(6) : one;
        const size_t end = theirs.find_first_not_of(kNameLetters);
        if (theirs.substr(0, end) == name && end != std::string::npos) {
          return column < 3 ? role + theirs : theirs;
        }
      }
    }
  }
  return {};
}

/// The entries of a cell, those of other rows written out.
std::vector<std::string> entries_of(const std::vector<Row>& all, const Row& row, size_t column) {
  std::vector<std::string> result;
  std::string names_before;  // "a, b; c: as OP": the row says what a and b are
  for (const std::string& part : split(row.cells[column], ';')) {
    const std::string entry = names_before + part;
    names_before.clear();
    if (const size_t plus = entry.find(", plus "); plus != std::string::npos) {
      const auto theirs = entries_of(all, *row_meant(all, row, entry.substr(0, plus)), column);
      result.insert(result.end(), theirs.begin(), theirs.end());
      result.push_back(entry.substr(plus + 7));
      continue;
    }
    if (entry == "tables as above" || entry.rfind("as above without ", 0) == 0) {
      std::vector<std::string> theirs = entries_of(all, *row_meant(all, row, "as above"), column);
      const bool are_tables = entry.rfind("tables", 0) == 0;  // what is optional there
      const std::string prefix =
          entry.substr(entry.rfind(' ') + 1, entry.find('*') - entry.rfind(' ') - 1);
      std::erase_if(theirs, [&](const std::string& one) {
        return are_tables ? one.find("?:") == std::string::npos : one.rfind(prefix, 0) == 0;
      });
      result.insert(result.end(), theirs.begin(), theirs.end());
      continue;
    }
    if (const size_t as = entry.find(" as above"); column == 3 && as != std::string::npos) {
      for (const std::string& one : entries_of(all, *row_meant(all, row, "as above"), column)) {
        for (const std::string& single : one_by_one(one)) {
          if (single.rfind(entry.substr(0, as + 1), 0) == 0) result.push_back(single);
        }
      }
      continue;
    }
    if (const std::string above = entry_above(all, row, column, entry); !above.empty()) {
      result.push_back(above);
      continue;
    }
    if (const Row* other = row_meant(all, row, without_remarks(entry))) {
      const auto theirs = entries_of(all, *other, column);
      result.insert(result.end(), theirs.begin(), theirs.end());
      continue;
    }
    const size_t colon = entry.find(':');
    const std::string name = entry.substr(0, colon);
    const Row* other = colon == std::string::npos
                           ? nullptr
                           : row_meant(all, row, without_remarks(entry.substr(colon + 1)));
    const bool are_names =
        column < 3 && colon == std::string::npos && name.find('=') == std::string::npos;
    if (are_names && name.find(',') != std::string::npos) {
      names_before = name + ", ";
      continue;
    }
    if (other == nullptr) {
      result.push_back(entry);
      continue;
    }
    std::vector<std::string> theirs = entries_of(all, *other, column);
    if (column < 3) {  // what one row saves, another takes
      const std::vector<std::string> more = entries_of(all, *other, 3 - column);
      theirs.insert(theirs.end(), more.begin(), more.end());
    }
    for (const std::string& wanted : split(name, ',')) {
      for (const std::string& entry_of_theirs : theirs) {
        const size_t end = entry_of_theirs.find(':');
        const auto names = split(entry_of_theirs.substr(0, end), ',');
        if (std::any_of(names.begin(), names.end(), [&](const std::string& one) {
              return without_mark(one) == without_mark(without_remarks(wanted));
            })) {
          result.push_back(wanted + entry_of_theirs.substr(end));
        }
      }
    }
  }
  return result;
}

}  // namespace

std::string spec_row(const std::string& markdown, const std::string& op) {
  const std::vector<Row> all = rows(markdown);
  for (const Row& row : all) {
    if (row.cells[0] != op) continue;
    Json json = {{"name", op}, {"family", row.family}};
    json["tensors"] = tensors_of(entries_of(all, row, 1), false);
    for (Json& tensor : tensors_of(entries_of(all, row, 2), true))
      json["tensors"].push_back(tensor);
    for (Json& tensor : json["tensors"]) {
      if (!tensor["shape"].empty() || tensor["dtypes"].empty()) continue;
      for (const Json& of : json["tensors"]) {
        if (tensor["name"] == "grad_" + of["name"].get<std::string>())
          tensor["shape"] = of["shape"];
      }
    }
    json["params"] = Json::array();
    // The transpose table has no column for parameters beyond an empty one.
    for (const std::string& entry : entries_of(all, row, 3)) {
      for (const std::string& one : one_by_one(entry)) json["params"].push_back(param_of(one));
    }
    return json.dump();
  }
  return {};
}

std::vector<std::string> spec_ops(const std::string& markdown) {
  std::vector<std::string> names;
  for (const Row& row : rows(markdown)) names.push_back(row.cells[0]);
  return names;
}

}  // namespace tessera::tests
