#include "codegen/analysis/int_range.h"

#include <algorithm>
#include <cmath>

#include "dsl/ir/extents.h"

namespace tessera::codegen {
namespace {

using ir::Op;

constexpr double kMostBlocks = ir::kMostBlocksYZ;

IntRange type_range(DType type) {
  if (type == DType::boolean) return {0, 1};
  const int width = bits(type);
  if (!is_signed(type)) return {0, std::ldexp(1.0, width) - 1};
  return {-std::ldexp(1.0, width - 1), std::ldexp(1.0, width - 1) - 1};
}

bool fits(IntRange range, DType type) {
  if (bits(type) == 64) return range.low > -0x1p62 && range.high < 0x1p62;
  const IntRange limits = type_range(type);
  return range.low >= limits.low && range.high <= limits.high;
}

IntRange hull(std::initializer_list<double> values) {
  return {std::min(values), std::max(values)};
}

}  // namespace

IntRange IntRanges::of(const ir::Expr& e) {
  const IntRange limits = type_range(e->type);
  const IntRange range = exact(e);
  if (!fits(range, e->type)) return limits;
  return {std::max(range.low, limits.low), std::min(range.high, limits.high)};
}

bool IntRanges::may_wrap(const ir::Expr& e) {
  return !fits(exact(e), e->type);
}

/// As if integers had no end.
IntRange IntRanges::exact(const ir::Expr& e) {
  switch (e->op) {
    case Op::constant:
      return {static_cast<double>(e->integer), static_cast<double>(e->integer)};
    case Op::var:
      return of_variable(*e->var);
    case Op::lt:
    case Op::le:
    case Op::eq:
    case Op::ne:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      return {0, 1};
    case Op::popcount:
    case Op::clz:
    case Op::ffs:
      return {0, 64};
    default:
      break;
  }
  if (e->args.empty() || is_float(e->args[0]->type)) return type_range(e->type);
  const size_t last = e->args.size() - 1;  // of a select: what it chooses between
  const IntRange a = of(e->args[last > 1 ? 1 : 0]), b = of(e->args[last]);
  switch (e->op) {
    case Op::add:
      return {a.low + b.low, a.high + b.high};
    case Op::sub:
      return {a.low - b.high, a.high - b.low};
    case Op::mul:
      return hull({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    case Op::neg:
      return {-a.high, -a.low};
    case Op::min:
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    case Op::max:
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    case Op::select:
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
    case Op::cast:
      return a;
    case Op::div:
      if (b.low < 1) break;
      return {std::trunc(a.low / (a.low < 0 ? b.low : b.high)),
              std::trunc(a.high / (a.high < 0 ? b.high : b.low))};
    case Op::mod:
      if (b.low < 1) break;
      return {a.low < 0 ? std::max(a.low, 1 - b.high) : 0,
              a.high > 0 ? std::min(a.high, b.high - 1) : 0};
    case Op::bit_and:
      if (a.low >= 0 && b.low >= 0) return {0, std::min(a.high, b.high)};
      break;
    case Op::bit_or:
    case Op::bit_xor:
      if (a.low >= 0 && b.low >= 0) {
        return {0, std::exp2(std::floor(std::log2(std::max({a.high, b.high, 1.0}))) + 1) - 1};
      }
      break;
    case Op::shr:
      if (a.low >= 0) return {0, a.high};
      break;
    default:
      break;
  }
  return type_range(e->type);
}

IntRange IntRanges::of_variable(const ir::Var& var) {
  const auto found = known_.find(&var);
  if (found != known_.end()) return found->second;
  IntRange range = type_range(var.type);
  if (const ir::Expr bound = definition_(var)) {
    constexpr int kMostDefinitions = 32;  // in a row; bounds the recursion
    if (looked_through_ == kMostDefinitions) return range;
    ++looked_through_;
    range = of(bound);
    --looked_through_;
  } else if (var.kind == ir::VarKind::thread) {
    range = {0, threads_ - 1.0};
  } else {
    if (var.kind == ir::VarKind::block)
      range = {0, var.axis == 0 ? range.high - 1 : kMostBlocks - 1};
    if (var.lower) range.low = std::max(range.low, of(var.lower).low);
    if (var.upper) range.high = std::min(range.high, of(var.upper).high - 1);
  }
  known_.emplace(&var, range);
  return range;
}

}  // namespace tessera::codegen
