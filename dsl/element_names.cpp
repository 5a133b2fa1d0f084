// Recorder: detects elements written after they were named.

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dsl/recorder.h"

namespace tessera::dsl {
namespace {

/// b - a if it is constant.
std::optional<int64_t> distance(const ir::Expr& a, const ir::Expr& b) {
  struct Sum {
    ir::Expr base;  // null = 0
    int64_t constant = 0;
  };
  const auto split = [](ir::Expr e) {
    Sum sum;
    while (e && !ir::is_constant(e)) {
      const bool adds = e->op == ir::Op::add;
      if ((adds || e->op == ir::Op::sub) && ir::is_constant(e->args[1])) {
        sum.constant += adds ? e->args[1]->integer : -e->args[1]->integer;
        e = e->args[0];
      } else if (adds && ir::is_constant(e->args[0])) {
        sum.constant += e->args[0]->integer;
        e = e->args[1];
      } else {
        sum.base = e;
        return sum;
      }
    }
    if (e) sum.constant += e->integer;
    return sum;
  };
  const Sum from = split(a);
  const Sum to = split(b);
  if (!ir::equal(from.base, to.base)) return std::nullopt;
  return to.constant - from.constant;
}

/// True if two regions of one storage may share an element.
bool may_overlap(const ir::Region& a, const ir::Region& b) {
  if (a.buffer->id != b.buffer->id) return true;  // views of other shapes, or of another block
  for (size_t d = 0; d < a.offsets.size(); ++d) {
    const std::optional<int64_t> apart = distance(a.offsets[d], b.offsets[d]);
    if (!apart) continue;
    const auto extent = [&](const ir::Region& region) -> int64_t {
      const ir::Expr& e = region.extents[d];  // an index has no extent
      return !e ? 1 : ir::is_constant(e) ? e->integer : INT64_MAX;
    };
    if (*apart >= extent(a) || -*apart >= extent(b)) return false;
  }
  return true;
}

ir::Region element_of(const ir::BufferRef& buffer, const std::vector<ir::Expr>& indices) {
  ir::Region region;
  region.buffer = buffer;
  region.offsets = indices;
  region.extents.resize(indices.size());
  return region;
}

}  // namespace

int Recorder::new_name(const ir::Buffer& buffer) {
  names_.push_back(writes_[storage_of(buffer).id].size());
  return static_cast<int>(names_.size());
}

int Recorder::copy_name(int name) {
  names_.push_back(names_[static_cast<size_t>(name - 1)]);
  return static_cast<int>(names_.size());
}

void Recorder::fail_stale(const ir::Buffer& buffer, SourceLoc read, SourceLoc written) const {
  fail("STALE_ELEMENT",
       fmt::format(
           "an element of '{}' is read by a name from before a write that may have changed it",
           buffer.name),
       read, "the element named where it is read, or its value kept from before the write",
       "a Ref, which reads where it is used",
       fmt::format("Value old = {0}(...) keeps the old value, {0}(...) in place reads the new one",
                   buffer.name),
       written);
}

void Recorder::check_fresh(int name, const ir::Region& element, SourceLoc loc) {
  size_t& seen = names_[static_cast<size_t>(name - 1)];
  const std::vector<Write>& writes = writes_[storage_of(*element.buffer).id];
  for (; seen < writes.size(); ++seen) {
    const Write& write = writes[seen];
    if (write.name != name && may_overlap(write.region, element)) {
      fail_stale(*element.buffer, loc, write.loc);
    }
  }
  if (!loops_.empty() && static_cast<size_t>(name) <= loops_.back().names) {
    reads_.push_back({element, name, loc});
  }
}

void Recorder::note_write(const ir::Region& region, int name, SourceLoc loc) {
  const int storage = storage_of(*region.buffer).id;
  has_effect = has_effect || region.buffer->space == ir::Space::global;
  writes_[storage].push_back({region, name, loc});
  // The next iteration of a loop reads what this iteration writes.
  size_t end = reads_.size();
  for (auto loop = loops_.rbegin(); loop != loops_.rend(); ++loop) {
    for (size_t i = loop->reads; i < end; ++i) {
      const Read& read = reads_[i];
      if (static_cast<size_t>(read.name) > loop->names || read.name == name) continue;
      if (storage_of(*read.element.buffer).id != storage) continue;
      if (may_overlap(region, read.element)) fail_stale(*read.element.buffer, read.loc, loc);
    }
    end = std::min(end, loop->reads);
  }
}

void Recorder::note_writes(const ir::Stmt& stmt, int name) {
  if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
    note_write(element_of(store->buffer, store->indices), name, stmt.loc);
  } else if (const auto* atomic = std::get_if<ir::Atomic>(&stmt.node)) {
    note_write(element_of(atomic->buffer, atomic->indices), name, stmt.loc);
  } else if (const auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
    note_write(copy->to, 0, stmt.loc);
  } else if (const auto* fill = std::get_if<ir::Fill>(&stmt.node)) {
    note_write(fill->to, 0, stmt.loc);
  } else if (const auto* reduce = std::get_if<ir::Reduce>(&stmt.node)) {
    note_write(reduce->to, 0, stmt.loc);
  } else if (const auto* finalize = std::get_if<ir::ReducerFinalize>(&stmt.node)) {
    if (finalize->to) note_write(whole(finalize->to), 0, stmt.loc);
  } else if (const auto* gemm = std::get_if<ir::Gemm>(&stmt.node)) {
    note_write(gemm->c, 0, stmt.loc);
  }
  has_effect = has_effect || (std::holds_alternative<ir::Print>(stmt.node) && !ir::is_mark(stmt)) ||
               std::holds_alternative<ir::Assert>(stmt.node) ||
               std::holds_alternative<ir::ExternCall>(stmt.node);
}

}  // namespace tessera::dsl
