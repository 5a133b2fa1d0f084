#include "kernels/signature/expression.h"

#include <limits>
#include <map>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

class FakeScope final : public Scope {
 public:
  std::map<std::string, ParamValue, std::less<>> values;
  std::map<std::string, std::string, std::less<>> dtypes;

  std::optional<ParamValue> find(std::string_view name) const override {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  }
  std::string dtype_word(std::string_view tensor) const override {
    const auto found = dtypes.find(tensor);
    return found == dtypes.end() ? "" : found->second;
  }
};

FakeScope scope() {
  FakeScope made;
  made.values = {{"T", int64_t{5}},       {"H", int64_t{96}}, {"n", int64_t{4}},
                 {"group", int64_t{32}},  {"eps", 1e-6},      {"format", std::string("e2m1")},
                 {"clamp", ParamValue()}, {"mask", true},     {"bias", false},
                 {"taken()", int64_t{7}}};
  made.dtypes = {{"x", "bf16"}};
  return made;
}

int64_t integer(const std::string& text) {
  return Expression::parse(text).integer(scope());
}

bool holds(const std::string& text) {
  return Expression::parse(text).holds(scope());
}

TEST_CASE("expressions of extents are integers with the usual precedence", "[signature]") {
  CHECK(integer("H") == 96);
  CHECK(integer("2H") == 192);
  CHECK(integer("n*H") == 384);
  CHECK(integer("T + 2 * n - 1") == 12);
  CHECK(integer("(T+2)*n") == 28);
  CHECK(integer("ceil(T/2)") == 3);
  CHECK(integer("T / 2") == 2);
  CHECK(integer("-T / 2") == -3);
  CHECK(integer("-T % 4") == 3);
  CHECK(integer("2^31") == int64_t{1} << 31);
  CHECK(integer("taken()+1") == 8);
}

TEST_CASE("integers of expressions saturate and do not divide by zero", "[signature]") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  CHECK(integer("9000000000000000000 * 2") == kMost);
  CHECK(integer("9000000000000000000 + 9000000000000000000") == kMost);
  CHECK(integer("-9000000000000000000 * 2") == std::numeric_limits<int64_t>::min());
  CHECK(integer("T / 0") == 0);
  CHECK(integer("T % 0") == 0);
}

TEST_CASE("rules compare, chain and combine", "[signature]") {
  CHECK(holds("1 <= n <= 8"));
  CHECK_FALSE(holds("1 <= n <= 3"));
  CHECK(holds("8 >= n > 3"));
  CHECK(holds("H % 32 = 0 and n != 5"));
  CHECK(holds("group in {16, 32, H}"));
  CHECK_FALSE(holds("group in {16, H}"));
  CHECK(holds("format = e2m1"));
  CHECK_FALSE(holds("format = e4m3"));
  CHECK(holds("x is f32/bf16"));
  CHECK_FALSE(holds("y is f32/bf16"));
  CHECK(holds("mask iff not bias"));
  CHECK_FALSE(holds("mask iff bias"));
  CHECK(holds("mask or bias"));
  CHECK(holds("2^-117 <= eps"));
  CHECK(holds("clamp = none"));
  CHECK_FALSE(holds("clamp != none"));
  CHECK_FALSE(holds("clamp > 0"));
}

TEST_CASE("an extent is solved for its one unknown name", "[signature]") {
  const auto solve = [](const char* text, int64_t value) {
    return Expression::parse(text).solve(value, scope());
  };
  CHECK_FALSE(solve("n*H", 384).has_value());
  CHECK(solve("2K", 64)->value == 32);
  CHECK(solve("2K", 64)->name == "K");
  CHECK_FALSE(solve("2K", 63)->value.has_value());
  CHECK(solve("n * (K - 1)", 12)->value == 4);
  CHECK(solve("K/n", 3)->value == 12);
  CHECK(solve("T - K", 2)->value == 3);
}

TEST_CASE("names of an expression come in order, once each", "[signature]") {
  CHECK(Expression::parse("b * a + b <= taken() and x is f32").names() ==
        std::vector<std::string>{"b", "a", "taken()", "x"});
  CHECK(Expression::parse("H").single_name() == "H");
  CHECK_FALSE(Expression::parse("2H").single_name().has_value());
}

TEST_CASE("an expression that is not understood says where", "[signature]") {
  const auto error = [](const char* text) {
    try {
      Expression::parse(text);
    } catch (const Error& e) {
      return std::string(e.expected()) + " / " + std::string(e.got());
    }
    return std::string("accepted");
  };
  CHECK(error("T +") == "a name, a number or '(' / the end");
  CHECK(error("(T") == "')' / the end");
  CHECK(error("T ? 1") == "the end / ? 1");
  CHECK(error("n in 16") == "a list in braces / 16");
  CHECK(error("2 is f32") == "the name of a tensor before 'is' / f32");
  CHECK(error("floor(T/2)") == "')' / T/2)");
  CHECK(error("99999999999999999999") == "a number that fits 64 bits / 99999999999999999999");
}

}  // namespace
}  // namespace tessera::kernels
