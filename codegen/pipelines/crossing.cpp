#include "codegen/pipelines/crossing.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/pipelines/copy_groups.h"
#include "codegen/pipelines/free_variables.h"
#include "codegen/pipelines/replay.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
bool Crossing::is_written(const ir::Buffer& buffer) const {
  bool written = false;
  for_each_use(loop_.body, [&](const ir::BufferRef& other, bool writes) {
    written = written || (writes && memory_of(*other) == memory_of(buffer));
  });
  return written;
}

bool Crossing::begins_here(const ir::Buffer& buffer) const {
  return std::any_of(loop_.body.begin(), loop_.body.end(), [&](const ir::Stmt& stmt) {
    return any_in(stmt, [&](const ir::Stmt& inner) {
      const auto* pointer = std::get_if<ir::Pointer>(&inner.node);
      return pointer != nullptr && pointer->buffer->id == buffer.id;
    });
  });
}

/// The obstacle in the memory that a statement reads.
std::string Crossing::obstacle_of_reads(const ir::Stmt& stmt) const {
  const bool meets = std::any_of(loop_.body.begin(), loop_.body.end(),
                                 [](const ir::Stmt& inner) { return any_in(inner, meets_blocks); });
  std::string result;
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
    if (writes || !result.empty()) return;
    if (begins_here(*buffer)) {
      result = fmt::format("the loop around computes the address of '{}'", buffer->name);
    } else if (is_written(*buffer)) {
      result = fmt::format("the loop around writes '{}', which they read", buffer->name);
    } else if (buffer->is_output && meets) {
      result =
          fmt::format("other blocks may write '{}' until the loop around meets them", buffer->name);
    }
  });
  return result;
}

std::string Crossing::obstacle_of_value(const ir::VarRef& var) {
  for (const Level& level : levels) {
    for (const ir::Stmt& stmt : *level.body) {
      if (!binds(stmt, var) || replays_.contains(&stmt)) continue;
      const auto* load = std::get_if<ir::ElementLoad>(&stmt.node);
      const bool is_value = std::holds_alternative<ir::Let>(stmt.node) ||
                            std::holds_alternative<ir::Present>(stmt.node) ||
                            (load != nullptr && load->buffer->space == ir::Space::global);
      if (!is_value) {
        return fmt::format("they depend on '{}', which is not known before its round", var->name);
      }
      if (load != nullptr && ends_early(loop_)) {
        return fmt::format("they depend on '{}', which is read in a round that may never come",
                           var->name);
      }
      replays_.insert(&stmt);
      const std::string reads = obstacle_of_reads(stmt);
      return reads.empty() ? obstacle_of_values(stmt) : reads;
    }
  }
  return {};
}

std::string Crossing::obstacle_of_values(const ir::Stmt& stmt) {
  for (const ir::VarRef& var : free_variables(stmt)) {
    std::string why = obstacle_of_value(var);
    if (!why.empty()) return why;
  }
  return {};
}

std::string Crossing::obstacle(const ir::Stmt& copies) {
  for (const ir::Stmt& stmt : loop_.body) {
    if (any_in(stmt, [](const ir::Stmt& s) { return has_order(s, Order::Kind::leave); })) {
      return "threads leave the kernel in the loop around";
    }
    if (any_in(stmt,
               [](const ir::Stmt& s) { return has_order(s, Order::Kind::previous_kernel); })) {
      return "the loop around waits for the kernel before this one";
    }
  }
  const auto loads = [](const ir::Stmt& s) {
    return std::holds_alternative<ir::ElementLoad>(s.node);
  };
  if (ends_early(loop_) && any_in(copies, loads)) {
    return "they read where to copy from in a round that may never come";
  }
  std::string why = obstacle_of_reads(copies);
  if (why.empty()) why = obstacle_of_values(copies);
  for (size_t i = 0; why.empty() && i + 1 < levels.size(); ++i) {
    const auto& branch = std::get<ir::If>((*levels[i].body)[levels[i].position].node);
    why = obstacle_of_values({ir::Assume{branch.condition}, {}});
  }
  return why;
}

ir::Stmt Crossing::for_first(ir::Kernel& kernel, const ir::Stmt& copies) const {
  return replayed(kernel, copies, loop_.begin < loop_.extents[0], loop_.begin);
}

ir::Stmt Crossing::for_next(ir::Kernel& kernel, const ir::Stmt& copies) const {
  const ir::Expr index = ir::var(loop_.vars[0]), &end = loop_.extents[0], &step = loop_.step;
  // Not t + step < end, which may overflow; end - step does not if the end is above 0.
  const bool is_natural =
      loop_.label == "persistent" || (ir::is_constant(loop_.begin) && loop_.begin->integer >= 0);
  const ir::Expr exists =
      is_natural || index->type == DType::i64
          ? index < end - step
          : ir::cast(DType::i64, index) + ir::cast(DType::i64, step) < ir::cast(DType::i64, end);
  return replayed(kernel, copies, exists, index + step);
}

ir::Stmt Crossing::replayed(ir::Kernel& kernel, const ir::Stmt& copies, const ir::Expr& exists,
                            const ir::Expr& index) const {
  Replay replay(kernel);
  replay.set(loop_.vars[0], index);
  ir::Body result;
  ir::Body* into = &result;
  for (size_t i = 0; i < levels.size(); ++i) {
    for (const ir::Stmt& stmt : *levels[i].body) {
      if (replays_.contains(&stmt)) into->push_back(replay(stmt));
    }
    if (i + 1 == levels.size()) break;
    const auto& branch = std::get<ir::If>((*levels[i].body)[levels[i].position].node);
    into->push_back({ir::If{replay(branch.condition), {}, {}}, copies.loc});
    into = &std::get<ir::If>(into->back().node).then;
  }
  into->push_back(replay(copies));
  return {ir::If{exists, std::move(result), {}}, copies.loc};
}

}  // namespace tessera::codegen
