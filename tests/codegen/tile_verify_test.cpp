// Programs that the verifier of the tile IR refuses, one kernel per rule.

#include "codegen/lower.h"
#include "codegen/passes/expand_tiles.h"
#include "codegen/passes/pipeline_loops.h"
#include "codegen/passes/solve_layouts.h"
#include "codegen/tile_ir/effects.h"
#include "codegen/verify/layouts.h"
#include "codegen/verify/tile_ir.h"
#include "dsl/builder.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::codegen;
using dsl::Builder;
using dsl::Value;

namespace {

std::string complaint(const ir::Kernel& kernel, const TileExpectations& expected = {}) {
  return test::error_of([&] { verify(kernel, expected, "a_pass"); });
}
bool has(const std::string& text, const std::string& words) {
  return text.find("after a_pass: " + words) != std::string::npos;
}

template <class Node>
Node& node_at(ir::Body& body, size_t i) {
  return std::get<Node>(body.at(i).node);
}
/// A copy that a test may change.
template <class T>
std::shared_ptr<T> changed(const std::shared_ptr<const T>& from) {
  return std::make_shared<T>(*from);
}

/// y = x, through a fragment, one loop that doubles it and one reduction of it.
ir::Kernel sample() {
  Builder k("sample");
  auto x = k.input("x", DType::f32, {8, 64});
  auto y = k.output("y", DType::f32, {8, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {8, 64}, "tile");
  auto sum = k.fragment(DType::f32, {8}, "sum");
  k.copy(x, tile);                                                                 // 0
  k.parallel({8, 64}, [&](Value i, Value j) { tile(i, j) = tile(i, j) * 2.0f; });  // 1
  k.reduce_sum(tile, sum, dsl::Axis(1));                                           // 2
  k.copy(tile, y);                                                                 // 3
  return k.finish();
}

/// An asynchronous copy 0, its commit 1, its wait 2, and what reads it.
ir::Kernel async_sample() {
  Builder k("async_sample");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {64}, "tile");
  const auto token = k.copy_async(x, tile);
  k.wait(token);
  k.copy(tile, y);
  return k.finish();
}

/// A reducer: opened 0, updated in the loop 1, finalized 2.
ir::Kernel reducer_sample() {
  Builder k("reducer_sample");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {1});
  k.launch({1}, {.threads = 64});
  auto sum = k.reducer(dsl::ReduceOp::sum, DType::f32);
  sum.init();
  k.parallel({64}, [&](Value i) { sum.update(x(i)); });
  const Value total = sum.finalize();
  k.parallel({1}, [&](Value) { y(0) = total; });
  return k.finish();
}

}  // namespace

TEST_CASE("a mark that ends elsewhere than it begins is refused", "[verify]") {
  Builder k("marked");
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  k.mark("outer", [&] {                              // 0, 4
    k.mark("inner", [&] { y(k.thread()) = 0.0f; });  // 1, 3
  });
  const ir::Kernel kernel = k.finish();
  CHECK(complaint(kernel).empty());
  ir::Kernel crossed = kernel;
  std::swap(crossed.body[3], crossed.body[4]);
  CHECK(has(complaint(crossed), "a mark ends in the body where it begins, after those inside it"));
  ir::Kernel open = kernel;
  open.body.pop_back();
  CHECK(has(complaint(open), "a mark ends in the body where it begins"));
}

TEST_CASE("the verifier of the tile IR takes what the builder records", "[verify]") {
  CHECK(complaint(sample()).empty());
  CHECK(complaint(async_sample()).empty());
  CHECK(complaint(reducer_sample()).empty());
}

TEST_CASE("a variable of another body is refused in the tile IR", "[verify]") {
  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  const ir::VarRef index = loop.vars[0];
  node_at<ir::Copy>(kernel.body, 3).from.offsets[0] = ir::var(index);
  CHECK(has(complaint(kernel), "a variable is defined before it is used: i in i"));
}

TEST_CASE("two variables or two buffers with one number are refused", "[verify]") {
  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  auto twin = changed(loop.vars[1]);
  twin->id = loop.vars[0]->id;
  loop.vars[1] = twin;
  CHECK(has(complaint(kernel), "a variable has a number of its own: i and j"));
  twin->id = kernel.num_vars;
  CHECK(has(complaint(kernel), "variables are numbered below num_vars: j"));

  kernel = sample();
  auto buffer = changed(kernel.tensors[1]);
  buffer->id = node_at<ir::Copy>(kernel.body, 3).from.buffer->id;
  node_at<ir::Copy>(kernel.body, 3).to.buffer = buffer;
  CHECK(has(complaint(kernel), "a buffer has a number of its own: tile and y"));
  buffer->id = kernel.num_buffers;
  CHECK(has(complaint(kernel), "buffers are numbered below num_buffers: y"));
}

TEST_CASE("an atomic load without order waits for nothing", "[verify]") {
  Builder k("wait");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  k.wait_until(y(0), 1);
  ir::Kernel kernel = k.finish();
  CHECK(complaint(kernel).empty());
  auto& wait = node_at<ir::Atomic>(node_at<ir::If>(kernel.body, 0).then, 0);
  wait.order = ir::MemoryOrder::relaxed;
  CHECK(has(complaint(kernel), "an ordered atomic load waits for a condition of its value: y"));
  wait.value = ir::constant(DType::i32, 1);
  CHECK(has(complaint(kernel), "an atomic has a value unless it loads: y"));
}

TEST_CASE("one loop in two places is refused", "[verify]") {
  ir::Kernel kernel = sample();
  kernel.body.push_back(kernel.body[1]);
  CHECK(has(complaint(kernel), "a loop has a number of its own: i"));
}

TEST_CASE("a tensor that the kernel does not declare is refused", "[verify]") {
  ir::Kernel kernel = sample();
  kernel.tensors.pop_back();
  CHECK(has(complaint(kernel), "a buffer is a tensor, or a view that has begun: y"));
}

TEST_CASE("a tile in registers or shared memory has constant extents", "[verify]") {
  ir::Kernel kernel = sample();
  auto& copy = node_at<ir::Copy>(kernel.body, 3);
  auto tile = changed(copy.from.buffer);
  tile->id = kernel.num_buffers++;
  tile->shape[0] = ir::var(kernel.thread);
  copy.from.buffer = tile;
  CHECK(has(complaint(kernel), "a buffer on chip has constant extents: tile"));
}

TEST_CASE("a store to an input tensor is refused", "[verify]") {
  ir::Kernel kernel = sample();
  node_at<ir::Copy>(kernel.body, 3).to.buffer = kernel.tensors[0];
  CHECK(has(complaint(kernel), "nothing writes an input tensor: x"));
}

TEST_CASE("an access with too few indices, or a fraction as index, is refused", "[verify]") {
  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  auto& load = node_at<ir::ElementLoad>(loop.body, 0);
  const ir::Expr last = load.indices[1];
  load.indices.pop_back();
  CHECK(has(complaint(kernel), "an access has one index per dimension: tile"));
  load.indices.push_back(ir::cast(DType::f32, last));
  CHECK(has(complaint(kernel), "an index is an integer: cast<f32>(j)"));
}

TEST_CASE("a region that names a dimension twice is refused", "[verify]") {
  ir::Kernel kernel = sample();
  node_at<ir::Copy>(kernel.body, 3).from.order = {0, 0};
  CHECK(has(complaint(kernel), "a region names the dimensions of its shape once: tile"));
  node_at<ir::Copy>(kernel.body, 3).from.extents.pop_back();
  CHECK(has(complaint(kernel), "a region has an extent or an index per dimension: tile"));
}

TEST_CASE("sides of different shapes are refused", "[verify]") {
  ir::Kernel kernel = sample();
  node_at<ir::Copy>(kernel.body, 3).from.extents[1] = ir::index(32);
  CHECK(has(complaint(kernel), "both sides of a copy have one shape: tile -> y"));
  node_at<ir::Copy>(kernel.body, 3).from.extents[1] = ir::var(kernel.thread);
  CHECK(has(complaint(kernel), "a tile has constant extents: tile"));

  kernel = sample();
  node_at<ir::Reduce>(kernel.body, 2).axis = 0;
  CHECK(has(complaint(kernel), "a reduction keeps the other axes: tile -> sum"));
  node_at<ir::Reduce>(kernel.body, 2).axis = 2;
  CHECK(has(complaint(kernel), "a reduction has an axis: tile"));
  node_at<ir::Reduce>(kernel.body, 2).axis = 1;
  auto tile = changed(node_at<ir::Reduce>(kernel.body, 2).from.buffer);
  tile->space = ir::Space::shared;
  node_at<ir::Reduce>(kernel.body, 2).from.buffer = tile;
  CHECK(has(complaint(kernel), "reductions and products are fragments: tile"));
}

TEST_CASE("operands of a matrix product that do not meet are refused", "[verify]") {
  Builder k("product");
  k.launch({1}, {.threads = 32});
  auto a = k.shared(DType::bf16, {16, 32}, "a");
  auto b = k.shared(DType::bf16, {32, 8}, "b");
  auto c = k.fragment(DType::f32, {16, 8}, "c");
  k.fill(a, 0.0f);
  k.fill(b, 0.0f);
  k.fill(c, 0.0f);
  k.gemm(a, b, c);
  const ir::Kernel sound = k.finish();
  CHECK(complaint(sound).empty());
  ir::Kernel kernel = sound;
  node_at<ir::Gemm>(kernel.body, 3).b = node_at<ir::Gemm>(kernel.body, 3).a;
  CHECK(has(complaint(kernel), "operands of a matrix product are [m, k] and [k, n]: a, a"));
  kernel = sound;
  node_at<ir::Gemm>(kernel.body, 3).c.extents[0] = ir::index(8);
  CHECK(has(complaint(kernel), "a matrix product is [m, n], or [depths, m, n]: c"));
}

TEST_CASE("values of another dtype than their place are refused in the tile IR", "[verify]") {
  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  node_at<ir::ElementStore>(loop.body, 1).value = ir::index(1);
  CHECK(has(complaint(kernel), "a store has the dtype of its buffer: 1 into tile"));

  kernel = sample();
  auto& body = node_at<ir::Loop>(kernel.body, 1).body;
  auto var = changed(node_at<ir::ElementLoad>(body, 0).var);
  var->type = DType::bf16;
  node_at<ir::ElementLoad>(body, 0).var = var;
  CHECK(has(complaint(kernel), "a load has the dtype of its buffer: tile_value"));

  kernel = sample();
  var->id = kernel.num_vars++;
  kernel.body.push_back({ir::Let{var, ir::index(1)}, {}});
  CHECK(has(complaint(kernel), "a value has the dtype of its name: tile_value"));
  kernel.body.back() = {ir::If{ir::index(1), {}, {}}, {}};
  CHECK(has(complaint(kernel), "a condition is boolean: 1"));
}

TEST_CASE("a tile operation that not all threads reach is refused", "[verify]") {
  ir::Kernel kernel = sample();
  ir::Stmt copy = kernel.body.back();
  kernel.body.back() = {ir::If{ir::var(kernel.thread) < ir::index(3), {copy}, {}}, {}};
  CHECK(has(complaint(kernel), "a statement of the block stands under no condition on the thread"));

  kernel = sample();
  node_at<ir::Loop>(kernel.body, 1).body.push_back(copy);
  CHECK(has(complaint(kernel, {.are_layouts_solved = true}),
            "a statement of the block stands outside of parallel loops"));
  const ir::Expr always = ir::constant(DType::boolean, 1);
  node_at<ir::Loop>(kernel.body, 1).body.back() = {ir::Return{always}, {}};
  CHECK(has(complaint(kernel), "no iteration of a parallel loop leaves the kernel"));
}

TEST_CASE("a reducer out of order is refused", "[verify]") {
  ir::Kernel kernel = reducer_sample();
  kernel.body.erase(kernel.body.begin());
  CHECK(has(complaint(kernel), "a reducer is open: reducer"));

  kernel = reducer_sample();
  kernel.body.insert(kernel.body.begin(), kernel.body[0]);
  CHECK(has(complaint(kernel), "a reducer is opened once: reducer"));

  kernel = reducer_sample();
  node_at<ir::ReducerFinalize>(kernel.body, 2).op = ir::ReduceOp::max;
  CHECK(has(complaint(kernel), "a reducer has one operation: reducer"));

  kernel = reducer_sample();
  kernel.body.resize(2);
  CHECK(has(complaint(kernel), "a reducer is finalized in the body that opens it"));

  kernel = reducer_sample();
  auto& update = node_at<ir::Loop>(kernel.body, 1).body.back();
  kernel.body.insert(kernel.body.begin() + 2, update);
  node_at<ir::ReducerUpdate>(kernel.body, 2).value = ir::float_constant(DType::f32, 1);
  CHECK(has(complaint(kernel), "a reducer is updated in a parallel loop: reducer"));
}

TEST_CASE("asynchronous copies without a commit, and waits without one, are refused", "[verify]") {
  ir::Kernel kernel = async_sample();
  const ir::Stmt commit = kernel.body[1];
  kernel.body.erase(kernel.body.begin() + 1);
  CHECK(has(complaint(kernel), "a wait for a group comes after its commit"));
  node_at<ir::AsyncWait>(kernel.body, 1).group = -1;
  CHECK(has(complaint(kernel), "asynchronous copies are committed before a wait"));
  kernel.body.erase(kernel.body.begin() + 1);
  CHECK(has(complaint(kernel), "asynchronous copies are committed before the end"));

  kernel = async_sample();
  node_at<ir::Copy>(kernel.body, 0).to.buffer = kernel.tensors[1];
  CHECK(has(complaint(kernel), "an asynchronous copy goes from global to shared memory: x -> y"));
  kernel = async_sample();
  auto wide = changed(node_at<ir::Copy>(kernel.body, 0).to.buffer);
  wide->id = kernel.num_buffers++;
  wide->dtype = DType::i32;
  node_at<ir::Copy>(kernel.body, 0).to.buffer = wide;
  CHECK(has(complaint(kernel), "an asynchronous copy converts nothing: x -> tile"));

  // The second round waits for what the first has started.
  kernel = async_sample();
  ir::Loop loop;
  loop.kind = ir::LoopKind::serial;
  auto index = changed(kernel.thread);
  index->id = kernel.num_vars++;
  loop.vars = {index};
  loop.begin = ir::index(0);
  loop.extents = {ir::index(2)};
  loop.step = ir::index(1);
  ir::Stmt wait = kernel.body[2];
  std::get<ir::AsyncWait>(wait.node).group = -1;
  loop.body = {wait, kernel.body[0]};
  kernel.body = {{loop, {}}, commit};
  CHECK(has(complaint(kernel), "asynchronous copies are committed before a wait"));
}

TEST_CASE("a loop that does not move on, or whose extents vary, is refused", "[verify]") {
  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  loop.step = ir::index(0);
  CHECK(has(complaint(kernel), "the step of a loop is positive: i"));
  loop.step = ir::index(1);
  loop.extents[0] = ir::var(kernel.thread);
  CHECK(has(complaint(kernel), "a parallel loop has constant extents: i"));
  loop.extents.pop_back();
  CHECK(has(complaint(kernel), "a loop has one index per extent: i"));
}

TEST_CASE("what a pass promises to remove is refused after it", "[verify]") {
  CHECK(has(complaint(sample(), {.are_tiles_expanded = true}), "copies and fills are loops: tile"));
  CHECK(complaint(expand_tiles(sample()), {.are_tiles_expanded = true}).empty());

  ir::Kernel kernel = sample();
  auto& loop = node_at<ir::Loop>(kernel.body, 1);
  loop.kind = ir::LoopKind::pipelined;
  loop.vars.pop_back();
  loop.extents.pop_back();
  CHECK(has(complaint(kernel, {.are_loops_serial = true}), "no loop is pipelined: i"));
  loop.kind = ir::LoopKind::serial;
  loop.across = true;
  CHECK(has(complaint(kernel), "only a pipelined loop goes across another: i"));
  loop.across = false;
  loop.producer = true;
  CHECK(has(complaint(kernel), "only a pipelined loop has a producer, until roles are split: i"));
  loop.kind = ir::LoopKind::pipelined;
  CHECK_FALSE(has(complaint(kernel), "a producer"));
  CHECK(has(complaint(kernel, {.are_roles_split = true}),
            "only a pipelined loop has a producer, until roles are split: i"));
}

TEST_CASE("a layout plan that does not fit its kernel is refused", "[verify]") {
  ir::Kernel kernel = expand_tiles(sample());
  const LayoutSolution sound = solve_layouts(kernel);
  const auto plan_complaint = [&](const LayoutSolution& plan) {
    return test::error_of([&] { verify_layouts(kernel, plan, "a_pass"); });
  };
  CHECK(plan_complaint(sound).empty());
  const int loop = loop_id(node_at<ir::Loop>(kernel.body, 1));
  const int fragment = sound.fragments.begin()->first;

  LayoutSolution plan = sound;
  plan.fragments.erase(fragment);
  CHECK(has(plan_complaint(plan), "a fragment has a layout: tile"));
  plan.fragments.emplace(fragment, layout::split({8, 32}, 64, 1));
  CHECK(has(plan_complaint(plan), "a layout has the shape of what it lays out: tile"));
  plan.fragments.at(fragment) = layout::split({8, 64}, 128, 1);
  CHECK(has(plan_complaint(plan),
            "a layout needs at most the threads that hold it: tile: 128 of 64"));
  plan.fragments.at(fragment) = layout::Layout({8, 64}, {});
  CHECK(has(plan_complaint(plan), "a layout gives no register to two elements: tile"));

  plan = sound;
  plan.loops.erase(loop);
  CHECK(has(plan_complaint(plan), "a parallel loop has a layout: i"));
  plan = sound;
  plan.loops.at(loop).vector = 3;
  CHECK(has(plan_complaint(plan), "the vector width of a loop divides its last extent: i by 3"));
  plan = sound;
  plan.loops.at(loop).copies = Copies::none;
  plan.loops.at(loop).layout = layout::replicated({8, 64}, 64);
  CHECK(has(plan_complaint(plan), "an iteration that must run once has one thread: i"));
}
