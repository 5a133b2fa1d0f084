// Random programs whose indices are made of extents near 2^31: what leaves 32 bits wraps, and an access
// that it takes out of bounds reads 0.

#include <fmt/format.h>

#include <iostream>
#include <random>

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "dsl/builder.h"
#include "dsl/ir/extents.h"
#include "kernels/jit/argument_binder.h"
#include "tests/fuzz/planted_bugs.h"
#include "tests/fuzz/scalar.h"
#include "tests/support/catch.h"
#include "tests/support/host_tensor.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Value;

namespace {

constexpr int64_t kRows = 32;

/// y[i] = x[index], where the index is made of the extents a and b and of i.
class IndexProgram {
 public:
  explicit IndexProgram(uint64_t seed) : random_(seed), size_(pick({1, 8, 100, 1000, 4096})) {
    const Value a = k_.dim("a"), b = k_.dim("b", {.multiple_of = multiple_});
    const dsl::Ref p = k_.input("p", DType::f32, {a}, {.strides = {k_.stride("p_stride")}});
    const dsl::Ref q = k_.input("q", DType::f32, {b}, {.strides = {k_.stride("q_stride")}});
    const dsl::Ref x = k_.input("x", DType::f32, {size_}, {.align = 4});
    const dsl::Ref y = k_.output("y", DType::f32, {kRows});
    k_.launch({1}, {.threads = 32});
    k_.parallel({kRows}, [&](Value i) {
      names_ = {a.expr()->var, b.expr()->var, i.expr()->var};
      leaves_ = {a, b, i};
      const Value index = in_reach(expression(3));
      index_ = index.expr();
      y(i) = x(index) + p(0) + q(0);
    });
    extents_[0] = extent(1);
    extents_[1] = extent(multiple_);
    kernel_ = k_.finish();
  }

  /// Rows that are wrong when the program runs on the executor, the bug in it.
  std::string difference(Bug bug) {
    HostTensor one(DType::f32, {1}), y(DType::f32, {kRows});
    one.set_value(0, 0);
    // Before and behind x stands what must not be read.
    HostTensor memory(DType::f32, {3 * size_});
    for (int64_t i = 0; i < 3 * size_; ++i) {
      memory.set_value(i, i < size_ || i >= 2 * size_ ? -1 : static_cast<double>(i - size_ + 1));
    }
    TensorView x = memory.view();
    x.data = static_cast<std::byte*>(x.data) + size_ * 4;
    x.shape = {size_};
    TensorView p = one.view(), q = one.view();
    p.shape = {extents_[0]};
    q.shape = {extents_[1]};
    p.strides = q.strides = {0};
    const TensorView views[] = {p, q, x, y.view()};
    const kernels::jit::ArgumentBinder binder(kernel_.name, kernel_, kernels::jit::Author::tessera);
    const kernels::jit::Binding binding = binder.bind(views, {});
    std::vector<codegen::cpu::Argument> arguments;
    for (const TensorView& view : views) arguments.emplace_back().tensor = view;
    for (size_t i = 0; i < binder.num_dims(); ++i)
      arguments.emplace_back().integer = binding.slots[i];
    if (!plant_before(bug, kernel_)) return {};
    codegen::cpu::Executable(codegen::lower(kernel_))
        .run(arguments, {.traps = false, .workers = 1});
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t index = value(index_, i);
      const double expected = index >= 0 && index < size_ ? static_cast<double>(index + 1) : 0;
      if (y.value(i) != expected) {
        return fmt::format("x[{}] with a = {}, b = {}, i = {}: {} instead of {}",
                           ir::to_string(index_), extents_[0], extents_[1], i, y.value(i),
                           expected);
      }
    }
    return {};
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  int64_t pick(const std::vector<int64_t>& from) {
    return from[static_cast<size_t>(between(0, std::ssize(from) - 1))];
  }
  int64_t extent(int64_t multiple) {
    const int64_t largest = ir::kLargestExtent;
    const int64_t any =
        pick({1, 7, 46341, 50000, 65536, largest, largest - between(0, 99), between(1, largest)});
    return std::max(multiple, any / multiple * multiple);
  }

  Value expression(int depth) {
    if (depth == 0 || between(0, 5) == 0) return leaves_[static_cast<size_t>(between(0, 2))];
    const Value left = expression(depth - 1);
    switch (between(0, 9)) {
      case 0:
        return left + expression(depth - 1);
      case 1:
        return left + between(-9, 5000);
      case 8:
        return left * pick({3, 4, 100, 65536});
      case 2:
        return left - expression(depth - 1);
      case 3:
      case 4:
        return left * expression(depth - 1);
      case 5:
        return left / pick({2, 3, 8, 1000, 65536});
      case 6:
        return left % pick({2, 3, 64, 1000, 65536});
      default:
        return between(0, 1) == 0 ? min(left, expression(depth - 1))
                                  : max(left, expression(depth - 1));
    }
  }

  /// -size < index < size
  Value in_reach(const Value& e) {
    switch (between(0, 3)) {
      case 0:
        return max(e, 0) % size_;
      case 1:
        return (e % size_ + size_) % size_;
      default:
        return e % size_;
    }
  }

  /// By the language's own rules, on paths that the compiler does not share.
  int64_t value(const ir::Expr& e, int64_t row) const {
    if (e->op == ir::Op::constant) return e->integer;
    if (e->op == ir::Op::var) {
      const int64_t values[] = {extents_[0], extents_[1], row};
      for (size_t n = 0; n < names_.size(); ++n) {
        if (e->var == names_[n]) return values[n];
      }
      throw std::logic_error("a variable that no index has: " + e->var->name);
    }
    std::vector<Scalar> arguments;
    for (const ir::Expr& arg : e->args) arguments.push_back({value(arg, row), 0});
    const DType type = e->args[0]->type;
    if (e->op == ir::Op::cast) return converted(e->type, type, arguments[0]).integer;
    return apply(e->op, type, e->type, arguments.data()).integer;
  }

  std::mt19937_64 random_;
  dsl::Builder k_{"index_program"};
  int64_t size_ = 0;
  int64_t multiple_ = int64_t{1} << (random_() % 5);
  std::vector<ir::VarRef> names_;
  std::vector<Value> leaves_;
  ir::Expr index_;
  int64_t extents_[2] = {};
  ir::Kernel kernel_;
};

std::vector<std::string> differences(Bug bug, uint64_t programs) {
  std::vector<std::string> result;
  uint64_t refused = 0;  // an index that is outside for certain
  for (uint64_t seed = 1; seed <= programs; ++seed) {
    try {
      std::string text = IndexProgram(seed).difference(bug);
      if (!text.empty()) result.push_back(fmt::format("seed {}: {}", seed, text));
    } catch (const Error& error) {
      if (error.code() != "OOB_CONST") throw;
      ++refused;
    }
  }
  CHECK(refused * 10 <= programs);
  return result;
}

}  // namespace

TEST_CASE("random indices made of extents near 2^31 wrap and keep their guards", "[fuzz]") {
  CHECK(differences(Bug::none, 3000) == std::vector<std::string>());
}

TEST_CASE("a compiler that takes no product of extents to wrap is found wrong", "[fuzz][mutants]") {
  const size_t found = differences(Bug::extents_taken_for_small, 1000).size();
  std::cout << fmt::format("{}: found in {} of 1000 programs\n", name(Bug::extents_taken_for_small),
                           found);
  CHECK(found >= 25);
}
