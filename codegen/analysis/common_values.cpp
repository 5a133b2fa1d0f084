#include "codegen/analysis/common_values.h"

#include <algorithm>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

bool is_first_block_index(const ir::Expr& e) {
  return e->op == ir::Op::var && e->var->kind == ir::VarKind::block && e->var->axis == 0;
}

}  // namespace

CommonValues::CommonValues(const ir::Kernel& kernel, int blocks) : blocks_(blocks) {
  // Variables count as common until a store proves otherwise, which may propagate to others.
  size_t before = 0;
  do {
    before = varying_.size() + parted_.size();
    known_.clear();
    find_varying(kernel.body, true);
  } while (varying_.size() + parted_.size() != before);
  known_.clear();
}

/// `together`: all threads run the body equally often.
void CommonValues::find_varying(const ir::Body& body, bool together) {
  for (const ir::Stmt& stmt : body) {
    note(stmt);
    const auto* store = std::get_if<ir::ElementStore>(&stmt.node);
    if (store != nullptr && store->buffer->space == ir::Space::scalar) {
      if (!together || !is_common(store->value)) varying_.insert(store->buffer->id);
    }
    const auto* branch = std::get_if<ir::If>(&stmt.node);
    const auto* loop = std::get_if<ir::Loop>(&stmt.node);
    bool inside = together;
    if (branch != nullptr) inside = inside && is_common(branch->condition);
    if (loop != nullptr) {
      inside = inside && has_common_rounds(*loop) && !parted_.contains(loop_id(*loop));
    }
    for_each_body(stmt, [&](const ir::Body& inner) { find_varying(inner, inside); });
    if (loop == nullptr || !ends_early(*loop)) continue;
    const auto& leave = std::get<ir::Break>(loop->body.back().node);
    if (!is_common(leave.condition)) parted_.insert(loop_id(*loop));
  }
}

void CommonValues::note(const ir::Stmt& stmt) {
  if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
    const bool is_vouched = let->is_vouched && blocks_ == 1;
    if (is_vouched || is_common(let->value)) known_.insert(let->var.get());
  } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
    const ir::Buffer& buffer = *load->buffer;
    if (buffer.space == ir::Space::scalar && !varying_.contains(buffer.id)) {
      known_.insert(load->var.get());
    }
    const bool is_input = buffer.space == ir::Space::global && !buffer.address &&
                          !buffer.is_output && !buffer.may_alias;
    if (is_input && std::all_of(load->indices.begin(), load->indices.end(),
                                [&](const ir::Expr& e) { return is_common(e); })) {
      known_.insert(load->var.get());
    }
  } else if (const auto* present = std::get_if<ir::Present>(&stmt.node)) {
    known_.insert(present->var.get());
  } else if (const auto* turn = std::get_if<ir::RingTurn>(&stmt.node)) {
    known_.insert(turn->stage.get());
  } else if (const auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
    if (has_common_rounds(*loop)) known_.insert(loop->vars[0].get());
  }
}

bool CommonValues::is_common(const ir::Expr& e) const {
  if (e->op == ir::Op::var) {
    const ir::VarKind kind = e->var->kind;
    return kind == ir::VarKind::dim || kind == ir::VarKind::scalar ||
           (kind == ir::VarKind::block && (blocks_ == 1 || e->var->axis > 0)) ||
           known_.contains(e->var.get());
  }
  // A cluster lies along the first axis of the grid.
  if (e->op == ir::Op::div && is_first_block_index(e->args[0]) && ir::is_constant(e->args[1]) &&
      e->args[1]->integer > 0 && e->args[1]->integer % blocks_ == 0) {
    return true;
  }
  return std::all_of(e->args.begin(), e->args.end(),
                     [&](const ir::Expr& arg) { return is_common(arg); });
}

bool CommonValues::has_common_rounds(const ir::Loop& loop) const {
  return loop.kind != ir::LoopKind::parallel && is_common(loop.begin) && is_common(loop.step) &&
         is_common(loop.extents[0]);
}

}  // namespace tessera::codegen
