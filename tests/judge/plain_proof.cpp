#include "tests/judge/plain_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "codegen/analysis/evaluate.h"

namespace tessera::test {

using codegen::Claim;
using ir::Op;

namespace {

/// Sums, differences and products by constants in a form in which equal texts have equal values: they wrap, so their order
/// does not matter. Z3 knows that of integers without an end, not of those that wrap inside a division.
class NormalForm {
 public:
  static std::string of(const ir::Expr& e) {
    if (e->op == Op::var) return key_of(e);
    if (e->type != DType::i32 && e->type != DType::i64) return atom(e);
    std::string text = fmt::format("{}[", name(e->type));
    for (const auto& [factor, count] : terms(e, e->type)) {
      if (count != 0) text += fmt::format("{} {};", count, factor);
    }
    return text + "]";
  }

 private:
  using Terms =
      std::map<std::string,
               uint64_t>;  // how often a factor counts, modulo 2^32 or 2^64; of a constant ""

  static std::string atom(const ir::Expr& e) {
    if (e->op == Op::var) return key_of(e);
    std::string text =
        fmt::format("{}.{}.{}.{}(", ir::name(e->op), name(e->type), e->integer, e->number);
    for (const ir::Expr& arg : e->args) text += of(arg) + ",";
    return text + ")";
  }
  static Terms times(const Terms& terms, uint64_t count, DType type) {
    Terms result;
    for (const auto& [factor, before] : terms) result[factor] = cut(before * count, type);
    return result;
  }
  static uint64_t cut(uint64_t count, DType type) {
    return type == DType::i32 ? count & 0xffff'ffffu : count;
  }
  static Terms sum(Terms a, const Terms& b, DType type) {
    for (const auto& [factor, count] : b) a[factor] = cut(a[factor] + count, type);
    return a;
  }
  static Terms terms(const ir::Expr& e, DType type) {
    const auto arg = [&](size_t i) { return terms(e->args[i], type); };
    constexpr uint64_t kMinusOne = ~uint64_t{0};
    if (e->type == type) {
      switch (e->op) {
        case Op::constant:
          return {{"", cut(static_cast<uint64_t>(e->integer), type)}};
        case Op::add:
          return sum(arg(0), arg(1), type);
        case Op::sub:
          return sum(arg(0), times(arg(1), kMinusOne, type), type);
        case Op::neg:
          return times(arg(0), kMinusOne, type);
        case Op::mul:
          for (const size_t i : {size_t{0}, size_t{1}}) {
            if (!ir::is_constant(e->args[i])) continue;
            return times(arg(1 - i), static_cast<uint64_t>(e->args[i]->integer), type);
          }
          break;
        default:
          break;
      }
    }
    return {{atom(e), 1}};
  }
};

bool has_constant_bounds(const ir::Var& var) {
  const auto is_known = [](const ir::Expr& bound) {
    return bound.get() != nullptr && ir::is_constant(bound);
  };
  return is_known(var.lower) && is_known(var.upper);
}

/// Replaces what is taken modulo a constant and has no bounds, such as the stage of a round that nobody has counted, by a
/// variable that may have any such value.
class AnyRemainder {
 public:
  ir::Expr of(const ir::Expr& e) {
    std::vector<ir::Expr> args;
    for (const ir::Expr& arg : e->args) args.push_back(of(arg));
    const ir::Expr result = args.empty() ? e : ir::rebuild(*e, std::move(args));
    if (e->op != Op::mod || !ir::is_constant(e->args[1]) || is_bounded(result)) return result;
    ir::VarRef& var = vars_[key_of(e)];
    if (var == nullptr) var = new_var(e);
    return ir::var(var);
  }

 private:
  static bool is_bounded(const ir::Expr& e) {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    return std::all_of(vars.begin(), vars.end(),
                       [](const ir::VarRef& var) { return has_constant_bounds(*var); });
  }
  static bool is_natural_var(const ir::Expr& e) {
    if (e->op != Op::var) return false;
    const ir::Expr& lower = e->var->lower;
    return lower.get() != nullptr && ir::is_constant(lower) && lower->integer >= 0;
  }
  ir::VarRef new_var(const ir::Expr& e) {
    const int64_t divisor = e->args[1]->integer;
    auto var = std::make_shared<ir::Var>();
    var->name = "remainder";
    var->type = e->type;
    var->id = kFirstId + static_cast<int>(vars_.size());
    var->lower = ir::index(is_natural_var(e->args[0]) ? 0 : 1 - std::abs(divisor));
    var->upper = ir::index(std::abs(divisor));
    return var;
  }

  static constexpr int kFirstId = 100'000;  // no kernel has so many variables
  std::map<std::string, ir::VarRef> vars_;
};

}  // namespace

std::string key_of(const ir::Expr& e) {
  if (e->op == Op::var) return fmt::format("v{}", e->var->id);
  std::string key =
      fmt::format("{}.{}.{}.{}(", ir::name(e->op), name(e->type), e->integer, e->number);
  for (const ir::Expr& arg : e->args) key += key_of(arg) + ",";
  return key + ")";
}

bool have_equal_sums(const ir::Expr& a, const ir::Expr& b) {
  return NormalForm::of(a) == NormalForm::of(b);
}

bool holds_everywhere(const Claim& claim, int64_t most_points) {
  const auto look_through = [&](ir::Expr e) {
    for (size_t depth = 0; depth <= claim.lets.size(); ++depth) {
      e = ir::substitute(e, [&](const ir::VarRef& var) {
        const auto let = std::find_if(claim.lets.begin(), claim.lets.end(),
                                      [&](const auto& named) { return named.first == var.get(); });
        return let == claim.lets.end() ? ir::Expr() : let->second;
      });
    }
    return e;
  };
  AnyRemainder remainders;
  const ir::Expr a = remainders.of(look_through(claim.a));
  const ir::Expr b = claim.b ? remainders.of(look_through(claim.b)) : ir::index(0);
  std::vector<ir::VarRef> vars;
  ir::collect_vars(a, vars);
  ir::collect_vars(b, vars);
  int64_t points = 1;
  int num_vars = 1;
  for (const ir::VarRef& var : vars) {
    if (!has_constant_bounds(*var) || var->upper->integer <= var->lower->integer) return false;
    points *= var->upper->integer - var->lower->integer;
    if (points > most_points) return false;
    num_vars = std::max(num_vars, var->id + 1);
  }
  codegen::Environment at(num_vars);
  for (int64_t point = 0; point < points; ++point) {
    int64_t rest = point;
    for (const ir::VarRef& var : vars) {
      const int64_t extent = var->upper->integer - var->lower->integer;
      at.set(*var, var->lower->integer + rest % extent);
      rest /= extent;
    }
    const auto x = codegen::evaluate(a, at);
    const auto y = codegen::evaluate(b, at);
    if (!x || !y) return false;
    const bool holds = claim.kind == Claim::Kind::less           ? *x < *y
                       : claim.kind == Claim::Kind::non_negative ? *x >= 0
                       : claim.kind == Claim::Kind::equal        ? *x == *y
                       : claim.divisor == 0                      ? *x == 0
                                                                 : *x % claim.divisor == 0;
    if (!holds) return false;
  }
  return true;
}

}  // namespace tessera::test
