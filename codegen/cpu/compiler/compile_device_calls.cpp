// Compiles pointers, presence, assertions, printing and the author's functions.

#include <fmt/format.h>

#include "codegen/cpu/compiler/compiler.h"
#include "codegen/print_format.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {

void Compiler::stmt(const Present& present) {
  for (size_t i = 0; i < program_.params.size(); ++i) {
    if (program_.params[i].array != present.array) continue;
    const Slot slot = allocate_for_launch(DType::boolean, true);
    vars_[present.var.get()] = slot;
    initial_at_[slot.offset] = static_cast<int>(out_.initials.size());
    out_.initials.push_back({.slot = slot, .column = {}, .param = static_cast<int>(i), .bits = 0});
    return;
  }
  internal_error(fmt::format("'{}' is not a parameter", present.array->name));
}

void Compiler::stmt(const Assert& check) {
  if (check.otherwise == Otherwise::trap && !checked_) return;
  const int64_t mark = top_;
  const Slot condition = as_column(eval(check.condition));
  emit(Code::require, {}, condition).index = static_cast<int32_t>(out_.requirements.size());
  out_.requirements.push_back(check);
  top_ = mark;
}

void Compiler::stmt(const Print& print) {
  if (print.is_mark()) {
    emit(Code::mark).index = print.event;
    return;
  }
  const int64_t mark = top_;
  PrintStep step;
  step.format = print_format(print);
  for (const Expr& arg : print.args) {
    const bool widens = is_float(arg->type) && bits(arg->type) < 32;
    step.args.push_back(as_column(eval(widens ? ir::cast(DType::f32, arg) : arg)));
  }
  emit(Code::print).index = static_cast<int32_t>(out_.prints.size());
  out_.prints.push_back(std::move(step));
  out_.in_block_order = true;
  top_ = mark;
}

void Compiler::stmt(const ExternCall& call) {
  const ir::ExternFunction& function = *call.function;
  if (!function.model) {
    throw Error({.kind = ErrorKind::unsupported,
                 .op = program_.name,
                 .what = fmt::format("'{}' has no model, so the kernel runs on the GPU only",
                                     function.name),
                 .hint = "set ExternFunction::model",
                 .code = "NO_MODEL",
                 .loc = out_.locs[static_cast<size_t>(statement_)]});
  }
  const Slot out = bind(call.var, false);
  const int64_t mark = top_;
  vars_.erase(call.var.get());
  ExternStep step;
  step.function = call.function;
  for (const Expr& arg : call.args) step.args.push_back(as_column(eval(arg)));
  emit(Code::extern_call, out).index = static_cast<int32_t>(out_.calls.size());
  out_.calls.push_back(std::move(step));
  vars_[call.var.get()] = out;
  top_ = mark;
}

void Compiler::declare_pointer(const ArrayRef& array) {
  Storage entry;
  entry.array = array;
  entry.base = allocate(DType::i64, false);
  if (checked_) {
    for (const Expr& extent : array->shape) {
      const Slot value = eval_i64(extent);
      // Extents that vary between threads are not checked as extents; bounds guards are.
      if (value.uniform) entry.extents.push_back(value);
    }
    if (entry.extents.size() != array->shape.size()) entry.extents.clear();
  }
  const int64_t mark = top_;
  const Slot address = as_column(eval(ir::cast(DType::i64, array->address)));
  const auto index = static_cast<int>(out_.arrays.size());
  arrays_[array.get()] = index;
  emit(Code::pointer, entry.base, address).index = index;
  out_.arrays.push_back(std::move(entry));
  top_ = mark;
}

void Compiler::declare_view(const ArrayRef& array) {
  Storage entry;
  entry.array = array;
  entry.base = allocate(DType::i64, false);
  entry.block = allocate(DType::i32, false);
  if (checked_) entry.extents = out_.arrays[static_cast<size_t>(storage(array->mine))].extents;
  const int64_t mark = top_;
  const Slot rank = as_column(eval(array->block, checked_ ? Context::index : Context::value));
  emit(Code::copy, entry.block, rank);
  const auto index = static_cast<int>(out_.arrays.size());
  arrays_[array.get()] = index;
  emit(Code::view, entry.base, entry.block).index = index;
  out_.arrays.push_back(std::move(entry));
  top_ = mark;
}

}  // namespace tessera::codegen::cpu
