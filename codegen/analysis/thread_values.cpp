#include "codegen/analysis/thread_values.h"

#include <algorithm>
#include <numeric>

#include "dsl/ir/integer.h"
#include "dsl/ir/integer_ops.h"

namespace tessera::codegen {
namespace {

using Column = std::optional<ThreadColumn>;

constexpr int64_t kSmallTerm = int64_t{1} << 20;  // may be added to an index without wrapping

template <class Fn>
Column combine(const ThreadColumn& a, const ThreadColumn& b, int threads, const Fn& fn) {
  ThreadColumn result;
  if (a.lanes.empty() && b.lanes.empty()) {
    const std::optional<int64_t> value = fn(a.value, b.value);
    if (!value) return std::nullopt;
    result.value = *value;
    return result;
  }
  result.lanes.resize(static_cast<size_t>(threads));
  for (size_t t = 0; t < result.lanes.size(); ++t) {
    const std::optional<int64_t> value = fn(a.at(t), b.at(t));
    if (!value) return std::nullopt;
    result.lanes[t] = *value;
  }
  return result;
}

/// compute_exactly of i32 values or booleans, by an operation that the loop over the threads knows.
template <class Compute>
Column combine_i32(const ThreadColumn& a, const ThreadColumn& b, int threads) {
  return combine(a, b, threads, [](int64_t x, int64_t y) {
    const auto result = static_cast<int64_t>(Compute()(x, y));
    return static_cast<int32_t>(result) == result ? std::optional(result) : std::nullopt;
  });
}

/// compute_exactly for each thread.
Column compute(ir::Op op, DType type, const ThreadColumn& a, const ThreadColumn& b, int threads) {
  using ir::Op;
  if (type == DType::i32) {
    const bool is_divisor = b.lanes.empty() && b.value > 0;
    if (op == Op::add) return combine_i32<ir::integer::Add>(a, b, threads);
    if (op == Op::sub) return combine_i32<ir::integer::Sub>(a, b, threads);
    if (op == Op::mul) return combine_i32<ir::integer::Mul>(a, b, threads);
    if (op == Op::div && is_divisor) return combine_i32<ir::integer::Div>(a, b, threads);
    if (op == Op::mod && is_divisor) return combine_i32<ir::integer::Mod>(a, b, threads);
    if (op == Op::bit_and) return combine_i32<ir::integer::And>(a, b, threads);
    if (op == Op::bit_xor) return combine_i32<ir::integer::Xor>(a, b, threads);
    if (op == Op::lt) return combine_i32<ir::integer::Less>(a, b, threads);
    if (op == Op::le) return combine_i32<ir::integer::LessEqual>(a, b, threads);
    if (op == Op::eq) return combine_i32<ir::integer::Equal>(a, b, threads);
    if (op == Op::ne) return combine_i32<ir::integer::NotEqual>(a, b, threads);
  }
  if (type == DType::boolean) {
    if (op == Op::logical_and) return combine_i32<ir::integer::And>(a, b, threads);
    if (op == Op::logical_or) return combine_i32<ir::integer::Or>(a, b, threads);
  }
  return combine(a, b, threads,
                 [&](int64_t x, int64_t y) { return ir::compute_exactly(op, type, x, y); });
}

bool is_small(const ThreadColumn& column) {
  const auto small = [](int64_t value) { return value >= 0 && value < kSmallTerm; };
  return column.lanes.empty() ? small(column.value)
                              : std::all_of(column.lanes.begin(), column.lanes.end(), small);
}

/// True for a loop index that starts at 0 or more.
bool counts_up(const ir::Var& var) {
  if (var.kind != ir::VarKind::loop || !var.lower) return false;
  if (ir::is_constant(var.lower)) return var.lower->integer >= 0;
  if (var.lower->op != ir::Op::var) return false;
  const ir::VarKind kind = var.lower->var->kind;
  return kind == ir::VarKind::thread || kind == ir::VarKind::block || kind == ir::VarKind::dim;
}

}  // namespace

void ThreadValues::define(const ir::Var& var, const ir::Expr& value) {
  constexpr int kMostDefinitions = 64;  // chained; bounds the recursion
  std::vector<ir::VarRef> named;
  ir::collect_vars(value, named);
  int depth = 0;
  for (const ir::VarRef& other : named) {
    const auto found = depths_.find(other->id);
    if (found != depths_.end()) depth = std::max(depth, found->second + 1);
  }
  if (depth >= kMostDefinitions) return forget(var.id);
  depths_[var.id] = depth;
  definitions_[var.id] = value;
  known_.clear();
}

void ThreadValues::forget(int id) {
  definitions_.erase(id);
  depths_.erase(id);
  known_.clear();
}

const ir::Expr* ThreadValues::definition(const ir::Var& var) const {
  const auto found = definitions_.find(var.id);
  return found == definitions_.end() ? nullptr : &found->second;
}

void ThreadValues::bind(const ir::Var& var, int64_t value) {
  bound_[var.id] = {value, 0};
  known_.clear();
}

void ThreadValues::bind_phase(const ir::Var& var, int64_t phase, int64_t period) {
  bound_[var.id] = {phase, period};
  known_.clear();
}

void ThreadValues::unbind(const ir::Var& var) {
  bound_.erase(var.id);
  known_.clear();
}

Column ThreadValues::evaluate(const ir::Expr& e) const {
  using ir::Op;
  if (is_float(e->type)) return std::nullopt;
  switch (e->op) {
    case Op::constant:
      return ThreadColumn{{}, e->integer};
    case Op::var: {
      if (e->var == thread_) {
        ThreadColumn result;
        result.lanes.resize(static_cast<size_t>(threads_));
        std::iota(result.lanes.begin(), result.lanes.end(), 0);
        return result;
      }
      if (const auto found = bound_.find(e->var->id); found != bound_.end()) {
        if (found->second.period != 0) return std::nullopt;
        return ThreadColumn{{}, found->second.value};
      }
      const ir::Expr* value = definition(*e->var);
      if (value == nullptr) return std::nullopt;
      if (const auto found = known_.find(e->var->id); found != known_.end()) return found->second;
      return known_[e->var->id] = evaluate(*value);
    }
    case Op::cast: {
      const Column a = evaluate(e->args[0]);
      if (!a || !is_integer(e->type)) return std::nullopt;
      return combine(*a, *a, threads_, [&](int64_t x, int64_t) {
        return ir::fits(e->type, x) ? std::optional(x) : std::nullopt;
      });
    }
    case Op::logical_not: {
      const Column a = evaluate(e->args[0]);
      if (!a) return std::nullopt;
      return combine(*a, *a, threads_,
                     [](int64_t x, int64_t) { return std::optional<int64_t>(x == 0 ? 1 : 0); });
    }
    case Op::select: {
      const Column test = evaluate(e->args[0]);
      if (!test) return std::nullopt;
      if (test->lanes.empty()) return evaluate(e->args[test->value != 0 ? 1 : 2]);
      const Column then = evaluate(e->args[1]);
      const Column otherwise = evaluate(e->args[2]);
      if (!then || !otherwise) return std::nullopt;
      ThreadColumn result;
      result.lanes.resize(static_cast<size_t>(threads_));
      for (size_t t = 0; t < result.lanes.size(); ++t) {
        result.lanes[t] = test->at(t) != 0 ? then->at(t) : otherwise->at(t);
      }
      return result;
    }
    default:
      break;
  }
  if (e->args.size() != 2) return std::nullopt;
  const Column a = evaluate(e->args[0]);
  if (e->op == Op::logical_and || e->op == Op::logical_or) {
    // One side may decide alone: false && x, true || x.
    const Column b = evaluate(e->args[1]);
    const int64_t decisive = e->op == Op::logical_or ? 1 : 0;
    for (const Column* side : {&a, &b}) {
      if (*side && (*side)->lanes.empty() && ((*side)->value != 0 ? 1 : 0) == decisive) {
        return ThreadColumn{{}, decisive};
      }
    }
    if (!a || !b) return std::nullopt;
    return compute(e->op, e->args[0]->type, *a, *b, threads_);
  }
  if (!a) {
    const bool by_constant = e->op == Op::mod && ir::is_constant(e->args[1]);
    return by_constant ? remainder(e->args[0], e->args[1]->integer) : std::nullopt;
  }
  const Column b = evaluate(e->args[1]);
  if (!b) return std::nullopt;
  return compute(e->op, e->args[0]->type, *a, *b, threads_);
}

/// dividend % divisor if only the phase of the dividend is known.
Column ThreadValues::remainder(const ir::Expr& dividend, int64_t divisor) const {
  if (divisor <= 0) return std::nullopt;
  const Column a = evaluate_modulo(dividend, divisor);
  if (!a) return std::nullopt;
  return combine(*a, *a, threads_,
                 [&](int64_t x, int64_t) { return std::optional<int64_t>(x % divisor); });
}

/// A value congruent to `e` modulo `modulus`. `e` is not negative: an index that counts up from 0
/// or more, plus small terms that cannot wrap.
Column ThreadValues::evaluate_modulo(const ir::Expr& e, int64_t modulus) const {
  using ir::Op;
  if (!is_integer(e->type) || bits(e->type) < 32) return std::nullopt;
  switch (e->op) {
    case Op::var: {
      if (const auto found = bound_.find(e->var->id); found != bound_.end()) {
        const Binding& binding = found->second;
        if (binding.period == 0 || binding.period % modulus != 0) return std::nullopt;
        return counts_up(*e->var) ? Column(ThreadColumn{{}, binding.value}) : std::nullopt;
      }
      const ir::Expr* value = definition(*e->var);
      return value == nullptr ? std::nullopt : evaluate_modulo(*value, modulus);
    }
    case Op::cast:
      return evaluate_modulo(e->args[0], modulus);
    case Op::add:
      for (const size_t index : {0U, 1U}) {
        const Column term = evaluate(e->args[1 - index]);
        if (!term || !is_small(*term)) continue;
        const Column rest = evaluate_modulo(e->args[index], modulus);
        if (!rest) return std::nullopt;
        return compute(e->op, e->args[0]->type, *term, *rest, threads_);
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

int64_t period_of(const ir::Expr& e, const ir::Var& var) {
  int64_t period = 1;
  for (const ir::Expr& arg : e->args) period = std::lcm(period, period_of(arg, var));
  if (e->op != ir::Op::mod || !ir::is_constant(e->args[1]) || e->args[1]->integer <= 0) {
    return period;
  }
  std::vector<ir::VarRef> vars;
  ir::collect_vars(e->args[0], vars);
  const bool uses =
      std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& v) { return v->id == var.id; });
  // Larger divisors are not used as phases.
  constexpr int64_t kMaxDivisor = 64;
  return uses && e->args[1]->integer <= kMaxDivisor ? std::lcm(period, e->args[1]->integer)
                                                    : period;
}

}  // namespace tessera::codegen
