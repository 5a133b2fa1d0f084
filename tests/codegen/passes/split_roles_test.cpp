// Pipelined loops with a producer become two roles and a ring.

#include "codegen/passes/split_roles.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "codegen/verify/tile_ir.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::codegen;
using dsl::Builder;
using dsl::Value;

namespace {

/// The statements of the kernel, without the lines of the author.
std::string statements_of(const ir::Kernel& kernel) {
  std::istringstream in(ir::to_string(kernel));
  std::string line, result;
  bool is_statement = false;
  while (std::getline(in, line)) {
    is_statement = is_statement || line.find("  launch") == 0;
    line.erase(std::min(line.find("  #"), line.size()));
    line.erase(line.find_last_not_of(' ') + 1);
    if (is_statement) result += line + "\n";
  }
  return result;
}

}  // namespace

TEST_CASE("a producer splits the kernel into a take and a fill of a ring", "[passes]") {
  Builder k("split");
  auto rows = k.dim("rows");
  auto from = k.input("from", DType::i32, {rows}), x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  const dsl::BlockIndex at = k.launch({2}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile"), ones = k.shared(DType::f32, {64}, "ones");
  k.serial(
      at.x, rows,
      [&](Value t) {
        const Value row = k.let("row", from(t));
        k.pipelined(0, rows, {.stages = 4, .producer = true}, [&](Value s) {
          k.fill(ones, 1.0f);
          k.copy(x(row + s), tile);
          const Value first = k.let("first", tile(0));
          k.let("unused", s + 1);
          k.parallel({64}, [&](Value c) { y(t, c) = first + ones(63 - c); });
          k.fill(ones, 2.0f);
        });
      },
      2);
  std::vector<std::string> notes;
  const ir::Kernel split = split_roles(k.finish(), {}, notes);
  verify(split, {.are_roles_split = true}, "split_roles");
  CHECK(statements_of(split) == R"(  launch grid [2] threads 96
  ring 0 of 4 stages: tile
  roles
    compute: threads 0 .. +64 as thread
      serial s in block_x .. rows step 2
        from_value = from[s]
        let row: i32 = from_value
        serial s in 0 .. rows step 1
          fill ones[0 +: 64] with 1
          take taken of ring 0
            tile_value = tile[0]
            let first: f32 = tile_value
            let unused: i32 = s + 1
            parallel (i) in [64]
              ones_value = ones[63 - i]
              y[s, i] = first + ones_value
          fill ones[0 +: 64] with 2
    load: threads 64 .. +32 as load_thread
      serial s in block_x .. rows step 2
        from_value = from[s]
        let row: i32 = from_value
        serial s in 0 .. rows step 1
          fill filled of ring 0
            copy x[row + s, 0 +: 64] -> tile[0 +: 64]
)");
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("copy x -> tile: by the load role, 4 stages") != std::string::npos);
}

TEST_CASE("a kernel without producers has no load role", "[passes]") {
  Builder k("plain");
  auto x = k.input("x", DType::f32, {4, 64}), y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  k.pipelined(0, 4, 3, [&](Value s) {
    k.copy(x(s), tile);
    k.parallel({64}, [&](Value c) { y(c) = tile(63 - c); });
  });
  const ir::Kernel kernel = k.finish();
  std::vector<std::string> notes;
  CHECK(ir::to_string(split_roles(kernel, {}, notes)) == ir::to_string(kernel));
  CHECK(notes.empty());
}
