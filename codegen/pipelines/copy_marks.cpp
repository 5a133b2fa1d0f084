#include "codegen/pipelines/copy_marks.h"

#include <algorithm>

namespace tessera::codegen {
namespace {

bool begins_mark(const ir::Stmt& stmt) {
  return ir::is_mark(stmt) && std::get<ir::Print>(stmt.node).begins();
}
bool ends_mark(const ir::Stmt& stmt) {
  return ir::is_mark(stmt) && !std::get<ir::Print>(stmt.node).begins();
}

}  // namespace

std::vector<MarkPair> marks_of(const ir::Body& body) {
  std::vector<MarkPair> pairs;
  std::vector<size_t> open;  // in `pairs`
  for (size_t i = 0; i < body.size(); ++i) {
    if (begins_mark(body[i])) {
      open.push_back(pairs.size());
      pairs.push_back({i, body.size()});
    } else if (ends_mark(body[i])) {
      pairs[open.back()].end = i;
      open.pop_back();
    }
  }
  return pairs;
}

size_t before_marks(const ir::Body& body, size_t position) {
  while (position > 0 && begins_mark(body[position - 1])) --position;
  return position;
}

size_t after_marks(const ir::Body& body, size_t position) {
  while (position + 1 < body.size() && ends_mark(body[position + 1])) ++position;
  return position;
}

bool is_value_or_mark(const ir::Stmt& stmt) {
  return ir::is_mark(stmt) || std::holds_alternative<ir::Let>(stmt.node) ||
         std::holds_alternative<ir::ElementLoad>(stmt.node) ||
         std::holds_alternative<ir::Present>(stmt.node) ||
         std::holds_alternative<ir::Assume>(stmt.node);
}

CopyMarks::CopyMarks(const ir::Body& body, const std::vector<const Producer*>& producers)
    : body_(body) {
  const auto is_copy = [&](size_t position) {
    return std::any_of(producers.begin(), producers.end(),
                       [&](const Producer* producer) { return producer->position == position; });
  };
  for (const MarkPair& pair : marks_of(body)) {
    bool has_copies = false, has_more = false;
    for (size_t i = pair.begin + 1; i < pair.end; ++i) {
      has_copies = has_copies || is_copy(i);
      has_more = has_more || !(is_copy(i) || is_value_or_mark(body[i]));
    }
    if (has_copies && !has_more) pairs_.push_back(pair);
  }
}

bool CopyMarks::leaves(size_t position) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const MarkPair& pair) {
    return pair.begin == position || pair.end == position;
  });
}

void CopyMarks::go_to(size_t position, ir::Body& out) {
  while (!open_.empty() && !open_.back().encloses(position)) {
    out.push_back(body_[open_.back().end]);
    open_.pop_back();
  }
  for (const MarkPair& pair : pairs_) {
    const bool is_open = std::any_of(open_.begin(), open_.end(), [&](const MarkPair& other) {
      return other.begin == pair.begin;
    });
    if (is_open || !pair.encloses(position)) continue;
    out.push_back(body_[pair.begin]);
    open_.push_back(pair);
  }
}

}  // namespace tessera::codegen
