// Pipelined loops whose first copies go across the rounds of the loop around them.

#include <functional>
#include <string>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kColumns = 64;

struct Tiles {
  PipelineOptions pipeline = {.stages = 3, .across = true};
  int64_t blocks = 2;
  bool is_serial = false;  // a serial loop, not a persistent one
  int64_t group = 1;       // of the persistent loop: tiles outside of the grid are left out
  bool loads_rounds = false;
  bool by_bulk = false;
  int64_t begin = 0;  // of the pipelined loop
  bool breaks = false;
  bool in_role = false;  // of one warp
};

/// y[t] = the sum of x[t * steps + s, 63 - c] over the steps of tile t, each tile staged through shared memory.
/// With `loads_rounds` tile t has steps[t] of them.
ir::Kernel sums_of_tiles(const Tiles& options) {
  Builder k("sums_of_tiles");
  auto tiles = k.dim("tiles"), most = k.dim("most");
  auto steps = k.input("steps", DType::i32, {tiles});
  auto x = k.input("x", DType::i32, {tiles, most, kColumns});
  auto y = k.output("y", DType::i32, {tiles, kColumns});
  const dsl::BlockIndex at = k.launch({options.blocks}, {.threads = 64});
  auto tile = k.shared(DType::i32, {kColumns}, "tile");
  auto turned = k.shared(DType::i32, {kColumns}, "turned");
  const auto one = [&](const Value& t) {
    auto sum = k.fragment(DType::i32, {kColumns}, "sum");
    k.fill(sum, 0);
    Value end = most;
    if (options.loads_rounds) end = k.let("end", steps(t));
    k.pipelined(options.begin, end, options.pipeline, [&](Value s) {
      const Ref from = x(t, s);
      k.copy(options.by_bulk ? from.bulk() : from, tile);
      if (options.breaks) k.break_if(s == 3);
      k.parallel({kColumns}, [&](Value c) { sum(c) += tile(kColumns - 1 - c); });
    });
    // An epilogue with shared memory of its own.
    k.copy(sum, turned);
    k.parallel({kColumns}, [&](Value c) { y(t, c) = turned(c ^ 1); });
  };
  if (options.in_role) {
    const auto all = [&] { k.persistent({tiles}, [&](Value t) { one(t); }); };
    k.roles(
        {{.name = "all", .warps = 1, .body = all}, {.name = "none", .warps = 1, .body = [] {}}});
  } else if (options.is_serial) {
    k.serial(
        at.x, tiles, [&](Value t) { one(t); }, options.blocks);
  } else if (options.group > 1) {
    k.persistent({1, tiles}, [&](Value, Value t) { one(t); }, {.group = options.group});
  } else {
    k.persistent({tiles}, [&](Value t) { one(t); });
  }
  return k.finish();
}

void check_sums(const Tiles& options, int64_t tiles, int64_t most) {
  CAPTURE(tiles, most);
  const auto rounds = [&](int64_t t) { return options.loads_rounds ? t * 5 % (most + 1) : most; };
  const HostTensor steps = tensor_by(DType::i32, {tiles}, rounds);
  const HostTensor x = tensor_by(DType::i32, {tiles, most, kColumns},
                                 [](int64_t i) { return i * 2654435761 % 10007; });
  const HostTensor y(DType::i32, {tiles, kColumns});
  run_kernel(sums_of_tiles(options), {&steps, &x, &y});
  CHECK_THAT(y, HasValues([&](int64_t i) {
               const int64_t t = i / kColumns, c = i % kColumns ^ 1;
               double want = 0;
               for (int64_t s = options.begin; s < rounds(t); ++s) {
                 if (options.breaks && s == 3) break;
                 want += x.value((t * most + s) * kColumns + kColumns - 1 - c);
               }
               return want;
             }));
}

constexpr PipelineOptions kAcross = {.stages = 2, .across = true};

}  // namespace

TEST_CASE("first copies across a loop give what serial rounds give", "[language][pipeline][slow]") {
  Tiles options;
  options.pipeline.stages = GENERATE(2, 3, 5);
  options.pipeline.in_place = GENERATE(false, true);
  options.loads_rounds = GENERATE(false, true);  // also 0, and fewer than stages
  options.is_serial = GENERATE(false, true);
  const int64_t tiles = GENERATE(1, 2, 5, 9), most = GENERATE(1, 3, 8);
  CAPTURE(options.pipeline.stages, options.pipeline.in_place, options.loads_rounds,
          options.is_serial);
  check_sums(options, tiles, most);
}

TEST_CASE("first copies go across rounds that a group leaves out", "[language][pipeline]") {
  Tiles options;
  options.group = 4;
  options.loads_rounds = GENERATE(false, true);
  options.blocks = GENERATE(1, 3);
  CAPTURE(options.loads_rounds, options.blocks);
  for (const int64_t tiles : {1, 5, 8, 11}) check_sums(options, tiles, 5);
}

TEST_CASE("bulk copies go across the loop around", "[language][pipeline]") {
  Tiles options;
  options.by_bulk = true;
  options.pipeline.stages = GENERATE(2, 4);
  options.loads_rounds = GENERATE(false, true);
  CAPTURE(options.pipeline.stages, options.loads_rounds);
  for (const int64_t tiles : {1, 2, 7}) check_sums(options, tiles, 6);
}

TEST_CASE("a pipelined loop that begins late or ends early goes across", "[language][pipeline]") {
  Tiles options;
  options.begin = GENERATE(0, 2);
  options.breaks = GENERATE(false, true);
  options.in_role = GENERATE(false, true);
  options.pipeline.stages = GENERATE(2, 4);
  CAPTURE(options.begin, options.breaks, options.in_role, options.pipeline.stages);
  for (const int64_t tiles : {1, 2, 7}) check_sums(options, tiles, 6);
}

namespace {

struct PersistentProduct {
  int64_t tile = 64;
  int threads = 128;
  int64_t group = 1;
  ir::Engine engine = ir::Engine::automatic;
};
constexpr int64_t kRows = 192, kDepth = 128, kStep = 32;

ir::Kernel persistent_product(const PersistentProduct& options) {
  const int64_t tile = options.tile;
  Builder k("persistent_product");
  auto a = k.input("a", DType::bf16, {kRows, kDepth});
  auto b = k.input("b", DType::bf16, {kDepth, kRows});
  auto c = k.output("c", DType::f32, {kRows, kRows});
  k.launch({2}, {.threads = options.threads});
  auto a_tile = k.shared(DType::bf16, {tile, kStep}, "a_tile");
  auto b_tile = k.shared(DType::bf16, {kStep, tile}, "b_tile");
  const auto one = [&](const Value& row, const Value& column) {
    auto sum = k.fragment(DType::f32, {tile, tile}, "sum");
    k.fill(sum, 0);
    k.pipelined(0, kDepth / kStep, {.stages = 3, .across = true}, [&](Value i) {
      k.copy(a.tile({row * tile, i * kStep}, {tile, kStep}), a_tile, {.engine = options.engine});
      k.copy(b.tile({i * kStep, column * tile}, {kStep, tile}), b_tile, {.engine = options.engine});
      k.gemm(a_tile, b_tile, sum);
    });
    k.copy(sum, c.tile({row * tile, column * tile}, {tile, tile}));
  };
  k.persistent({kRows / tile, kRows / tile}, one, {.group = options.group});
  return k.finish();
}

}  // namespace

TEST_CASE("a product's next tile is copied before its epilogue", "[language][pipeline][gemm]") {
  PersistentProduct options;
  options.group = GENERATE(1, 2);
  options.engine = GENERATE(ir::Engine::automatic, ir::Engine::tensor);
  CAPTURE(options.group, name(options.engine));
  const ir::Kernel kernel = persistent_product(options);
  const HostTensor left =
      tensor_by(DType::bf16, {kRows, kDepth}, [](int64_t i) { return i % 7 - 3; });
  const HostTensor right =
      tensor_by(DType::bf16, {kDepth, kRows}, [](int64_t i) { return i % 5 - 2; });
  const auto check = [&](const HostTensor& result) {
    CHECK_THAT(result, HasValues([&](int64_t i) {
                 double want = 0;
                 for (int64_t d = 0; d < kDepth; ++d) {
                   want += left.value(i / kRows * kDepth + d) * right.value(d * kRows + i % kRows);
                 }
                 return want;
               }));
  };
  const HostTensor result(DType::f32, {kRows, kRows});
  run_kernel(kernel, {&left, &right, &result});
  check(result);
  // By wgmma, whose last product is awaited before its tiles are overwritten.
  const HostTensor by_wgmma(DType::f32, {kRows, kRows});
  const codegen::cpu::Executable executable(codegen::lower(kernel, kSm90a));
  const std::vector<codegen::cpu::Argument> arguments = {
      {.tensor = left.view()}, {.tensor = right.view()}, {.tensor = by_wgmma.view()}};
  executable.run(arguments, {.traps = true});
  check(by_wgmma);
}

TEST_CASE("the copies of the next tile stand between the rounds and the epilogue",
          "[language][pipeline]") {
  const ir::Kernel kernel = persistent_product({});
  const std::string text = cuda_text(kernel);
  CAPTURE(text);
  const size_t loop = text.find("for (int tile = "), store = text.find("copy sum -> c");
  REQUIRE(loop != std::string::npos);
  REQUIRE(store != std::string::npos);
  CHECK(count(text.substr(0, loop), "commit_copies();") == 1);
  CHECK(count(text.substr(loop, store - loop), "commit_copies();") == 2);
  CHECK(count(text.substr(store), "commit_copies();") == 0);
  CHECK(codegen::explain(kernel).find("across: the first copies of the next round around are "
                                      "issued behind it") != std::string::npos);
}

TEST_CASE("copies for the next round without a barrier behind the last reads are a race",
          "[language][pipeline][traps]") {
  codegen::Program program = codegen::lower(persistent_product({}), {8, 0, 0});
  int removed = 0;
  const std::function<void(codegen::Body&)> visit = [&](codegen::Body& body) {
    for (size_t i = 0; i + 1 < body.size(); ++i) {
      const auto* wait = std::get_if<codegen::Await>(&body[i].node);
      if (wait == nullptr || wait->pending > 0) continue;
      if (!std::holds_alternative<codegen::Barrier>(body[i + 1].node)) continue;
      body.erase(body.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      ++removed;
    }
    for (codegen::Stmt& stmt : body) codegen::for_each_body(stmt, visit);
  };
  visit(program.body);
  REQUIRE(removed == 1);
  const HostTensor left = iota(DType::bf16, {kRows, kDepth});
  const HostTensor right = iota(DType::bf16, {kDepth, kRows});
  const HostTensor result(DType::f32, {kRows, kRows});
  const std::vector<codegen::cpu::Argument> arguments = {
      {.tensor = left.view()}, {.tensor = right.view()}, {.tensor = result.view()}};
  const std::string error =
      error_of([&] { codegen::cpu::Executable(program).run(arguments, {.traps = true}); });
  CAPTURE(error);
  CHECK(error.find("race on a_tile[") != std::string::npos);
}

TEST_CASE("a loop that is crossed may be entered again, and hold two that cross it",
          "[language][pipeline]") {
  constexpr int64_t kTiles = 3, kPasses = 2;
  Builder k("again");
  auto x = k.input("x", DType::i32, {kTiles, 4, kColumns});
  auto y = k.output("y", DType::i32, {kPasses, kTiles, kColumns});
  k.launch({1}, {.threads = 64});
  auto a = k.shared(DType::i32, {kColumns}, "a");
  auto b = k.shared(DType::i32, {kColumns}, "b");
  auto sum = k.fragment(DType::i32, {kColumns}, "sum");
  const PipelineOptions options = {.stages = GENERATE(2, 3, 4), .across = true};
  k.serial(0, kPasses, [&](Value pass) {
    k.serial(0, kTiles, [&](Value t) {
      k.fill(sum, 0);
      k.pipelined(0, 3, options, [&](Value s) {
        k.copy(x(t, s), a);
        k.parallel({kColumns}, [&](Value c) { sum(c) += a(kColumns - 1 - c); });
      });
      k.pipelined(0, 4, options, [&](Value s) {
        k.copy(x(kTiles - 1 - t, s), b);
        k.parallel({kColumns}, [&](Value c) { sum(c) += 2 * b(kColumns - 1 - c) + pass; });
      });
      k.copy(sum, y(pass, t));
    });
  });
  const HostTensor source = iota(DType::i32, {kTiles, 4, kColumns});
  const HostTensor result(DType::i32, {kPasses, kTiles, kColumns});
  run_kernel(k.finish(), {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               const int64_t pass = i / kColumns / kTiles, t = i / kColumns % kTiles;
               const int64_t c = kColumns - 1 - i % kColumns;
               double want = 0;
               for (int64_t s = 0; s < 4; ++s) {
                 if (s < 3) want += source.value((t * 4 + s) * kColumns + c);
                 want += 2 * source.value(((kTiles - 1 - t) * 4 + s) * kColumns + c);
                 want += static_cast<double>(pass);
               }
               return want;
             }));
}

TEST_CASE("a loop around that ends early waits for the copies that nobody reads",
          "[language][pipeline]") {
  constexpr int64_t kTiles = 6;
  Builder k("early");
  auto x = k.input("x", DType::i32, {kTiles, kColumns});
  auto last = k.input("last", DType::i32, {1});
  auto y = k.output("y", DType::i32, {kTiles, kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {kColumns}, "tile");
  k.serial(0, kTiles, [&](Value t) {
    k.pipelined(0, 1, kAcross, [&](Value) {
      k.copy(x(t).bulk(), tile);
      k.parallel({kColumns}, [&](Value c) { y(t, c) = tile(kColumns - 1 - c); });
    });
    k.break_if(t == last(0));
  });
  const ir::Kernel kernel = k.finish();
  const int64_t stop = GENERATE(0, 3, 9);
  CAPTURE(stop);
  const HostTensor source = iota(DType::i32, {kTiles, kColumns});
  const HostTensor rounds = tensor_by(DType::i32, {1}, [&](int64_t) { return stop; });
  const HostTensor result = tensor_by(DType::i32, {kTiles, kColumns}, [](int64_t) { return -1; });
  run_kernel(kernel, {&source, &rounds, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               const int64_t row = i / kColumns;
               return row > stop ? -1 : row * kColumns + kColumns - 1 - i % kColumns;
             }));
}

TEST_CASE("copies across a loop compile for every target", "[language][pipeline][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  const ir::Kernel kernels[] = {sums_of_tiles({.group = 2, .loads_rounds = true}),
                                sums_of_tiles({.is_serial = true, .by_bulk = true}),
                                persistent_product({.group = 2}),
                                persistent_product({.engine = ir::Engine::tensor})};
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const ir::Kernel& kernel : kernels) {
      const std::string text =
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
      const Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(target, text, compiled.log);
      CHECK(compiled.ok);
    }
  }
}
