#include "tests/judge/judge.h"

#include <fmt/format.h>

#include <set>

#include "codegen/analysis/int_range.h"
#include "codegen/lower.h"
#include "tests/judge/plain_proof.h"

#ifdef TESSERA_HAS_Z3
#include <z3++.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#endif

namespace tessera::test {

void Verdict::add(const Verdict& other) {
  confirmed += other.confirmed;
  needed_guards += other.needed_guards;
  wrong.insert(wrong.end(), other.wrong.begin(), other.wrong.end());
  open.insert(open.end(), other.open.begin(), other.open.end());
  spare_guards.insert(spare_guards.end(), other.spare_guards.begin(), other.spare_guards.end());
}

#ifdef TESSERA_HAS_Z3

namespace {

using codegen::Claim;
using ir::Op;

std::string to_text(const Claim& claim) {
  switch (claim.kind) {
    case Claim::Kind::less:
      return fmt::format("{} < {}", ir::to_string(claim.a), ir::to_string(claim.b));
    case Claim::Kind::non_negative:
      return fmt::format("{} >= 0", ir::to_string(claim.a));
    case Claim::Kind::equal:
      return fmt::format("{} == {}", ir::to_string(claim.a), ir::to_string(claim.b));
    case Claim::Kind::divisible:
      return fmt::format("{} divides {}", claim.divisor, ir::to_string(claim.a));
    case Claim::Kind::kept_guard:
      return fmt::format("guard {}", ir::to_string(claim.a));
  }
  return {};
}

codegen::IntRanges ranges_of(const std::map<const ir::Var*, ir::Expr>& lets) {
  constexpr int kMostThreads = 1024;
  return {[&lets](const ir::Var& var) {
            const auto let = lets.find(&var);
            return let == lets.end() ? ir::Expr() : let->second;
          },
          kMostThreads};
}

/// Index expressions as integers that wrap at 32 bits, as the machine's do.
class Translator {
 public:
  Translator(z3::context& context, z3::solver& solver, const Claim& claim)
      : context_(context),
        solver_(solver),
        lets_(claim.lets.begin(), claim.lets.end()),
        ranges_(ranges_of(lets_)) {}

  z3::expr integer(const ir::Expr& e) {
    const z3::expr exact = exact_integer(e);
    const bool is_step = e->op == Op::add || e->op == Op::sub || e->op == Op::mul ||
                         e->op == Op::neg || e->op == Op::cast;
    if (!is_step || e->type != DType::i32 || is_on_host_ || !ranges_.may_wrap(e)) return exact;
    const z3::expr turns = context_.int_const(fmt::format("turns_{}", num_wrapped_++).c_str());
    const z3::expr result = exact - context_.int_val(int64_t{1} << 32) * turns;
    const z3::expr limit = context_.int_val(int64_t{1} << 31);
    solver_.add(result >= -limit && result < limit);
    return result;
  }

 private:
  z3::expr exact_integer(const ir::Expr& e) {
    const auto arg = [&](size_t i) { return integer(e->args[i]); };
    switch (e->op) {
      case Op::constant:
        return context_.int_val(e->integer);
      case Op::var:
        return variable(*e->var);
      case Op::add:
        return arg(0) + arg(1);
      case Op::sub:
        return arg(0) - arg(1);
      case Op::mul:
        return arg(0) * arg(1);
      case Op::neg:
        return -arg(0);
      case Op::min:
        return minimum(arg(0), arg(1));
      case Op::max:
        return -minimum(-arg(0), -arg(1));
      case Op::div:
      case Op::mod: {
        // Z3 rounds so that the remainder is not negative, C++ towards zero.
        const z3::expr a = arg(0);
        const z3::expr b = arg(1);
        const z3::expr quotient = z3::ite(a >= 0, a / b, -((-a) / b));
        return e->op == Op::div ? quotient : a - quotient * b;
      }
      case Op::bit_xor:
        return z3::bv2int(z3::int2bv(32, arg(0)) ^ z3::int2bv(32, arg(1)), false);
      case Op::select:
        return z3::ite(boolean(e->args[0]), arg(1), arg(2));
      case Op::cast:
        if (e->args[0]->type == DType::boolean) {
          return z3::ite(boolean(e->args[0]), context_.int_val(1), context_.int_val(0));
        }
        if (is_index(e->type) && is_index(e->args[0]->type)) return arg(0);
        return unknown(e);
      default:
        return unknown(e);
    }
  }

 public:
  z3::expr boolean(const ir::Expr& e) {
    switch (e->op) {
      case Op::constant:
        return context_.bool_val(e->integer != 0);
      case Op::logical_and:
        return boolean(e->args[0]) && boolean(e->args[1]);
      case Op::logical_or:
        return boolean(e->args[0]) || boolean(e->args[1]);
      case Op::logical_not:
        return !boolean(e->args[0]);
      case Op::lt:
      case Op::le:
      case Op::eq:
      case Op::ne: {
        if (!is_integer(e->args[0]->type)) break;
        const z3::expr a = integer(e->args[0]);
        const z3::expr b = integer(e->args[1]);
        if (e->op == Op::lt) return a < b;
        if (e->op == Op::le) return a <= b;
        return e->op == Op::eq ? a == b : a != b;
      }
      default:
        break;
    }
    return context_.bool_const(key_of(e).c_str());
  }

 private:
  static bool is_index(DType type) { return type == DType::i32 || type == DType::i64; }

  static z3::expr minimum(const z3::expr& a, const z3::expr& b) { return z3::ite(a < b, a, b); }

  /// A declared divisor is a factor, so that products of such dims are divisible without a search.
  z3::expr variable(const ir::Var& var) {
    z3::expr result = context_.int_const(fmt::format("{}_{}", var.name, var.id).c_str());
    if (var.multiple_of > 1) result = context_.int_val(var.multiple_of) * result;
    if (!seen_.insert(&var).second) return result;
    if (var.lower) solver_.add(result >= integer(var.lower));
    if (var.upper) {
      // The host computes a grid in 64 bits and refuses what is too large.
      is_on_host_ = var.kind == ir::VarKind::block;
      solver_.add(result < integer(var.upper));
      is_on_host_ = false;
    }
    if (var.type == DType::i32) {
      const z3::expr limit = context_.int_val(int64_t{1} << 31);
      solver_.add(result >= -limit && result < limit);
    }
    const auto let = lets_.find(&var);
    if (let != lets_.end()) solver_.add(result == integer(let->second));
    return result;
  }

  /// An operation of which nothing is known but that equal arguments give equal values.
  z3::expr unknown(const ir::Expr& e) {
    const z3::expr result = context_.int_const(key_of(e).c_str());
    if (ir::counts_bits(e->op)) solver_.add(result >= 0 && result <= 64);
    if (e->type == DType::u8 || e->type == DType::u16 || e->type == DType::u32)
      solver_.add(result >= 0);
    return result;
  }

  z3::context& context_;
  z3::solver& solver_;
  std::map<const ir::Var*, ir::Expr> lets_;
  codegen::IntRanges ranges_;
  std::set<const ir::Var*> seen_;
  bool is_on_host_ = false;
  int num_wrapped_ = 0;
};

/// Work units of Z3, not time: the same answer on every machine.
constexpr unsigned kResources = 20'000'000;
constexpr unsigned kSimpleResources = 20'000;

/// The core alone answers 99 of 100 questions, in a third of the time of all tactics.
enum class Solver { simple, full };

/// unsat: `claim` holds; sat: it does not.
z3::check_result ask_z3(const Claim& claim, Solver kind) {
  z3::context context;
  const bool is_simple = kind == Solver::simple;
  z3::solver solver = is_simple ? z3::solver(context, z3::solver::simple()) : z3::solver(context);
  z3::params params(context);
  params.set("rlimit", is_simple ? kSimpleResources : kResources);
  solver.set(params);
  Translator translate(context, solver, claim);
  for (const ir::Expr& condition : claim.known) solver.add(translate.boolean(condition));
  z3::expr holds = context.bool_val(true);
  switch (claim.kind) {
    case Claim::Kind::less:
      holds = translate.integer(claim.a) < translate.integer(claim.b);
      break;
    case Claim::Kind::non_negative:
      holds = translate.integer(claim.a) >= 0;
      break;
    case Claim::Kind::equal:
      holds = translate.integer(claim.a) == translate.integer(claim.b);
      break;
    case Claim::Kind::divisible: {
      const z3::expr a = translate.integer(claim.a);
      holds = claim.divisor == 0 ? a == 0 : z3::mod(a, context.int_val(claim.divisor)) == 0;
      break;
    }
    case Claim::Kind::kept_guard:
      holds = translate.boolean(claim.a);
      break;
  }
  solver.add(!holds);
  return solver.check();
}

/// A claim as text, and which of the known conditions may matter to it. Variables are numbered as they appear, so claims of
/// several kernels that differ in them alone are one question.
class Question {
 public:
  explicit Question(const Claim& claim) : claim_(claim) {
    text_ = fmt::format("{} {};", static_cast<int>(claim.kind), claim.divisor);
    add(claim.a);
    if (claim.b) add(claim.b);
    // Conditions that share a variable with the claim, or with a condition that does.
    std::vector<ir::Expr> others = claim.known;
    for (bool is_done = false; !is_done;) {
      is_done = true;
      for (ir::Expr& condition : others) {
        if (!condition || !shares_variable(condition)) continue;
        add(condition);
        related_.push_back(std::exchange(condition, ir::Expr()));
        is_done = false;
      }
    }
  }
  const std::string& text() const { return text_; }
  const std::vector<ir::Expr>& related() const { return related_; }

 private:
  static std::vector<ir::VarRef> vars_of(const ir::Expr& e) {
    std::vector<ir::VarRef> vars;
    ir::collect_vars(e, vars);
    return vars;
  }
  /// By itself, or by bounds and values of its variables.
  bool shares_variable(const ir::Expr& e) const {
    std::set<const ir::Var*> seen;
    const std::function<bool(const ir::Expr&)> shares = [&](const ir::Expr& part) {
      const std::vector<ir::VarRef> vars = vars_of(part);
      return std::any_of(vars.begin(), vars.end(), [&](const ir::VarRef& var) {
        if (numbers_.count(var.get()) > 0) return true;
        if (!seen.insert(var.get()).second) return false;
        if (var->lower && shares(var->lower)) return true;
        if (var->upper && shares(var->upper)) return true;
        return std::any_of(claim_.lets.begin(), claim_.lets.end(), [&](const auto& named) {
          return named.first == var.get() && shares(named.second);
        });
      });
    };
    return shares(e);
  }

  void add(const ir::Expr& e) {
    std::vector<ir::VarRef> added;
    for (const ir::VarRef& var : vars_of(e)) {
      if (numbers_.try_emplace(var.get(), numbers_.size()).second) added.push_back(var);
    }
    write(e);
    text_ += ';';
    for (const ir::VarRef& var : added) {
      text_ += fmt::format("v{} {} {} {};", numbers_[var.get()], name(var->type),
                           static_cast<int>(var->kind), var->multiple_of);
      if (var->lower) text_ += "from ", add(var->lower);
      if (var->upper) text_ += "to ", add(var->upper);
      for (const auto& [let, value] : claim_.lets) {
        if (let == var.get()) text_ += "is ", add(value);
      }
    }
  }
  void write(const ir::Expr& e) {
    if (e->op == Op::var) {
      text_ += fmt::format("v{}", numbers_[e->var.get()]);
      return;
    }
    text_ += fmt::format("{}.{}.{}.{}(", ir::name(e->op), name(e->type), e->integer, e->number);
    for (const ir::Expr& arg : e->args) write(arg), text_ += ',';
    text_ += ')';
  }

  const Claim& claim_;
  std::map<const ir::Var*, size_t> numbers_;
  std::vector<ir::Expr> related_;
  std::string text_;
};

bool has_xor(const ir::Expr& e) {
  return e->op == Op::bit_xor || std::any_of(e->args.begin(), e->args.end(), has_xor);
}

/// Kernels of one op differ little: much of what they claim has been asked before. A claim about few
/// values is tried at each of them before all of Z3's tactics.
z3::check_result ask(const Claim& given) {
  static std::map<std::string, z3::check_result> answers;
  const Question question(given);
  const auto [answer, is_new] = answers.try_emplace(question.text(), z3::unknown);
  if (!is_new) return answer->second;
  Claim claim = given;
  claim.known = question.related();
  if (claim.kind == Claim::Kind::equal && have_equal_sums(claim.a, claim.b))
    return answer->second = z3::unsat;
  constexpr int64_t kFew = 1 << 12, kMany = 1 << 20;
  // The bits of an exclusive or take Z3 minutes.
  const bool has_bits = has_xor(claim.a) || (claim.b && has_xor(claim.b));
  const bool is_guard = claim.kind == Claim::Kind::kept_guard;
  if (!is_guard && holds_everywhere(claim, has_bits ? kMany : kFew))
    return answer->second = z3::unsat;
  answer->second = ask_z3(claim, Solver::simple);
  // A guard that was kept is at worst spare, which no test forbids.
  if (answer->second != z3::unknown || is_guard) return answer->second;
  answer->second = holds_everywhere(claim, kMany) ? z3::unsat : ask_z3(claim, Solver::full);
  return answer->second;
}

void judge_claim(const Claim& claim, const std::string& text, Verdict& verdict) {
  const z3::check_result answer = ask(claim);
  if (claim.kind == Claim::Kind::kept_guard) {
    if (answer == z3::unsat) {
      verdict.spare_guards.push_back(text);
    } else {
      ++verdict.needed_guards;
    }
  } else if (answer == z3::unsat) {
    ++verdict.confirmed;
  } else {
    (answer == z3::sat ? verdict.wrong : verdict.open).push_back(text);
  }
}

}  // namespace

std::string why_no_judge() {
  return {};
}

Verdict judge(const ir::Kernel& kernel) {
  codegen::ProofLog log;
  codegen::lower(kernel);
  Verdict verdict;
  std::set<std::string> seen;
  for (const Claim& claim : log.claims()) {
    const std::string text = fmt::format("{}: {}", kernel.name, to_text(claim));
    std::string key = text;
    for (const ir::Expr& condition : claim.known) key += "; " + ir::to_string(condition);
    if (claim.kind == Claim::Kind::equal && ir::equal(claim.a, claim.b)) continue;
    if (seen.insert(key).second) judge_claim(claim, text, verdict);
  }
  return verdict;
}

#else

std::string why_no_judge() {
  return "built without Z3 (libz3-dev): nobody judges the prover";
}

Verdict judge(const ir::Kernel&) {
  return {};
}

#endif

}  // namespace tessera::test
