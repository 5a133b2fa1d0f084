// Statements to instructions: asynchronous copies and leaving early.

#include "codegen/cpu/compiler.h"

namespace tessera::codegen::cpu {

Transfer Compiler::address(const Access& access, bool is_load) {
  Transfer result;
  result.storage = storage(access.array);
  result.width = access.width;
  result.is_load = is_load;
  result.offset = as_column(eval_i64(access.offset));
  if (checked_) {
    for (const Expr& logical : access.indices) {
      result.indices.push_back(as_column(eval_i64(logical)));
    }
  }
  return result;
}

void Compiler::stmt(const AsyncCopy& copy) {
  if (!copy.is_row) return start(copy);
  const int64_t mark = top_;
  const Expr lane = ir::var(program_.thread) % ir::constant(DType::i32, kWarpSize);
  const Slot is_first = as_column(eval(ir::binary(ir::Op::eq, lane, ir::constant(DType::i32, 0))));
  const int branch = here();
  emit(Code::mask_push, {}, is_first);
  enter_mask();
  start(copy);
  land(branch);
  emit(Code::mask_pop);
  leave_mask();
  top_ = mark;
}

/// As for guarded loads, the source address is computed only for the threads that pass the guard.
void Compiler::start(const AsyncCopy& copy) {
  const int64_t mark = top_;
  const auto index = static_cast<int32_t>(out_.asyncs.size());
  out_.asyncs.emplace_back();
  AsyncMove move;
  move.to = address(copy.to, false);
  move.to.is_row = copy.is_row;
  Slot inside;
  int guard = -1;
  if (copy.from.guard) {
    inside = as_column(eval(copy.from.guard));
    guard = here();
    emit(Code::mask_push, {}, inside);
    enter_mask();
  }
  move.from = address(copy.from, true);
  move.from.is_row = copy.is_row;
  out_.asyncs[static_cast<size_t>(index)] = std::move(move);
  emit(Code::async_read).index = index;
  if (copy.from.guard) {
    land(guard);
    emit(Code::mask_pop);
    leave_mask();
  }
  emit(Code::async_copy, {}, inside).index = index;
  top_ = mark;
}

void Compiler::stmt(const AsyncCommit&) {
  emit(Code::async_commit);
}

void Compiler::stmt(const AsyncWait& wait) {
  emit(Code::async_wait).index = wait.pending;
}

void Compiler::stmt(const Return& leave) {
  const int64_t mark = top_;
  const Slot condition = as_column(eval(leave.condition));
  leaves_.push_back(here());
  emit(Code::leave, {}, condition);
  top_ = mark;
}

}  // namespace tessera::codegen::cpu
