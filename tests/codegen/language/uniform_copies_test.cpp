// Tensor copies and tensor stores at places and under conditions that k.uniform vouches for, or that a wait for a signal
// gives.

#include <functional>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kRows = 16, kColumns = 64, kTiles = 5;
const dsl::CopyOptions kByTensor{.engine = ir::Engine::tensor};

/// Values of run time in a kernel: `table` has the tiles to copy, 3 1 4 0 2; `signals` and `counter` are zeros.
struct Source {
  Builder& k;
  Ref table, signals, counter;
};
/// Records the number of the tile of round `i`.
using Draw = std::function<Value(const Source& from, const Value& i)>;
struct Origin {
  std::string name;
  Draw draw;
};

Value by_one_thread(const Source& from, const std::function<Value()>& value) {
  auto cell = from.k.shared(DType::i32, {1}, "cell");
  from.k.if_(from.k.thread() % 32 == 0, [&] { cell(0) = value(); });
  return from.k.uniform(cell(0));
}

/// Each kind of value of run time that all threads of a block, or of a role of one warp, have in common.
std::vector<Origin> origins() {
  return {
      {"a variable",
       [](const Source& from, const Value& i) {
         auto tile = from.k.var(DType::i32, 0, "tile");
         from.k.if_(i >= 0, [&] { tile = from.table(i); });
         return from.k.uniform(tile);
       }},
      {"a variable that all threads set",
       [](const Source& from, const Value& i) {
         auto tile = from.k.var(DType::i32, 7, "tile");
         tile = from.table(i);
         return from.k.let("number", tile);
       }},
      {"an element of shared memory",
       [](const Source& from, const Value& i) {
         return by_one_thread(from, [&] { return from.k.let("drawn", from.table(i)); });
       }},
      {"an atomic",
       [](const Source& from, const Value&) {
         return by_one_thread(from, [&] {
           const Value turn = from.k.atomic_fetch_add(from.counter(0), 1);
           return from.k.let("drawn", from.table(turn));
         });
       }},
      {"a shuffle of an atomic",
       [](const Source& from, const Value&) {
         auto turn = from.k.var(DType::i32, 0, "turn");
         from.k.if_(from.k.lane() == 0,
                    [&] { turn = from.k.atomic_fetch_add(from.counter(0), 1); });
         const Value drawn = from.k.uniform(from.k.shuffle(turn, 0));
         return from.k.let("tile", from.table(drawn % kTiles));
       }},
      {"a wait for a signal",
       [](const Source& from, const Value& i) {
         const Value tile = from.k.let("tile", from.table(i));
         from.k.signal(from.signals(i), tile);
         return from.k.wait_until(from.signals(i), tile);
       }},
  };
}

HostTensor tiles_input() {
  return tensor_by(DType::bf16, {kTiles * kRows, kColumns},
                   [](int64_t i) { return static_cast<double>(i % 251); });
}

/// Runs a kernel with the parameters x, table, signals, counter and y, lowered for sm_90a, and checks that y is x with its
/// tiles in the order of the table.
void check_order(const ir::Kernel& kernel) {
  const std::vector<int> order = {3, 1, 4, 0, 2};
  const codegen::Program program = codegen::lower(kernel, kSm90a);
  for (const uint32_t schedule : {0U, 1U, 2U}) {
    const HostTensor x = tiles_input();
    const HostTensor table =
        tensor_by(DType::i32, {kTiles}, [&](int64_t i) { return order[static_cast<size_t>(i)]; });
    const HostTensor signals = tensor_by(DType::i32, {kTiles}, [](int64_t) { return -1; });
    const HostTensor counter = tensor_by(DType::i32, {1}, [](int64_t) { return 0; });
    const HostTensor y(DType::bf16, {kTiles * kRows, kColumns});
    std::vector<codegen::cpu::Argument> arguments;
    for (const HostTensor* tensor : {&x, &table, &signals, &counter, &y})
      arguments.push_back({.tensor = tensor->view()});
    codegen::cpu::Executable(program).run(arguments, all_traps(kSm90a, schedule));
    CAPTURE(schedule);
    CHECK_THAT(y, HasValues([&](int64_t i) {
                 const int64_t tile = i / (kRows * kColumns), rest = i % (kRows * kColumns);
                 return x.value(order[static_cast<size_t>(tile)] * kRows * kColumns + rest);
               }));
  }
}

using Record = std::function<void(Builder& k, const Source& from, const Ref& x, const Ref& y)>;
ir::Kernel kernel_of(int threads, const Record& record) {
  Builder k("uniform_copies");
  auto x = k.input("x", DType::bf16, {kTiles * kRows, kColumns});
  auto table = k.input("table", DType::i32, {kTiles});
  auto signals = k.output("signals", DType::i32, {kTiles});
  auto counter = k.output("counter", DType::i32, {1});
  auto y = k.output("y", DType::bf16, {kTiles * kRows, kColumns});
  k.launch({1}, {.threads = threads});
  record(k, {k, table, signals, counter}, x, y);
  return k.finish();
}

Ref tile_of(const Ref& tensor, const dsl::Arg& tile) {
  return tensor.tile({tile.value() * kRows, 0}, {kRows, kColumns});
}

/// One role fills a ring by tensor copies of the tiles that `draw` names, another stores them in order.
ir::Kernel ring_kernel(const Draw& draw, bool under_condition) {
  return kernel_of(96, [&](Builder& k, const Source& from, const Ref& x, const Ref& y) {
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(DType::bf16, {kRows, kColumns}, "tile");
    const auto load = [&] {
      k.loop([&](const Value& i) {
        if (!under_condition) k.break_if(i >= kTiles);
        const Value next = draw(from, under_condition ? min(i, kTiles - 1) : i);
        if (under_condition) k.break_if(next < 0 || i >= kTiles);
        ring.fill([&] { k.copy(tile_of(x, next), tile, kByTensor); });
      });
    };
    const auto store = [&] {
      k.serial(0, kTiles,
               [&](const Value& i) { ring.take([&] { k.copy(tile, tile_of(y, i), kByTensor); }); });
    };
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "store", .warps = 2, .body = store}});
  });
}

}  // namespace

TEST_CASE("a role copies the tile that a value of run time names", "[language][roles]") {
  for (const Origin& origin : origins()) {
    INFO(origin.name);
    const ir::Kernel kernel = ring_kernel(origin.draw, false);
    CHECK(count_in<codegen::TensorCopy>(kernel) == 1);
    check_order(kernel);
  }
}

TEST_CASE("a role ends its loop of tensor copies by a value of run time", "[language][roles]") {
  for (const Origin& origin : origins()) {
    if (origin.name.find("atomic") != std::string::npos) continue;  // draws once too often
    INFO(origin.name);
    check_order(ring_kernel(origin.draw, true));
  }
}

TEST_CASE("a role leaves its loop of tensor copies inside of a condition", "[language][roles]") {
  check_order(kernel_of(96, [](Builder& k, const Source& from, const Ref& x, const Ref& y) {
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(DType::bf16, {kRows, kColumns}, "tile");
    const auto load = [&] {
      auto copied = k.var(DType::i32, 0, "copied");
      k.loop([&](const Value& i) {
        k.if_(i > 1, [&] { k.break_if(copied >= kTiles); });
        const Value number = k.let("number", from.table(copied));
        ring.fill([&] { k.copy(tile_of(x, number), tile, kByTensor); });
        copied += 1;
      });
    };
    const auto store = [&] {
      k.serial(0, kTiles,
               [&](const Value& i) { ring.take([&] { k.copy(tile, tile_of(y, i), kByTensor); }); });
    };
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "store", .warps = 2, .body = store}});
  }));
}

TEST_CASE("a tensor copy where a variable may differ between threads is refused with the remedy") {
  const auto refusal = [](bool as_condition, bool in_loop) {
    const ir::Kernel kernel =
        kernel_of(64, [&](Builder& k, const Source&, const Ref&, const Ref& y) {
          auto tile = k.shared(DType::bf16, {kRows, kColumns}, "tile");
          auto mine = k.var(DType::i32, 0, "mine");
          if (in_loop) {
            k.serial(0, k.thread(), [&](const Value&) { mine = 1; });
          } else {
            k.if_(k.thread() == 3, [&] { mine = 1; });
          }
          const Value seen = k.let("seen", mine);
          const auto store = [&](const dsl::Arg& at) { k.copy(tile, tile_of(y, at), kByTensor); };
          if (as_condition) {
            k.if_(seen > 0, [&] { store(0); });
          } else {
            store(seen);
          }
        });
    return error_of([&] { codegen::lower(kernel, kSm90a); });
  };
  for (const bool in_loop : {false, true}) {
    const std::string place = refusal(false, in_loop), condition = refusal(true, in_loop);
    CAPTURE(place, condition);
    CHECK(place.find("  expected  coordinates that are the same for all threads\n"
                     "  got       seen * 16\n"
                     "  hint      vouch for it by k.uniform\n") != std::string::npos);
    CHECK(condition.find("  expected  a copy that all threads come to\n"
                         "  got       the condition '0 < seen', which may differ between threads "
                         "(uniform_copies_test.cpp:") != std::string::npos);
    CHECK(condition.find(
              "  hint      copy outside of it, or vouch for the condition by k.uniform\n") !=
          std::string::npos);
  }
}

TEST_CASE("a block stores the tile that a value of run time names by a tensor store") {
  for (const Origin& origin : origins()) {
    INFO(origin.name);
    // x(i) goes to the place that brings the tiles into the order of the table.
    check_order(kernel_of(32, [&](Builder& k, const Source& from, const Ref& x, const Ref& y) {
      auto tile = k.shared(DType::bf16, {kRows, kColumns}, "tile");
      k.serial(0, kTiles, [&](const Value& i) {
        const Value number = origin.draw(from, i);
        k.copy(tile_of(x, number), tile);
        const Value go = k.uniform(number >= 0);
        k.if_(go, [&] { k.copy(tile, tile_of(y, i), kByTensor); });
      });
    }));
  }
}

TEST_CASE("a pipelined loop copies ahead from the place that a uniform value names") {
  const ir::Kernel kernel =
      kernel_of(64, [](Builder& k, const Source& from, const Ref& x, const Ref& y) {
        auto cell = k.shared(DType::i32, {kTiles}, "cell");
        k.if_(k.thread() < kTiles, [&] { cell(k.thread()) = from.table(k.thread()); });
        k.serial(0, kTiles, [&](const Value& t) {
          auto tile = k.shared(DType::bf16, {8, kColumns}, "tile");
          const Value first = k.uniform(cell(t) * kRows);
          k.pipelined(0, 2, 2, [&](const Value& i) {
            k.copy(x.tile({first + i * 8, 0}, {8, kColumns}), tile, kByTensor);
            k.copy(tile, y.tile({t * kRows + i * 8, 0}, {8, kColumns}));
          });
        });
      });
  CHECK(count_in<codegen::TensorCopy>(kernel) > 0);
  check_order(kernel);
}

TEST_CASE("a value that k.uniform vouches for wrongly stops the executor before the tensor copy") {
  const auto trap_of = [](bool in_role) {
    const ir::Kernel kernel =
        kernel_of(96, [&](Builder& k, const Source&, const Ref& x, const Ref& y) {
          auto ring = k.ring({.stages = 1});
          auto tile = ring.shared(DType::bf16, {kRows, kColumns}, "tile");
          const auto varying = [&] { return k.uniform(k.thread() / 48); };
          const Value outside = in_role ? Value() : varying();
          const auto load = [&] {
            const Value number = in_role ? varying() : outside;
            ring.fill([&] { k.copy(tile_of(x, number), tile, kByTensor); });
          };
          k.roles({{.name = "load", .warps = 2, .body = load},
                   {.name = "store", .warps = 1, .body = [&] {
                      ring.take([&] { k.copy(tile, tile_of(y, 0)); });
                    }}});
        });
    return error_of([&] { check_order(kernel); });
  };
  for (const bool in_role : {false, true}) {
    const std::string text = trap_of(in_role);
    CAPTURE(in_role, text);
    CHECK(text.find("[UNIFORM]") != std::string::npos);
    CHECK(text.find("as in thread 0") != std::string::npos);
  }
}

namespace {

/// y [jobs * 64, 64] = x [jobs * 64, depth] * w[expert of the job]: blocks draw jobs of 64 rows from a counter. Role `draw`
/// hands the number of each job to roles `load` and `multiply` by a ring; -1 ends them.
ir::Kernel dynamic_moe(int64_t depth) {
  constexpr int64_t kTile = 64;
  Builder k("dynamic_moe");
  auto rows = k.dim("rows"), experts = k.dim("experts");
  auto x = k.input("x", DType::bf16, {rows, depth});
  auto w = k.input("w", DType::bf16, {experts, depth, kTile});
  auto expert_of = k.input("expert_of", DType::i32, {ceil_div(rows, kTile)});
  auto counter = k.output("counter", DType::i32, {1});
  auto y = k.output("y", DType::f32, {rows, kTile});
  k.launch({2}, {.threads = 32 + 32 + 128});
  auto numbers = k.ring({.stages = 2}), operands = k.ring({.stages = 3});
  auto number = numbers.shared(DType::i32, {1}, "number");
  auto a = operands.shared(DType::bf16, {kTile, kTile}, "a");
  auto b = operands.shared(DType::bf16, {kTile, kTile}, "b");
  const auto draw = [&] {
    k.loop([&](const Value&) {
      auto drawn = k.var(DType::i32, 0, "drawn");
      k.if_(k.lane() == 0, [&] { drawn = k.atomic_fetch_add(counter(0), 1); });
      const Value job = k.let("job", k.uniform(k.shuffle(drawn, 0)));
      const Value is_last = k.let("is_last", job * kTile >= rows);
      numbers.fill([&] { k.fill(number, select(is_last, -1, job)); });
      k.break_if(is_last);
    });
  };
  const auto each_job = [&](const std::function<void(const Value&)>& work) {
    k.loop([&](const Value&) {
      auto taken = k.var(DType::i32, 0, "taken");
      numbers.take([&] { taken = number(0); });
      const Value job = k.let("job", k.uniform(taken));
      k.break_if(job < 0);
      work(job);
    });
  };
  const auto load = [&] {
    each_job([&](const Value& job) {
      const Value expert = k.let("expert", expert_of(job));
      k.serial(0, depth / kTile, [&](const Value& i) {
        operands.fill([&] {
          k.copy(x.tile({job * kTile, i * kTile}, {kTile, kTile}), a, kByTensor);
          k.copy(w.tile({expert, i * kTile, 0}, {1, kTile, kTile}), b, kByTensor);
        });
      });
    });
  };
  const auto multiply = [&] {
    each_job([&](const Value& job) {
      auto sum = k.fragment(DType::f32, {kTile, kTile}, "sum");
      k.fill(sum, 0.0f);
      k.serial(0, depth / kTile, [&](const Value&) { operands.take([&] { k.gemm(a, b, sum); }); });
      k.copy(sum, y.tile({job * kTile, 0}, {kTile, kTile}));
    });
  };
  k.roles({{.name = "draw", .warps = 1, .body = draw},
           {.name = "load", .warps = 1, .body = load},
           {.name = "multiply", .warpgroups = 1, .body = multiply}});
  return k.finish();
}

}  // namespace

TEST_CASE("blocks that draw jobs from a counter multiply by tensor copies and wgmma",
          "[language][roles][wgmma]") {
  constexpr int64_t kJobs = 5, kRowsOfX = kJobs * 64 - 9, kDepth = 128, kExperts = 3;
  const auto number = [](int64_t i) { return static_cast<double>((i * 7 + i / 13) % 5 - 2); };
  const auto expert = [](int64_t job) { return (job * 2 + 1) % kExperts; };
  const ir::Kernel kernel = dynamic_moe(kDepth);
  const codegen::Program program = codegen::lower(kernel, kSm90a);
  CHECK(count_in<codegen::TensorCopy>(program) == 2);
  CHECK(count_in<codegen::Mma>(program) > 0);
  for (const uint32_t schedule : {0U, 1U, 2U}) {
    const HostTensor x = tensor_by(DType::bf16, {kRowsOfX, kDepth}, number);
    const HostTensor w =
        tensor_by(DType::bf16, {kExperts, kDepth, 64}, [&](int64_t i) { return number(i + 3); });
    const HostTensor experts = tensor_by(DType::i32, {kJobs}, expert);
    const HostTensor counter = tensor_by(DType::i32, {1}, [](int64_t) { return 0; });
    const HostTensor y(DType::f32, {kRowsOfX, 64});
    std::vector<codegen::cpu::Argument> arguments;
    for (const HostTensor* tensor : {&x, &w, &experts, &counter, &y})
      arguments.push_back({.tensor = tensor->view()});
    for (const int64_t extent : {kRowsOfX, kExperts}) arguments.push_back({.integer = extent});
    codegen::cpu::Executable(program).run(arguments, all_traps(kSm90a, schedule));
    CAPTURE(schedule);
    CHECK_THAT(y, HasValues([&](int64_t i) {
                 const int64_t row = i / 64, column = i % 64;
                 double sum = 0;
                 for (int64_t d = 0; d < kDepth; ++d) {
                   sum += number(row * kDepth + d) *
                          number((expert(row / 64) * kDepth + d) * 64 + column + 3);
                 }
                 return sum;
               }));
  }
}

TEST_CASE("NVRTC takes the text of tensor copies at uniform places") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (const ir::Kernel& kernel : {dynamic_moe(128), ring_kernel(origins().back().draw, true)}) {
    const Compiled compiled =
        nvrtc->compile(codegen::cuda::emit(codegen::lower(kernel, kSm90a)).text, "sm_90a");
    CAPTURE(kernel.name, compiled.log);
    CHECK(compiled.ok);
  }
}
