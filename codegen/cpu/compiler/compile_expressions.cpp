// Compiles expressions. An expression of uniform variables is uniform and computed once per block.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codegen/cpu/arithmetic/formats.h"
#include "codegen/cpu/compiler/compiler.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

using ir::Op;

/// A constant in native storage, in the low bytes.
uint64_t constant_bits(const ir::Node& node) {
  if (!is_float(node.type)) return static_cast<uint64_t>(node.integer);
  if (node.type == DType::f64) return std::bit_cast<uint64_t>(F64::encode(node.number));
  const auto value = static_cast<float>(node.number);
  if (node.type == DType::f32) return std::bit_cast<uint32_t>(F32::encode(value));
  uint64_t bits = 0;
  find_conversion(DType::f32, node.type)(&bits, &value, nullptr, nullptr, 1);
  return bits;
}

bool can_overflow(Op op) {
  return op == Op::add || op == Op::sub || op == Op::mul;
}

}  // namespace

Slot Compiler::find(const ir::VarRef& var) const {
  const auto found = vars_.find(var.get());
  if (found != vars_.end()) return found->second;
  throw Error({.kind = ErrorKind::trap,
               .op = program_.name,
               .what = fmt::format("variable '{}' is read where it is not bound", var->name),
               .argument = var->name,
               .code = "UNINITIALISED",
               .loc = out_.locs[static_cast<size_t>(statement_)]});
}

bool Compiler::is_uniform(const Expr& e) const {
  if (e->op == Op::var) return find(e->var).uniform;
  return std::all_of(e->args.begin(), e->args.end(),
                     [this](const Expr& arg) { return is_uniform(arg); });
}

Slot Compiler::eval(const Expr& e, Context context) {
  switch (e->op) {
    case Op::constant:
      return eval_constant(*e);
    case Op::var:
      return find(e->var);
    case Op::bitcast: {
      Slot slot = eval(e->args[0], context);
      slot.type = e->type;
      return slot;
    }
    default:
      return eval_op(*e, e, context);
  }
}

Slot Compiler::eval_constant(const ir::Node& node) {
  const uint64_t bits = constant_bits(node);
  const auto [at, fresh] =
      constants_.try_emplace({node.type, bits}, static_cast<int>(out_.initials.size()));
  if (fresh) {
    const Slot slot = allocate_for_launch(node.type, true);
    initial_at_[slot.offset] = at->second;
    out_.initials.push_back({.slot = slot, .column = {}, .param = -1, .bits = bits});
  }
  return out_.initials[static_cast<size_t>(at->second)].slot;
}

Slot Compiler::eval_op(const ir::Node& node, const Expr& e, Context context) {
  // The result comes first on the stack, so that the temporaries above it can be dropped.
  const bool uniform = is_uniform(e);
  const Slot out = allocate(node.type, uniform);
  const int64_t mark = top_;
  constexpr size_t kMaxArgs = 3;
  Slot args[kMaxArgs];
  const size_t num_args = node.args.size();
  TESSERA_CHECK(num_args > 0 && num_args <= kMaxArgs, "an operation of 1 to 3 arguments");
  for (size_t i = 0; i < kMaxArgs && i < num_args; ++i) {
    args[i] = eval(node.args[i], context);
    if (!uniform) args[i] = as_column(args[i]);
  }
  const DType type = node.args[0]->type;
  ColumnOp op = nullptr;
  if (node.op == Op::cast) {
    op = find_conversion(type, node.type);
  } else if (node.op == Op::select) {
    op = find_select(bytes(node.type));
  } else {
    op = find_op(node.op, type);
  }
  if (op == nullptr) {
    throw Error({.kind = ErrorKind::unsupported,
                 .op = program_.name,
                 .what = fmt::format("{} of {} is not defined", name(node.op), name(type)),
                 .got = to_string(e),
                 .code = "DTYPE",
                 .loc = node.loc.known() ? node.loc : out_.locs[static_cast<size_t>(statement_)]});
  }
  const bool divides = (node.op == Op::div || node.op == Op::mod) && !is_float(type);
  if (checked_ && divides && (!is_constant(node.args[1]) || is_constant(node.args[1], 0))) {
    emit(Code::check_divisor, {}, args[1]).index = static_cast<int32_t>(out_.expressions.size());
    out_.expressions.push_back(e);
  }
  emit(Code::compute, out, args[0], args[1], args[2]).op = op;
  if (checked_ && type == DType::i32 && can_overflow(node.op)) {
    const bool is_index = context == Context::index;
    if (is_index || !usage_->may_wrap(e, ValueRole::operand))
      check_overflow(e, out, args, is_index);
  }
  top_ = mark;
  return out;
}

void Compiler::check_overflow(const Expr& e, Slot out, const Slot* args, bool is_index) {
  Instr& check = emit(Code::check_overflow, out, args[0], args[1]);
  check.index = static_cast<int32_t>(out_.expressions.size());
  check.target = is_index ? 0 : 1;
  out_.expressions.push_back(e);
}

Slot Compiler::eval_i64(const Expr& e) {
  // The cast is not folded into `e`: an i32 expression must overflow as i32.
  if (e->type == DType::i64) return eval(e, Context::index);
  return eval(ir::cast(DType::i64, e), Context::index);
}

Slot Compiler::as_column(Slot slot) {
  if (!slot.uniform) return slot;
  if (const auto initial = initial_at_.find(slot.offset); initial != initial_at_.end()) {
    Slot& column = out_.initials[static_cast<size_t>(initial->second)].column;
    if (!column) column = allocate_for_launch(slot.type, false);
    Slot result = column;
    result.type = slot.type;
    return result;
  }
  const Slot column = allocate(slot.type, false);
  emit(Code::broadcast, column, slot);
  return column;
}

Slot Compiler::bind(const ir::VarRef& var, bool uniform) {
  const Slot slot = allocate(var->type, uniform);
  vars_[var.get()] = slot;
  return slot;
}

Instr& Compiler::emit(Code code, Slot out, Slot a, Slot b, Slot c) {
  Instr instr{};
  instr.code = code;
  instr.statement = statement_;
  instr.out = out;
  instr.args[0] = a;
  instr.args[1] = b;
  instr.args[2] = c;
  code_->push_back(instr);
  return code_->back();
}

int64_t Compiler::column_bytes(DType type) const {
  constexpr int64_t kCacheLine = 64;
  return (program_.threads * bytes(type) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

Slot Compiler::allocate(DType type, bool uniform) {
  const Slot slot{static_cast<int32_t>(top_), type, uniform};
  // Uniform slots take a whole cache line too: columns stay aligned and offsets stay simple.
  top_ += uniform ? 64 : column_bytes(type);
  out_.above = std::max(out_.above, top_);
  TESSERA_CHECK(top_ < INT32_MAX, "the registers of a block exceed 2 GiB");
  return slot;
}

Slot Compiler::allocate_for_launch(DType type, bool uniform) {
  out_.below += uniform ? 64 : column_bytes(type);
  return {static_cast<int32_t>(-out_.below), type, uniform};
}

Slot Compiler::scratch() {
  if (!scratch_) scratch_ = allocate_for_launch(DType::i64, false);
  return scratch_;
}

void Compiler::enter_mask() {
  ++mask_depth_;
  out_.mask_depth = std::max(out_.mask_depth, mask_depth_);
}

}  // namespace tessera::codegen::cpu
