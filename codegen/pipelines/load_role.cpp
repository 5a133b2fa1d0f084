#include "codegen/pipelines/load_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "codegen/pipelines/copy_marks.h"
#include "codegen/pipelines/free_variables.h"
#include "codegen/pipelines/loop_pipeline.h"
#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

bool waits_for_previous_kernel(const ir::Stmt& stmt) {
  return has_order(stmt, Order::Kind::previous_kernel);
}

const ir::Stmt* find_definition(const ir::VarRef& var, const Path& path) {
  for (const ir::Body* body : path) {
    for (const ir::Stmt& stmt : *body) {
      if (!std::holds_alternative<ir::Loop>(stmt.node) && binds(stmt, var)) return &stmt;
    }
  }
  return nullptr;
}

}  // namespace

ir::RingTurn turn_of(const RingLoop& loop, bool fills, ir::Kernel& kernel) {
  ir::Var stage;
  stage.name = fills ? "filled" : "taken";
  stage.type = DType::i32;
  stage.kind = ir::VarKind::value;
  stage.id = kernel.num_vars++;
  stage.lower = ir::index(0);
  stage.upper = ir::index(loop.loop().stages);
  stage.loc = loop.stmt->loc;
  return {loop.ring, fills, std::make_shared<const ir::Var>(std::move(stage)), {}};
}

bool leads_to(const ir::Stmt& stmt, const std::map<int, RingLoop>& loops) {
  return any_in(stmt, [&](const ir::Stmt& inner) {
    const auto* loop = std::get_if<ir::Loop>(&inner.node);
    return loop != nullptr && loops.contains(loop_id(*loop));
  });
}

LoadRole::LoadRole(const ir::Kernel& from, ir::Kernel& kernel)
    : kernel_(kernel), replay_(kernel, "") {
  for_each_use(from.body, [&](const ir::BufferRef& buffer, bool writes) {
    if (writes) written_.insert(memory_of(*buffer));
  });
  meets_blocks_ = std::any_of(from.body.begin(), from.body.end(),
                              [](const ir::Stmt& stmt) { return any_in(stmt, meets_blocks); });
}

std::string LoadRole::obstacle_of_source(const ir::Buffer& tensor) const {
  if (tensor.address) return fmt::format("'{}' lies at an address of run time", tensor.name);
  if (written_.contains(memory_of(tensor))) {
    return fmt::format("the kernel writes '{}'", tensor.name);
  }
  if (tensor.is_output && meets_blocks_) {
    return fmt::format("other blocks may write '{}' until the kernel meets them", tensor.name);
  }
  return {};
}

std::string LoadRole::obstacle_of_read(const ir::Buffer& buffer) const {
  if (buffer.space == ir::Space::global) return obstacle_of_source(buffer);
  return fmt::format("{} '{}' holds what the threads compute", name(buffer.space), buffer.name);
}

std::optional<LoadRole::Obstacle> LoadRole::look(const ir::Stmt& stmt, const Path& path,
                                                 Statements& found) const {
  std::string read;
  for_each_use(stmt, [&](const ir::BufferRef& buffer, bool writes) {
    if (!writes && read.empty()) read = obstacle_of_read(*buffer);
  });
  if (!read.empty()) return Obstacle{read, stmt.loc};
  for (const ir::VarRef& var : free_variables(stmt)) {
    if (var->kind == ir::VarKind::thread) {
      return Obstacle{"it depends on the index of the thread", stmt.loc};
    }
    if (var->kind != ir::VarKind::value) continue;
    const ir::Stmt* const definition = find_definition(var, path);
    if (definition == nullptr || found.contains(definition)) continue;
    if (!std::holds_alternative<ir::Let>(definition->node) &&
        !std::holds_alternative<ir::ElementLoad>(definition->node) &&
        !std::holds_alternative<ir::Present>(definition->node)) {
      return Obstacle{fmt::format("the threads compute '{}'", var->name), definition->loc};
    }
    found.insert(definition);
    if (auto inner = look(*definition, path, found)) return inner;
  }
  return std::nullopt;
}

std::optional<LoadRole::Obstacle> LoadRole::obstacle(const ir::Stmt& stmt, const Path& path) const {
  Statements found;
  return look(stmt, path, found);
}

void LoadRole::depend(const ir::Stmt& stmt, const Path& path) {
  look(stmt, path, runs_);
}

bool LoadRole::is_known(const ir::Assume& assume) const {
  std::vector<ir::VarRef> vars;
  ir::collect_vars(assume.condition, vars);
  return std::all_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
    return var->kind != ir::VarKind::thread &&
           (var->kind != ir::VarKind::value || known_.contains(var.get()));
  });
}

ir::Body LoadRole::rounds(const RingLoop& from) {
  ir::RingTurn fill = turn_of(from, true, kernel_);
  ir::Body result;
  for (const ir::Stmt& stmt : from.loop().body) {
    if (runs_.contains(&stmt)) result.push_back(replay_(stmt));
  }
  CopyMarks marks(from.loop().body, from.all_producers());
  for (const Producer& producer : from.producers) {
    marks.go_to(producer.position, fill.body);
    ir::Body copies;
    for (const ir::Stmt& copy : producer.copies) copies.push_back(replay_(copy));
    if (producer.condition) {
      fill.body.push_back(
          {ir::If{replay_(producer.condition), std::move(copies), {}}, producer.loc});
    } else {
      std::move(copies.begin(), copies.end(), std::back_inserter(fill.body));
    }
  }
  marks.close(fill.body);
  result.push_back({std::move(fill), from.stmt->loc});
  return result;
}

ir::Body LoadRole::body(const ir::Body& from, const std::map<int, RingLoop>& loops) {
  ir::Body to;
  for (const ir::Stmt& stmt : from) {
    const auto* assume = std::get_if<ir::Assume>(&stmt.node);
    if (runs_.contains(&stmt)) {
      for_each_binding(stmt,
                       [&](const ir::VarRef& var, const ir::Expr*) { known_.insert(var.get()); });
      to.push_back(replay_(stmt));
    } else if (waits_for_previous_kernel(stmt)) {
      to.push_back(stmt);
    } else if (assume != nullptr && is_known(*assume)) {
      to.push_back(replay_(stmt));
    } else if (leads_to(stmt, loops)) {
      if (const auto* branch = std::get_if<ir::If>(&stmt.node)) {
        to.push_back({ir::If{replay_(branch->condition), body(branch->then, loops),
                             body(branch->otherwise, loops)},
                      stmt.loc});
        continue;
      }
      const auto& loop = std::get<ir::Loop>(stmt.node);
      ir::Loop copy = replay_.head(loop);
      const auto mine = loops.find(loop_id(loop));
      if (mine != loops.end()) copy = as_serial(std::move(copy));
      copy.body = mine != loops.end() ? rounds(mine->second) : body(loop.body, loops);
      to.push_back({std::move(copy), stmt.loc});
    }
  }
  return to;
}

}  // namespace tessera::codegen
