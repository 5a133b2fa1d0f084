#pragma once
// Marks (ir::Print) around copies that leave the body of a pipelined loop.
//
// A mark goes with the copies if it encloses nothing else but values. Any other stays, around what stays.

#include <cstddef>
#include <vector>

#include "codegen/pipelines/copy_groups.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// Positions in a body where a mark begins and ends.
struct MarkPair {
  size_t begin = 0, end = 0;

  bool encloses(size_t position) const { return begin < position && position < end; }
};
/// The marks of a body itself, outer before inner.
std::vector<MarkPair> marks_of(const ir::Body& body);

/// The position of the first of the marks that begin right before a statement, and of the last of those that end right
/// after it; its own if there are none.
size_t before_marks(const ir::Body& body, size_t position);
size_t after_marks(const ir::Body& body, size_t position);

/// True for a statement that only names a value, or a mark: it counts neither as work nor as a copy.
bool is_value_or_mark(const ir::Stmt& stmt);

class CopyMarks {
 public:
  CopyMarks(const ir::Body& body, const std::vector<const Producer*>& producers);

  /// True if a mark that goes with the copies begins or ends at the position.
  bool leaves(size_t position) const;
  /// Writes ends and begins of marks, so that those around the copies at `position` are open after it.
  void go_to(size_t position, ir::Body& out);
  /// The same, so that none is open.
  void close(ir::Body& out) { go_to(body_.size(), out); }

 private:
  const ir::Body& body_;
  std::vector<MarkPair> pairs_;  // that leave
  std::vector<MarkPair> open_;
};

}  // namespace tessera::codegen
