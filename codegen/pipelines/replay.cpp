#include "codegen/pipelines/replay.h"

#include "dsl/base/error.h"

namespace tessera::codegen {

ir::Expr Replay::operator()(const ir::Expr& e) const {
  return ir::substitute(e, [&](const ir::VarRef& var) {
    const auto found = values_.find(var.get());
    return found == values_.end() ? ir::Expr() : found->second;
  });
}

ir::Stmt Replay::operator()(ir::Stmt stmt, std::optional<ir::CopyTime> when) {
  if (auto* let = std::get_if<ir::Let>(&stmt.node)) {
    let->value = (*this)(let->value);
    rename(let->var);
  } else if (auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
    replay(load->indices);
    replay(load->terms);
    rename(load->var);
  } else if (auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
    replay(store->indices);
    replay(store->terms);
    store->value = (*this)(store->value);
  } else if (auto* present = std::get_if<ir::Present>(&stmt.node)) {
    rename(present->var);
  } else if (auto* assume = std::get_if<ir::Assume>(&stmt.node)) {
    assume->condition = (*this)(assume->condition);
  } else if (auto* copy = std::get_if<ir::Copy>(&stmt.node)) {
    replay(copy->from.offsets);
    replay(copy->from.terms);
    replay(copy->to.terms);
    copy->plan.when = when.value_or(copy->plan.when);
  } else if (auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
    TESSERA_CHECK(loop->plan.has_value(), "only loops of copies are replayed");
    for (ir::VarRef& var : loop->vars) rename(var);
    for (ir::Stmt& inner : loop->body) inner = (*this)(std::move(inner));
    loop->plan->when = when.value_or(loop->plan->when);
  } else if (auto* branch = std::get_if<ir::If>(&stmt.node)) {
    TESSERA_CHECK(branch->otherwise.empty(), "only conditions of one arm are replayed");
    branch->condition = (*this)(branch->condition);
    for (ir::Stmt& inner : branch->then) inner = (*this)(std::move(inner), when);
  } else if (!ir::is_mark(stmt)) {
    internal_error("a statement that is not replayed");
  }
  return stmt;
}

ir::Loop Replay::head(ir::Loop loop) {
  loop.begin = (*this)(loop.begin);
  loop.step = (*this)(loop.step);
  replay(loop.extents);
  for (ir::VarRef& var : loop.vars) rename(var);
  loop.body.clear();
  return loop;
}

void Replay::rename(ir::VarRef& var) {
  auto fresh = std::make_shared<ir::Var>(*var);
  if (!fresh->name.ends_with(suffix_)) fresh->name += suffix_;
  if (fresh->lower) fresh->lower = (*this)(fresh->lower);
  if (fresh->upper) fresh->upper = (*this)(fresh->upper);
  fresh->id = kernel_.num_vars++;
  set(var, ir::var(fresh));
  var = std::move(fresh);
}

void Replay::replay(std::vector<ir::Expr>& list) const {
  for (ir::Expr& e : list) e = (*this)(e);
}

void Replay::replay(ir::AccessTerms& terms) const {
  for (ir::TileIndex& tile : terms.tile_indices) {
    tile = {(*this)(tile.index), (*this)(tile.begin), (*this)(tile.extent)};
  }
}

}  // namespace tessera::codegen
