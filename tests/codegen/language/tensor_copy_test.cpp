// Tile programs with tensor copies: what they copy, which copies become tensor copies, and what is refused.

#include "codegen/cuda/emit.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_copy_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// y of the boxes; `counts` gets those of the run.
HostTensor copied(const Boxes& boxes, Target target, codegen::cpu::Counts* counts = nullptr) {
  const HostTensor x = boxes_input(boxes);
  HostTensor y = boxes_output(boxes);
  std::vector<codegen::cpu::Argument> arguments = {{.tensor = x.view()}, {.tensor = y.view()}};
  for (const int64_t extent : boxes.shape) arguments.push_back({.integer = extent});
  run_lowered(boxes_kernel(boxes), arguments, target, 0, counts);
  return y;
}

void check_boxes(const Boxes& boxes) {
  INFO(boxes.text());
  CHECK(count_in<codegen::TensorCopy>(boxes_kernel(boxes)) > 0);
  const HostTensor x = boxes_input(boxes);
  for (const Target target : {kSm90a, kSm120a, kSm80}) {
    const HostTensor y = copied(boxes, target);
    CHECK_THAT(y, HasValues([&](int64_t i) { return boxes_value(boxes, x, i); }));
  }
}

/// A pipelined loop that copies rows of 64 bf16 of x [rows, columns] from `first_column` on.
struct Case {
  int64_t multiple_of = 64;  // of the columns
  int64_t align = 16;
  int64_t box_rows = 16, box_columns = 64;
  int64_t first_column = 0;
  float outside = 0;
  bool is_output = false, is_optional = false, is_part = false;
  DType tile = DType::bf16;
  ir::CacheHint hint = ir::CacheHint::none;
};

ir::Kernel kernel_of(const Case& c) {
  Builder k("engine");
  auto rows = k.dim("rows"), columns = k.dim("columns", {.multiple_of = c.multiple_of});
  auto x =
      k.input("x", DType::bf16, {rows, columns}, {.align = c.align, .optional = c.is_optional});
  auto y = k.output("y", c.tile, {c.box_rows, c.box_columns});
  k.launch({1}, {.threads = 64});
  const int64_t spare = c.is_part ? 1 : 0;
  auto tile = k.shared(c.tile, {c.box_rows + spare, c.box_columns}, "tile");
  auto part = tile.tile({spare, 0}, {c.box_rows, c.box_columns});
  k.pipelined(0, 2, 2, [&](Value i) {
    const auto copy = [&] {
      k.copy(x.tile({i * c.box_rows, c.first_column}, {c.box_rows, c.box_columns}).cached(c.hint),
             part, {.outside = c.outside, .engine = ir::Engine::tensor});
    };
    if (c.is_optional) {
      k.if_present(x, copy);
      k.if_present(x, [&] { k.copy(part, y); });
    } else {
      copy();
      k.copy(part, y);
    }
  });
  return k.finish();
}

std::string refusal(const Case& c) {
  return error_of([&] { codegen::lower(kernel_of(c), kSm90a); });
}

}  // namespace

TEST_CASE("a tensor copy moves boxes of every dtype, with zeros outside") {
  for (const BoxWalk& walk : walks_of_dtypes()) check_boxes({walk});
}

TEST_CASE("a tensor copy moves boxes of 1 to 5 dimensions") {
  for (const BoxWalk& walk : walks_of_ranks()) check_boxes({walk});
  for (const BoxWalk& walk : walks_from_before()) check_boxes({walk});
}

TEST_CASE("tensor copies ahead by 1 to 4 iterations copy the same") {
  for (const int stages : {2, 3, 4, 5}) {
    for (const int64_t steps : {1, 2, 3, 7}) {
      Boxes boxes;
      boxes.stages = stages;
      boxes.steps = steps;
      boxes.threads = stages == 2 ? 32 : 96;
      check_boxes(boxes);
    }
  }
}

TEST_CASE("a tensor without elements is zeros in every box") {
  for (const BoxWalk& walk : walks_of_nothing()) check_boxes({walk});
}

TEST_CASE("tensor copies count the bytes that are inside of the tensor") {
  Boxes boxes;  // 3 boxes of 8 x 32 of 20 rows
  codegen::cpu::Counts counts;
  copied(boxes, kSm90a, &counts);
  CHECK(counts.global_load_bytes == 20 * 32 * 2);
  CHECK(counts.global_load_requests == 3);
  CHECK(counts.global_load_sectors == 20 * 2);
}

TEST_CASE("operands of wgmma come by tensor copies of panels, with the bits of pieces") {
  for (const int64_t step : {16, 32, 64, 128}) {
    for (const int64_t depth : {int64_t{0}, step, 2 * step, 5 * step}) {
      StagedProduct p;
      p.instruction = ir::Instruction::wgmma;
      p.step = step;
      p.depth = depth;
      INFO(p.text());
      const int64_t panels = std::max<int64_t>(step / 64, 1);
      // Copies of two operands, before the loop and in it.
      CHECK(count_in<codegen::TensorCopy>(staged_product(p)) == 4 * panels);
      const HostTensor got = call_of(p).run(staged_product(p), kSm90a);
      p.engine = ir::Engine::pieces;
      CHECK(count_in<codegen::TensorCopy>(staged_product(p)) == 0);
      CHECK(got.raw() == call_of(p).run(staged_product(p), kSm90a).raw());
    }
  }
}

TEST_CASE("ragged products by tensor copies have the bits of pieces") {
  for (const int threads : {128, 256}) {
    StagedProduct p;
    p.instruction = ir::Instruction::wgmma;
    p.is_ragged = true;
    p.m = 130;
    p.n = 70;
    p.depth = 192;
    p.tile_rows = 128;
    p.stages = 4;
    p.threads = threads;
    const HostTensor got = call_of(p).run(staged_product(p), kSm90a);
    CHECK(count_in<codegen::TensorCopy>(staged_product(p)) > 0);
    p.engine = ir::Engine::pieces;
    CHECK(got.raw() == call_of(p).run(staged_product(p), kSm90a).raw());
  }
}

TEST_CASE("tensor copies fill rings, with the bits of a loop without roles") {
  for (const int64_t step : {32, 64, 128}) {
    StagedProduct p;
    p.instruction = ir::Instruction::wgmma;
    p.step = step;
    p.depth = 5 * step;
    INFO(p.text());
    CHECK(count_in<codegen::TensorCopy>(product_by_roles(p)) ==
          2 * std::max<int64_t>(step / 64, 1));
    const HostTensor got = call_of(p).run(product_by_roles(p), kSm90a);
    CHECK(got.raw() == call_of(p).run(staged_product(p), kSm90a).raw());
    p.engine = ir::Engine::pieces;
    CHECK(count_in<codegen::TensorCopy>(product_by_roles(p)) == 0);
    CHECK(got.raw() == call_of(p).run(product_by_roles(p), kSm90a).raw());
  }
}

TEST_CASE("a tensor copy moves tiles wider than 256 columns in panels") {
  for (const DType dtype : {DType::bf16, DType::e4m3, DType::f32}) {
    for (const int64_t columns : {320, 576}) {
      Boxes boxes;
      boxes.dtype = dtype;
      boxes.shape = {20, columns + 64};
      boxes.box = {8, columns};
      check_boxes(boxes);
    }
  }
}

TEST_CASE("a ring of tiles of 576 columns feeds wgmma by tensor copies") {
  StagedProduct p;
  p.instruction = ir::Instruction::wgmma;
  p.step = 576;
  p.depth = 576;
  p.m = p.n = 64;
  p.stages = 1;
  CHECK(count_in<codegen::TensorCopy>(product_by_roles(p)) == 2 * 576 / 64);
  const HostTensor got = call_of(p).run(product_by_roles(p), kSm90a);
  p.engine = ir::Engine::pieces;
  CHECK(got.raw() == call_of(p).run(product_by_roles(p), kSm90a).raw());
}

TEST_CASE("no other target and no other copy uses tensor copies unasked") {
  StagedProduct p;
  p.tile_rows = p.tile_columns = 128;
  CHECK(count_in<codegen::TensorCopy>(staged_product(p)) > 0);
  p.engine = ir::Engine::automatic;
  CHECK(count_in<codegen::TensorCopy>(staged_product(p)) == 0);
  p.engine = ir::Engine::tensor;
  CHECK(count_in<codegen::TensorCopy>(staged_product(p), kSm80) == 0);
  Boxes boxes;
  boxes.engine = ir::Engine::automatic;
  CHECK(count_in<codegen::TensorCopy>(boxes_kernel(boxes)) == 0);
  boxes.engine = ir::Engine::tensor;
  CHECK(count_in<codegen::TensorCopy>(boxes_kernel(boxes), kSm80) == 0);
  CHECK(count_in<codegen::TensorCopy>(boxes_kernel(boxes), kSm120a) == 2);
}

TEST_CASE("explain says which copies are tensor copies") {
  StagedProduct p;
  p.instruction = ir::Instruction::wgmma;
  CHECK(copies_of(staged_product(p)).find("copy a -> a_tile: tensor copies of 64 x 32") !=
        std::string::npos);
}

TEST_CASE("Engine::tensor names the first condition that is not proved, and its remedy") {
  CHECK(refusal({}) == "");
  const auto refused = [](const Case& c, const std::string& expected, const std::string& got,
                          const std::string& remedy) {
    const std::string text = refusal(c);
    INFO(text);
    CHECK(text.find(" by tensor copies [COPY_ENGINE]\n  expected  " + expected + "\n  got       " +
                    got + "\n  hint      " + remedy + "\n") != std::string::npos);
  };
  refused({.multiple_of = 4}, "strides of multiples of 16 bytes", "stride columns of dimension 0",
          "declare .multiple_of = 8 for columns");
  refused({.align = 8}, "a declared alignment of 16 bytes", "8",
          "declare the tensor with .align = 16");
  refused({.box_rows = 512, .box_columns = 32},
          "at most 256 elements along each dimension before the last", "512 along dimension 0",
          "copy tiles of at most 256");
  refused({.box_rows = 12, .box_columns = 512},
          "a tile of at most 256 columns, or a multiple of 8 rows of a multiple of 16 columns",
          "12 x 512", "copy tiles of at most 256 columns, or round the extents up");
  refused({.box_columns = 60}, "rows of the tile of multiples of 16 bytes", "60 x bf16",
          "let the last extent be a multiple of 8");
  refused({.first_column = 4}, "a first column at a multiple of 16 bytes", "4",
          "compute it as a multiple of 8: block * 8");
  refused({.outside = -1}, "zero outside of the tensor", "another value",
          "leave out .outside, or copy by pieces: Engine::pieces");
  refused({.is_optional = true}, "a tensor that is always given", "an optional one",
          "declare it without .optional, or copy by pieces: Engine::pieces");
  refused({.is_part = true}, "a whole shared tile, or rows of it in constant multiples of 8",
          "a part of 'tile'", "declare a shared tile for each part");
  refused({.tile = DType::f32}, "a tile of bf16", "f32",
          "declare the tile as bf16 and convert its elements where they are read");
  refused({.hint = ir::CacheHint::evict_first}, "no hint for the caches", "evict_first",
          "leave out .cached");
  // where the copy is recorded, or stands alone
  Builder k("alone");
  auto x = k.input("x", DType::bf16, {64, 64});
  auto y = k.output("y", DType::bf16, {64, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {64, 64}, "tile");
  auto fragment = k.fragment(DType::bf16, {64, 64}, "fragment");
  CHECK(error_of([&] {
          k.copy(x, fragment, {.engine = ir::Engine::tensor});
        }).find("  hint      leave out .engine\n") != std::string::npos);
  CHECK(error_of([&] { k.copy(x.bulk(), tile, {.engine = ir::Engine::tensor}); })
            .find(" by two engines [COPY_ENGINE]\n  expected  Engine::tensor or bulk()\n"
                  "  got       both\n  hint      leave out one of them\n") != std::string::npos);
  CHECK(error_of([&] { k.copy(x, tile, {.engine = ir::Engine::bulk}); })
            .find("  expected  Engine::automatic, Engine::tensor or Engine::pieces\n"
                  "  got       Engine::bulk\n  hint      copy from .bulk()\n") !=
        std::string::npos);
  k.copy(x, tile, {.engine = ir::Engine::tensor});
  k.copy(tile, y);
  const ir::Kernel alone = k.finish();
  CHECK(error_of([&] { codegen::lower(alone, kSm90a); })
            .find("  expected  a copy that a pipelined loop issues ahead, or that fills a ring\n"
                  "  got       one that threads wait for\n"
                  "  hint      copy in k.pipelined or in ring.fill\n") != std::string::npos);
}

TEST_CASE("NVRTC takes the text of tensor copies") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  const auto compiles = [&](const ir::Kernel& kernel) {
    for (const std::string& target : kTargets) {
      if (!nvrtc->supports(target)) continue;
      const Compiled compiled = nvrtc->compile(
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text, target);
      CAPTURE(kernel.name, target, compiled.log);
      CHECK(compiled.ok);
    }
  };
  StagedProduct product;
  product.tile_rows = product.tile_columns = 128;
  compiles(staged_product(product));
  Boxes boxes;
  compiles(boxes_kernel(boxes));
  boxes.shape = {5, 3, 2, 4, 16};
  boxes.box = {1, 2, 2, 2, 8};
  boxes.first = {0, 0, 0, 0, 0};
  compiles(boxes_kernel(boxes));
}

TEST_CASE("a tensor copy fills a tile with an extent of 1", "[language]") {
  Builder k("one");
  auto rows = k.dim("rows"), columns = k.dim("columns", {.multiple_of = 8});
  auto x = k.input("x", DType::bf16, {2, rows, columns});
  auto y = k.output("y", DType::bf16, {2, 16, 64});
  auto at = k.launch({2}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {1, 16, 64}, "tile");
  k.pipelined(0, 1, 2, [&](Value) {
    k.copy(x.tile({at.x, 3, 0}, {1, 16, 64}), tile, {.engine = ir::Engine::tensor});
    k.copy(tile, y.tile({at.x, 0, 0}, {1, 16, 64}));
  });
  const ir::Kernel kernel = k.finish();
  CHECK(count_in<codegen::TensorCopy>(kernel) > 0);
  const HostTensor in = tensor_by(DType::bf16, {2, 17, 64}, [](int64_t i) { return i % 251; });
  HostTensor out(DType::bf16, {2, 16, 64});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               const int64_t slab = i / 1024, row = i / 64 % 16 + 3;
               return row < 17 ? in.value((slab * 17 + row) * 64 + i % 64) : 0.0;
             }));
}

TEST_CASE("tensor copies fill a tile of a ring by runs of its rows", "[language]") {
  for (const int64_t columns : {64, 128, 320}) {
    CAPTURE(columns);
    Builder k("runs");
    auto rows = k.dim("rows"), width = k.dim("width", {.multiple_of = 8});
    auto x = k.input("x", DType::bf16, {rows, width});
    auto y = k.output("y", DType::bf16, {2, 32, columns});
    k.launch({1}, {.threads = 64});
    auto ring = k.ring({.stages = 2});
    auto tile = ring.shared(DType::bf16, {32, columns}, "tile");
    const auto load = [&] {
      k.serial(0, 2, [&](Value i) {
        ring.fill([&] {  // 24 rows from 3 on, and 8 rows from 40 on, some outside
          k.copy(x.tile({i + 3, 0}, {24, columns}), tile.tile({0, 0}, {24, columns}),
                 {.engine = ir::Engine::tensor});
          k.copy(x.tile({i + 40, 0}, {8, columns}), tile.tile({24, 0}, {8, columns}),
                 {.engine = ir::Engine::tensor});
        });
      });
    };
    const auto store = [&] {
      k.serial(0, 2, [&](Value i) { ring.take([&] { k.copy(tile, y(i)); }); });
    };
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "store", .warps = 1, .body = store}});
    const ir::Kernel kernel = k.finish();
    CHECK(count_in<codegen::TensorCopy>(kernel) > 0);
    const HostTensor in = tensor_by(DType::bf16, {45, columns}, [](int64_t i) { return i % 251; });
    HostTensor out(DType::bf16, {2, 32, columns});
    run_kernel(kernel, {&in, &out});
    CHECK_THAT(out, HasValues([&](int64_t i) {
                 const int64_t r = i / columns % 32, turn = i / columns / 32;
                 const int64_t row = turn + (r < 24 ? r + 3 : r + 16);
                 return row < 45 ? in.value(row * columns + i % columns) : 0.0;
               }));
  }
}
