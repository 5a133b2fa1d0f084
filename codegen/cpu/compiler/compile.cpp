// Compiles statements to instructions. Uniform control flow becomes jumps, divergent control flow
// masks.

#include "codegen/cpu/compiler/compiler.h"
#include "codegen/cpu/compiler/index_vars.h"
#include "codegen/thread_ir/walk.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

Compiler::Compiler(const Program& program, Checks checks)
    : program_(program), checked_(checks == Checks::on) {}

Bytecode Compiler::compile() {
  TESSERA_CHECK(program_.threads > 0, "a block without threads");
  out_.checked = checked_;
  out_.threads = program_.threads;
  out_.locs.push_back({});
  compile_launch();
  if (checked_) {
    index_vars_ = find_index_vars(program_.body);
    usage_.emplace(program_);
  }
  code_ = &out_.block;
  compile_body(program_.body);
  for (const int leave : leaves_) land(leave);
  if (checked_) mark_ways();
  return std::move(out_);
}

void Compiler::mark_ways() {
  const auto mark = [&](int storage, Way way) {
    out_.arrays[static_cast<size_t>(storage)].ways[way] = true;
  };
  for (const Transfer& transfer : out_.transfers) mark(transfer.storage, way_of(transfer));
  for (const AsyncMove& move : out_.asyncs) mark(move.from.storage, Way::read);
  for (const BoxStore& store : out_.box_stores) mark(store.tensor.storage, way_of(store.tensor));
  // Tensors that may alias share all ways of access; tensors at addresses may be the same memory.
  Ways shared;
  const auto may_alias = [](const Storage& storage) {
    return storage.array->space == ArraySpace::global && (storage.array->may_alias || storage.base);
  };
  for (const Storage& storage : out_.arrays) {
    if (!may_alias(storage)) continue;
    for (size_t way = 0; way < kWays; ++way) {
      shared.used[way] |= storage.ways.used[way];
    }
  }
  for (Storage& storage : out_.arrays) {
    if (may_alias(storage)) storage.ways = shared;
  }
}

/// Compiles parameters, thread and block indices, grid, and extents of arrays.
void Compiler::compile_launch() {
  code_ = &out_.launch;
  for (size_t i = 0; i < program_.params.size(); ++i) {
    const Param& param = program_.params[i];
    if (param.array) {
      arrays_[param.array.get()] = static_cast<int>(out_.arrays.size());
      Storage global;
      global.array = param.array;
      global.param = static_cast<int>(i);
      out_.arrays.push_back(std::move(global));
    } else {
      const Slot slot = allocate_for_launch(param.var->type, true);
      vars_[param.var.get()] = slot;
      initial_at_[slot.offset] = static_cast<int>(out_.initials.size());
      out_.initials.push_back(
          {.slot = slot, .column = {}, .param = static_cast<int>(i), .bits = 0});
    }
  }
  if (program_.thread) {
    out_.thread = allocate_for_launch(program_.thread->type, false);
    vars_[program_.thread.get()] = out_.thread;
  }
  for (const VarRef& block : program_.blocks) {
    TESSERA_CHECK(block->axis >= 0 && block->axis < 3, "a block index with an axis of 0, 1 or 2");
    Slot& slot = out_.blocks[static_cast<size_t>(block->axis)];
    slot = allocate_for_launch(block->type, true);
    vars_[block.get()] = slot;
  }
  for (const ArrayRef& array : program_.shared) {
    arrays_[array.get()] = static_cast<int>(out_.arrays.size());
    Storage shared;
    shared.array = array;
    out_.arrays.push_back(std::move(shared));
  }
  // The launch code leaves its results at the bottom of the stack, below those of the block.
  for (const Expr& extent : program_.grid) out_.grid.push_back(eval_i64(extent));
  if (!checked_) return;
  for (Storage& entry : out_.arrays) {
    for (const Expr& extent : entry.array->shape) entry.extents.push_back(eval_i64(extent));
  }
}

void Compiler::compile_body(const Body& body) {
  const int64_t mark = top_;
  for (const Stmt& statement : body) compile_stmt(statement);
  // Bindings of a body live to its end.
  for (const Stmt& statement : body) {
    for_each_binding(statement, [&](const VarRef& var, const Expr*) { vars_.erase(var.get()); });
    for_each_declaration(statement, [&](const ArrayRef& array) { arrays_.erase(array.get()); });
  }
  top_ = mark;
}

void Compiler::compile_stmt(const Stmt& statement) {
  if (std::holds_alternative<Comment>(statement.node)) comment_loc_ = statement.loc;
  statement_ = static_cast<int>(out_.locs.size());
  out_.locs.push_back(statement.loc.known() ? statement.loc : comment_loc_);
  std::visit([this](const auto& node) { stmt(node); }, statement.node);
}

void Compiler::stmt(const Let& let) {
  const bool is_index = index_vars_.contains(let.var.get());
  const Slot value = eval(let.value, is_index ? Context::index : Context::value);
  vars_[let.var.get()] = value;
  if (checked_ && let.is_vouched && !value.uniform) {
    emit(Code::check_uniform, {}, value).index = static_cast<int32_t>(out_.expressions.size());
    out_.expressions.push_back(ir::var(let.var));
  }
}

void Compiler::stmt(const For& loop) {
  const int64_t mark = top_;
  const DType type = loop.var->type;
  TESSERA_CHECK(!loop.step || !is_constant(loop.step) || loop.step->integer > 0,
                "a loop whose step is not positive");
  Slot begin = eval(ir::cast(type, loop.begin));
  Slot end = eval(ir::cast(type, loop.end));
  Slot step = eval(ir::cast(type, loop.step ? loop.step : ir::constant(type, 1)));
  const bool uniform = begin.uniform && end.uniform && step.uniform && break_of(loop) == nullptr;
  if (!uniform) {
    begin = as_column(begin);
    end = as_column(end);
    step = as_column(step);
  }
  const Slot var = bind(loop.var, uniform);
  const Slot next = allocate(type, uniform);
  const Slot more = allocate(DType::boolean, uniform);
  const auto test = [&] { emit(Code::compute, more, var, end).op = find_op(ir::Op::lt, type); };
  emit(Code::copy, var, begin);
  int entry = -1;
  if (!uniform) {
    test();
    entry = here();
    emit(Code::mask_push, {}, more);
    enter_mask();
  }
  const int top = here();
  test();
  const int leave = here();
  emit(uniform ? Code::jump_unless : Code::mask_and, {}, more);
  const std::vector<int> outer = std::exchange(breaks_, {});
  compile_body(loop.body);
  emit(Code::compute, next, var, step).op = find_op(ir::Op::add, type);
  if (loop.may_wrap) {  // the end, where it is no further away than the step
    const DType bits = type == DType::i64 ? DType::u64 : DType::u32;
    const Slot rest = allocate(bits, uniform);
    emit(Code::compute, rest, end, var).op = find_op(ir::Op::sub, bits);
    emit(Code::compute, more, step, rest).op = find_op(ir::Op::lt, bits);
    emit(Code::compute, var, more, next, end).op = find_select(bytes(type));
  } else {
    emit(Code::copy, var, next);
  }
  emit(Code::jump).target = top;
  land(leave);
  for (const int jump : breaks_) land(jump);
  breaks_ = outer;
  if (!uniform) {
    land(entry);
    emit(Code::mask_pop);
    leave_mask();
  }
  vars_.erase(loop.var.get());
  top_ = mark;
}

void Compiler::stmt(const If& branch) {
  const int64_t mark = top_;
  const Slot condition = eval(branch.condition);
  const int test = here();
  emit(condition.uniform ? Code::jump_unless : Code::mask_push, {}, condition);
  if (!condition.uniform) enter_mask();
  compile_body(branch.then);
  if (condition.uniform) {
    const int skip = here();
    if (!branch.otherwise.empty()) emit(Code::jump);
    land(test);
    compile_body(branch.otherwise);
    if (!branch.otherwise.empty()) land(skip);
  } else {
    land(test);
    if (!branch.otherwise.empty()) {
      const int flip = here();
      emit(Code::mask_else, {}, condition);
      compile_body(branch.otherwise);
      land(flip);
    }
    emit(Code::mask_pop);
    leave_mask();
  }
  top_ = mark;
}

void Compiler::stmt(const Barrier& barrier) {
  switch (barrier.scope) {
    case BarrierScope::warp:
      emit(Code::warp_barrier);
      return;
    case BarrierScope::named:
    case BarrierScope::named_arrive:
      TESSERA_CHECK(barrier.id >= 1 && barrier.id <= kMaxNamedBarriers,
                    "a named barrier with an id of 1 to 15");
      emit(Code::named_barrier).index = static_cast<int32_t>(out_.named_barriers.size());
      out_.named_barriers.push_back(barrier);
      return;
    case BarrierScope::block:
      emit(Code::barrier);
      return;
    case BarrierScope::cluster:
    case BarrierScope::cluster_wait:
      emit(Code::cluster_barrier);
      return;
    case BarrierScope::cluster_arrive:
      return;
    case BarrierScope::grid:
      emit(Code::grid_barrier);
      return;
  }
}

void Compiler::stmt(const Collective& collective) {
  const Slot out = bind(collective.var, false);
  const int64_t mark = top_;
  vars_.erase(collective.var.get());
  TESSERA_CHECK(!collective.args.empty() && collective.args.size() <= 2,
                "a collective of 1 or 2 arguments");
  Slot args[2];
  for (size_t i = 0; i < collective.args.size(); ++i) args[i] = as_column(eval(collective.args[i]));
  emit(Code::collective, out, args[0], args[1]).index =
      static_cast<int32_t>(out_.collectives.size());
  out_.collectives.push_back({collective.kind, collective.width});
  vars_[collective.var.get()] = out;
  top_ = mark;
}

Bytecode compile(const Program& program, Checks checks) {
  return Compiler(program, checks).compile();
}

}  // namespace tessera::codegen::cpu
