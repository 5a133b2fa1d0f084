#include "tools/lib/docs/header_docs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

namespace tessera::tools {
namespace {

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// A line without the comment behind it, and that comment.
std::pair<std::string, std::string> split_comment(const std::string& line) {
  bool in_text = false;
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == '"' && (i == 0 || line[i - 1] != '\'')) in_text = !in_text;
    if (!in_text && line[i] == '/' && line[i + 1] == '/') {
      return {line.substr(0, i), trimmed(line.substr(line.find_first_not_of('/', i)))};
    }
  }
  return {line, ""};
}

/// "Ref shared(DType dtype, std::string name = "tile")" of a declaration as it stands.
std::string shown_declaration(std::string text) {
  static const std::regex spaces("\\s+"),
      loc(",? ?SourceLoc \\w+ = (\\{\\}|SourceLoc::here\\(\\))"), macro("\\bTESSERA_API ?");
  text = std::regex_replace(text, spaces, " ");
  text = std::regex_replace(text, loc, "");
  text = std::regex_replace(text, macro, "");
  text = trimmed(text);
  while (!text.empty() && (text.back() == ';' || text.back() == ' ')) text.pop_back();
  return text;
}

struct Scope {
  enum class Kind { names, type, hidden };
  Kind kind = Kind::names;
  std::string name;
  bool is_public = true;
  bool has_functions = false;
  int first_line = 0;
  size_t groups_before = 0;
};

class HeaderReader {
 public:
  explicit HeaderReader(std::string_view file) : file_(file) { scopes_.push_back({}); }

  HeaderDocs read(std::string_view text) {
    lines_ = lines_of(text);
    for (const std::string& line : lines_) {
      ++number_;
      read_line(line);
    }
    flush();
    return std::move(docs_);
  }

 private:
  void read_line(const std::string& line) {
    const std::string bare = trimmed(line);
    if (statement_.empty()) {
      if (bare.empty()) return flush();
      if (is_continued_macro_ || bare[0] == '#') {
        is_continued_macro_ = bare.back() == '\\';
        return;
      }
      if (bare.starts_with("///")) {
        if (!group_.declarations.empty()) flush();
        comment_.push_back(bare.substr(std::min<size_t>(bare.size(), bare.size() > 3 ? 4 : 3)));
        return;
      }
      if (bare.starts_with("// ---- ")) {
        flush();
        section_ = bare.substr(8);
        is_in_title_ = true;
        return;
      }
      if (bare.starts_with("//")) {
        if (is_in_title_) section_ += bare.substr(2);
        return;
      }
      is_in_title_ = false;
      if (bare == "public:" || bare == "private:" || bare == "protected:") {
        flush();
        scopes_.back().is_public = bare == "public:";
        return;
      }
      first_line_ = number_;
    }
    add_to_statement(line);
  }

  void add_to_statement(const std::string& line) {
    const auto [code, comment] = split_comment(line);
    if (!comment.empty()) behind_.push_back(comment);
    for (size_t i = 0; i < code.size(); ++i) {
      const char c = code[i];
      if (statement_.empty() && c == ' ') continue;
      if (c == '}' && braces_ == 0 && trimmed(statement_).empty()) {
        close_scope();
        if (i + 1 < code.size() && code[i + 1] == ';') ++i;
        continue;
      }
      statement_ += c;
      if (c == '(') ++parentheses_;
      if (c == ')') --parentheses_;
      if (c == '{' && ++braces_ == 1 && parentheses_ == 0 && opens_scope()) {
        braces_ = 0;
        open_scope();
        continue;
      }
      if (c == '}') --braces_;
      const bool ends = braces_ == 0 && parentheses_ == 0 &&
                        (c == ';' || (c == '}' && is_body_ && !more_behind(code, i + 1)));
      if (c == '{' && braces_ == 1 && parentheses_ == 0 && !is_body_) note_body();
      if (ends) end_statement();
    }
    if (!statement_.empty()) statement_ += ' ';
  }

  /// `= {};` and `{16};` go on behind the brace.
  static bool more_behind(const std::string& code, size_t at) {
    const std::string rest = trimmed(std::string_view(code).substr(std::min(at, code.size())));
    return !rest.empty() && rest[0] != '}';
  }

  bool opens_scope() const {
    static const std::regex scope(
        "^(template <.*> ?)?(inline )?(namespace|struct|class|union|extern \"C\")\\b[^=(]*\\{$");
    return std::regex_search(statement_, scope);
  }

  /// The braces that begin here are those of a function, not of a value.
  void note_body() {
    const std::string head = trimmed(std::string_view(statement_).substr(0, statement_.size() - 1));
    is_body_ = !head.empty() && head.back() != '=' && head.find('(') != std::string::npos &&
               head.rfind("enum", 0) != 0;
    if (is_body_) body_at_ = statement_.size() - 1;
  }

  void open_scope() {
    static const std::regex name(
        "(struct|class|union) (?:TESSERA_API )?(?:\\[\\[\\w+\\]\\] )?(\\w+)");
    std::smatch found;
    const std::string text = statement_.substr(0, statement_.size() - 1);
    Scope scope;
    if (std::regex_search(text, found, name)) {
      scope.kind = is_shown() ? Scope::Kind::type : Scope::Kind::hidden;
      scope.name = found[2];
      scope.is_public = found[1] != "class";
      declare(text);
      flush();
      scope.first_line = first_line_;
      scope.groups_before = docs_.groups.size();
    } else {
      comment_.clear();
      scope.kind = text.find("namespace {") == 0 || trimmed(text) == "namespace"
                       ? Scope::Kind::hidden
                       : Scope::Kind::names;
    }
    scopes_.push_back(scope);
    reset();
  }

  void close_scope() {
    flush();
    if (scopes_.size() == 1) return reset();
    const Scope closed = std::move(scopes_.back());
    scopes_.pop_back();
    const bool is_plain =
        closed.kind == Scope::Kind::type && closed.is_public && !closed.has_functions && is_shown();
    if (is_plain && closed.groups_before > 0) show_as_written(closed);
    scopes_.back().has_functions |= closed.kind == Scope::Kind::type && closed.has_functions;
    reset();
  }

  /// In place of its members, the lines of a struct.
  void show_as_written(const Scope& scope) {
    docs_.groups.resize(scope.groups_before);
    DocGroup& group = docs_.groups.back();
    group.declarations.clear();
    const std::string& first = lines_[static_cast<size_t>(scope.first_line - 1)];
    const size_t indent = first.find_first_not_of(' ');
    for (int i = scope.first_line; i <= number_; ++i) {
      const std::string& line = lines_[static_cast<size_t>(i - 1)];
      std::string shown = line.substr(std::min(indent, line.size()));
      if (const size_t slashes = shown.find("///"); slashes != std::string::npos) {
        shown.erase(slashes, 1);
      }
      if (const size_t macro = shown.find("TESSERA_API "); macro != std::string::npos) {
        shown.erase(macro, 12);
      }
      group.declarations.push_back(std::move(shown));
    }
  }

  bool is_shown() const {
    return std::all_of(scopes_.begin(), scopes_.end(), [](const Scope& scope) {
      return scope.is_public && scope.kind != Scope::Kind::hidden;
    });
  }

  void end_statement() {
    const std::string text = is_body_ ? statement_.substr(0, body_at_) : statement_;
    if (is_shown() && wants_comment(text)) {
      declare(text);
    } else {
      behind_.clear();
    }
    reset();
  }

  bool wants_comment(const std::string& text) const {
    static const std::regex left_out(
        "^(using |friend |typedef |class \\w+;|struct \\w+;|enum class \\w+( : "
        "\\w+)?;|static_assert|"
        "~|virtual ~|extern template|;|template <.*> ?(class|struct) \\w+;)");
    if (std::regex_search(text, left_out)) return false;
    if (text.find("= delete") != std::string::npos || text.find("= default") != std::string::npos) {
      return false;
    }
    const std::string& name = scopes_.back().name;
    const bool is_member = scopes_.back().kind == Scope::Kind::type;
    if (!is_member) return text.find("::") == std::string::npos || !defines_member(text);
    const auto copies = [&](const char* how) {
      return text.find(fmt::format("{}({}", name, how)) != std::string::npos;
    };
    return text.find(fmt::format("{}(const {}&", name, name)) == std::string::npos &&
           text.find(fmt::format("{}({}&&", name, name)) == std::string::npos &&
           text.find(fmt::format("operator=(const {}&", name)) == std::string::npos &&
           text.find(fmt::format("operator=({}&&", name)) == std::string::npos && !copies(")");
  }

  /// "void Builder::parallel(": it was declared above.
  static bool defines_member(const std::string& text) {
    static const std::regex definition("\\b\\w+::~?\\w+\\(");
    std::smatch found;
    if (!std::regex_search(text, found, definition)) return false;
    return text.find('(') >= static_cast<size_t>(found.position(0));
  }

  static std::string without_template_arguments(const std::string& text) {
    std::string bare;
    int depth = 0;
    for (const char c : text) {
      if (c == '<') ++depth;
      if (depth == 0) bare += c;
      if (c == '>') --depth;
    }
    return bare;
  }

  static bool is_function(const std::string& text) {
    const std::string bare = without_template_arguments(text);
    const size_t parenthesis = bare.find('(');
    static const std::regex type("^(enum|struct|class)\\b");
    return parenthesis != std::string::npos && bare.find('=') > parenthesis &&
           !std::regex_search(bare, type);
  }

  /// Fields, accessors, constructors and operators share the comment of their type or section. So does
  /// the definition of a template that was declared above.
  bool is_covered(const std::string& text) const {
    const std::string bare = without_template_arguments(text);
    if (bare.find("operator") != std::string::npos) return true;
    const bool is_member = scopes_.back().kind == Scope::Kind::type;
    static const std::regex type("^(enum|struct|class)\\b"), function("\\b(\\w+)\\(");
    if (std::regex_search(bare, type)) return false;
    if (!is_function(text)) return is_member;
    std::smatch found;
    if (!std::regex_search(bare, found, function)) return false;
    if (!is_member) return is_body_ && text.starts_with("template") && names_.contains(found[1]);
    const bool is_accessor = is_body_ && text.find(") const") != std::string::npos;
    return is_accessor || found[1] == scopes_.back().name;
  }

  void declare(const std::string& text) {
    static const std::regex function("\\b(\\w+)\\(");
    std::smatch found;
    if (std::regex_search(text, found, function)) names_.insert(found[1]);
    if (is_function(text)) scopes_.back().has_functions = true;

    std::string shown = shown_declaration(text);
    static const std::regex initialisers("\\) ?(noexcept)? ?: \\w+[({].*$");
    shown = std::regex_replace(shown, initialisers, ") $1");
    shown = trimmed(shown);
    if (comment_.empty() && behind_.empty() && !is_covered(text)) {
      docs_.undocumented.push_back(fmt::format("{}:{}: {}", file_, first_line_, shown));
    }
    if (!behind_.empty()) shown += fmt::format("  // {}", fmt::join(behind_, " "));
    behind_.clear();
    if (group_.declarations.empty()) {
      group_.section = section_;
      group_.scope = scopes_.back().kind == Scope::Kind::type ? scopes_.back().name : "";
    }
    group_.declarations.push_back(std::move(shown));
  }

  void reset() {
    statement_.clear();
    braces_ = parentheses_ = 0;
    is_body_ = false;
  }

  void flush() {
    if (!group_.declarations.empty()) {
      group_.text = markdown_of_comment(comment_);
      docs_.groups.push_back(std::move(group_));
    }
    group_ = {};
    comment_.clear();
  }

  std::string file_;
  std::vector<std::string> lines_;
  std::set<std::string> names_;
  HeaderDocs docs_;
  DocGroup group_;
  std::vector<Scope> scopes_;
  std::vector<std::string> comment_, behind_;
  std::string statement_, section_;
  size_t body_at_ = 0;
  int number_ = 0, first_line_ = 0, braces_ = 0, parentheses_ = 0;
  bool is_body_ = false, is_continued_macro_ = false, is_in_title_ = false;
};

}  // namespace

HeaderDocs read_header(std::string_view file, std::string_view text) {
  return HeaderReader(file).read(text);
}

}  // namespace tessera::tools
