// Compiles array accesses and operations on whole registers.

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/compiler/compiler.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

void Compiler::stmt(const Load& load) {
  Transfer result;
  result.is_load = true;
  if (load.var) {
    result.value = bind(load.var, false);
    vars_.erase(load.var.get());  // not in scope of its own address
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
  if (atomic.until) return wait_for_signal(atomic);
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
  const bool ordered = global && atomic.order == ir::MemoryOrder::acq_rel;
  step.releases = ordered && atomic.op != ir::AtomicOp::load;
  step.acquires = ordered && atomic.old;
  out_.orders_blocks = out_.orders_blocks || step.acquires;
  if (atomic.from.array) {
    step.from = range(atomic.from);
  } else if (atomic.value) {
    step.operand = as_column(eval(atomic.value));
  }
  if (atomic.compare) step.compare = as_column(eval(atomic.compare));
  out_.atomics.push_back(step);
  out_.in_block_order = out_.in_block_order || (global && (atomic.old || (adds && is_float(type))));
  transfer(atomic.to, std::move(result));
  if (atomic.old) vars_[atomic.old.get()] = old;
  top_ = mark;
}

/// Loads, tests and goes back to the load, where the block stops until it is resumed.
void Compiler::wait_for_signal(const Atomic& atomic) {
  const DType type = atomic.to.array->dtype;
  const Slot found = allocate(type, false);
  const int64_t mark = top_;
  Atomic load = atomic;
  load.until = {};
  load.to.guard = {};
  Slot condition;
  int guard = -1;
  if (atomic.to.guard) {
    condition = as_column(eval(atomic.to.guard));
    guard = here();
    emit(Code::mask_push, {}, condition);
    enter_mask();
  }
  const int begin = here();
  stmt(load);
  const Slot now = vars_.at(atomic.old.get());
  emit(Code::await_signal, {}, as_column(eval(atomic.until))).target = begin;
  if (atomic.to.guard) {
    land(guard);
    emit(Code::mask_pop);
    leave_mask();
    const Slot zero = as_column(eval(ir::constant(type, 0)));
    emit(Code::compute, found, condition, now, zero).op = find_select(bytes(type));
  } else {
    emit(Code::copy, found, now);
  }
  vars_[atomic.old.get()] = found;
  top_ = mark;
}

/// To the offset of an array that begins at a run-time address.
void Compiler::add_base(Transfer& transfer) {
  const Slot base = out_.arrays[static_cast<size_t>(transfer.storage)].base;
  if (!base) return;
  const Slot sum = allocate(DType::i64, false);
  emit(Code::compute, sum, transfer.offset, base).op = find_op(ir::Op::add, DType::i64);
  transfer.offset = sum;
}

/// The guard comes first: only threads that pass it compute the address, and may trap.
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
  if (access.array->space == ArraySpace::cluster) transfer.in_owner = transfer.offset;
  add_base(transfer);
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

void Compiler::stmt(const CheckIndices& check) {
  if (!checked_) return;
  const int64_t mark = top_;
  const auto value = [&](const Expr& e) { return as_column(eval_i64(e)); };
  IndexCheck result;
  result.array = check.array;
  for (const Expr& index : check.indices) result.indices.push_back(value(index));
  for (const CheckIndices::Range& range : check.ranges) {
    result.ranges.push_back(
        {value(range.index), value(range.begin), value(range.extent), range.dim});
  }
  emit(Code::check_indices).index = static_cast<int32_t>(out_.index_checks.size());
  out_.index_checks.push_back(std::move(result));
  top_ = mark;
}

SlotRange Compiler::range(const Slice& slice) {
  const int index = storage(slice.array);
  const Slot base = eval_i64(slice.base);
  if (slice.array->space != ArraySpace::registers || !base.uniform) {
    throw Error({.kind = ErrorKind::program,
                 .op = program_.name,
                 .what = fmt::format("a slice of '{}' differs between threads", slice.array->name),
                 .argument = slice.array->name,
                 .expected = "registers at an index that is equal in all threads",
                 .got = to_string(slice.base),
                 .loc = out_.locs[static_cast<size_t>(statement_)]});
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
  const DType dtype = packed.into.array->dtype;
  lanewise(packed.into, packed.args, packed.width,
           packed.of_magnitude ? find_max_of_magnitude(dtype) : find_op(packed.op, dtype));
}

void Compiler::lanewise(const Slice& into, const std::vector<Slice>& args, int width, ColumnOp op) {
  const int64_t mark = top_;
  Lanewise result;
  result.into = range(into);
  for (const Slice& arg : args) result.args.push_back(range(arg));
  result.width = width;
  result.op = op;
  // A column of scratch, used when only some threads are active.
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
  if (mma.is_of_group()) return group_product(mma);
  const int64_t mark = top_;
  const Product product{range(mma.c), range(mma.a), range(mma.b)};
  emit(Code::multiply).index = static_cast<int32_t>(out_.products.size());
  out_.products.push_back(product);
  top_ = mark;
}

MatrixOperand Compiler::matrix(const SharedMatrix& matrix) {
  MatrixOperand result;
  result.transfer = address(matrix.first, true);
  result.chunk.storage = result.transfer.storage;
  result.chunk.width = matrix.first.width;
  result.chunk.offset = scratch();
  return result;
}

void Compiler::group_product(const Mma& mma) {
  const int64_t mark = top_;
  GroupProduct product;
  product.node = mma;
  product.c = range(mma.c);
  if (mma.a.array) {
    product.a = range(mma.a);
  } else {
    product.left = matrix(mma.left);
  }
  product.right = matrix(mma.right);
  emit(Code::start_product).index = static_cast<int32_t>(out_.group_products.size());
  out_.group_products.push_back(std::move(product));
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

}  // namespace tessera::codegen::cpu
