// The passes of the tile IR, and lower_tiles, on small kernels.

#include <fmt/format.h>

#include "codegen/lower.h"
#include "codegen/passes/check_iterations.h"
#include "codegen/passes/choose_conversions.h"
#include "codegen/passes/expand_tiles.h"
#include "codegen/passes/lower_tiles.h"
#include "codegen/passes/pipeline_loops.h"
#include "codegen/passes/solve_layouts.h"
#include "codegen/thread_ir/walk.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::codegen;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;
using test::count;
using test::error_of;

namespace {

/// Calls fn for every statement of the tile IR, outer before inner.
template <class Fn>
void for_each_stmt(const ir::Body& body, const Fn& fn) {
  for (const ir::Stmt& stmt : body) {
    fn(stmt);
    for_each_body(stmt, [&](const ir::Body& inner) { for_each_stmt(inner, fn); });
  }
}
template <class Node>
std::vector<const Node*> all(const ir::Body& body) {
  std::vector<const Node*> found;
  for_each_stmt(body, [&](const ir::Stmt& stmt) {
    if (const auto* node = std::get_if<Node>(&stmt.node)) found.push_back(node);
  });
  return found;
}

/// Tiles of x are added up over a pipelined loop of `rounds`.
ir::Kernel pipelined_sum(dsl::PipelineOptions options, bool converts = false) {
  Builder k("pipelined_sum");
  auto rounds = k.dim("rounds");
  auto x = k.input("x", converts ? DType::bf16 : DType::f32, {rounds, 64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  auto sum = k.fragment(DType::f32, {64}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, rounds, options, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({64}, [&](Value c) { sum(c) += tile(63 - c); });
  });
  k.copy(sum, y);
  return k.finish();
}

/// Pending groups of the waits, in program order.
std::vector<int> pending(const ir::Kernel& kernel) {
  std::vector<int> result;
  for (const ir::AsyncWait* wait : all<ir::AsyncWait>(kernel.body)) {
    CHECK(wait->group == -1);
    result.push_back(wait->pending);
  }
  return result;
}

/// Three tiles of x, with asynchronous copies into them.
struct AsyncTiles {
  Builder k{"async_tiles"};
  Value n = k.dim("n");
  Ref x = k.input("x", DType::f32, {3, 64});
  std::vector<Ref> tiles;

  AsyncTiles() {
    k.launch({1}, {.threads = 64});
    for (int i = 0; i < 3; ++i) tiles.push_back(k.shared(DType::f32, {64}, fmt::format("t{}", i)));
  }
  dsl::AsyncToken start(int i) { return k.copy_async(x(i), tiles[static_cast<size_t>(i)]); }
  std::vector<int> counted() {
    std::vector<int> result;
    const Program program = lower(k.finish(), {8, 0, 0});
    walk(program.body, [&](const Stmt& stmt) {
      if (const auto* wait = std::get_if<Await>(&stmt.node)) result.push_back(wait->pending);
    });
    return result;
  }
};

}  // namespace

TEST_CASE("a pipelined loop issues its copies ahead into versions of the tile", "[passes]") {
  std::vector<std::string> notes;
  const ir::Kernel kernel = pipeline_loops(pipelined_sum({.stages = 3}), notes);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("x -> tile") != std::string::npos);
  int pipelined = 0, unrolled = 0;
  for (const ir::Loop* loop : all<ir::Loop>(kernel.body)) {
    pipelined += loop->kind == ir::LoopKind::pipelined;
    unrolled += loop->kind == ir::LoopKind::unrolled;
  }
  CHECK(pipelined == 0);
  CHECK(unrolled == 1);  // the first two rounds
  const auto copies = all<ir::Copy>(kernel.body);
  REQUIRE(copies.size() == 3);  // the first rounds, the round ahead, the result
  for (size_t i = 0; i < 2; ++i) {
    const ir::Buffer& tile = *copies[i]->to.buffer;
    CHECK(copies[i]->plan.when == ir::CopyTime::ahead);
    CHECK(ir::is_constant(tile.shape[0], 3));  // the stages
    CHECK(tile.num_version_dims == 1);
  }
  CHECK(all<ir::AsyncCommit>(kernel.body).size() == 2);
  CHECK(pending(kernel) == std::vector<int>{1});
}

TEST_CASE("a pipelined loop in place has as many versions as stages", "[passes]") {
  std::vector<std::string> notes;
  const ir::Kernel kernel = pipeline_loops(pipelined_sum({.stages = 2, .in_place = true}), notes);
  CHECK(ir::is_constant(all<ir::Copy>(kernel.body)[0]->to.buffer->shape[0], 2));
}

TEST_CASE(
    "a loop that goes across issues its first copies before the loop around and behind itself",
    "[passes]") {
  Builder k("across");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n, 4, 64});
  auto y = k.output("y", DType::f32, {n, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  k.serial(0, n, [&](Value t) {
    const Value row = k.let("row", n - 1 - t);
    k.pipelined(0, 4, {.stages = 3, .across = true}, [&](Value i) {
      k.copy(x(row, i), tile);
      k.parallel({64}, [&](Value c) { y(t, c) = tile(c); });
    });
    k.fill(y(t), 1.0f);
  });
  std::vector<std::string> notes;
  const ir::Kernel kernel = pipeline_loops(k.finish(), notes);
  REQUIRE(kernel.body.size() == 2);
  CHECK(std::get<ir::Loop>(kernel.body[0].node).kind == ir::LoopKind::unrolled);
  const ir::Body& around = std::get<ir::Loop>(kernel.body[1].node).body;
  REQUIRE(around.size() == 5);  // row, the rounds, the wait, the first copies, the fill
  CHECK_FALSE(std::get<ir::Loop>(around[1].node).across);
  CHECK(std::get<ir::AsyncWait>(around[2].node).pending == 0);
  CHECK(std::get<ir::Loop>(around[3].node).kind == ir::LoopKind::unrolled);
  CHECK(std::holds_alternative<ir::Fill>(around[4].node));
  CHECK(all<ir::AsyncCommit>(kernel.body).size() == 3);
  // The row of the next round, or of the first.
  std::vector<std::string> rows;
  for (const ir::Let* let : all<ir::Let>(kernel.body)) rows.push_back(to_string(let->value));
  CHECK(rows == std::vector<std::string>{"n - 1", "n - 1 - s", "n - 1 - (s + 1)"});
}

TEST_CASE("with one stage a pipelined loop becomes a serial one", "[passes]") {
  std::vector<std::string> notes;
  const ir::Kernel kernel = pipeline_loops(pipelined_sum({.stages = 1}), notes);
  CHECK(all<ir::AsyncWait>(kernel.body).empty());
  CHECK(all<ir::Copy>(kernel.body).size() == 2);
  CHECK(all<ir::Loop>(kernel.body)[0]->kind == ir::LoopKind::serial);
}

TEST_CASE("a wait for a copy lets the later ones go on", "[passes]") {
  AsyncTiles t;
  const auto first = t.start(0), second = t.start(1);
  t.start(2);
  t.k.wait(first);
  t.k.wait(second);
  CHECK(t.counted() == std::vector<int>{2, 1});
}

TEST_CASE("a wait after a branch or a loop counts the fewest copies since", "[passes]") {
  AsyncTiles branch;
  const auto token = branch.start(0);
  branch.k.if_else(
      branch.n < 3, [&] { branch.start(1); },
      [&] {
        branch.start(1);
        branch.start(2);
      });
  branch.k.wait(token);
  CHECK(branch.counted() == std::vector<int>{1});

  AsyncTiles constant;
  const auto before = constant.start(0);
  constant.k.serial(0, 5, [&](Value) { constant.start(1); });
  constant.k.wait(before);
  CHECK(constant.counted() == std::vector<int>{5});

  AsyncTiles varying;
  const auto other = varying.start(0);
  varying.k.serial(0, varying.n, [&](Value) { varying.start(1); });
  varying.k.wait(other);
  CHECK(varying.counted() == std::vector<int>{0});
}

TEST_CASE("a copy becomes the parallel loop of its target, a transposed one swaps indices",
          "[passes]") {
  Builder k("copies");
  auto x = k.input("x", DType::f32, {32, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {64, 32}, "tile");
  k.copy(x.transposed(), tile);
  k.fill(tile, 1.0f);
  const ir::Kernel kernel = expand_tiles(k.finish());
  CHECK(all<ir::Copy>(kernel.body).empty());
  CHECK(all<ir::Fill>(kernel.body).empty());
  const auto loops = all<ir::Loop>(kernel.body);
  REQUIRE(loops.size() == 2);
  CHECK(loops[0]->label == "copy x -> tile");
  CHECK(loops[1]->label == "fill tile");
  CHECK(loops[0]->kind == ir::LoopKind::parallel);
  CHECK(ir::is_constant(loops[0]->extents[0], 64));
  const auto& load = *all<ir::ElementLoad>(kernel.body)[0];
  const auto& store = *all<ir::ElementStore>(kernel.body)[0];
  CHECK(load.indices[0]->var == loops[0]->vars[1]);
  CHECK(load.indices[1]->var == loops[0]->vars[0]);
  CHECK(store.indices[0]->var == loops[0]->vars[0]);
  CHECK(ir::to_string(store.value) == "cast<bf16>(x_value)");
}

TEST_CASE("a value outside stands where the source may have no element", "[passes]") {
  Builder k("outside");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n});
  k.launch({ceil_div(n, 64)}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  k.copy(x.tile({0}, {64}), tile, {.outside = -1.0f});
  const ir::Kernel kernel = expand_tiles(k.finish());
  CHECK(ir::to_string(all<ir::ElementStore>(kernel.body)[0]->value) ==
        "select(0 <= i && i < n, x_value, -1)");
}

TEST_CASE("a loop that reads what another iteration writes is refused", "[passes]") {
  const auto refusal = [](const std::function<void(const Ref&, Value)>& iteration) {
    Builder k("iterations");
    k.launch({1}, {.threads = 32});
    auto s = k.shared(DType::f32, {65}, "s");
    k.parallel({64}, [&](Value i) { iteration(s, i); });
    const ir::Kernel kernel = expand_tiles(k.finish());
    return error_of([&] { check_iterations(kernel); });
  };
  CHECK(refusal([](const Ref& s, Value i) { s(i) = s(i) + 1.0f; }).empty());
  CHECK(refusal([](const Ref& s, Value i) { s(i) = s(i + 1) + 1.0f; }).find("[ITERATION_ORDER]") !=
        std::string::npos);
  CHECK(refusal([](const Ref& s, Value i) { s(i) = s(64) + 1.0f; }).empty());
}

TEST_CASE("a copy to registers gives each thread the widest vectors that coalesce", "[passes]") {
  Builder k("layouts");
  auto x = k.input("x", DType::f32, {8, 128});
  auto y = k.output("y", DType::f32, {8, 128});
  k.launch({1}, {.threads = 128});
  auto tile = k.fragment(DType::f32, {8, 128}, "tile");
  k.copy(x, tile);
  k.copy(tile, y);
  ir::Kernel kernel = expand_tiles(k.finish());
  const LayoutSolution plan = solve_layouts(kernel);
  REQUIRE(plan.fragments.size() == 1);
  const layout::Layout& layout = plan.fragments.begin()->second;
  CHECK(layout.num_threads() == 128);
  CHECK(layout.num_slots() == 8);
  REQUIRE(plan.loops.size() == 2);
  for (const auto& [loop, of_loop] : plan.loops) {
    CHECK(of_loop.vector == 4);
    CHECK(of_loop.layout == layout);
  }
  CHECK(plan.relayouts.empty());
  CHECK(plan.uncoalesced.empty());
}

TEST_CASE("a transposed use of a fragment is staged through shared memory", "[passes]") {
  Builder k("relayout");
  auto x = k.input("x", DType::f32, {32, 32});
  auto y = k.output("y", DType::f32, {32, 32});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {32, 32}, "tile");
  auto rows = k.fragment(DType::f32, {32, 32}, "rows");
  k.copy(x, tile);
  k.parallel({32, 32}, [&](Value i, Value j) { rows(i, j) = tile(j, i); });
  k.parallel({32, 32}, [&](Value i, Value j) { rows(i, j) = rows(i, j) + tile(i, j); });
  k.copy(rows, y);
  ir::Kernel kernel = expand_tiles(k.finish());
  const int buffers = kernel.num_buffers;
  const LayoutSolution plan = solve_layouts(kernel);
  CHECK_FALSE(plan.relayouts.empty());
  CHECK(kernel.num_buffers == buffers + 1);
}

TEST_CASE("accesses get their width and their guard or its proof", "[passes]") {
  const auto lowered = [](int64_t multiple_of) {
    Builder k("accesses");
    auto n = k.dim("n", {.multiple_of = multiple_of});
    auto x = k.input("x", DType::f32, {n});
    auto y = k.output("y", DType::f32, {n});
    auto at = k.launch({ceil_div(n, 256)}, {.threads = 64});
    auto tile = k.fragment(DType::f32, {256}, "tile");
    k.copy(x.tile({at.x * 256}, {256}), tile);
    k.copy(tile, y.tile({at.x * 256}, {256}));
    ir::Kernel kernel = expand_tiles(k.finish());
    const LayoutSolution plan = solve_layouts(kernel);
    return lower_tiles(kernel, plan);
  };
  const LoweredTiles whole = lowered(256);
  CHECK(count(codegen::to_string(whole.program), "proved") == 2);
  CHECK(count(codegen::to_string(whole.program), "guarded") == 0);
  REQUIRE(whole.notes.size() == 2);
  CHECK(whole.notes[0].find("x: 4 x f32, proved") != std::string::npos);
  const LoweredTiles vectors = lowered(4);
  CHECK(vectors.notes[0].find("x: 4 x f32, guarded") != std::string::npos);
  const LoweredTiles single = lowered(1);
  CHECK(single.notes[0].find("x: 1 x f32, guarded") != std::string::npos);
}

TEST_CASE("a conversion takes the most elements for which the GPU has one", "[passes]") {
  const auto at_once = [](std::string_view from, std::string_view to, int width) {
    Program program =
        test::read_body(32, "",
                        fmt::format("registers a: {0}[{1}] = 0\nregisters b: {2}[{1}]\n"
                                    "b[0 .. +{1}] = convert<{2}> a[0 .. +{1}]",
                                    from, width, to));
    choose_conversions(program);
    return std::get<Convert>(program.body.back().node).at_once;
  };
  CHECK(at_once("f16", "e2m1", 8) == 8);
  CHECK(at_once("f32", "e4m3", 8) == 4);
  CHECK(at_once("f32", "e2m1", 4) == 4);
  CHECK(at_once("f32", "e5m2", 8) == 2);
  CHECK(at_once("f32", "bf16", 2) == 2);
  CHECK(at_once("e4m3", "f16", 6) == 2);
  CHECK(at_once("f32", "bf16", 3) == 1);
  CHECK(at_once("bf16", "f32", 8) == 1);
  CHECK(at_once("bf16", "bf16", 8) == 1);
}

TEST_CASE("a copy keeps the engine that choose_copies gives it until it is lowered", "[passes]") {
  dsl::Builder k("engines");
  auto x = k.input("x", DType::bf16, {256, 64});
  auto z = k.input("z", DType::bf16, {256, 63});
  auto y = k.output("y", DType::bf16, {256, 64});
  k.launch({1}, {.threads = 64});
  auto boxes = k.shared(DType::bf16, {64, 64}, "boxes");
  auto rows = k.shared(DType::bf16, {64, 64}, "rows");
  auto pieces = k.shared(DType::bf16, {64, 64}, "pieces");
  auto narrow = k.shared(DType::bf16, {64, 63}, "narrow");
  k.pipelined(0, 4, 3, [&](dsl::Value step) {
    const auto part = x.tile({step * 64, 0}, {64, 64});
    k.copy(part, boxes, {.engine = ir::Engine::tensor});
    k.copy(part.bulk(), rows);
    k.copy(part, pieces);
    k.copy(z.tile({step * 64, 0}, {64, 63}), narrow);
    k.parallel({64, 63}, [&](dsl::Value i, dsl::Value j) {
      y(step * 64 + i, j) = boxes(i, j) + rows(i, j) + pieces(i, j) + narrow(i, j);
    });
  });
  const ir::Kernel kernel = k.finish();
  const auto engines = [&](Target target) {
    const std::string text = codegen::text_after(kernel, "expand_tiles", target);
    std::vector<int> counts;
    for (const char* word : {"by tensor", "by bulk", "by pieces", "by threads"}) {
      counts.push_back(count(text, word));
    }
    CHECK(count(text, "copy_async ") == counts[0] + counts[1]);  // no loops
    return counts;
  };
  // The first copies, and those of the loop.
  CHECK(engines({9, 0, 0}) == std::vector<int>{2, 2, 2, 2});
  CHECK(engines({8, 0, 0}) == std::vector<int>{0, 2, 4, 2});
  const std::string explained = codegen::explain(kernel, {9, 0, 0});
  for (const char* note :
       {"copy x -> boxes: tensor copies of 64 x 64", "copy x -> rows: bulk copies of its rows",
        "copy x -> pieces: pieces of 16 bytes",
        "copy z -> narrow: waits for its loads: runs of 16 bits, the hardware copies 4, 8 or 16"}) {
    CAPTURE(note);
    CHECK(count(explained, note) == 1);
  }
}
