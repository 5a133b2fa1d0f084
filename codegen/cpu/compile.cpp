// Statements to instructions. Control flow becomes jumps where it is uniform and masks where
// threads differ.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/compiler.h"
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
  if (checked_) collect_index_vars(program_.body);
  code_ = &out_.block;
  compile_body(program_.body);
  for (const int leave : leaves_) land(leave);
  return std::move(out_);
}

/// Parameters, thread and block indices, grid, extents of arrays.
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
  // The launch code leaves its results on the bottom of the stack, below those of the block.
  for (const Expr& extent : program_.grid) out_.grid.push_back(eval_i64(extent));
  if (!checked_) return;
  for (Storage& entry : out_.arrays) {
    for (const Expr& extent : entry.array->shape) entry.extents.push_back(eval_i64(extent));
  }
}

void Compiler::compile_body(const Body& body) {
  const int64_t mark = top_;
  std::vector<const ir::Var*> bound;
  std::vector<const Array*> declared;
  for (const Stmt& statement : body) {
    compile_stmt(statement);
    // What the statement binds lives to the end of this body.
    if (const auto* let = std::get_if<Let>(&statement.node)) bound.push_back(let->var.get());
    if (const auto* load = std::get_if<Load>(&statement.node)) bound.push_back(load->var.get());
    if (const auto* atomic = std::get_if<Atomic>(&statement.node))
      bound.push_back(atomic->old.get());
    if (const auto* collective = std::get_if<Collective>(&statement.node)) {
      bound.push_back(collective->var.get());
    }
    if (const auto* present = std::get_if<Present>(&statement.node)) {
      bound.push_back(present->var.get());
    }
    if (const auto* call = std::get_if<ExternCall>(&statement.node)) {
      bound.push_back(call->var.get());
    }
    if (const auto* declare = std::get_if<Declare>(&statement.node)) {
      declared.push_back(declare->array.get());
    }
  }
  for (const ir::Var* var : bound) vars_.erase(var);
  for (const Array* array : declared) arrays_.erase(array);
  top_ = mark;
}

void Compiler::compile_stmt(const Stmt& statement) {
  if (std::holds_alternative<Comment>(statement.node)) comment_loc_ = statement.loc;
  statement_ = static_cast<int>(out_.locs.size());
  out_.locs.push_back(statement.loc.known() ? statement.loc : comment_loc_);
  std::visit([this](const auto& node) { stmt(node); }, statement.node);
}

void Compiler::stmt(const Let& let) {
  const bool is_index = index_vars_.count(let.var.get()) != 0;
  vars_[let.var.get()] = eval(let.value, is_index ? Context::index : Context::value);
}

void Compiler::stmt(const Load& load) {
  Transfer result;
  result.is_load = true;
  if (load.var) {
    result.value = bind(load.var, false);
    vars_.erase(load.var.get());  // not visible in its own address
  }
  const int64_t mark = top_;
  if (!load.var) result.range = range(load.into);
  const Slot value = result.value;
  transfer(load.from, std::move(result));
  if (load.var) vars_[load.var.get()] = value;
  top_ = mark;
}

void Compiler::stmt(const Store& store) {
  const int64_t mark = top_;
  Transfer result;
  result.is_load = false;
  if (store.value) {
    result.value = as_column(eval(store.value));
  } else {
    result.range = range(store.from);
  }
  transfer(store.to, std::move(result));
  top_ = mark;
}

void Compiler::stmt(const Atomic& atomic) {
  const DType type = atomic.to.array->dtype;
  const bool global = atomic.to.array->space == ArraySpace::global;
  const bool adds = atomic.op == ir::AtomicOp::add;
  Transfer result;
  result.is_load = true;
  result.atomic = static_cast<int>(out_.atomics.size());
  result.value = allocate(type, false);
  const Slot old = result.value;
  const int64_t mark = top_;
  AtomicStep step;
  step.op = atomic.op;
  if (adds) step.combine = find_op(ir::Op::add, type);
  if (atomic.op == ir::AtomicOp::max) step.combine = find_op(ir::Op::max, type);
  if (atomic.op == ir::AtomicOp::min) step.combine = find_op(ir::Op::min, type);
  step.flushes = global && adds && type == DType::f32;
  step.operand = as_column(eval(atomic.value));
  if (atomic.compare) step.compare = as_column(eval(atomic.compare));
  out_.atomics.push_back(step);
  out_.in_block_order = out_.in_block_order || (global && (atomic.old || (adds && is_float(type))));
  transfer(atomic.to, std::move(result));
  if (atomic.old) vars_[atomic.old.get()] = old;
  top_ = mark;
}

/// The guard comes first: address arithmetic runs, and may trap, only for the threads that pass.
void Compiler::transfer(const Access& access, Transfer transfer) {
  transfer.storage = storage(access.array);
  transfer.width = access.width;
  const auto index = static_cast<int32_t>(out_.transfers.size());
  out_.transfers.emplace_back();
  int guard = -1;
  if (access.guard) {
    const Slot condition = as_column(eval(access.guard));
    guard = here();
    emit(Code::guard, {}, condition).index = index;
    enter_mask();
  }
  const bool in_registers = access.array->space == ArraySpace::registers;
  transfer.offset = eval_i64(access.offset);
  if (!in_registers) transfer.offset = as_column(transfer.offset);
  if (const Slot base = out_.arrays[static_cast<size_t>(transfer.storage)].base; base) {
    const Slot sum = allocate(DType::i64, false);
    emit(Code::compute, sum, transfer.offset, base).op = find_op(ir::Op::add, DType::i64);
    if (access.array->space == ArraySpace::cluster) transfer.in_owner = transfer.offset;
    transfer.offset = sum;
  }
  if (checked_) {
    for (const Expr& logical : access.indices) {
      transfer.indices.push_back(as_column(eval_i64(logical)));
    }
  }
  const Code move = transfer.is_load ? Code::load : Code::store;
  emit(transfer.atomic >= 0 ? Code::atomic : move).index = index;
  out_.transfers[static_cast<size_t>(index)] = std::move(transfer);
  if (access.guard) {
    land(guard);
    emit(Code::mask_pop);
    leave_mask();
  }
}

SlotRange Compiler::range(const Slice& slice) {
  const int index = storage(slice.array);
  const Slot base = eval_i64(slice.base);
  if (slice.array->space != ArraySpace::registers || !base.uniform) {
    ErrorFields fields;
    fields.kind = ErrorKind::program;
    fields.op = program_.name;
    fields.argument = slice.array->name;
    fields.what = fmt::format("a slice of '{}' differs between threads", slice.array->name);
    fields.expected = "registers at an index that is equal in all threads";
    fields.got = to_string(slice.base);
    fields.loc = out_.locs[static_cast<size_t>(statement_)];
    throw Error(std::move(fields));
  }
  return {index, base};
}

int Compiler::storage(const ArrayRef& array) {
  const auto found = arrays_.find(array.get());
  TESSERA_CHECK(found != arrays_.end(),
                fmt::format("array '{}' is used where it is not declared", array->name));
  return found->second;
}

void Compiler::stmt(const Convert& convert) {
  lanewise(convert.into, {convert.from}, convert.width,
           find_conversion(convert.from.array->dtype, convert.into.array->dtype));
}

void Compiler::stmt(const Packed& packed) {
  lanewise(packed.into, packed.args, packed.width, find_op(packed.op, packed.into.array->dtype));
}

void Compiler::lanewise(const Slice& into, const std::vector<Slice>& args, int width, ColumnOp op) {
  const int64_t mark = top_;
  Lanewise result;
  result.into = range(into);
  for (const Slice& arg : args) result.args.push_back(range(arg));
  result.width = width;
  result.op = op;
  // Scratch for one column, used where only some threads are active.
  const Slot scratch = allocate(into.array->dtype, false);
  emit(Code::lanewise, scratch).index = static_cast<int32_t>(out_.lanewise.size());
  out_.lanewise.push_back(std::move(result));
  top_ = mark;
}

void Compiler::stmt(const LoadMatrix& load) {
  const int64_t mark = top_;
  Transfer result;
  result.is_load = true;
  result.range = range(load.into);
  result.matrices = load.count;
  result.transposed = load.transposed;
  transfer(load.from, std::move(result));
  top_ = mark;
}

void Compiler::stmt(const Mma& mma) {
  const int64_t mark = top_;
  const Product product{range(mma.c), range(mma.a), range(mma.b)};
  emit(Code::multiply).index = static_cast<int32_t>(out_.products.size());
  out_.products.push_back(product);
  top_ = mark;
}

void Compiler::stmt(const For& loop) {
  const int64_t mark = top_;
  const DType type = loop.var->type;
  TESSERA_CHECK(!loop.step || !is_constant(loop.step) || loop.step->integer > 0,
                "a loop whose step is not positive");
  Slot begin = eval(ir::cast(type, loop.begin));
  Slot end = eval(ir::cast(type, loop.end));
  Slot step = eval(ir::cast(type, loop.step ? loop.step : ir::constant(type, 1)));
  const bool uniform = begin.uniform && end.uniform && step.uniform;
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
  compile_body(loop.body);
  emit(Code::compute, next, var, step).op = find_op(ir::Op::add, type);
  emit(Code::copy, var, next);
  emit(Code::jump).target = top;
  land(leave);
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
  if (barrier.scope == BarrierScope::block) {
    emit(Code::barrier);
  } else if (barrier.scope == BarrierScope::grid) {
    emit(Code::grid_barrier);
  } else if (barrier.scope != BarrierScope::cluster_arrive) {
    emit(Code::cluster_barrier);
  }
}

void Compiler::stmt(const WarpBarrier&) {
  emit(Code::warp_barrier);
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

void Compiler::stmt(const Declare& declare) {
  const Array& array = *declare.array;
  if (array.space == ArraySpace::global) return declare_pointer(declare.array);
  if (array.space == ArraySpace::cluster) return declare_view(declare.array);
  TESSERA_CHECK(array.space == ArraySpace::registers, "only register arrays are declared");
  Storage entry;
  entry.array = declare.array;
  entry.zero = declare.zero;
  entry.stride = static_cast<int32_t>(column_bytes(array.dtype));
  entry.offset = static_cast<int32_t>(top_);
  top_ += array.size * column_bytes(array.dtype);
  entry.initialised = static_cast<int32_t>(top_);
  if (checked_) top_ += array.size * column_bytes(DType::u8);
  out_.above = std::max(out_.above, top_);
  TESSERA_CHECK(top_ < INT32_MAX, "the registers of a block exceed 2 GiB");
  const auto index = static_cast<int>(out_.arrays.size());
  arrays_[declare.array.get()] = index;
  out_.arrays.push_back(std::move(entry));
  emit(Code::declare).index = index;
}

/// Marks each variable that reaches an offset or an index, also through other variables: overflow
/// in its definition is overflow of the index.
void Compiler::collect_index_vars(const Body& body) {
  const auto access = [this](const Access& a) {
    add_index_expr(a.offset);
    for (const Expr& logical : a.indices) add_index_expr(logical);
  };
  for (const Stmt& statement : body) {
    if (const auto* let = std::get_if<Let>(&statement.node)) lets_[let->var.get()] = let->value;
    if (const auto* load = std::get_if<Load>(&statement.node)) access(load->from);
    if (const auto* load = std::get_if<LoadMatrix>(&statement.node)) access(load->from);
    if (const auto* store = std::get_if<Store>(&statement.node)) access(store->to);
    if (const auto* atomic = std::get_if<Atomic>(&statement.node)) access(atomic->to);
    if (const auto* copy = std::get_if<AsyncCopy>(&statement.node)) {
      access(copy->from);
      access(copy->to);
    }
    if (const auto* loop = std::get_if<For>(&statement.node)) collect_index_vars(loop->body);
    if (const auto* branch = std::get_if<If>(&statement.node)) {
      collect_index_vars(branch->then);
      collect_index_vars(branch->otherwise);
    }
  }
}

void Compiler::add_index_expr(const Expr& e) {
  std::vector<VarRef> vars;
  collect_vars(e, vars);
  for (const VarRef& var : vars) {
    if (!index_vars_.insert(var.get()).second) continue;
    // Definitions come before uses, so the let has been seen.
    if (const auto let = lets_.find(var.get()); let != lets_.end()) add_index_expr(let->second);
  }
}

Bytecode compile(const Program& program, Checks checks) {
  return Compiler(program, checks).compile();
}

}  // namespace tessera::codegen::cpu
