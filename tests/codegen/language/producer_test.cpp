// Pipelined loops with a producer: a role of its own makes the copies, and the results are those of the plain loop.

#include <algorithm>
#include <functional>
#include <optional>
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

constexpr auto kI32 = DType::i32;
constexpr auto kF32 = DType::f32;
constexpr auto kBf16 = DType::bf16;
constexpr int64_t kColumns = 64;

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

PipelineOptions with_producer(int stages) {
  return {.stages = stages, .producer = true};
}

/// out = the kernel's result under one schedule of the roles, with all traps.
void run(const codegen::Program& program, const std::vector<const HostTensor*>& tensors,
         const std::vector<int64_t>& scalars, uint32_t schedule) {
  std::vector<codegen::cpu::Argument> arguments;
  for (const HostTensor* tensor : tensors) arguments.push_back({.tensor = tensor->view()});
  for (const int64_t scalar : scalars) arguments.push_back({.integer = scalar});
  codegen::cpu::Options options;
  options.traps = true;
  options.schedule = schedule;
  codegen::cpu::Executable(program).run(arguments, options);
}

/// y[r] = the sum of x[i, 63 - r] over i in begin .. tiles: each thread reads what another has copied.
ir::Kernel sum_of_tiles(PipelineOptions options, int64_t begin, int threads = 64) {
  Builder k("sum_of_tiles");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", kI32, {tiles, kColumns});
  auto y = k.output("y", kI32, {kColumns});
  k.launch({1}, {.threads = threads});
  auto tile = k.shared(kI32, {kColumns}, "tile");
  auto sum = k.fragment(kI32, {kColumns}, "sum");
  k.fill(sum, 0);
  k.pipelined(begin, tiles - 1, options, [&](Value i) {
    k.copy(x(i), tile);
    k.parallel({kColumns}, [&](Value r) { sum(r) += tile(63 - r); });
  });
  k.copy(sum, y);
  return k.finish();
}

}  // namespace

TEST_CASE("a load role gives the sums of a serial loop for any depth and trip count",
          "[language][producer][slow]") {
  const int stages = GENERATE(2, 3, 4, 5, 6, 7, 8);
  const int64_t begin = GENERATE(0, 2);
  const bool in_place = GENERATE(false, true);
  PipelineOptions options = with_producer(stages);
  options.in_place = in_place;
  const ir::Kernel kernel = sum_of_tiles(options, begin);
  for (const int64_t end : {0, 1, 2, 3, 7, 8, 17}) {
    CAPTURE(stages, begin, in_place, end);
    const HostTensor x = iota(kI32, {end + 1, kColumns});
    HostTensor y(kI32, {kColumns});
    run_kernel(kernel, {&x, &y});
    CHECK_THAT(y, HasValues([&](int64_t r) {
                 double want = 0;
                 for (int64_t i = begin; i < end; ++i) want += x.value(i * kColumns + 63 - r);
                 return want;
               }));
  }
}

TEST_CASE("the block of a kernel with a load role has one more warp", "[language][producer]") {
  for (const int threads : {32, 64, 256, 992}) {
    CAPTURE(threads);
    const codegen::Program program = codegen::lower(sum_of_tiles(with_producer(2), 0, threads));
    CHECK(program.threads == threads + 32);
    const auto& roles = std::get<codegen::RoleBodies>(program.body.back().node).roles;
    REQUIRE(roles.size() == 2);
    CHECK(roles[0].name == "compute");
    CHECK(roles[0].threads.first == 0);
    CHECK(roles[0].threads.count == threads);
    CHECK(roles[1].name == "load");
    CHECK(roles[1].threads.first == threads);
    CHECK(roles[1].threads.count == 32);
  }
}

namespace {

/// The work of a block of example 03, with edges.
struct Gemm {
  PipelineOptions pipeline = {.stages = 3};
  int64_t rows = 64, columns = 64, step = 32;
  int threads = 128;
  ir::Engine engine = ir::Engine::automatic;
  bool is_persistent = false;
  DType dtype = kBf16;

  ir::Kernel kernel() const {
    Builder k("gemm");
    // Rows of whole 16 bytes, which tensor copies need.
    auto m = k.dim("m"), n = k.dim("n"), depth = k.dim("depth", {.multiple_of = 8});
    auto a = k.input("a", dtype, {m, depth}), b = k.input("b", dtype, {n, depth});
    auto c = k.output("c", kF32, {m, n});
    auto down = ceil_div(m, rows), across = ceil_div(n, columns);
    const dsl::BlockIndex at = is_persistent ? k.launch({2}, {.threads = threads})
                                             : k.launch({across, down}, {.threads = threads});
    auto a_tile = k.shared(dtype, {rows, step}, "a_tile");
    auto b_tile = k.shared(dtype, {columns, step}, "b_tile");
    auto c_tile = k.shared(kF32, {rows, columns}, "c_tile");
    auto sum = k.fragment(kF32, {rows, columns}, "sum");
    const auto one = [&](const Value& row, const Value& column) {
      k.fill(sum, 0.0f);
      k.pipelined(0, ceil_div(depth, step), pipeline, [&](Value s) {
        const dsl::CopyOptions by = {.engine = engine};
        k.copy(a.tile({row * rows, s * step}, {rows, step}), a_tile, by);
        k.copy(b.tile({column * columns, s * step}, {columns, step}), b_tile, by);
        k.gemm(a_tile, b_tile.transposed(), sum);
      });
      k.copy(sum, c_tile);
      k.copy(c_tile, c.tile({row * rows, column * columns}, {rows, columns}));
    };
    if (is_persistent) {
      k.persistent({down, across}, one, {.group = 2});
    } else {
      one(at.y, at.x);
    }
    return k.finish();
  }

  /// Sums of such values are exact.
  HostTensor operand(int64_t rows_of_it, int64_t depth) const {
    return tensor_by(dtype, {rows_of_it, depth},
                     [](int64_t i) { return static_cast<double>(i * 2654435761 % 31 - 15) / 8; });
  }
  HostTensor result(Target target, int64_t m, int64_t n, int64_t depth, uint32_t schedule) const {
    const HostTensor a = operand(m, depth), b = operand(n, depth);
    HostTensor c(kF32, {m, n});
    run(codegen::lower(kernel(), target), {&a, &b, &c}, {m, n, depth}, schedule);
    return c;
  }
};

struct Extents {
  int64_t m, n, depth;
};
constexpr Extents kExtents[] = {{64, 64, 8}, {64, 64, 96}, {70, 40, 72}, {1, 70, 136}};

void check_gemm(Gemm gemm, Target target) {
  for (const Extents& e : kExtents) {
    Gemm plain = gemm;
    plain.pipeline.producer = false;
    const HostTensor want = plain.result(target, e.m, e.n, e.depth, 0);
    for (const uint32_t schedule : {0u, 1u}) {
      CAPTURE(e.m, e.n, e.depth, schedule);
      CHECK_THAT(gemm.result(target, e.m, e.n, e.depth, schedule), EqualsBits(want));
    }
  }
}

}  // namespace

TEST_CASE("a product with a load role has the bits of the plain pipeline (W43)",
          "[language][producer][gemm][slow]") {
  Gemm gemm;
  gemm.pipeline = with_producer(GENERATE(2, 3, 4));
  gemm.is_persistent = GENERATE(false, true);
  gemm.engine = GENERATE(ir::Engine::automatic, ir::Engine::tensor);
  CAPTURE(gemm.pipeline.stages, gemm.is_persistent, ir::name(gemm.engine));
  check_gemm(gemm, {});                             // mma.sync, pieces
  check_gemm(gemm, parse_target("sm_90").value());  // mma.sync
  check_gemm(gemm, kSm90a);                         // wgmma
}

TEST_CASE("a product of 8-bit floats and one of two groups have a load role",
          "[language][producer][gemm][slow]") {
  Gemm gemm;
  gemm.pipeline = with_producer(3);
  gemm.rows = 128;
  gemm.step = 64;
  gemm.threads = 256;
  check_gemm(gemm, kSm90a);
  gemm.dtype = DType::e4m3;
  gemm.step = 128;
  for (const int64_t depth : {int64_t{16}, int64_t{400}}) {
    Gemm plain = gemm;
    plain.pipeline.producer = false;
    CHECK_THAT(gemm.result(kSm90a, 100, 70, depth, 1),
               EqualsBits(plain.result(kSm90a, 100, 70, depth, 0)));
  }
}

TEST_CASE("a product with a load role is the product, on a GPU too",
          "[language][producer][gemm][slow]") {
  Gemm gemm;
  gemm.pipeline = with_producer(3);
  gemm.engine = GENERATE(ir::Engine::automatic, ir::Engine::tensor);
  gemm.is_persistent = GENERATE(false, true);
  gemm.rows = gemm.columns = 128;
  gemm.step = 64;
  gemm.threads = 256;
  CAPTURE(ir::name(gemm.engine), gemm.is_persistent);
  for (const Extents& e : {Extents{128, 256, 64}, Extents{130, 140, 200}}) {
    const HostTensor a = gemm.operand(e.m, e.depth), b = gemm.operand(e.n, e.depth);
    HostTensor c(kF32, {e.m, e.n});
    run_kernel(gemm.kernel(), {&a, &b, &c});
    CHECK_THAT(c, HasValues([&](int64_t i) {
                 double want = 0;
                 for (int64_t d = 0; d < e.depth; ++d) {
                   want += a.value(i / e.n * e.depth + d) * b.value(i % e.n * e.depth + d);
                 }
                 return want;
               }));
  }
}

TEST_CASE("NVRTC takes a product with a load role for every target",
          "[language][producer][gemm][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  Gemm gemm;
  gemm.pipeline = with_producer(4);
  gemm.rows = 128;
  gemm.threads = GENERATE(128, 256);
  gemm.engine = GENERATE(ir::Engine::automatic, ir::Engine::tensor);
  gemm.is_persistent = GENERATE(false, true);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(target, gemm.threads, ir::name(gemm.engine), gemm.is_persistent);
    const std::string text =
        codegen::cuda::emit(codegen::lower(gemm.kernel(), parse_target(target).value())).text;
    const Compiled compiled = nvrtc->compile(text, target);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}

TEST_CASE("the load role gives registers to those that multiply", "[language][producer][gemm]") {
  const auto roles = [](const Gemm& gemm, const char* target) {
    const codegen::Program program = codegen::lower(gemm.kernel(), parse_target(target).value());
    const auto& both = std::get<codegen::RoleBodies>(program.body.back().node).roles;
    return std::vector<int>{program.threads, both[0].registers, both[1].registers};
  };
  Gemm gemm;
  gemm.pipeline = with_producer(2);
  gemm.rows = 128;
  gemm.threads = 256;
  CHECK(roles(gemm, "sm_90a") == std::vector<int>{384, 232, 40});  // 40 + 232 + 232 = 504
  gemm.engine = ir::Engine::tensor;
  CHECK(roles(gemm, "sm_90a") == std::vector<int>{384, 240, 24});
  CHECK(roles(gemm, "sm_90") == std::vector<int>{288, 0, 0});
  CHECK(roles(gemm, "sm_120a") == std::vector<int>{288, 0, 0});
  gemm.threads = 128;  // has all that a thread can have
  CHECK(roles(gemm, "sm_90a") == std::vector<int>{160, 0, 0});
  gemm.threads = 384;
  gemm.rows = 192;
  CHECK(roles(gemm, "sm_90a") == std::vector<int>{512, 160, 32});
  gemm.engine = ir::Engine::automatic;  // 40 + 3 * 152: no more than 416 threads have at launch
  CHECK(roles(gemm, "sm_90a") == std::vector<int>{416, 0, 0});
  // A sum needs no registers.
  const codegen::Program sum = codegen::lower(sum_of_tiles(with_producer(2), 0, 256), kSm90a);
  CHECK(sum.threads == 288);
}

namespace {

/// Persistent or serial loops, conditions, loads and two pipelined loops around the copies.
struct Nest {
  PipelineOptions pipeline = {.stages = 3};
  bool is_persistent = true;
  bool has_condition = false, has_else = false, loads_rows = false, unrolls = false, twice = false;
  bool gathers = false, waits = false, assumes = false;

  /// y[t] = the sum over s of x[row, 63 - c], where row is t * most + s, or row_of[t, s].
  ir::Kernel kernel() const {
    Builder k("nest");
    auto tiles = k.dim("tiles"), most = k.dim("most");
    auto steps = k.input("steps", kI32, {tiles});
    auto row_of = k.input("row_of", kI32, {tiles, most});
    auto x = k.input("x", kI32, {tiles * most, kColumns});
    auto y = k.output("y", kI32, {tiles, kColumns});
    const dsl::BlockIndex at = k.launch({2}, {.threads = 64});
    auto tile = k.shared(kI32, {1, kColumns}, "tile"),
         other = k.shared(kI32, {1, kColumns}, "other");
    auto third = k.shared(kI32, {1, kColumns}, "third");
    auto turned = k.shared(kI32, {kColumns}, "turned");
    if (waits) k.wait_for_previous_kernel();
    const auto sums = [&](const Value& t, const Value& end, const Ref& into, const Ref& by) {
      k.pipelined(0, end, pipeline, [&](Value s) {
        if (gathers) {
          k.copy(x.rows(row_of(t).tile({s}, {1})), by);
        } else {
          Value row = k.let("row", t * most + s);
          if (loads_rows) row = k.let("row", max(min(row_of(t, s), tiles * most - 1), 0));
          k.copy(x.tile({row, 0}, {1, kColumns}), by);
        }
        k.parallel({kColumns}, [&](Value c) { into(c) += by(0, kColumns - 1 - c); });
      });
    };
    const auto one = [&](const Value& t) {
      auto sum = k.fragment(kI32, {kColumns}, "sum");
      k.fill(sum, 0);
      const Value end = k.let("end", steps(t));
      if (assumes) k.assume(end <= most);
      const auto both = [&] {
        sums(t, end, sum, tile);
        if (twice) sums(t, end, sum, other);
      };
      if (has_condition) {
        k.if_else(end % 2 == 0, both, [&] {
          if (has_else) sums(t, min(end, 1), sum, third);
        });
      } else if (unrolls) {
        k.unrolled(2, [&](Value) { sums(t, end, sum, tile); });
      } else {
        both();
      }
      k.copy(sum, turned);
      k.parallel({kColumns}, [&](Value c) { y(t, c) = turned(c ^ 1); });
    };
    if (is_persistent) {
      k.persistent({tiles}, [&](Value t) { one(t); });
    } else {
      k.serial(
          at.x, tiles, [&](Value t) { one(t); }, 2);
    }
    return k.finish();
  }

  void check(int64_t tiles, int64_t most) const {
    CAPTURE(tiles, most, is_persistent, has_condition, has_else, loads_rows, unrolls, twice,
            gathers);
    const HostTensor steps =
        tensor_by(kI32, {tiles}, [&](int64_t t) { return t * 5 % (most + 1); });
    const HostTensor row_of =
        tensor_by(kI32, {tiles, most}, [&](int64_t i) { return (i * 7 + 3) % (tiles * most); });
    const HostTensor x =
        tensor_by(kI32, {tiles * most, kColumns}, [](int64_t i) { return i * 2654435761 % 10007; });
    HostTensor y(kI32, {tiles, kColumns});
    run_kernel(kernel(), {&steps, &row_of, &x, &y});
    CHECK_THAT(y, HasValues([&](int64_t i) {
                 const int64_t t = i / kColumns, c = i % kColumns ^ 1;
                 auto end = static_cast<int64_t>(steps.value(t));
                 double times = unrolls || (twice && !has_condition) ? 2 : 1;
                 if (has_condition && end % 2 == 0 && twice) times = 2;
                 if (has_condition && end % 2 != 0) end = has_else ? std::min<int64_t>(end, 1) : 0;
                 double want = 0;
                 for (int64_t s = 0; s < end; ++s) {
                   const int64_t at = t * most + s;
                   const auto row =
                       loads_rows || gathers ? static_cast<int64_t>(row_of.value(at)) : at;
                   want += times * x.value(row * kColumns + kColumns - 1 - c);
                 }
                 return want;
               }));
  }
};

}  // namespace

TEST_CASE("a load role runs the loops and conditions around its copies",
          "[language][producer][slow]") {
  Nest nest;
  nest.pipeline = with_producer(GENERATE(2, 3));
  nest.is_persistent = GENERATE(false, true);
  const int form = GENERATE(0, 1, 2, 3, 4, 5, 6, 7);
  nest.has_condition = form == 1 || form == 2 || form == 5;
  nest.has_else = form == 2 || form == 5;
  nest.unrolls = form == 3;
  nest.twice = form == 4 || form == 5;
  nest.loads_rows = form == 6 || form == 5;
  nest.gathers = form == 7;
  nest.waits = nest.assumes = form % 2 == 1;
  for (const int64_t tiles : {1, 2, 7}) {
    for (const int64_t most : {1, 6}) nest.check(tiles, most);
  }
}

TEST_CASE("a load role waits for the kernel before", "[language][producer]") {
  Nest nest;
  nest.pipeline = with_producer(2);
  nest.waits = true;
  CHECK(count(cuda_text(nest.kernel()), "wait_for_previous_kernel();") == 2);
  nest.waits = false;
  CHECK(count(cuda_text(nest.kernel()), "wait_for_previous_kernel();") == 0);
}

namespace {

/// y[r, c] = the sum over i of weight * (x[i, c] + 1) and of z[i, c], which is converted.
ir::Kernel with_scalar_fills(PipelineOptions options) {
  Builder k("scalar_fills");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", kF32, {tiles, kColumns}), z = k.input("z", kBf16, {tiles, kColumns});
  auto y = k.output("y", kF32, {kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(kF32, {kColumns}, "tile"), ones = k.shared(kF32, {kColumns}, "ones");
  auto wide = k.shared(kF32, {kColumns}, "wide");
  auto sum = k.fragment(kF32, {kColumns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, tiles, options, [&](Value i) {
    k.copy(x(i), tile);
    k.fill(ones, 1.0f);
    k.copy(z(i), wide);
    k.parallel({kColumns}, [&](Value c) {
      const Value staged = tile(63 - c), one = ones(c ^ 1), converted = wide(kColumns - 1 - c);
      sum(c) += staged + one + converted;
    });
  });
  k.copy(sum, y);
  return k.finish();
}

}  // namespace

TEST_CASE("scalar fills and copies that convert stay with the threads of the launch (W43)",
          "[language][producer]") {
  for (const int64_t tiles : {1, 3, 9}) {
    CAPTURE(tiles);
    const HostTensor x = iota(kF32, {tiles, kColumns});
    const HostTensor z = tensor_by(kBf16, {tiles, kColumns}, [](int64_t i) { return i % 50; });
    HostTensor y(kF32, {kColumns});
    run_kernel(with_scalar_fills(with_producer(3)), {&x, &z, &y});
    CHECK_THAT(y, HasValues([&](int64_t c) {
                 double want = 0;
                 for (int64_t i = 0; i < tiles; ++i) {
                   want += x.value(i * kColumns + 63 - c) + 1 + z.value(i * kColumns + 63 - c);
                 }
                 return want;
               }));
  }
  const std::string text = codegen::explain(with_scalar_fills(with_producer(3)));
  INFO(text);
  CHECK(has(text, "copy x -> tile: by the load role, 3 stages"));
  CHECK(has(text, "copy z -> wide: not ahead: it converts"));
  CHECK(has(text, "role 'compute': warps 0 to 1\n"));
  CHECK(has(text, "role 'load': warps 2 to 2\n"));
  CHECK(has(text, "ring 0: 3 stages of 256 bytes, filled by 'load' in pieces, taken by 'compute'"));
}

TEST_CASE("what a reader of the copies defines is used after the take", "[language][producer]") {
  Builder k("defines");
  auto tiles = k.dim("tiles");
  auto x = k.input("x", kI32, {tiles, kColumns});
  auto y = k.output("y", kI32, {tiles, kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(kI32, {kColumns}, "tile"), late = k.shared(kI32, {kColumns}, "late");
  k.pipelined(0, tiles, with_producer(2), [&](Value i) {
    k.copy(x(i), tile);
    const Value first = k.uniform(tile(3));  // read by the take, used after the last reader
    k.copy(x(tiles - 1 - i), late);
    const dsl::Reducer total = k.reducer(dsl::ReduceOp::sum, kI32, {1}, {}, "total");
    total.init();
    k.parallel({kColumns}, [&](Value c) { total.update(0, late(c)); });
    const Value sum = total.finalize();
    k.sync();
    k.parallel({kColumns}, [&](Value c) { y(i, c) = first + sum + c; });
  });
  const HostTensor x_in = iota(kI32, {5, kColumns});
  HostTensor out(kI32, {5, kColumns});
  run_kernel(k.finish(), {&x_in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               const int64_t row = i / kColumns;
               double want = x_in.value(row * kColumns + 3) + static_cast<double>(i % kColumns);
               for (int64_t c = 0; c < kColumns; ++c) want += x_in.value((4 - row) * kColumns + c);
               return want;
             }));
}

TEST_CASE("a copy under a condition fills a stage or leaves it", "[language][producer]") {
  Builder k("sometimes");
  auto tiles = k.dim("tiles");
  auto flags = k.input("flags", kI32, {tiles});
  auto x = k.input("x", kI32, {tiles, kColumns});
  auto y = k.output("y", kI32, {kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(kI32, {kColumns}, "tile");
  auto sum = k.fragment(kI32, {kColumns}, "sum");
  k.fill(sum, 0);
  k.pipelined(0, tiles, with_producer(3), [&](Value i) {
    const Value flag = k.let("flag", flags(i));
    const Value some = flag > 0;
    k.if_(some, [&] { k.copy(x(i), tile); });
    k.if_(some, [&] { k.parallel({kColumns}, [&](Value r) { sum(r) += tile(63 - r); }); });
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  CHECK(has(codegen::explain(kernel), "copy x -> tile: by the load role, 3 stages"));
  for (const int64_t count : {1, 4, 11}) {
    const HostTensor flag = tensor_by(kI32, {count}, [](int64_t i) { return i * 5 % 3; });
    const HostTensor from = iota(kI32, {count, kColumns});
    HostTensor to(kI32, {kColumns});
    run_kernel(kernel, {&flag, &from, &to});
    CHECK_THAT(to, HasValues([&](int64_t r) {
                 double want = 0;
                 for (int64_t i = 0; i < count; ++i) {
                   if (flag.value(i) > 0) want += from.value(i * kColumns + 63 - r);
                 }
                 return want;
               }));
  }
}

namespace {

using Part = codegen::Array::RingPart;

/// The executor's verdict on sums of 9 tiles with a load role, once `plant` has changed the program.
std::string trap_of(const std::function<void(codegen::Program&)>& plant, uint32_t schedule) {
  const HostTensor x = iota(kI32, {9, kColumns});
  HostTensor y(kI32, {kColumns});
  codegen::Program program = codegen::lower(sum_of_tiles(with_producer(2), 0));
  plant(program);
  return error_of([&] { run(program, {&x, &y}, {9}, schedule); });
}

/// Leaves out the waits or arrivals of one part of the ring.
template <class Statement>
std::string trap_without(Part part, uint32_t schedule) {
  const auto is_left_out = [&](const codegen::Stmt& stmt) {
    const auto* found = std::get_if<Statement>(&stmt.node);
    return found != nullptr && found->at.array->ring_part == part;
  };
  return trap_of(
      [&](codegen::Program& program) {
        codegen::walk(program.body, [&](codegen::Stmt& stmt) {
          codegen::for_each_body(stmt,
                                 [&](codegen::Body& body) { std::erase_if(body, is_left_out); });
        });
      },
      schedule);
}

/// Moves the arrival of the take up to its wait: the stage is given back before it is read.
void give_back_early(codegen::Program& program) {
  const auto holds = [](const codegen::Stmt& stmt, auto is) { return codegen::any_in(stmt, is); };
  const auto waits = [](const codegen::Stmt& stmt) {
    return std::holds_alternative<codegen::MbarrierWait>(stmt.node);
  };
  const auto arrives = [](const codegen::Stmt& stmt) {
    return std::holds_alternative<codegen::MbarrierArrive>(stmt.node);
  };
  auto& roles = std::get<codegen::RoleBodies>(program.body.back().node).roles;
  bool found = false;
  codegen::walk(roles[0].body, [&](codegen::Stmt& stmt) {
    auto* loop = std::get_if<codegen::For>(&stmt.node);
    if (loop == nullptr || found) return;
    codegen::Body& body = loop->body;
    const auto wait = std::find_if(body.begin(), body.end(), waits);
    if (wait == body.end()) return;
    const auto arrive = std::find_if(
        wait, body.end(), [&](const codegen::Stmt& inner) { return holds(inner, arrives); });
    REQUIRE(arrive != body.end());
    std::rotate(wait + 1, arrive, arrive + 1);
    found = true;
  });
  REQUIRE(found);
}

}  // namespace

TEST_CASE("the executor names a load role whose ring is broken, with both lines",
          "[language][producer]") {
  bool is_early = false, is_late = false;
  for (uint32_t schedule = 0; schedule < 16; ++schedule) {
    CAPTURE(schedule);
    CHECK(trap_of([](codegen::Program&) {}, schedule) == "");
    const std::string early = trap_without<codegen::MbarrierWait>(Part::full, schedule);
    CHECK(early != "");
    is_early = is_early || (has(early, "[RING_EARLY]") && count(early, "producer_test.cpp:") >= 2);
    const std::string phase = trap_without<codegen::MbarrierWait>(Part::empty, schedule);
    CHECK(has(phase, "[SIGNAL_PHASE]"));
    CHECK(count(phase, "producer_test.cpp:") >= 2);
    for (const Part part : {Part::full, Part::empty}) {
      const std::string endless = trap_without<codegen::MbarrierArrive>(part, schedule);
      CHECK(has(endless, "[DEADLOCK]"));
      CHECK(has(endless, "'load' (producer_test.cpp:"));
      CHECK(has(endless, "'compute' (producer_test.cpp:"));
    }
    const std::string late = trap_of(give_back_early, schedule);
    CHECK(late != "");
    is_late = is_late || (has(late, "[RING_LATE]") && count(late, "producer_test.cpp:") >= 2);
  }
  CHECK(is_early);
  CHECK(is_late);
}
