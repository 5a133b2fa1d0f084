// The prover against the machine: what it claims of an index must hold of 32-bit integers that wrap.

#include <fmt/format.h>

#include <random>

#include "codegen/analysis/index_form.h"
#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "dsl/builder.h"
#include "dsl/ir/extents.h"
#include "tests/judge/judge.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using codegen::IndexMath;
using dsl::Builder;
using dsl::Value;
using ir::Expr;
using ir::Op;

namespace {

/// y[i] = x[a * b % 1000] + ..., where a * b may be 2.5e9.
ir::Kernel product_of_extents() {
  Builder k("product_of_extents");
  auto a = k.dim("a"), b = k.dim("b");
  auto p = k.input("p", DType::f32, {a});
  auto q = k.input("q", DType::f32, {b});
  auto x = k.input("x", DType::f32, {1000});
  auto y = k.output("y", DType::f32, {32});
  k.launch({1}, {.threads = 32});
  k.parallel({32}, [&](Value i) { y(i) = x(a * b % 1000) + p(0) + q(0); });
  return k.finish();
}

/// Tiles of a flat tensor whose extent has more than 32 bits.
ir::Kernel flat_tiles() {
  Builder k("flat_tiles");
  auto n = k.dim("n", {.multiple_of = 16, .wide = true});
  auto x = k.input("x", DType::bf16, {n});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({ceil_div(n, 1024)}, {.threads = 128});
  const Value first = k.let("first", i64(at.x) * 1024);
  k.store(k.load(x.tile({first}, {1024})), y.tile({first}, {1024}));
  const Value rest = k.let("rest", n - first);
  k.if_(k.thread() < rest, [&] { y(first + k.thread()) = 1.0f; });
  return k.finish();
}

/// Values of a few Vars, and expressions of them as the machine computes them.
class Machine {
 public:
  explicit Machine(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  Expr new_var(ir::VarKind kind, int64_t upper, int64_t multiple_of = 1, DType type = DType::i32) {
    auto var = std::make_shared<ir::Var>();
    var->type = type;
    var->name = fmt::format("v{}", vars_.size());
    var->kind = kind;
    var->id = static_cast<int>(vars_.size());
    if (upper > 0) {
      var->lower = ir::index(kind == ir::VarKind::dim ? 1 : 0);
      var->upper = ir::index(upper);
    }
    var->multiple_of = multiple_of;
    vars_.push_back(var);
    values_.push_back(0);
    return ir::var(var);
  }

  void draw_values() {
    for (size_t i = 0; i < vars_.size(); ++i) {
      const ir::Var& var = *vars_[i];
      const int64_t low = var.lower ? var.lower->integer : INT32_MIN;
      const int64_t high = var.upper ? var.upper->integer - 1 : INT32_MAX;
      const int64_t near = between(0, 64);
      int64_t value = between(low, high);
      if (between(0, 2) == 0) value = std::max(low, high - near);
      if (between(0, 4) == 0) value = std::min(high, low + near);
      values_[i] = std::max(low, value - value % var.multiple_of);
      if (values_[i] % var.multiple_of != 0) values_[i] = var.multiple_of;
    }
  }

  int64_t value(const Expr& e) const {
    const auto arg = [&](size_t i) { return value(e->args[i]); };
    const auto unsigned_of = [](int64_t number) { return static_cast<uint64_t>(number); };
    const auto wrap = [&](uint64_t exact) {
      const auto result = static_cast<int64_t>(exact);
      return e->type == DType::i32 ? int64_t{static_cast<int32_t>(result)} : result;
    };
    switch (e->op) {
      case Op::constant:
        return e->integer;
      case Op::var:
        return values_[static_cast<size_t>(e->var->id)];
      case Op::add:
        return wrap(unsigned_of(arg(0)) + unsigned_of(arg(1)));
      case Op::sub:
        return wrap(unsigned_of(arg(0)) - unsigned_of(arg(1)));
      case Op::mul:
        return wrap(unsigned_of(arg(0)) * unsigned_of(arg(1)));
      case Op::neg:
        return wrap(0 - unsigned_of(arg(0)));
      case Op::div:
        return arg(0) / arg(1);
      case Op::mod:
        return arg(0) % arg(1);
      case Op::min:
        return std::min(arg(0), arg(1));
      case Op::max:
        return std::max(arg(0), arg(1));
      case Op::bit_xor:
        return arg(0) ^ arg(1);
      case Op::cast:
        return wrap(unsigned_of(arg(0)));
      default:
        throw std::logic_error("no such operation here");
    }
  }

  Expr constant() {
    constexpr int64_t kUsual[] = {0, 1, 2, 3, 4, 7, 8, 16, 24, 63, 64, 100, 128, 1000, 4096};
    if (between(0, 9) == 0) return ir::constant(DType::i32, between(INT32_MIN, INT32_MAX));
    return ir::index(kUsual[between(0, 14)]);
  }

  Expr expression(int depth) {
    if (depth == 0 || between(0, 5) == 0) {
      return between(0, 3) == 0
                 ? constant()
                 : ir::var(vars_[static_cast<size_t>(between(0, std::ssize(vars_) - 1))]);
    }
    const Expr a = expression(depth - 1);
    const Expr by = ir::index(int64_t{1} << between(1, 9));
    switch (between(0, 10)) {
      case 0:
      case 1:
        return a + expression(depth - 1);
      case 2:
        return a - expression(depth - 1);
      case 3:
      case 4:
        return a * constant();
      case 5:
        return a->type == DType::i32 ? a * expression_of_i32(depth - 1) : a * constant();
      case 6:
        return a / (between(0, 3) == 0 ? ir::index(between(1, 100)) : by);
      case 7:
        return a % (between(0, 3) == 0 ? ir::index(between(1, 100)) : by);
      case 8:
        return ir::binary(between(0, 1) == 0 ? Op::min : Op::max, a, expression(depth - 1));
      case 9:
        return a->type == DType::i32 ? ir::cast(DType::i64, a) : ir::cast(DType::i32, a);
      default:
        return ir::binary(Op::bit_xor, a, expression(depth - 1));
    }
  }

 private:
  Expr expression_of_i32(int depth) { return ir::cast(DType::i32, expression(depth)); }

  std::mt19937_64 random_;
  std::vector<ir::VarRef> vars_;
  std::vector<int64_t> values_;
};

/// Claims about random expressions at random values; the texts of those that are wrong. The compiler
/// takes dims for at most `believed`, while the host lets them be kLargestExtent.
std::vector<std::string> wrong_claims(uint64_t seed, int64_t believed, int& claims) {
  Machine machine(seed);
  const Expr n = machine.new_var(ir::VarKind::dim, believed + 1);
  const Expr m =
      machine.new_var(ir::VarKind::dim, believed + 1, int64_t{1} << machine.between(0, 6));
  machine.new_var(ir::VarKind::thread, 256);
  machine.new_var(ir::VarKind::loop, machine.between(1, 64));
  machine.new_var(ir::VarKind::value, 0);  // data
  if (seed % 3 == 0) {
    machine.new_var(ir::VarKind::dim, ir::kLargestWideExtent + 1, seed % 2 == 0 ? 1 : 16,
                    DType::i64);
  }
  IndexMath math;
  Expr fact;
  if (machine.between(0, 1) == 0) {
    fact = machine.expression(2) < machine.expression(2);
    math.add_fact(fact);
  }
  const Expr a = machine.expression(4), b = machine.between(0, 2) == 0 ? n : machine.expression(3);
  const bool less = math.less(a, b), is_natural = math.non_negative(a), same = math.same(a, b);
  const int64_t divisor = math.divisor(a);
  const Expr simple = math.simplify(a);
  claims += less + is_natural + same + (divisor != 1);
  if (believed < ir::kLargestExtent) {
    for (const Expr& dim : {n, m}) {
      const_cast<ir::Var&>(*dim->var).upper = ir::index(ir::kLargestExtent + 1);
    }
  }
  for (int point = 0; point < 40; ++point) {
    machine.draw_values();
    if (fact && !fact->args.empty() && machine.value(fact->args[0]) >= machine.value(fact->args[1]))
      continue;
    const int64_t x = machine.value(a), y = machine.value(b);
    std::string wrong;
    if (less && x >= y) wrong = fmt::format("{} < {}", ir::to_string(a), ir::to_string(b));
    if (is_natural && x < 0) wrong = fmt::format("{} >= 0", ir::to_string(a));
    if (same && x != y) wrong = fmt::format("{} == {}", ir::to_string(a), ir::to_string(b));
    if (divisor == 0 ? x != 0 : x % divisor != 0)
      wrong = fmt::format("{} divides {}", divisor, ir::to_string(a));
    if (machine.value(simple) != x)
      wrong = fmt::format("{} is {}", ir::to_string(a), ir::to_string(simple));
    if (!wrong.empty()) return {fmt::format("seed {}: {} at {}, {}", seed, wrong, x, y)};
  }
  return {};
}

std::vector<std::string> all_wrong_claims(int64_t believed, int& claims) {
  std::vector<std::string> result;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    for (std::string& text : wrong_claims(seed, believed, claims))
      result.push_back(std::move(text));
  }
  return result;
}

}  // namespace

TEST_CASE("an index that wraps at 32 bits keeps its guard", "[prover]") {
  const ir::Kernel kernel = product_of_extents();
  const std::string explained = codegen::explain(kernel);
  CHECK(explained.find("x: 1 x f32, guarded: 0 <= a * b % 1000\n") != std::string::npos);
  CHECK(cuda_text(kernel).find("0 <= wrapping_mul(a, b) % 1000 ? x[wrapping_mul(a, b) % 1000]") !=
        std::string::npos);

  const HostTensor ones = tensor_of(DType::f32, {50000}, std::vector<double>(50000, 1));
  const HostTensor x = iota(DType::f32, {1000});
  HostTensor y(DType::f32, {32});
  std::vector<codegen::cpu::Argument> arguments(6);
  const TensorView views[] = {ones.view(), ones.view(), x.view(), y.view()};
  for (size_t i = 0; i < 4; ++i) arguments[i].tensor = views[i];
  arguments[4].integer = arguments[5].integer = 50000;
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, {.traps = false, .workers = 1});
  CHECK(y.value(0) == 2);  // 0 for the element at -296
}

TEST_CASE("the judge knows that an index wraps", "[prover]") {
  if (!why_no_judge().empty()) TESSERA_SKIP(why_no_judge());
  const Verdict verdict = judge(product_of_extents());
  CHECK(verdict.wrong.empty());
  CHECK(verdict.spare_guards.empty());
  CHECK(verdict.needed_guards == 1);
}

TEST_CASE("the judge agrees with the proofs about a flat tensor of any size", "[prover]") {
  const ir::Kernel kernel = flat_tiles();
  const std::string explained = codegen::explain(kernel);
  CAPTURE(explained);
  CHECK(explained.find("x: 4 x bf16, guarded: ") != std::string::npos);
  CHECK(explained.find("y: 1 x f32, proved") != std::string::npos);
  if (!why_no_judge().empty()) TESSERA_SKIP(why_no_judge());
  const Verdict verdict = judge(kernel);
  CHECK(verdict.wrong.empty());
  CHECK(verdict.open.empty());
  CHECK(verdict.spare_guards.empty());
}

TEST_CASE("claims about random indices hold for integers that wrap", "[prover][slow]") {
  int claims = 0;
  CHECK(all_wrong_claims(ir::kLargestExtent, claims) == std::vector<std::string>());
  CHECK(claims > 5000);
}

TEST_CASE("claims of a prover that takes extents for small are found wrong", "[prover]") {
  int claims = 0;
  CHECK(all_wrong_claims(1000, claims).size() >= 100);
}
