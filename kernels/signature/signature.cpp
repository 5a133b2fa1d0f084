#include "kernels/signature/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "dsl/base/dtype.h"
#include "dsl/base/error.h"
#include "dsl/base/first_use.h"

namespace tessera::kernels {
namespace {

std::string trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

/// Splits at `separator` outside brackets.
std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t first = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    depth += c == '(' || c == '[' || c == '{' ? 1 : 0;
    depth -= c == ')' || c == ']' || c == '}' ? 1 : 0;
    if (depth > 0 || text.substr(i, separator.size()) != separator) continue;
    parts.push_back(trim(text.substr(first, i - first)));
    i += separator.size() - 1;
    first = i + 1;
  }
  parts.push_back(trim(text.substr(first)));
  return parts;
}

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

FirstUse<const std::vector<std::string>> g_scale_layouts;
const std::vector<std::string>& scale_layouts() {
  return g_scale_layouts.get([] {
    return new std::vector<std::string>{"row_major", "col_major_tma", "packed_ue8m0"};
  });
}

/// Words that rules may use without being names of the call.
bool is_dtype_word(const std::string& word) {
  for (const char* known :
       {"f32", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool", "e4m3",
        "e5m2", "e2m1", "e5m6", "bytes1", "bytes2", "bytes4"}) {
    if (word == known) return true;
  }
  return false;
}

/// Parses the rows of one signature.
class Parser {
 public:
  explicit Parser(std::string_view op) : op_(op) {}

  Signature parse(std::string_view text) {
    std::vector<std::string> lines;
    for (std::string& line : split_lines(text)) {
      if (line.starts_with('|') && !lines.empty()) {
        lines.back() += " " + trim(line.substr(1));
      } else if (!line.empty()) {
        lines.push_back(std::move(line));
      }
    }
    for (const std::string& line : lines) {
      line_ = line;
      add_row(line);
    }
    check_names();
    return std::move(made_);
  }

 private:
  [[noreturn]] void fail(std::string what, std::string expected, std::string got) const {
    throw Error({.kind = ErrorKind::program,
                 .op = std::string(op_),
                 .what = fmt::format("signature row '{}': {}", line_, what),
                 .expected = std::move(expected),
                 .got = std::move(got)});
  }

  static std::vector<std::string> split_lines(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines.push_back(trim(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
  }

  Expression expression(std::string_view text) const {
    try {
      return Expression::parse(text);
    } catch (const Error& e) {
      fail("an expression is not understood", std::string(e.expected()), std::string(e.got()));
    }
  }

  /// Removes a leading word from the row.
  static bool take(std::string& row, std::string_view word) {
    if (!row.starts_with(word) || (row.size() > word.size() && row[word.size()] != ' ')) {
      return false;
    }
    row = trim(row.substr(word.size()));
    return true;
  }

  void add_row(const std::string& line) {
    const size_t hash = line.find('#');
    std::string row = trim(line.substr(0, hash));
    const std::string remark = hash == std::string::npos ? "" : trim(line.substr(hash + 1));
    if (row.empty()) return;
    if (take(row, "param")) return add_params(row);
    if (take(row, "let")) return add_let(row);
    if (take(row, "need")) return add_need(row, false);
    if (take(row, "limit")) return add_need(row, true);
    if (take(row, "bucket")) return add_bucket(row);
    add_tensors(row, remark);
  }

  /// Removes the names of "a, b? bf16 [T, H]" from the row. A comma continues the list of names.
  std::vector<std::string> take_names(std::string& row) const {
    std::vector<std::string> names;
    while (true) {
      const size_t end = std::min(row.find_first_of(" ,"), row.size());
      if (end == 0) fail("a name is missing", "NAME dtypes [extents]", row);
      names.push_back(row.substr(0, end));
      row = trim(row.substr(end));
      if (!row.starts_with(',')) return names;
      row = trim(row.substr(1));
    }
  }

  /// Cuts " word REST" off the end of a row, outside brackets.
  static std::optional<std::string> take_tail(std::string& row, std::string_view word) {
    const std::vector<std::string> parts = split(" " + row, fmt::format(" {} ", word));
    if (parts.size() < 2) return std::nullopt;
    std::string tail = parts.back();
    row = trim(row.substr(0, row.size() - tail.size()));
    row = trim(row.substr(0, row.size() - word.size()));
    return tail;
  }

  void add_tensors(std::string row, const std::string& remark) {
    TensorRule rule;
    rule.remark = remark;
    if (take(row, "->")) rule.role = Role::out;
    if (take(row, "acc")) rule.accumulate = true;
    if (take(row, "inout") || rule.accumulate) rule.role = Role::inout;
    const bool is_list = take(row, "list");
    const std::vector<std::string> names = take_names(row);
    if (is_list) {
      const size_t close = row.find(')');
      if (!row.starts_with('(') || close == std::string::npos) {
        fail("a list has no length", "list NAME (EXTENT) dtypes [extents]", row);
      }
      rule.list = trim(row.substr(1, close - 1));
      row = trim(row.substr(close + 1));
    }
    if (const auto tail = take_tail(row, "iff")) rule.presence = expression(*tail);
    if (const auto tail = take_tail(row, "values")) {
      const std::vector<std::string> ends = split(*tail, " .. ");
      if (ends.size() != 2) fail("values have two ends", "values LEAST .. MOST", *tail);
      rule.least = expression(ends[0]);
      rule.most = expression(ends[1]);
    }
    if (const auto tail = take_tail(row, "align")) rule.align = integer(*tail).value_or(0);
    if (row.starts_with("SF(")) {
      read_scales(rule, row);
    } else {
      read_type(rule, row);
    }
    for (std::string name : names) {
      rule.optional = name.ends_with('?');
      if (rule.optional) name.pop_back();
      rule.name = name;
      TensorRule one = rule;
      one.is_workspace = name == "workspace";
      if (one.is_workspace) one.role = Role::out;
      if (one.scales && one.shape.empty() && one.scales->matrix.empty()) {
        one.scales->matrix = matrix_of(name);
      }
      made_.tensors.push_back(std::move(one));
    }
  }

  /// Parses "x_sf scales x". Scales without a matrix of their own must name it.
  std::string matrix_of(const std::string& name) const {
    const std::string stem = name.substr(0, name.size() - std::min<size_t>(3, name.size()));
    if (name.ends_with("_sf") && made_.find_tensor(stem)) return stem;
    fail("nothing says which matrix is scaled", "SF(rows, columns) of TENSOR", name);
  }

  void read_scales(TensorRule& rule, std::string row) const {
    const size_t close = row.find(')');
    if (close == std::string::npos) fail("a block is not closed", "SF(rows, columns)", row);
    TensorRule::Scales scales;
    for (const std::string& part : split(row.substr(3, close - 3), ",")) {
      scales.block.push_back(expression(part));
    }
    if (scales.block.size() > 2) fail("a block has two extents", "SF(rows, columns)", row);
    row = trim(row.substr(close + 1));
    if (const auto matrix = take_tail(row, "of")) scales.matrix = *matrix;
    scales.layout_param = row;
    rule.scales = std::move(scales);
  }

  /// Cuts "?" or " if RULE" off an extent.
  void read_presence_of_last(TensorRule& rule, std::string& extent) const {
    if (rule.may_lack_last) fail("only the last extent may be absent", "[.., EXTENT?]", extent);
    if (extent.ends_with('?')) {
      if (rule.role == Role::out) fail("a rule is missing", "EXTENT if RULE", extent);
      rule.may_lack_last = true;
      extent.pop_back();
    } else if (const auto tail = take_tail(extent, "if")) {
      if (rule.role != Role::out) fail("an input tells it by its rank", "EXTENT?", extent);
      rule.may_lack_last = true;
      rule.last_presence = expression(*tail);
    }
  }

  void read_type(TensorRule& rule, const std::string& row) const {
    const size_t open = row.find('['), close = row.rfind(']');
    if (open == std::string::npos || close == std::string::npos) {
      fail("a tensor has no shape", "NAME dtypes [extents] layout", row);
    }
    rule.dtypes = split(row.substr(0, open), "/");
    const std::string extents = trim(row.substr(open + 1, close - open - 1));
    if (!extents.empty()) {
      for (std::string extent : split(extents, ",")) {
        if (extent.ends_with("..")) {
          if (!rule.shape.empty()) fail("token dimensions come first", "[T.., ...]", extent);
          rule.has_token_dims = true;
          extent.resize(extent.size() - 2);
          rule.may_lack_token_dims = extent.empty();
          if (extent.empty()) extent = "T";
        }
        read_presence_of_last(rule, extent);
        rule.shape.push_back(expression(extent));
      }
    }
    const std::string layout = trim(row.substr(close + 1));
    if (layout == "rows") {
      rule.layout = TensorRule::Layout::rows;
    } else if (layout == "any") {
      rule.layout = TensorRule::Layout::any;
    } else if (layout == "any1") {
      if (rule.shape.size() < 2) fail("any1 is a layout of matrices", "[rows, columns]", row);
      rule.layout = TensorRule::Layout::any1;
    } else if (layout.starts_with("in ")) {
      rule.scales = TensorRule::Scales{{}, {}, trim(layout.substr(3))};
    } else if (!layout.empty()) {
      fail("a layout is not known", "nothing, rows, any, any1 or in PARAMETER", layout);
    }
  }

  void add_params(std::string row) {
    ParamRule rule;
    const std::vector<std::string> names = take_names(row);
    if (const auto tail = take_tail(row, "iff")) rule.presence = expression(*tail);
    std::optional<std::string> standard;
    if (row.starts_with("= ")) {  // the layouts of scales always have the same words
      standard = trim(row.substr(2));
      row.clear();
    } else if (const auto tail = take_tail(row, "=")) {
      standard = *tail;
    }
    read_param_type(rule, row);
    if (standard) rule.standard = value_of(rule, *standard);
    for (const std::string& name : names) {
      rule.name = name;
      made_.params.push_back(rule);
    }
  }

  void read_param_type(ParamRule& rule, std::string row) const {
    using Type = ParamRule::Type;
    if (row.empty()) {
      rule.type = Type::word;
      rule.allowed = scale_layouts();
      return;
    }
    if (take(row, "tuple")) {
      rule.type = Type::tuple;
      take(row, "of");
    } else if (take(row, "float")) {
      rule.type = Type::floating;
    } else if (take(row, "bool")) {
      rule.type = Type::boolean;
    } else if (take(row, "int")) {
      rule.type = Type::integer;
    } else if (row.starts_with('{')) {
      rule.type = Type::word;
    } else {
      fail("a parameter has no type", "int, float, bool, tuple or {words}", row);
    }
    if (row.starts_with('{')) {
      if (!row.ends_with('}')) fail("a list is not closed", "{a, b}", row);
      rule.allowed = split(row.substr(1, row.size() - 2), ",");
      const bool has_numbers = std::any_of(rule.allowed.begin(), rule.allowed.end(),
                                           [](const auto& word) { return integer(word); });
      if (rule.type == Type::word && has_numbers) rule.type = Type::integer;
      return;
    }
    rule.range = row;
    if (take(row, ">=")) {
      rule.least = integer(row);
    } else if (const size_t dots = row.find(".."); dots != std::string::npos) {
      rule.least = integer(row.substr(0, dots));
      rule.most = expression(row.substr(dots + 2));
    } else if (!row.empty()) {
      fail("a range is not understood", "LEAST..MOST or >= LEAST", row);
    }
    if (!row.empty() && !rule.least) fail("a range has no least integer", "1..16", rule.range);
  }

  ParamValue value_of(const ParamRule& rule, const std::string& word) const {
    if (word == "none") return {};
    switch (rule.type) {
      case ParamRule::Type::boolean:
        if (word == "true" || word == "false") return word == "true";
        break;
      case ParamRule::Type::word:
        if (std::count(rule.allowed.begin(), rule.allowed.end(), word) > 0) return word;
        break;
      case ParamRule::Type::floating: {
        double value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (error == std::errc() && end == word.data() + word.size()) return value;
        break;
      }
      case ParamRule::Type::integer:
        if (const auto value = integer(word)) return *value;
        break;
      case ParamRule::Type::tuple: {
        std::vector<int64_t> values;
        for (const std::string& part : split(word, ",")) {
          if (const auto value = integer(part)) values.push_back(*value);
        }
        if (!values.empty()) return values;
        break;
      }
    }
    fail("a default is none of the values", "a value of the parameter's type", word);
  }

  void add_let(std::string row) {
    LetRule let;
    if (const size_t bound = row.find(" at most "); bound != std::string::npos) {
      let.symbols = {trim(row.substr(0, bound))};
      row = trim(row.substr(bound + 9));
      const auto trimmed = take_tail(row, "trimmed by");
      if (!trimmed) fail("a bound is not trimmed", "let P at most a() trimmed by b()", row);
      let.trimmed_by = *trimmed;
    } else {
      const size_t equals = row.find(" = ");
      if (equals == std::string::npos) fail("a let has no value", "let NAME = VALUE", row);
      let.symbols = split(row.substr(0, equals), ",");
      row = trim(row.substr(equals + 3));
    }
    let.value = expression(row);
    made_.lets.push_back(std::move(let));
  }

  void add_need(std::string row, bool is_limit) {
    NeedRule need;
    need.is_limit = is_limit;
    if (row.ends_with('"')) {
      const size_t open = row.find('"');
      need.what = row.substr(open + 1, row.size() - open - 2);
      row = trim(row.substr(0, open));
    }
    if (const auto tail = take_tail(row, "on")) need.blamed = *tail;
    if (const auto tail = take_tail(row, "if")) need.condition = expression(*tail);
    need.rule = expression(row);
    if (need.blamed.empty() && !need.rule.names().empty()) need.blamed = need.rule.names().front();
    made_.needs.push_back(std::move(need));
  }

  void add_bucket(std::string row) {
    BucketRule bucket;
    const auto ends = take_tail(row, "at");
    if (!ends) fail("a bucket has no ends", "bucket EXTENT at 512, 1024", row);
    for (const std::string& end : split(*ends, ",")) {
      const auto value = integer(end);
      if (!value) fail("the end of a bucket is no integer", "bucket EXTENT at 512", end);
      bucket.at.push_back(*value);
    }
    bucket.of = expression(row);
    made_.buckets.push_back(std::move(bucket));
  }

  /// Requires every name of an expression to be a tensor, a parameter, a let, an extent of an
  /// input, a value of a parameter or a dtype, so that a typo is found when the signature is
  /// parsed.
  void check_names() {
    std::set<std::string> known;
    for (const TensorRule& tensor : made_.tensors) {
      line_ = tensor.name;
      if (!known.insert(tensor.name).second) fail("a name stands twice", "one row", tensor.name);
      if (!tensor.list.empty()) known.insert(tensor.list);
    }
    for (const ParamRule& param : made_.params) {
      line_ = param.name;
      if (!known.insert(param.name).second) fail("a name stands twice", "one row", param.name);
      known.insert(param.allowed.begin(), param.allowed.end());
    }
    for (const LetRule& let : made_.lets) known.insert(let.symbols.begin(), let.symbols.end());
    for (const TensorRule& tensor : made_.tensors) {
      if (!tensor.is_input()) continue;
      for (const Expression& extent : tensor.shape) {
        for (const std::string& name : extent.names()) known.insert(name);
      }
    }
    const auto check = [&](const Expression& expression) {
      for (const std::string& name : expression.names()) {
        if (known.count(name) > 0 || name.ends_with("()") || is_dtype_word(name)) continue;
        line_ = expression.text();
        fail("a name is not known", "a tensor, an extent, a parameter or a let", name);
      }
    };
    for (const TensorRule& tensor : made_.tensors) {
      for (const Expression& extent : tensor.shape) check(extent);
      if (tensor.scales) {
        for (const Expression& extent : tensor.scales->block) check(extent);
      }
      for (const auto* rule :
           {&tensor.least, &tensor.most, &tensor.presence, &tensor.last_presence}) {
        if (*rule) check(**rule);
      }
    }
    for (const ParamRule& param : made_.params) {
      for (const auto* rule : {&param.most, &param.presence}) {
        if (*rule) check(**rule);
      }
    }
    for (const LetRule& let : made_.lets) check(let.value);
    for (const NeedRule& need : made_.needs) {
      check(need.rule);
      if (need.condition) check(*need.condition);
    }
    for (const BucketRule& bucket : made_.buckets) check(bucket.of);
  }

  std::string_view op_;
  std::string line_;
  Signature made_;
};

}  // namespace

std::string TensorRule::layout_text() const {
  if (!scales) {
    constexpr std::string_view kWords[] = {"row_major", "rows", "any", "any1"};
    return std::string(kWords[static_cast<size_t>(layout)]);
  }
  if (!shape.empty()) return "in " + scales->layout_param;
  std::string text = "SF(";
  for (size_t i = 0; i < scales->block.size(); ++i) {
    text += (i > 0 ? "," : "") + scales->block[i].text();
  }
  return text + ")" + (scales->layout_param.empty() ? "" : " " + scales->layout_param);
}

Signature Signature::parse(std::string_view op, std::string_view text) {
  return Parser(op).parse(text);
}

const TensorRule* Signature::find_tensor(std::string_view name) const {
  for (const TensorRule& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const ParamRule* Signature::find_param(std::string_view name) const {
  for (const ParamRule& param : params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

const LetRule* Signature::find_let(std::string_view symbol) const {
  for (const LetRule& let : lets) {
    if (std::count(let.symbols.begin(), let.symbols.end(), symbol) > 0) return &let;
  }
  return nullptr;
}

ParamValue LetRule::value_of(std::string_view symbol, const Scope& scope) const {
  const ParamValue all = value.value(scope);
  const auto* list = std::get_if<std::vector<int64_t>>(&all);
  if (list == nullptr) return all;
  const auto found = std::find(symbols.begin(), symbols.end(), symbol);
  const auto i = static_cast<size_t>(found - symbols.begin());
  return i < list->size() ? ParamValue((*list)[i]) : ParamValue();
}

}  // namespace tessera::kernels
