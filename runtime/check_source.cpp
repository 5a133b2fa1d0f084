// A kernel that is cached is found by the digest of its text, options and facts. Anything else that could change the binary
// would make the cache give the wrong one, so it is refused here:
//
//   files      a text that includes, imports or embeds one, or asks whether one is there. NVRTC would read it, the key
//              would not hold it. Options that name files, for NVRTC or ptxas, are refused for the same reason
//   options    only those of a list, which affect nothing but the output
//   facts      names that become parts of file names and of messages, and numbers of a launch that no device has
//
// The search for file uses reads preprocessing tokens by hand, since a regular expression finds `#include` in a comment and
// misses `# /**/ inc\<newline>lude`. It knows comments, strings, raw strings (in which lines are not joined), characters, digit
// separators, `%:` for `#`, and lines joined by a backslash. It expands no macro: `#include` cannot come out of one, and
// `__has_include` is found by its name wherever it stands. A directive that is skipped by #if counts, too: refusing too
// much is an error that the author sees.
//
// Generated texts satisfy all this by construction, and their text is not scanned: that costs time in every first call.

#include "runtime/check_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "dsl/base/target_facts.h"
#include "runtime/cache/manifest.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kMaxListed = 4096;

// Options that affect nothing but the output. Other options would belong in the cache key (include
// paths) or write files beside the output (timings, precompiled headers).
constexpr std::array<std::string_view, 6> kAllowedOptions = {"-D",
                                                             "--define-macro=",
                                                             "--maxrregcount=",
                                                             "--ptxas-options=",
                                                             "--generate-line-info",
                                                             "--extra-device-vectorization"};

// True for ptxas options that name files: --options-file (-optf), --output-file (-o) and the like.
bool names_a_file(std::string_view option) {
  constexpr std::string_view kToPtxas = "--ptxas-options=";
  if (option.substr(0, kToPtxas.size()) != kToPtxas) return false;
  const auto has = [&](std::string_view part) {
    return option.find(part) != std::string_view::npos;
  };
  return has("file") || has("optf") || has("-o ") || has("-o=") || has("-o,") ||
         option.substr(option.size() - 2) == "-o";
}

std::optional<SourceProblem> out_of_range(std::string_view name, int64_t min, int64_t max,
                                          int64_t got) {
  if (got >= min && got <= max) return std::nullopt;
  return SourceProblem{fmt::format("a kernel has {} out of range", name),
                       fmt::format("{} from {} to {}", name, min, max), fmt::format("{}", got)};
}

bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

// Scans preprocessing tokens, as far as directives and names need. Skips comments, strings (raw
// ones too) and characters. A backslash at the end of a line joins it with the next line.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) { join_lines(); }

  std::optional<FileUse> find() {
    while (at_ < text_.size()) {
      skip_blanks_and_comments();
      const char c = peek();
      if (c == '\n') {
        is_line_start_ = true;
        advance();
      } else if (is_line_start_ && (c == '#' || (c == '%' && peek(1) == ':'))) {
        if (auto use = read_directive(c == '#' ? 1 : 2)) return use;
      } else {
        is_line_start_ = false;
        if (auto use = read_token()) return use;
      }
    }
    return std::nullopt;
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void advance() {
    if (at_ == text_.size()) return;
    if (peek() == '\n') ++line_;
    ++at_;
    join_lines();
  }
  // Skips "\<newline>" before the next character.
  void join_lines() {
    for (;;) {
      const size_t length = text_.substr(at_, 2) == "\\\n"     ? 2
                            : text_.substr(at_, 3) == "\\\r\n" ? 3
                                                               : 0;
      if (length == 0) return;
      at_ += length;
      ++line_;
    }
  }

  void skip_blanks_and_comments() {
    while (at_ < text_.size()) {
      if (is_blank(peek())) {
        advance();
      } else if (peek() != '/' || !skip_comment()) {
        return;
      }
    }
  }
  // Returns false and skips nothing if the slash begins no comment.
  bool skip_comment() {
    const Scanner before = *this;
    advance();
    if (peek() == '/') {
      while (at_ < text_.size() && peek() != '\n') advance();
      return true;
    }
    if (peek() != '*') return *this = before, false;
    advance();
    for (char last = '\0'; at_ < text_.size(); advance()) {
      if (last == '*' && peek() == '/') return advance(), true;
      last = peek();
    }
    return true;
  }

  std::string read_word() {
    std::string word;
    for (; is_word_char(peek()); advance()) word += peek();
    return word;
  }
  std::string rest_of_line() {
    std::string words;
    for (; at_ < text_.size() && peek() != '\n' && words.size() < 80; advance()) words += peek();
    while (!words.empty() && is_blank(words.back())) words.pop_back();
    return words;
  }

  std::optional<FileUse> read_directive(int marks) {
    is_line_start_ = false;
    const int line = line_;
    for (; marks > 0; --marks) advance();
    skip_blanks_and_comments();
    const std::string word = read_word();
    if (word.rfind("include", 0) != 0 && word != "import" && word != "embed") return std::nullopt;
    return FileUse{line, "#" + word + rest_of_line()};
  }

  std::optional<FileUse> read_token() {
    const char c = peek();
    if (c == '"' || c == '\'') return skip_quoted(c), std::nullopt;
    if (c >= '0' && c <= '9') return skip_number(), std::nullopt;
    if (!is_word_char(c)) return advance(), std::nullopt;
    const int line = line_;
    const std::string word = read_word();
    if (word.rfind("__has_include", 0) == 0 || word == "__has_embed") {
      return FileUse{line, word + rest_of_line()};
    }
    const bool is_raw =
        word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R";
    if (is_raw && peek() == '"') skip_raw_string();
    return std::nullopt;
  }

  // Skips to the closing quote, or to the end of the line if there is none.
  void skip_quoted(char quote) {
    advance();
    while (at_ < text_.size() && peek() != '\n') {
      const char c = peek();
      advance();
      if (c == quote) return;
      if (c == '\\' && peek() != '\n') advance();
    }
  }
  // Also 1'000'000: its quotes begin no character literal.
  void skip_number() {
    while (is_word_char(peek()) || peek() == '.' || (peek() == '\'' && is_word_char(peek(1)))) {
      advance();
    }
  }
  // Skips R"words( ... )words", in which lines are not joined.
  void skip_raw_string() {
    const size_t open = text_.find('(', at_);
    if (open == std::string_view::npos) return advance();
    const std::string close = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t end = text_.find(close, open);
    const size_t after = end == std::string_view::npos ? text_.size() : end + close.size();
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(after), '\n'));
    at_ = after;
    join_lines();
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool is_line_start_ = true;
};

bool is_possible(const TensorMapParam& map, const std::vector<KernelParam>& params) {
  constexpr size_t kMostDimensions = 5;
  constexpr int64_t kMostExtent = 256;
  const auto at = static_cast<size_t>(map.tensor);
  const bool is_of_tensor = map.tensor >= 0 && at < params.size() && params[at].is_pointer;
  return (is_of_tensor || map.tensor == TensorMapParam::kNoTensor) && !map.box.empty() &&
         map.box.size() <= kMostDimensions &&
         std::all_of(map.box.begin(), map.box.end(),
                     [](int64_t extent) { return extent >= 1 && extent <= kMostExtent; }) &&
         (map.swizzle == 0 || map.swizzle == 32 || map.swizzle == 64 || map.swizzle == 128);
}

}  // namespace

bool is_generated(const KernelSource& source) {
  return !source.origins.empty() && !source.calls_author_text;
}

std::optional<FileUse> find_file_use(std::string_view text) {
  return Scanner(text).find();
}

std::optional<SourceProblem> find_fact_problem(const KernelSource& source) {
  std::vector<std::string> names = {source.op, source.entry};
  for (const KernelParam& param : source.params) names.push_back(param.name);
  for (const std::string& name : names) {
    if (is_identifier(name)) continue;
    return SourceProblem{"a kernel has a name that cannot be used",
                         "letters, digits and _, at most 64, no digit first", name};
  }
  for (const KernelParam& param : source.params) {
    if (!param.map || is_possible(*param.map, source.params)) continue;
    return SourceProblem{
        "a kernel has a tensor map that cannot be made",
        "of a pointer parameter, 1 to 5 extents of 1 to 256, swizzle 0, 32, 64 or 128",
        fmt::format("of parameter {}, box [{}], swizzle {}", param.map->tensor,
                    fmt::join(param.map->box, ", "), param.map->swizzle)};
  }
  for (const std::string& option : source.options) {
    const bool allowed = std::any_of(
        kAllowedOptions.begin(), kAllowedOptions.end(),
        [&](std::string_view prefix) { return option.substr(0, prefix.size()) == prefix; });
    if (allowed && !names_a_file(option)) continue;
    return SourceProblem{"a compiler option cannot be used for cached kernels",
                         fmt::format("one that begins with {}{}", fmt::join(kAllowedOptions, ", "),
                                     allowed ? " and names no file" : ""),
                         option};
  }
  if (auto bad = out_of_range("threads", 1, kMaxThreads, source.threads)) return bad;
  if (auto bad = out_of_range("shared_bytes", 0, kMaxBytesPerBlock, source.shared_bytes))
    return bad;
  if (auto bad = out_of_range("cluster", 1, kMaxCluster, source.cluster)) return bad;
  const auto count = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  if (auto bad = out_of_range("params", 0, kMaxListed, count(source.params))) return bad;
  return out_of_range("options", 0, kMaxListed, count(source.options));
}

void check_source(const KernelSource& source) {
  if (const auto bad = find_fact_problem(source)) {
    raise(ErrorKind::argument, source.op, bad->what, {.expected = bad->expected, .got = bad->got});
  }
  if (is_generated(source)) return;
  if (source.text.empty() || source.text.size() > kMaxTextBytes) {
    raise(ErrorKind::argument, source.op, "a kernel has a text that cannot be compiled",
          {.expected = fmt::format("CUDA text of 1 to {} bytes", kMaxTextBytes),
           .got = fmt::format("{} bytes", source.text.size())});
  }
  if (const auto use = find_file_use(source.text)) {
    raise(ErrorKind::argument, source.op,
          "the CUDA text reads a file, which the key of its cache entry would not know",
          {.expected = "a self-contained text",
           .got = fmt::format("line {}: {}", use->line, use->words),
           .hint = "put what the file holds into the text"});
  }
}

}  // namespace tessera::runtime
