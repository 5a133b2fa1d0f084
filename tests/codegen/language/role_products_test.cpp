// Matrix products in roles: by mma.sync and by wgmma, with the bits of a kernel without roles, and the fences
// that wgmma needs.

#include <functional>
#include <set>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "codegen/thread_ir/walk.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/nvrtc.h"
#include "tests/support/random_tensor.h"
#include "tests/support/run_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using test::HostTensor;

constexpr auto kF32 = DType::f32;
constexpr auto kBf16 = DType::bf16;
constexpr int kRows = 128, kColumns = 64, kStep = 64;

/// c [rows, columns] = a [rows, depth] * b [columns, depth] transposed.
struct Product {
  explicit Product(const char* name, int threads) : k(name) {
    depth = k.dim("depth", {.multiple_of = kStep});
    a = k.input("a", kBf16, {kRows, *depth});
    b = k.input("b", kBf16, {kColumns, *depth});
    c = k.output("c", kF32, {kRows, kColumns});
    k.launch({1}, {.threads = threads});
  }
  dsl::Ref tile_of_a(const Value& s) { return a->tile({0, s * kStep}, {kRows, kStep}); }
  dsl::Ref tile_of_b(const Value& s) { return b->tile({0, s * kStep}, {kColumns, kStep}); }
  Value steps() { return *depth / kStep; }

  Builder k;
  std::optional<Value> depth;
  std::optional<dsl::Ref> a, b, c;
};

/// `stores`: the loader computes what it stores (a by -1) and copies b.
ir::Kernel by_roles(int stages, ir::Engine engine = ir::Engine::tensor, bool stores = false) {
  Product p("by_roles", 384);
  Builder& k = p.k;
  auto ring = k.ring({.stages = stages});
  auto a_tile = ring.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = ring.shared(kBf16, {kColumns, kStep}, "b_tile");
  const auto load = [&] {
    k.serial(0, p.steps(), [&](Value s) {
      ring.fill([&] {
        k.copy(p.tile_of_b(s), b_tile, {.engine = engine});
        if (!stores) return k.copy(p.tile_of_a(s), a_tile, {.engine = engine});
        k.parallel({kRows, kStep},
                   [&](Value i, Value j) { a_tile(i, j) = -(*p.a)(i, s * kStep + j); });
      });
    });
  };
  const auto multiply = [&] {
    auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, p.steps(),
             [&](Value) { ring.take([&] { k.gemm(a_tile, b_tile.transposed(), sum); }); });
    k.copy(sum, *p.c);
  };
  k.roles({{.name = "load", .warps = 4, .registers = 40, .body = load},
           {.name = "multiply", .warpgroups = 2, .registers = 232, .body = multiply}});
  return k.finish();
}

ir::Kernel without_roles() {
  Product p("without_roles", 256);
  Builder& k = p.k;
  auto a_tile = k.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = k.shared(kBf16, {kColumns, kStep}, "b_tile");
  auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, p.steps(), 3, [&](Value s) {
    k.copy(p.tile_of_a(s), a_tile);
    k.copy(p.tile_of_b(s), b_tile);
    k.gemm(a_tile, b_tile.transposed(), sum);
  });
  k.copy(sum, *p.c);
  return k.finish();
}

Target sm_90a() {
  return parse_target("sm_90a").value();
}

struct Operands {
  explicit Operands(int64_t d) : depth(d) {
    a = HostTensor(kBf16, {kRows, depth});
    b = HostTensor(kBf16, {kColumns, depth});
    for (int64_t i = 0; i < a.size(); ++i) a.set_value(i, static_cast<double>(i % 23 - 11) / 8);
    for (int64_t i = 0; i < b.size(); ++i) b.set_value(i, static_cast<double>(i % 19 - 9) / 4);
  }
  int64_t depth;
  HostTensor a, b;
};

/// The product as the executor computes it with all traps, by the sums of the hardware.
HostTensor run(const codegen::Program& program, const Operands& from, uint32_t schedule = 0) {
  HostTensor c(kF32, {kRows, kColumns});
  std::vector<codegen::cpu::Argument> arguments(4);
  arguments[0].tensor = from.a.view();
  arguments[1].tensor = from.b.view();
  arguments[2].tensor = c.view();
  arguments[3].integer = from.depth;
  codegen::cpu::Options options;
  options.traps = true;
  options.schedule = schedule;
  codegen::cpu::Executable(program).run(arguments, options);
  return c;
}

}  // namespace

TEST_CASE("a product by roles has the bits of one without", "[language][roles][gemm]") {
  for (const int64_t depth : {64, 192, 448}) {
    const Operands from(depth);
    const HostTensor plain = run(codegen::lower(without_roles(), sm_90a()), from);
    for (const int stages : {1, 2, 3}) {
      CAPTURE(depth, stages);
      for (const ir::Engine engine : {ir::Engine::tensor, ir::Engine::pieces}) {
        const codegen::Program program = codegen::lower(by_roles(stages, engine), sm_90a());
        CHECK(run(program, from).raw() == plain.raw());
      }
      HostTensor c(kF32, {kRows, kColumns});
      test::run_kernel(by_roles(stages), {&from.a, &from.b, &c});  // by mma.sync
      CHECK(c.raw() == plain.raw());
    }
  }
}

TEST_CASE("pieces and tensor copies take turns in one stage of a ring", "[language][roles][gemm]") {
  Product p("in_turns", 384);
  Builder& k = p.k;
  auto ring = k.ring({.stages = 1});
  auto a_tile = ring.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = ring.shared(kBf16, {kColumns, kStep}, "b_tile");
  const auto load = [&] {
    k.serial(0, p.steps(), [&](Value s) {
      ring.fill([&] {
        const auto by = [&](ir::Engine engine) {
          k.copy(p.tile_of_a(s), a_tile, {.engine = engine});
          k.copy(p.tile_of_b(s), b_tile, {.engine = engine});
        };
        k.if_else(
            s % 2 == 0, [&] { by(ir::Engine::pieces); }, [&] { by(ir::Engine::tensor); });
      });
    });
  };
  const auto multiply = [&] {
    auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, p.steps(),
             [&](Value) { ring.take([&] { k.gemm(a_tile, b_tile.transposed(), sum); }); });
    k.copy(sum, *p.c);
  };
  k.roles({{.name = "multiply", .warpgroups = 2, .registers = 232, .body = multiply},
           {.name = "load", .warpgroups = 1, .registers = 40, .body = load}});
  const codegen::Program program = codegen::lower(k.finish(), sm_90a());
  const Operands from(448);
  CHECK(run(program, from).raw() == run(codegen::lower(without_roles(), sm_90a()), from).raw());
}

TEST_CASE("products of the pieces of a step are one group", "[language][roles][gemm]") {
  Product p("of_pieces", 384);
  Builder& k = p.k;
  constexpr int64_t kPiece = kStep / 2;
  std::vector<dsl::Ring> rings;
  std::vector<dsl::Ref> a_tiles, b_tiles;
  for (int i = 0; i < 2; ++i) {
    rings.push_back(k.ring({.stages = 1}));
    a_tiles.push_back(rings.back().shared(kBf16, {kRows, kPiece}, "a_tile"));
    b_tiles.push_back(rings.back().shared(kBf16, {kColumns, kPiece}, "b_tile"));
  }
  const auto load = [&] {
    k.serial(0, p.steps(), [&](Value s) {
      for (size_t i = 0; i < 2; ++i) {
        const Value from = s * kStep + static_cast<int64_t>(i) * kPiece;
        rings[i].fill([&] {
          const dsl::CopyOptions options = {.engine = ir::Engine::tensor};
          k.copy(p.a->tile({0, from}, {kRows, kPiece}), a_tiles[i], options);
          k.copy(p.b->tile({0, from}, {kColumns, kPiece}), b_tiles[i], options);
        });
      }
    });
  };
  const auto multiply = [&] {
    auto sum = k.fragment(kF32, {kRows, kColumns}, "sum");
    k.fill(sum, 0.0f);
    const auto add = [&](size_t i) { k.gemm(a_tiles[i], b_tiles[i].transposed(), sum); };
    k.serial(0, p.steps(), [&](Value) {
      rings[0].take([&] {
        add(0);
        rings[1].take([&] { add(1); });
      });
    });
    k.copy(sum, *p.c);
  };
  k.roles({{.name = "multiply", .warpgroups = 2, .registers = 232, .body = multiply},
           {.name = "load", .warpgroups = 1, .registers = 40, .body = load}});
  const codegen::Program program = codegen::lower(k.finish(), sm_90a());
  int groups = 0;
  codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
    const auto* commit = std::get_if<codegen::Commit>(&stmt.node);
    groups += commit != nullptr && commit->work == codegen::Work::products;
  });
  CHECK(groups == 1);
  const Operands from(448);
  CHECK(run(program, from).raw() == run(codegen::lower(without_roles(), sm_90a()), from).raw());
}

TEST_CASE("a ring of tiles too narrow for asynchronous copies is filled",
          "[language][roles][gemm]") {
  Builder k("narrow_ring");
  auto rows = k.dim("rows"), columns = k.dim("columns"), pitch = k.stride("pitch");
  auto x = k.input("x", kBf16, {rows, columns}, {.strides = {pitch, 1}});
  auto y = k.output("y", kF32, {rows, kStep});
  k.launch({1}, {.threads = 64});
  auto ring = k.ring({.stages = 2});
  auto tile = ring.shared(kBf16, {4, kStep}, "tile");
  const auto each = [&](auto body) { k.serial(0, ceil_div(rows, 4), body); };
  const auto load = [&] {
    each([&](Value s) { ring.fill([&] { k.copy(x.tile({s * 4, 0}, {4, kStep}), tile); }); });
  };
  const auto store = [&] {
    each([&](Value s) { ring.take([&] { k.copy(tile, y.tile({s * 4, 0}, {4, kStep})); }); });
  };
  k.roles(
      {{.name = "load", .warps = 1, .body = load}, {.name = "store", .warps = 1, .body = store}});
  const HostTensor from = test::iota(kBf16, {9, 7});
  HostTensor to(kF32, {9, kStep});
  test::run_kernel(k.finish(), {&from, &to});
  for (int64_t i = 0; i < to.size(); ++i) {
    const int64_t column = i % kStep;
    CHECK(to.value(i) == (column < 7 ? from.value(i / kStep * 7 + column) : 0));
  }
}

TEST_CASE("a fill may store what it computes and copy the rest", "[language][roles][gemm]") {
  const Operands from(192);
  const codegen::Program program = codegen::lower(by_roles(2, ir::Engine::tensor, true), sm_90a());
  const HostTensor plain = run(codegen::lower(without_roles(), sm_90a()), from);
  for (uint32_t schedule = 0; schedule < 4; ++schedule) {
    const HostTensor negative = run(program, from, schedule);
    bool same = true;
    for (int64_t i = 0; i < plain.size(); ++i) {
      same = same && negative.value(i) == -plain.value(i);
    }
    CHECK(same);
  }
}

TEST_CASE("a fill takes the engine that its copies can have", "[language][roles][gemm]") {
  const auto ring = [](const ir::Kernel& kernel, const char* target) {
    const std::string text = codegen::explain(kernel, parse_target(target).value());
    const size_t at = text.find("stages of"), end = text.find('\n', at);
    return text.substr(at, end - at);
  };
  CHECK(ring(by_roles(2), "sm_90a") ==
        "stages of 24576 bytes, filled by 'load' by tensor copies, taken by 'multiply'; 4 arrivals "
        "fill a stage, 8 empty it");
  CHECK(ring(by_roles(2), "sm_80") ==
        "stages of 24576 bytes, filled by 'load' in pieces, taken by 'multiply'; 132 arrivals fill "
        "a stage, 8 empty it");
  CHECK(ring(by_roles(2, ir::Engine::tensor, true), "sm_90a") ==
        "stages of 24576 bytes, filled by 'load' by tensor copies and by stores, taken by "
        "'multiply'; 4 arrivals fill a stage, 8 empty it");
  // Data of the copy engine needs no fence, stores of threads need one.
  const auto fences = [](const ir::Kernel& kernel) {
    return test::count(codegen::cuda::emit_kernel_text(codegen::lower(kernel, sm_90a())),
                       "fence_proxy()");
  };
  CHECK(fences(by_roles(2)) == 1);  // of the mbarriers
  CHECK(fences(by_roles(2, ir::Engine::pieces)) == 2);
}

TEST_CASE("a take without the proxy fence is named", "[language][roles][gemm]") {
  codegen::Program program = codegen::lower(by_roles(2, ir::Engine::pieces), sm_90a());
  codegen::walk(program.body, [](codegen::Stmt& stmt) {
    codegen::for_each_body(stmt, [](codegen::Body& body) {
      std::erase_if(body, [](const codegen::Stmt& inner) { return test::is_proxy_fence(inner); });
    });
  });
  const std::string trap = test::error_of([&] { run(program, Operands(192)); });
  INFO(trap);
  CHECK(trap.find("[PROXY]") != std::string::npos);
  CHECK(trap.find("is read by the tensor cores") != std::string::npos);
  CHECK(test::count(trap, "role_products_test.cpp:") >= 2);  // the product and the copy
}

TEST_CASE("NVRTC takes a product by roles for every target", "[language][roles][gemm][nvrtc]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (const std::string& target : test::kTargets) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(target);
    const std::string text =
        codegen::cuda::emit(codegen::lower(by_roles(3), parse_target(target).value())).text;
    const test::Compiled compiled = nvrtc->compile(text, target);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}

TEST_CASE("checks of a product that is awaited late leave the values of the role alone",
          "[language]") {
  // The product of a turn is awaited after the next turn has begun, when the executor has long left what started it.
  const int turns = GENERATE(1, 2, 4), depth = GENERATE(16, 64);
  constexpr int kRounds = 3, kSize = 64;
  const int64_t total = int64_t{kRounds} * turns;
  Builder k("late");
  auto w = k.input("w", kBf16, {total * depth, kSize}), x = k.input("x", kBf16, {kSize, depth});
  auto y = k.output("y", kF32, {kSize, kSize});
  k.launch({1}, {.threads = 160});
  auto ring = k.ring({.stages = 2});
  auto tile = ring.shared(kBf16, {depth, kSize}, "tile");
  auto still = k.shared(kBf16, {kSize, depth}, "still");
  k.copy(x, still);
  const auto load = [&] {
    k.serial(0, total, [&](Value i) {
      ring.fill([&] { k.copy(w.tile({i * depth, 0}, {depth, kSize}), tile); });
    });
  };
  const auto multiply = [&] {
    std::vector<dsl::Ref> parts;
    for (int i = 0; i < turns; ++i) parts.push_back(k.fragment(kF32, {kSize, kSize}, "part"));
    auto all = k.fragment(kF32, {kSize, kSize}, "all");
    k.fill(all, 0.0f);
    const auto add = [&](int turn) {
      k.parallel({kSize, kSize}, [&](Value r, Value c) {
        all(r, c) = all(r, c) + parts[static_cast<size_t>(turn)](r, c);
      });
    };
    k.serial(0, kRounds, [&](Value) {
      for (int turn = 0; turn < turns; ++turn) {
        ring.take([&] {
          k.fill(parts[static_cast<size_t>(turn)], 0.0f);
          k.gemm(still, tile, parts[static_cast<size_t>(turn)]);
        });
        if (turn > 0) add(turn - 1);
      }
      add(turns - 1);
    });
    k.copy(all, y);
  };
  k.roles({{.name = "multiply", .warpgroups = 1, .body = multiply},
           {.name = "load", .warps = 1, .body = load}});
  HostTensor left(kBf16, {kSize, depth}), right(kBf16, {total * depth, kSize}),
      out(kF32, {kSize, kSize});
  for (int64_t i = 0; i < left.size(); ++i) left.set_value(i, static_cast<double>(i % 5 - 2));
  for (int64_t i = 0; i < right.size(); ++i) right.set_value(i, static_cast<double>(i % 7 - 3));
  std::vector<codegen::cpu::Argument> arguments(3);
  arguments[0].tensor = right.view();
  arguments[1].tensor = left.view();
  arguments[2].tensor = out.view();
  codegen::cpu::Options options;
  options.traps = true;
  codegen::cpu::Executable(codegen::lower(k.finish(), sm_90a())).run(arguments, options);
  int64_t wrong = 0;
  for (int64_t i = 0; i < out.size(); ++i) {
    double sum = 0;
    for (int64_t d = 0; d < total * depth; ++d) {
      sum += left.value(i / kSize * depth + d % depth) * right.value(d * kSize + i % kSize);
    }
    wrong += out.value(i) != sum;
  }
  CHECK(wrong == 0);
}

}  // namespace tessera
