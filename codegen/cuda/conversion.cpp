// The conversion part of ExpressionPrinter, and how accesses read as operands.

#include <fmt/format.h>

#include "codegen/cuda/expression.h"
#include "codegen/cuda/literal.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cuda {

using ir::Op;

Text ExpressionPrinter::widen(DType from, Text operand) {
  if (from == DType::f32) return operand;
  const auto wrap = [&](std::string_view function) {
    return Text{fmt::format("{}({})", call(function), operand.text)};
  };
  if (is_small_float(from)) return wrap(fmt::format("{}_to_f32", name(from)));
  switch (from) {
    case DType::i32:
    case DType::u32:
    case DType::i64:
      return wrap("i64_to_f32_odd");
    case DType::u64:
      return wrap("u64_to_f32_odd");
    default:  // at most 16 bits: exact
      return {fmt::format("float({})", operand.text)};
  }
}

Text ExpressionPrinter::convert(DType to, DType from, Text operand, ValueRole role) {
  if (to == from) return operand;
  if (to == DType::f64 || from == DType::f64)
    return convert_f64(to, from, std::move(operand), role);
  if (is_small_float(to)) {
    return {fmt::format("{}({})", call(fmt::format("f32_to_{}", name(to))),
                        widen(from, std::move(operand)).text)};
  }
  if (is_small_float(from)) {
    Text wide = widen(from, std::move(operand));
    if (to != DType::f32) return convert(to, DType::f32, std::move(wide), role);
    // A bf16 is widened by a shift, which keeps the bits of a NaN.
    if (from != DType::bf16 || role != ValueRole::value) return wide;
    return {fmt::format("{}({})", call("canonical_nan"), wide.text)};
  }
  if (to == DType::boolean) {
    return {fmt::format("{} != {}", parenthesise(std::move(operand), Precedence::relational),
                        from == DType::f32 ? "0.0f" : "0"),
            Precedence::equality};
  }
  if (from == DType::f32 && to == DType::i32)
    return {fmt::format("__float2int_rz({})", operand.text)};
  if (from == DType::f32 && to == DType::u32)
    return {fmt::format("__float2uint_rz({})", operand.text)};
  if (from == DType::f32) {
    return {fmt::format("{}({})", call(fmt::format("f32_to_{}", name(to))), operand.text)};
  }
  return {fmt::format("{}({})", type(to), operand.text)};
}

// Widens an element in place, from the register that it shares with a neighbour (Load::in_pair).
std::optional<Text> ExpressionPrinter::widened_from_pair(const Expr& e) {
  const Load* load = e->op == Op::var ? usage_.inlined_load(*e->var) : nullptr;
  if (load == nullptr || !load->in_pair) return {};
  const Array& array = *load->from.array;
  return Text{fmt::format("{}({}, {})", call(fmt::format("{}_at", name(array.dtype))),
                          names_.of(&array), index(load->from.offset))};
}

Text ExpressionPrinter::cast(const Expr& e, ValueRole role) {
  const Expr& arg = e->args[0];
  const bool keeps_nan =
      arg->type == DType::bf16 && role == ValueRole::value;  // a bf16 is but shifted
  if (e->type == DType::f32 && !keeps_nan) {
    if (const std::optional<Text> wide = widened_from_pair(arg)) return *wide;
  }
  if (ir::is_constant(arg) && is_float(arg->type) && arg->type != DType::f64) {
    return convert(e->type, DType::f32, {f32_argument(e, 0)}, role);
  }
  if (e->type == DType::u16 && arg->type == DType::u32 && !ir::is_constant(arg)) {
    const bool high = arg->op == ir::Op::shr && ir::is_constant(arg->args[1], 16);
    const std::string word = high ? argument(arg, 0, role) : argument(e, 0, role);
    return {fmt::format("{}({})", call(high ? "high_half" : "low_half"), word)};
  }
  return convert(e->type, arg->type, text(arg, argument_role(*e, 0, role)), role);
}

Text ExpressionPrinter::bitcast(const Expr& e, ValueRole role) {
  const DType to = e->type;
  const DType from = e->args[0]->type;
  if (to == DType::boolean) {
    return {argument(e, 0, role, Precedence::relational) + " != 0", Precedence::equality};
  }
  if (to == DType::f64) return {fmt::format("__longlong_as_double({})", argument(e, 0, role))};
  if (from == DType::f64) {
    return {fmt::format("{}(__double_as_longlong({}))", type(to), argument(e, 0, role))};
  }
  std::string function = type(to);
  if (to == DType::f32) function = from == DType::u32 ? "__uint_as_float" : "__int_as_float";
  if (from == DType::f32) function = to == DType::u32 ? "__float_as_uint" : "__float_as_int";
  return {fmt::format("{}({})", function, argument(e, 0, role))};
}

std::string ExpressionPrinter::subscript(const Expr& offset) {
  const bool widened = offset->op == ir::Op::cast && offset->args[0]->type == DType::i32;
  return index(widened ? offset->args[0] : offset);
}

std::string ExpressionPrinter::element(const Array& array, const Expr& offset) {
  const std::string& name = names_.of(&array);
  if (array.space == ArraySpace::registers) {
    if (array.size == 1 && !usage_.is_vector(array)) return name;
  } else if (array.dtype == DType::e2m1) {
    return fmt::format("{}({}, {})", call("e2m1_at"), name, index(offset));
  }
  return fmt::format("{}[{}]", name, subscript(offset));
}

std::string ExpressionPrinter::element(const Array& array, const Expr& base,
                                       const std::string& step) {
  const std::string& name = names_.of(&array);
  if (ir::is_constant(base, 0)) return fmt::format("{}[{}]", name, step);
  return fmt::format("{}[{} + {}]", name, index(base, Precedence::additive), step);
}

std::string ExpressionPrinter::address(const Array& array, const Expr& offset) {
  return fmt::format("&{}[{}]", names_.of(&array), subscript(offset));
}

Text ExpressionPrinter::element(const Access& access) {
  TESSERA_CHECK(access.width == 1, "one variable cannot hold a vector");
  std::string text = element(*access.array, access.offset);
  if (access.cache != ir::CacheHint::none) {
    text = fmt::format("{}<{}>(&{})", call("read_as"), load_hint(access), text);
  }
  if (!access.guard) return {text};
  const DType dtype = access.array->dtype;
  const std::string guard = index(access.guard, Precedence::logical_or);
  if (dtype == DType::boolean) {
    return {fmt::format("{} && {}", index(access.guard, Precedence::logical_and), text),
            Precedence::logical_and};
  }
  return {fmt::format("{} ? {} : {}", guard, text, dtype == DType::f32 ? "0.0f" : "0"),
          Precedence::conditional};
}

std::string ExpressionPrinter::load_hint(const Access& access) {
  return fmt::format("{}, {}", call(ir::name(access.cache)), usage_.is_constant(*access.array));
}

}  // namespace tessera::codegen::cuda
