#include "codegen/pipelines/take_range.h"

#include <algorithm>
#include <set>

#include "codegen/pipelines/copy_marks.h"
#include "codegen/pipelines/free_variables.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// Names that a statement makes and that end with the body around.
struct Made {
  std::set<ir::VarRef> vars;
  std::set<int> buffers;  // views and reducers that begin, by id
};

Made made_by(const ir::Stmt& stmt) {
  Made made;
  for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr*) { made.vars.insert(var); });
  if (const auto* pointer = std::get_if<ir::Pointer>(&stmt.node)) {
    made.buffers.insert(pointer->buffer->id);
  } else if (const auto* init = std::get_if<ir::ReducerInit>(&stmt.node)) {
    made.buffers.insert(init->reducer->id);
  }
  return made;
}

bool uses(const ir::Stmt& stmt, const Made& made) {
  const std::vector<ir::VarRef> vars = free_variables(stmt);
  bool found = std::any_of(vars.begin(), vars.end(),
                           [&](const ir::VarRef& var) { return made.vars.contains(var); });
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool) {
    found =
        found || made.buffers.contains(buffer->id) || made.buffers.contains(storage_of(*buffer).id);
  });
  return found;
}

bool is_reducer(const ir::Stmt& stmt) {
  return std::holds_alternative<ir::ReducerInit>(stmt.node);
}

bool finalizes(const ir::Stmt& stmt) {
  return std::holds_alternative<ir::ReducerFinalize>(stmt.node);
}

/// Takes in marks that cross the range, and those around it that enclose nothing else. True if it grows.
bool take_in_marks(const ir::Body& body, const std::vector<Producer>& producers, TakeRange& range) {
  const auto is_outside = [&](size_t i) { return i < range.first || i > range.last; };
  const auto is_work = [&](size_t i) {
    return !is_value_or_mark(body[i]) &&
           std::none_of(producers.begin(), producers.end(),
                        [&](const Producer& producer) { return producer.position == i; });
  };
  const TakeRange before = range;
  for (const MarkPair& pair : marks_of(body)) {
    bool has_taken = false, has_other = false;
    for (size_t i = pair.begin + 1; i < pair.end; ++i) {
      has_taken = has_taken || !is_outside(i);
      has_other = has_other || (is_outside(i) && is_work(i));
    }
    const bool crosses = is_outside(pair.begin) != is_outside(pair.end);
    if (!has_taken || !(crosses || !has_other)) continue;
    range.first = std::min(range.first, pair.begin);
    range.last = std::max(range.last, pair.end);
  }
  return range.first != before.first || range.last != before.last;
}

}  // namespace

TakeRange take_range(const ir::Body& body, const std::vector<Producer>& producers) {
  TakeRange range{body.size(), 0};
  for (const Producer& producer : producers) {
    range.first = std::min(range.first, producer.consumer);
    range.last = std::max(range.last, producer.last_reader);
  }
  for (bool grows = true; grows;) {
    grows = take_in_marks(body, producers, range);
    for (size_t i = 0; i <= range.last; ++i) {
      const Made made = made_by(body[i]);
      for (size_t j = i + 1; j < body.size(); ++j) {
        if (!uses(body[j], made)) continue;
        if (i >= range.first && j > range.last) {
          range.last = j;
          grows = true;
        }
        // A reducer is finalized in the body that opens it.
        const bool ends_in_take = j >= range.first && j <= range.last && finalizes(body[j]);
        if (is_reducer(body[i]) && i < range.first && ends_in_take) {
          range.first = i;
          grows = true;
        }
      }
    }
  }
  return range;
}

}  // namespace tessera::codegen
