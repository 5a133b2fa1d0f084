// The order of tensor stores: in roles, between barriers and signals, and where a kernel waits for them.

#include <functional>

#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_store_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("roles store their tiles by tensor stores, with the bits of stores by threads") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    StagedProduct p;
    p.instruction = ir::Instruction::wgmma;
    p.m = 192;
    p.n = 128;
    p.depth = 96;
    for (const int64_t blocks : {1, 2, 4}) {
      INFO(p.text());
      const ir::Kernel kernel = product_with_stores(p, dtype, blocks);
      const ProductCall call = call_of(p, dtype);
      CHECK(count_in<codegen::TensorStore>(kernel) > 0);
      const HostTensor want = call.run(kernel, kSm90a);
      for (const uint32_t schedule : {1u, 2u, 3u}) {
        CHECK(call.run(kernel, kSm90a, schedule).raw() == want.raw());
      }
      StagedProduct plain = p;
      plain.engine = ir::Engine::pieces;
      if (dtype == DType::f32) {
        CHECK(call.run(product_by_roles(plain), kSm90a).raw() == want.raw());
      }
    }
  }
}

TEST_CASE("a role of one warp stores the tiles of a ring that another one fills") {
  const auto kernel_of = [](bool by_fill) {
    Builder k("store_role");
    auto rows = k.dim("rows");
    auto x = k.input("x", DType::i32, {rows, 64});
    auto y = k.output("y", DType::i32, {rows, 64});
    k.launch({1}, {.threads = 96});
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(DType::i32, {8, 64}, "tile");
    const Value steps = k.let("steps", ceil_div(rows, 8));
    auto compute = [&] {
      auto part = k.fragment(DType::i32, {8, 64}, "part");
      k.serial(0, steps, [&](Value s) {
        k.copy(x.tile({s * 8, 0}, {8, 64}), part);
        ring.fill([&] {
          k.parallel({8, 64}, [&](Value r, Value c) { tile(r, c) = part(r, c) + 1; });
          if (by_fill) k.copy(tile, y.tile({s * 8, 0}, {8, 64}), kByTensor);
        });
      });
    };
    auto store = [&] {
      k.serial(0, steps, [&](Value s) {
        ring.take([&] { k.copy(tile, y.tile({s * 8, 0}, {8, 64}), kByTensor); });
      });
    };
    k.roles({{.name = "compute", .warps = 2, .body = compute},
             {.name = "store", .warps = 1, .body = store}});
    return k.finish();
  };
  const ir::Kernel kernel = kernel_of(false);
  const codegen::Program program = codegen::lower(kernel, kSm90a);
  CHECK(count_in<codegen::TensorStore>(program) == 1);
  CHECK(count_in<codegen::Await>(program) == 1);  // before the stage is free
  CHECK(count_in<codegen::Fence>(program) == 2);  // of the mbarriers, and of the take
  for (const Target target : {kSm90, kSm90a, kSm80}) {
    for (const uint32_t schedule : {0u, 1u, 2u, 3u}) {
      const HostTensor in = iota(DType::i32, {37, 64}), out(DType::i32, {37, 64});
      run_lowered(kernel, {{.tensor = in.view()}, {.tensor = out.view()}, {.integer = 37}}, target,
                  schedule);
      CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));
      CHECK(out.damage().empty());
    }
  }
  const ir::Kernel refused = kernel_of(true);
  const std::string error = error_of([&] { codegen::lower(refused, kSm90a); });
  CHECK(error.find("expected  a take of the ring") != std::string::npos);
  CHECK(error.find("got       a fill") != std::string::npos);
}

TEST_CASE("a role fences and awaits its stores once per tile") {
  const auto count_of = [](const codegen::Program& program, codegen::Order::Kind kind) {
    int64_t count = 0;
    codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
      count += codegen::has_order(stmt, kind, codegen::Work::stores);
    });
    return count;
  };
  StagedProduct p;
  p.instruction = ir::Instruction::wgmma;
  p.threads = 256;
  p.tile_rows = 128;
  const codegen::Program program = codegen::lower(product_with_stores(p, DType::bf16, 2), kSm90a);
  CHECK(count_of(program, codegen::Order::Kind::commit) == 1);
  CHECK(count_of(program, codegen::Order::Kind::await) ==
        2);  // before the tile is written, and at the end
  int64_t fences = 0, barriers = 0;
  codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
    const auto* barrier = std::get_if<codegen::Barrier>(&stmt.node);
    barriers += barrier != nullptr && barrier->is_named() && barrier->threads == 256;
    fences += is_proxy_fence(stmt);
  });
  CHECK(barriers == 2);  // before the tile is written, and before it is stored
  CHECK(fences == 2);    // after the mbarriers of the ring begin, and before the store
}

TEST_CASE("a kernel reads what it has stored after a barrier") {
  for (const Target target : {kSm90a, kSm80}) {
    Builder k("round_trip");
    auto x = k.input("x", DType::i32, {32, 32});
    auto y = k.output("y", DType::i32, {32, 32});
    auto z = k.output("z", DType::i32, {32, 32});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::i32, {32, 32}, "tile");
    k.copy(x, tile);
    k.copy(tile, y, kByTensor);
    k.sync();
    k.parallel({32, 32}, [&](Value r, Value c) { z(r, c) = y(c, r); });
    const ir::Kernel kernel = k.finish();
    const HostTensor in = iota(DType::i32, {32, 32}), out(DType::i32, {32, 32}),
                     back(DType::i32, {32, 32});
    run_lowered(kernel, {{.tensor = in.view()}, {.tensor = out.view()}, {.tensor = back.view()}},
                target);
    CHECK_THAT(out, HasValues([](int64_t i) { return i; }));
    CHECK_THAT(back, HasValues([](int64_t i) { return i % 32 * 32 + i / 32; }));
    run_kernel(kernel, {&in, &out, &back});
  }
}

TEST_CASE("a block reads what another has stored, after a signal") {
  Builder k("relay");
  auto x = k.input("x", DType::i32, {4, 256});
  auto y = k.output("y", DType::i32, {4, 256});
  auto z = k.output("z", DType::i32, {4, 256});
  auto ready = k.output("ready", DType::i32, {4});
  auto at = k.launch({4}, {.threads = 64});
  auto tile = k.shared(DType::i32, {1, 256}, "tile");
  k.copy(x.tile({at.x, 0}, {1, 256}), tile);
  k.copy(tile, y.tile({at.x, 0}, {1, 256}), kByTensor);
  k.signal(ready(at.x), 1);
  k.wait_until(ready(3 - at.x), 1);
  k.parallel({256}, [&](Value c) { z(at.x, c) = y(3 - at.x, c); });
  const ir::Kernel kernel = k.finish();
  CHECK(count_in<codegen::TensorStore>(kernel) == 1);
  const HostTensor in = iota(DType::i32, {4, 256}), out(DType::i32, {4, 256}),
                   back(DType::i32, {4, 256});
  const HostTensor flags = tensor_by(DType::i32, {4}, [](int64_t) { return 0; });
  run_lowered(kernel,
              {{.tensor = in.view()},
               {.tensor = out.view()},
               {.tensor = back.view()},
               {.tensor = flags.view()}},
              kSm90a);
  CHECK_THAT(back, HasValues([](int64_t i) { return (3 - i / 256) * 256 + i % 256; }));
}

TEST_CASE("tensor stores of two blocks to one element race") {
  Builder k("race");
  auto y = k.output("y", DType::i32, {24, 32});
  auto at = k.launch({2}, {.threads = 64});
  auto tile = k.shared(DType::i32, {16, 32}, "tile");
  k.fill(tile, at.x);
  const int line = __LINE__ + 1;
  k.copy(tile, y.tile({at.x * 8, 0}, {16, 32}), kByTensor);
  const ir::Kernel kernel = k.finish();
  const HostTensor out(DType::i32, {24, 32});
  try {
    run_lowered(kernel, {{.tensor = out.view()}}, kSm90a);
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(error.fields().code == "RACE");
    CHECK(error.fields().loc.line == line);
  }
}

TEST_CASE("in manual_sync the author waits for his stores") {
  struct Lines {
    int store = 0, write = 0;
  };
  const auto kernel_of = [](bool waits, Lines& lines) {
    Builder k("manual");
    auto y = k.output("y", DType::i32, {16, 32});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::i32, {16, 32}, "tile");
    k.fill(tile, 1);
    k.manual_sync([&] {
      k.sync();
      lines.store = __LINE__ + 1;
      auto stored = k.copy_async(tile, y);
      if (waits) k.wait_read(stored);
      k.sync();
      lines.write = __LINE__ + 1;
      k.fill(tile, 2);
      k.sync();
    });
    return k.finish();
  };
  Lines lines;
  const HostTensor out(DType::i32, {16, 32});
  run_lowered(kernel_of(true, lines), {{.tensor = out.view()}}, kSm90a);
  CHECK_THAT(out, HasValues([](int64_t) { return 1; }));
  try {
    run_lowered(kernel_of(false, lines), {{.tensor = out.view()}}, kSm90a);
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(error.fields().code == "STORE_BUSY");
    CHECK(error.fields().loc.line == lines.write);
    CHECK(error.fields().related.line == lines.store);
  }
}

TEST_CASE("every wait, fence and barrier of a stored tile is needed") {
  using codegen::Stmt;
  const StoredBoxes boxes;
  const ir::Kernel kernel = stored_boxes_kernel(boxes);
  const auto is_order = [](const Stmt& stmt) {
    return std::holds_alternative<codegen::Await>(stmt.node) ||
           std::holds_alternative<codegen::Fence>(stmt.node) ||
           std::holds_alternative<codegen::Barrier>(stmt.node);
  };
  // Leaves out number `left_out`; returns how many there are.
  const std::function<int(codegen::Body&, int, int)> leave_out = [&](codegen::Body& body,
                                                                     int left_out, int number) {
    codegen::Body kept;
    for (Stmt& stmt : body) {
      codegen::for_each_body(
          stmt, [&](codegen::Body& inner) { number = leave_out(inner, left_out, number); });
      if (!is_order(stmt) || number++ != left_out) kept.push_back(std::move(stmt));
    }
    body = std::move(kept);
    return number;
  };
  std::vector<std::string> traps;
  for (int i = 0, count = 1; i < count; ++i) {
    codegen::Program program = codegen::lower(kernel, kSm90a);
    count = leave_out(program.body, i, 0);
    const HostTensor x = stored_boxes_input(boxes), y = stored_boxes_output(boxes);
    try {
      const codegen::cpu::Executable executable(std::move(program));
      const codegen::cpu::Argument arguments[] = {
          {.tensor = x.view()}, {.tensor = y.view()}, {.integer = 20}, {.integer = 64}};
      executable.run(arguments, {.traps = true});
      traps.emplace_back("none");
    } catch (const Error& error) {
      traps.push_back(error.fields().code);
    }
  }
  // Before the tile is filled: a wait, a barrier. Before it is stored: a fence, a barrier. At the end: a wait.
  CHECK(traps == std::vector<std::string>{"STORE_BUSY", "RACE", "PROXY", "RACE", "STORE_LEFT"});
}

TEST_CASE("a token is waited for, and by threads there is nothing to wait for") {
  const auto kernel_of = [](bool reads) {
    Builder k("tokens");
    auto y = k.output("y", DType::i32, {2, 16, 32});
    auto z = k.output("z", DType::i32, {16, 32});
    k.launch({1}, {.threads = 64});
    auto one = k.shared(DType::i32, {16, 32}, "one"), two = k.shared(DType::i32, {16, 32}, "two");
    k.fill(one, 1);
    k.fill(two, 2);
    auto first = k.copy_async(one, y.tile({0, 0, 0}, {1, 16, 32}));
    auto second = k.copy_async(two, y.tile({1, 0, 0}, {1, 16, 32}));
    reads ? k.wait_read(first) : k.wait(first);
    k.fill(one, 3);
    k.wait(second);
    k.copy(one, z);
    return k.finish();
  };
  for (const bool reads : {false, true}) {
    const ir::Kernel kernel = kernel_of(reads);
    CHECK(count_in<codegen::Await>(codegen::lower(kernel, kSm80)) == 0);
    std::vector<int> pending;
    const codegen::Program program = codegen::lower(kernel, kSm90a);
    codegen::walk(program.body, [&](const codegen::Stmt& stmt) {
      const auto* wait = std::get_if<codegen::Await>(&stmt.node);
      if (wait == nullptr) return;
      pending.push_back(wait->pending);
      CHECK(wait->of_reads == (reads && pending.size() == 1));
    });
    CHECK(pending == std::vector<int>{1, 0});
    for (const Target target : {kSm80, kSm90a}) {
      const HostTensor y(DType::i32, {2, 16, 32}), z(DType::i32, {16, 32});
      run_lowered(kernel, {{.tensor = y.view()}, {.tensor = z.view()}}, target);
      CHECK_THAT(y, HasValues([](int64_t i) { return i < 512 ? 1 : 2; }));
      CHECK_THAT(z, HasValues([](int64_t) { return 3; }));
    }
  }
}
