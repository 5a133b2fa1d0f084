#include "codegen/cuda/source_text.h"

#include <algorithm>

namespace tessera::codegen::cuda {
namespace {

constexpr size_t kColumns = 100;
constexpr int kContinuation = 4;

/// The space at which to break `text` so that the first part fits `room` columns: the last of those
/// with the fewest brackets around them. npos if there is none.
size_t break_position(std::string_view text, size_t room) {
  size_t best = std::string_view::npos;
  int best_rank = 0;
  int depth = 0;
  for (size_t i = 0; i < std::min(text.size(), room + 1); ++i) {
    const char c = text[i];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    // A break in the first third gains little.
    if (c != ' ' || i <= room / 3) continue;
    const int rank = 2 * depth + (text[i - 1] == ',' ? 0 : 1);
    if (best == std::string_view::npos || rank <= best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  return best;
}

}  // namespace

void SourceText::put(std::string_view text, int extra_indent) {
  text_.append(static_cast<size_t>(2 * depth_ + extra_indent), ' ');
  text_ += text;
  end_line();
}

void SourceText::end_line() {
  text_ += '\n';
  ++num_lines_;
}

void SourceText::line(std::string_view text) {
  int extra = 0;
  while (true) {
    const size_t room = kColumns - std::min(static_cast<size_t>(2 * depth_ + extra), kColumns / 2);
    if (text.size() <= room) break;
    const size_t end = break_position(text, room);
    if (end == std::string_view::npos) break;
    put(text.substr(0, end), extra);
    text.remove_prefix(end + 1);
    extra = kContinuation;
  }
  put(text, extra);
  last_ = Last::other;
}

bool SourceText::fits(std::string_view text) const {
  return static_cast<size_t>(2 * depth_) + text.size() <= kColumns;
}

void SourceText::comment(std::string_view text) {
  if (last_ == Last::other) end_line();
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line = "// " + std::string(text.substr(0, end));
    // A backslash at the end would take the next line into the comment.
    while (line.back() == ' ' || line.back() == '\\') line.pop_back();
    put(line, 0);
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  last_ = Last::comment;
}

void SourceText::directive(std::string_view text) {
  put(text, 0);
  last_ = Last::other;
}

void SourceText::empty_line() {
  end_line();
  last_ = Last::open;
}

void SourceText::open(std::string_view head) {
  line(std::string(head) + " {");
  ++depth_;
  last_ = Last::open;
}

void SourceText::close(std::string_view tail) {
  --depth_;
  line("}" + std::string(tail));
  if (!tail.empty()) {
    ++depth_;
    last_ = Last::open;
  }
}

}  // namespace tessera::codegen::cuda
