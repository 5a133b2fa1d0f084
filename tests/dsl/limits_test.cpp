// How deep expressions and bodies may go: what lowers a kernel recurses into them.

#include <functional>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

using Step = std::function<Value(const Value&)>;

/// y = x after so many steps.
ir::Kernel steps_in_a_row(int count, const Step& step) {
  Builder k("steps");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({n}, {.threads = 32});
  Value v = x(at.x);
  for (int i = 0; i < count; ++i) v = step(v);
  y(at.x) = v;
  return k.finish();
}

ir::Kernel branches_in_each_other(int count) {
  Builder k("nest");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {n});
  auto at = k.launch({n}, {.threads = 32});
  std::function<void(int)> nest = [&](int left) {
    if (left == 0) {
      y(at.x) = x(at.x);
    } else {
      k.if_(at.x >= 0, [&] { nest(left - 1); });
    }
  };
  nest(count);
  return k.finish();
}

bool begins_with(const std::string& text, const std::string& start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

TEST_CASE("an expression of 100000 additions in a row is refused where it grows too deep") {
  const Step add = [](const Value& v) { return v + 1.0f; };
  CHECK(error_of([&] { steps_in_a_row(256, add); }).empty());
  const std::string text = error_of([&] { steps_in_a_row(100000, add); });
  CHECK(begins_with(text,
                    "tessera: steps: an expression is nested too deeply [EXPRESSION_DEPTH]\n"
                    "  expected  at most 256 operations in a row\n"
                    "  got       257\n"
                    "  hint      name a part of it: v = k.let(\"v\", v)\n"
                    "  at        "));
}

TEST_CASE("an expression that doubles 40 times is refused where it grows too large") {
  const std::string text =
      error_of([&] { steps_in_a_row(40, [](const Value& v) { return v + v; }); });
  CHECK(begins_with(text,
                    "tessera: steps: an expression is too large [EXPRESSION_SIZE]\n"
                    "  expected  at most 65536 operations\n"
                    "  got       131071\n"
                    "  hint      name a part of it: v = k.let(\"v\", v)\n"));
}

TEST_CASE("10000 branches inside each other are refused at the 65th") {
  CHECK(error_of([&] { branches_in_each_other(64); }).empty());
  const std::string text = error_of([&] { branches_in_each_other(10000); });
  CHECK(begins_with(text,
                    "tessera: nest: loops and branches are nested too deeply [NESTING]\n"
                    "  expected  at most 64 inside each other\n"
                    "  got       65\n"
                    "  at        "));
}
