// The parts of solve_layouts and pipeline_loops that look at loops.

#include <algorithm>
#include <cmath>
#include <map>

#include "codegen/layouts/iteration_copies.h"
#include "codegen/layouts/layout_cost.h"
#include "codegen/layouts/layout_participants.h"
#include "codegen/layouts/propagate_layouts.h"
#include "codegen/layouts/vector_width.h"
#include "codegen/passes/expand_tiles.h"
#include "codegen/pipelines/copy_groups.h"
#include "codegen/pipelines/first_copies.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::codegen;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

const ir::Loop& loop_at(const ir::Kernel& kernel, size_t i) {
  return std::get<ir::Loop>(kernel.body.at(i).node);
}

/// One parallel loop over 8 x 64 elements of the tensors x and y, columns last.
ir::Kernel one_loop(const std::function<void(const Ref& x, const Ref& y, Value i, Value j)>& body) {
  Builder k("one_loop");
  auto x = k.input("x", DType::f32, {64, 64});
  auto y = k.output("y", DType::f32, {64, 64});
  k.launch({1}, {.threads = 128});
  k.parallel({8, 64}, [&](Value i, Value j) { body(x, y, i, j); });
  return k.finish();
}

/// The loop of a pipeline with `stages` whose round is `body`, over tiles a and b.
ir::Kernel pipeline(const std::function<void(Builder& k, const Ref& x, const Ref& a, const Ref& b,
                                             Value i)>& body) {
  Builder k("pipeline");
  auto x = k.output("x", DType::f32, {16, 64});
  auto y = k.output("y", DType::f32, {1});
  k.launch({1}, {.threads = 64});
  auto a = k.shared(DType::f32, {64}, "a");
  auto b = k.shared(DType::f32, {64}, "b");
  k.pipelined(0, 16, 3, [&](Value i) { body(k, x, a, b, i); });
  k.fill(y, 0.0f);
  return k.finish();
}

std::vector<CopyGroup> groups_of(const ir::Kernel& kernel, std::vector<std::string>& notes) {
  std::map<int, int> uses;
  for_each_use(kernel.body,
               [&](const ir::BufferRef& buffer, bool) { ++uses[storage_of(*buffer).id]; });
  return find_copy_groups(loop_at(kernel, 0), uses, notes);
}

}  // namespace

TEST_CASE("a straight loop goes in vectors as wide as a thread's run", "[layouts]") {
  const ir::Kernel straight =
      one_loop([](const Ref& x, const Ref& y, Value i, Value j) { y(i, j) = x(i, j); });
  const ir::Loop& loop = loop_at(straight, 0);
  CHECK(is_straight_line(loop.body));
  CHECK(vector_width(loop, layout::split({8, 64}, 128, 4)) == 4);
  CHECK(vector_width(loop, layout::split({8, 64}, 128, 1)) == 1);
  CHECK(shared_branch(loop) == nullptr);
}

TEST_CASE("one condition for a whole row keeps the vectors inside it", "[layouts]") {
  Builder k("branch");
  auto x = k.input("x", DType::f32, {64, 64});
  auto y = k.output("y", DType::f32, {64, 64});
  k.launch({1}, {.threads = 128});
  k.parallel({8, 64}, [&](Value i, Value j) { k.if_(i < 5, [&] { y(i, j) = x(i, j); }); });
  k.parallel({8, 64}, [&](Value i, Value j) { k.if_(j < 5, [&] { y(i, j) = x(i, j); }); });
  const ir::Kernel kernel = k.finish();
  const layout::Layout layout = layout::split({8, 64}, 128, 4);
  CHECK(shared_branch(loop_at(kernel, 0)) != nullptr);
  CHECK(vector_width(loop_at(kernel, 0), layout) == 4);
  CHECK(shared_branch(loop_at(kernel, 1)) == nullptr);
  CHECK(vector_width(loop_at(kernel, 1), layout) == 1);
}

TEST_CASE("an access is as wide as its alignment and its run allow", "[layouts]") {
  const ir::Kernel kernel = one_loop([](const Ref& x, const Ref& y, Value i, Value j) {
    y(i, j) = x(i, j) + select(j < 62, x(i, j + 2), 0.0f) + x(j, i);
  });
  const ir::Loop& loop = loop_at(kernel, 0);
  const IndexMath math;
  std::vector<int64_t> widths;
  for (const ir::Stmt& stmt : loop.body) {
    const auto* load = std::get_if<ir::ElementLoad>(&stmt.node);
    if (load == nullptr) continue;
    widths.push_back(feasible_vector(math, *load->buffer, load->indices, *loop.vars[1], 16));
  }
  std::sort(widths.begin(), widths.end());  // C++ does not order the operands of a sum
  CHECK(widths == std::vector<int64_t>{1, 2, 4});
}

TEST_CASE("a layout that coalesces costs less, and only the other one is warned of", "[layouts]") {
  const ir::Kernel kernel =
      one_loop([](const Ref& x, const Ref& y, Value i, Value j) { y(i, j) = x(i, j); });
  const Participants participants = find_participants(kernel);
  REQUIRE(participants.all.size() == 1);
  const Participant& loop = participants.all[0];
  CHECK(loop.memory.size() == 2);
  CHECK(loop.fragments.empty());
  const layout::Layout by_row = layout::split({8, 64}, 128, 4);
  // Neighbours along a row in different warps.
  const layout::Layout by_column({8, 64}, {{0, 1, 8, 1, 0}, {1, 1, 16, 8, 0}, {1, 16, 4, 0, 1}});
  CHECK(layout_cost(loop, by_row, participants.math) <
        layout_cost(loop, by_column, participants.math));
  CHECK(uncoalesced_accesses(loop, by_row, participants.math).empty());
  CHECK(uncoalesced_accesses(loop, by_column, participants.math).size() == 2);
  // A group of half as many threads makes half as many requests, wherever it begins.
  CHECK(loop.threads == ThreadGroup{0, 128});
  Participant half = loop;
  half.threads = {64, 64};
  const double registers = 0.001 * static_cast<double>(by_row.num_slots());
  const double whole_cost = layout_cost(loop, by_row, participants.math) - registers;
  const double half_cost = layout_cost(half, by_row, participants.math) - registers;
  CHECK(std::abs(half_cost - whole_cost / 2) < 1e-9);
}

TEST_CASE("all threads of a group own something", "[layouts]") {
  const layout::Layout of_32 = layout::split({8, 4}, 32, 1);
  CHECK(for_all(of_32, {0, 32}) == of_32);
  CHECK(for_all(of_32, {32, 64}) == layout::replicate(of_32, 2));
  CHECK(for_all(of_32, {0, 48}) == of_32);  // no whole number of copies
}

TEST_CASE("fragments join loops to one component, and a layout is carried through it",
          "[layouts]") {
  Builder k("components");
  auto x = k.input("x", DType::f32, {8, 64});
  auto y = k.output("y", DType::f32, {8});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {8, 64}, "tile");
  auto sum = k.fragment(DType::f32, {8}, "sum");
  auto apart = k.fragment(DType::f32, {8}, "apart");
  k.copy(x, tile);                        // 0
  k.reduce_sum(tile, sum, dsl::Axis(1));  // 1
  k.copy(sum, y);                         // 2
  k.fill(apart, 0.0f);                    // 3
  const ir::Kernel kernel = expand_tiles(k.finish());
  const Participants participants = find_participants(kernel);
  REQUIRE(participants.all.size() == 4);
  CHECK(participants.num_components == 2);
  CHECK(participants.all[0].component == participants.all[2].component);
  CHECK(participants.all[0].component != participants.all[3].component);
  KnownLayouts known;
  CHECK_FALSE(add_given_layouts(participants, known));
  CHECK(known.fragments.empty());
  const layout::Layout rows = layout::split({8, 64}, 64, 4);
  known.loops[loop_id(*participants.all[0].loop)] = rows;
  CHECK_FALSE(propagate_layouts(participants, participants.all[0].component, known));
  CHECK(known.fragments.at(tile.region().buffer->id) == rows);
  CHECK(known.fragments.at(sum.region().buffer->id) == layout::reduce(rows, 1));
  CHECK(known.loops.contains(loop_id(*participants.all[2].loop)));
}

TEST_CASE("an iteration that must not run twice runs in one copy", "[layouts]") {
  const auto copies_of = [](const std::function<void(Builder&, const Ref&, Value)>& body) {
    Builder k("copies");
    auto x = k.output("x", DType::i32, {8});
    k.launch({1}, {.threads = 64});
    k.parallel({8}, [&](Value i) { body(k, x, i); });
    const ir::Kernel kernel = k.finish();
    return copies_of_loops(kernel).at(loop_id(loop_at(kernel, 0)));
  };
  CHECK(copies_of([](Builder&, const Ref& x, Value i) { x(i) = i; }) == Copies::all);
  CHECK(copies_of([](Builder&, const Ref& x, Value i) { x(i) = x(i) + 1; }) == Copies::first);
}

TEST_CASE("copies with one first reader form a group, what only computes stays", "[pipelines]") {
  std::vector<std::string> notes;
  const ir::Kernel kernel =
      pipeline([](Builder& k, const Ref& x, const Ref& a, const Ref& b, Value i) {
        k.copy(x(i), a);                                                           // 0
        k.copy(x(i), b);                                                           // 1
        k.parallel({64}, [&](Value c) { k.assume(a(c) < 1.0f && b(c) < 1.0f); });  // 2
      });
  // Nothing may write what is copied ahead.
  const std::vector<CopyGroup> groups = groups_of(kernel, notes);
  REQUIRE(groups.size() == 1);
  CHECK(groups[0].consumer == 2);
  CHECK(groups[0].producers.size() == 2);
  CHECK(notes.size() == 2);
}

TEST_CASE("a copy of what the loop writes, or of a tile with another writer, stays in its round",
          "[pipelines]") {
  std::vector<std::string> notes;
  const ir::Kernel writes_source =
      pipeline([](Builder& k, const Ref& x, const Ref& a, const Ref&, Value i) {
        k.copy(x(i), a);
        k.parallel({64}, [&](Value c) { x(i, c) = a(63 - c); });
      });
  CHECK(groups_of(writes_source, notes).empty());
  REQUIRE(notes.size() == 1);
  notes.clear();
  const ir::Kernel two_writers =
      pipeline([](Builder& k, const Ref& x, const Ref& a, const Ref& b, Value i) {
        k.copy(x(i), a);
        k.parallel({64}, [&](Value c) { b(c) = a(63 - c); });
        k.fill(a, 0.0f);
      });
  CHECK(groups_of(two_writers, notes).empty());
}

TEST_CASE("first copies pass what computes, not what they use or what writes memory",
          "[pipelines]") {
  Builder k("first");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {64});
  auto n = k.dim("n");
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  auto frag = k.fragment(DType::f32, {64}, "frag");
  auto at = k.let("at", n * 2);                                  // 0
  k.fill(frag, 0.0f);                                            // 1
  k.parallel({64}, [&](Value i) { frag(i) = frag(i) + 1.0f; });  // 2
  k.copy(x.tile({at}, {64}), tile);                              // 3
  k.copy(frag, y);                                               // 4
  k.copy(x.tile({at}, {64}), tile);                              // 5
  const ir::Kernel kernel = k.finish();
  const auto before = [&](size_t end) {
    return ir::Body(kernel.body.begin(), kernel.body.begin() + static_cast<std::ptrdiff_t>(end));
  };
  CHECK(earliest_place(before(3), kernel.body[3]) == 2);  // nothing is won by passing the fill
  CHECK(earliest_place(before(5), kernel.body[5]) == 5);
  CHECK(place_behind_loads(kernel.body, 1) == 6);
  CHECK(place_behind_loads(before(3), 1) == 1);
}
