#include "codegen/analysis/common_values.h"

#include <algorithm>

namespace tessera::codegen {
namespace {

bool is_first_block_index(const ir::Expr& e) {
  return e->op == ir::Op::var && e->var->kind == ir::VarKind::block && e->var->axis == 0;
}

}  // namespace

void CommonValues::note(const ir::Stmt& stmt) {
  if (const auto* let = std::get_if<ir::Let>(&stmt.node)) {
    if (is_common(let->value)) known_.insert(let->var.get());
  } else if (const auto* load = std::get_if<ir::ElementLoad>(&stmt.node)) {
    const ir::Buffer& buffer = *load->buffer;
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
