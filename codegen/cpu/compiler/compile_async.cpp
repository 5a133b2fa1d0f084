// Compiles asynchronous copies, mbarriers and early exit.

#include "codegen/cpu/compiler/compiler.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

Transfer Compiler::address(const Access& access, bool is_load) {
  Transfer result;
  result.storage = storage(access.array);
  result.width = access.width;
  result.is_load = is_load;
  result.offset = as_column(eval_i64(access.offset));
  add_base(result);
  if (checked_) {
    for (const Expr& logical : access.indices) {
      result.indices.push_back(as_column(eval_i64(logical)));
    }
  }
  return result;
}

/// As for guarded loads, only threads that pass the guard compute the source address.
void Compiler::stmt(const AsyncCopy& copy) {
  const int64_t mark = top_;
  const auto index = static_cast<int32_t>(out_.asyncs.size());
  out_.asyncs.emplace_back();
  AsyncMove move;
  move.to = address(copy.to, false);
  Slot inside;
  int guard = -1;
  if (copy.from.guard) {
    inside = as_column(eval(copy.from.guard));
    guard = here();
    emit(Code::mask_push, {}, inside);
    enter_mask();
  }
  move.from = address(copy.from, true);
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

void Compiler::stmt(const Commit& commit) {
  out_.has_pieces = out_.has_pieces || commit.work == Work::copies;
  emit(commit.work == Work::copies   ? Code::async_commit
       : commit.work == Work::stores ? Code::commit_stores
                                     : Code::commit_products);
}

void Compiler::stmt(const Await& wait) {
  Instr& instr = emit(wait.work == Work::copies   ? Code::async_wait
                      : wait.work == Work::stores ? Code::await_stores
                                                  : Code::await_products);
  instr.index = wait.pending;
  instr.target = wait.of_reads ? 1 : 0;
}

MbarrierStep Compiler::mbarrier(const Access& at) {
  TESSERA_CHECK(at.array && at.array->is_mbarriers(), "an mbarrier statement without mbarriers");
  return {.at = address(at, true), .phase = {}, .bytes = 0};
}

void Compiler::emit(Code code, MbarrierStep step) {
  emit(code).index = static_cast<int32_t>(out_.mbarriers.size());
  out_.mbarriers.push_back(std::move(step));
}

void Compiler::stmt(const MbarrierInit& init) {
  const int64_t mark = top_;
  emit(Code::mbarrier_init, mbarrier(init.at));
  top_ = mark;
}

void Compiler::stmt(const MbarrierArrive& arrive) {
  const int64_t mark = top_;
  MbarrierStep step = mbarrier(arrive.at);
  step.after_copies = arrive.after_copies;
  if (arrive.rank) step.rank = as_column(eval(arrive.rank));
  emit(Code::mbarrier_arrive, std::move(step));
  top_ = mark;
}

void Compiler::stmt(const MbarrierWait& wait) {
  const int64_t mark = top_;
  MbarrierStep step = mbarrier(wait.at);
  step.phase = as_column(eval(wait.phase));
  emit(Code::mbarrier_wait, std::move(step));
  top_ = mark;
}

template <class Fn>
void Compiler::by_first_lane(const Fn& fn) {
  const int64_t mark = top_;
  const Expr lane = ir::var(program_.thread) % ir::constant(DType::i32, kWarpSize);
  const Slot is_first = as_column(eval(ir::binary(ir::Op::eq, lane, ir::constant(DType::i32, 0))));
  const int branch = here();
  emit(Code::mask_push, {}, is_first);
  enter_mask();
  fn();
  land(branch);
  emit(Code::mask_pop);
  leave_mask();
  top_ = mark;
}

void Compiler::stmt(const BulkCopy& copy) {
  TESSERA_CHECK(!copy.from.guard, "a bulk copy with a guard");
  out_.has_bulk_copies = true;
  by_first_lane([&] {
    AsyncMove move;
    move.to = address(copy.to, false);
    move.from = address(copy.from, true);
    move.to.is_bulk = move.from.is_bulk = true;
    move.mbarrier = static_cast<int>(out_.mbarriers.size());
    out_.mbarriers.push_back(mbarrier(copy.mbarrier));
    move.expects = copy.expects;
    const auto index = static_cast<int32_t>(out_.asyncs.size());
    out_.asyncs.push_back(std::move(move));
    emit(Code::async_read).index = index;
    emit(Code::bulk_copy).index = index;
  });
}

BoxMove Compiler::box(const TensorMapRef& map, const std::vector<Expr>& coordinates,
                      const Access& shared, bool is_load) {
  BoxMove move;
  move.map = map;
  if (!map->tensor->address) {
    move.tensor = storage(map->tensor);
    for (const Expr& extent : map->tensor->shape) move.extents.push_back(eval_i64(extent));
    for (const Expr& stride : map->strides) move.strides.push_back(eval_i64(stride));
  }
  for (const Expr& coordinate : coordinates) {
    move.coordinates.push_back(as_column(eval_i64(coordinate)));
  }
  move.to = address(shared, is_load);
  move.to.width = static_cast<int>(map->elements());
  move.to.is_bulk = true;
  move.global.storage = move.tensor >= 0 ? move.tensor : move.to.storage;
  move.global.width = move.to.width;
  move.global.is_load = !is_load;
  return move;
}

void Compiler::stmt(const TensorCopy& copy) {
  out_.has_bulk_copies = true;
  by_first_lane([&] {
    BoxMove move = box(copy.map, copy.coordinates, copy.to, false);
    if (copy.map_at.array) move.map_at = address(copy.map_at, true);
    move.mbarrier = static_cast<int>(out_.mbarriers.size());
    out_.mbarriers.push_back(mbarrier(copy.mbarrier));
    move.expects = copy.expects;
    move.multicast = copy.multicast;
    emit(Code::tensor_copy).index = static_cast<int32_t>(out_.boxes.size());
    out_.boxes.push_back(std::move(move));
  });
}

void Compiler::stmt(const WriteMap& write) {
  by_first_lane([&] {
    for (int word = 0; word < write.to.width; ++word) {
      Access at = write.to;
      at.width = 1;
      at.offset = at.offset + ir::constant(DType::i64, word);
      at.indices.back() = at.indices.back() + ir::index(word);
      Transfer zero;
      zero.is_load = false;
      zero.value = as_column(eval(ir::constant(DType::u64, 0)));
      transfer(at, std::move(zero));
    }
    MapStep step;
    step.tensor = write.tensor;
    step.at = address(write.to, true);
    step.address = as_column(eval(ir::cast(DType::i64, write.tensor->address)));
    for (const Expr& extent : write.extents) step.extents.push_back(as_column(eval_i64(extent)));
    for (const Expr& stride : write.strides) step.strides.push_back(as_column(eval_i64(stride)));
    emit(Code::write_map).index = static_cast<int32_t>(out_.map_steps.size());
    out_.map_steps.push_back(std::move(step));
  });
}

void Compiler::stmt(const TensorStore& store) {
  out_.has_bulk_copies = true;
  const DType type = store.to.array->dtype;
  by_first_lane([&] {
    BoxStore made;
    made.box = box(store.map, store.coordinates, store.from, true);
    made.chunk = address(store.from, true);
    made.chunk.offset = scratch();
    made.tensor.storage = made.box.tensor;
    made.tensor.is_load = false;
    made.tensor.indices = made.box.coordinates;
    if (store.adds) {
      made.tensor.atomic = static_cast<int>(out_.atomics.size());
      AtomicStep step;
      step.op = ir::AtomicOp::add;
      step.combine = find_op(ir::Op::add, type);
      out_.atomics.push_back(step);
      out_.in_block_order = out_.in_block_order || is_float(type);
    }
    emit(Code::tensor_store).index = static_cast<int32_t>(out_.box_stores.size());
    out_.box_stores.push_back(std::move(made));
  });
}

void Compiler::stmt(const Break& leave) {
  const int64_t mark = top_;
  const Slot stays = as_column(eval(ir::unary(ir::Op::logical_not, leave.condition)));
  breaks_.push_back(here());
  emit(Code::mask_and, {}, stays);
  top_ = mark;
}

void Compiler::stmt(const Return& leave) {
  const int64_t mark = top_;
  const Slot condition = as_column(eval(leave.condition));
  leaves_.push_back(here());
  emit(Code::leave, {}, condition);
  top_ = mark;
}

}  // namespace tessera::codegen::cpu
