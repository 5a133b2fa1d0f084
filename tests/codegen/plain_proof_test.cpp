// The proofs of the judge without Z3: what they show, and what they must not.

#include "tests/judge/plain_proof.h"

#include <memory>
#include <string>

#include "tests/support/catch.h"

namespace tessera::test {
namespace {

using codegen::Claim;
using ir::index;

ir::Expr variable(int id, ir::Expr lower, ir::Expr upper) {
  auto var = std::make_shared<ir::Var>();
  var->name = "v" + std::to_string(id);
  var->id = id;
  var->lower = std::move(lower);
  var->upper = std::move(upper);
  return ir::var(var);
}

bool equals(const ir::Expr& a, const ir::Expr& b, int64_t most_points = 4096) {
  Claim claim;
  claim.kind = Claim::Kind::equal;
  claim.a = a, claim.b = b;
  return holds_everywhere(claim, most_points);
}

TEST_CASE("sums are equal in any order, and if they wrap", "[judge]") {
  const ir::Expr x = variable(0, {}, {}), y = variable(1, {}, {});
  CHECK(have_equal_sums((x + (y + index(3))) * index(64),
                        y * index(64) + x * index(64) + index(192)));
  CHECK(have_equal_sums((x - y) / index(8), (index(0) - y + x) / index(8)));
  CHECK(have_equal_sums(x * index(1 << 30) * index(4), index(0)));  // 2^32 x
  CHECK_FALSE(have_equal_sums(x + y, x - y));
  CHECK_FALSE(have_equal_sums(x * index(64), x * index(63)));
  CHECK_FALSE(have_equal_sums((x + y) / index(8), x / index(8) + y / index(8)));
  CHECK_FALSE(have_equal_sums(x * y, x + y));
}

TEST_CASE("a claim of few values is tried at each of them", "[judge]") {
  const ir::Expr thread = variable(0, index(0), index(128));
  CHECK(equals(thread / index(8) * index(8) + thread % index(8), thread));
  CHECK_FALSE(equals(thread / index(64) * index(64), thread / index(32) * index(32)));
  CHECK_FALSE(equals(thread, thread, 127));                               // too many values
  CHECK_FALSE(equals(thread * index(1 << 30), thread * index(1 << 30)));  // leaves its type
}

TEST_CASE("a remainder of what has no bounds may have any value", "[judge]") {
  const ir::Expr thread = variable(0, index(0), index(128));
  const ir::Expr count = variable(1, index(0), {}), any = variable(2, {}, {});
  const auto stage = [](const ir::Expr& round) { return round % index(3) * index(64); };
  CHECK(equals(stage(count) + thread % index(64), thread % index(64) + stage(count)));
  CHECK(equals((stage(count) + thread) % index(8), thread % index(8)));
  CHECK_FALSE(equals((stage(any) + thread) % index(8), thread % index(8)));  // may be negative
  CHECK_FALSE(equals(stage(count) + thread, thread));
  CHECK_FALSE(equals(stage(count), stage(count + index(1))));
  CHECK_FALSE(equals(count + thread, thread + count));  // no bounds
}

}  // namespace
}  // namespace tessera::test
