// Tile programs with tensor stores: what they store and add, which copies become tensor stores, and what is refused.
// Where they wait: tensor_store_order_test.cpp.

#include "codegen/cuda/emit.h"
#include "tests/support/catch.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_store_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// y after the boxes; `counts` gets those of the run.
HostTensor stored(const StoredBoxes& boxes, Target target, codegen::cpu::Counts* counts = nullptr) {
  const HostTensor x = stored_boxes_input(boxes);
  HostTensor y = stored_boxes_output(boxes);
  std::vector<codegen::cpu::Argument> arguments = {{.tensor = x.view()}, {.tensor = y.view()}};
  for (const int64_t extent : boxes.shape) arguments.push_back({.integer = extent});
  run_lowered(stored_boxes_kernel(boxes), arguments, target, 0, counts);
  CHECK(y.damage().empty());
  return y;
}

void check_boxes(const StoredBoxes& boxes) {
  INFO(boxes.text());
  const ir::Kernel kernel = stored_boxes_kernel(boxes);
  CHECK(count_in<codegen::TensorStore>(kernel) > 0);
  CHECK(count_in<codegen::TensorStore>(kernel, kSm80) == 0);
  const HostTensor x = stored_boxes_input(boxes);
  for (const Target target : {kSm90, kSm90a, kSm120a, kSm80}) {
    const HostTensor y = stored(boxes, target);
    CHECK_THAT(y, HasValues([&](int64_t i) { return stored_boxes_value(boxes, x, i); }));
  }
}

/// A tile of 16 x 64 bf16 that is stored to y [rows, columns].
struct Case {
  int64_t multiple_of = 64;  // of the columns
  int64_t align = 16;
  int64_t box_rows = 16, box_columns = 64;
  int64_t first_column = 0;
  bool is_optional = false, may_alias = false, is_part = false, is_async = false;
  DType tile = DType::bf16;
  ir::CacheHint hint = ir::CacheHint::none;
};

std::string refusal(const Case& c) {
  Builder k("engine");
  auto rows = k.dim("rows"), columns = k.dim("columns", {.multiple_of = c.multiple_of});
  auto y = k.output("y", DType::bf16, {rows, columns},
                    {.align = c.align, .optional = c.is_optional, .may_alias = c.may_alias});
  k.launch({1}, {.threads = 64});
  const int64_t spare = c.is_part ? 1 : 0;
  auto tile = k.shared(c.tile, {c.box_rows + spare, c.box_columns}, "tile");
  k.fill(tile, 1.0f);
  const auto copy = [&] {
    const auto part = tile.tile({spare, 0}, {c.box_rows, c.box_columns});
    const auto box = y.tile({0, c.first_column}, {c.box_rows, c.box_columns}).cached(c.hint);
    if (c.is_async) {
      k.copy_async(part, box);
    } else {
      k.copy(part, box, kByTensor);
    }
  };
  c.is_optional ? k.if_present(y, copy) : copy();
  const ir::Kernel kernel = k.finish();
  return error_of([&] { codegen::lower(kernel, kSm90a); });
}

}  // namespace

TEST_CASE("a tensor store moves tiles of every dtype and drops what is outside") {
  for (const BoxWalk& walk : walks_of_dtypes()) check_boxes({walk});
}

TEST_CASE("a tensor store moves tiles of 1 to 5 dimensions") {
  for (const BoxWalk& walk : walks_of_ranks()) check_boxes({walk});
}

TEST_CASE("a tile with a swizzle is stored panel by panel") {
  for (const int64_t columns : {16, 32, 64, 128, 192}) {
    StoredBoxes boxes;
    boxes.by_columns = true;
    boxes.shape = {20, 200};
    boxes.box = {8, columns};
    boxes.first = {1, 8};
    check_boxes(boxes);
    const codegen::Program program = codegen::lower(stored_boxes_kernel(boxes), kSm90a);
    REQUIRE(program.maps.size() == 1);
    CHECK(program.maps[0]->swizzle == std::min<int64_t>(columns * 2, 128));
    CHECK(count_in<codegen::TensorStore>(program) == std::max<int64_t>(columns / 64, 1));
  }
}

TEST_CASE("a pipelined loop loads tiles ahead and stores them by tensor copies and stores") {
  for (const int stages : {1, 2, 4}) {
    Builder k("through_shared");
    auto rows = k.dim("rows"), columns = k.dim("columns", {.multiple_of = 8});
    auto x = k.input("x", DType::bf16, {rows, columns});
    auto y = k.output("y", DType::bf16, {rows, columns});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::bf16, {8, 64}, "tile");
    k.pipelined(0, ceil_div(rows, 8), {.stages = stages + 1}, [&](Value i) {
      const Value row = k.let("row", i * 8);
      k.copy(x.tile({row, 0}, {8, 64}), tile, kByTensor);
      if (stages == 1) {
        k.wait_read(k.copy_async(tile, y.tile({row, 0}, {8, 64})));
      } else {
        k.copy(tile, y.tile({row, 0}, {8, 64}), kByTensor);
      }
    });
    const ir::Kernel kernel = k.finish();
    for (const Target target : {kSm90, kSm90a, kSm80}) {
      const HostTensor in = iota(DType::bf16, {37, 48}), out(DType::bf16, {37, 48});
      run_lowered(kernel,
                  {{.tensor = in.view()}, {.tensor = out.view()}, {.integer = 37}, {.integer = 48}},
                  target);
      CHECK(out.raw() == in.raw());
      CHECK(out.damage().empty());
    }
  }
}

TEST_CASE("a program with tensor stores is read from its text") {
  StoredBoxes boxes;
  for (const bool adds : {false, true}) {
    boxes.adds = adds;
    const std::string text = to_string(codegen::lower(stored_boxes_kernel(boxes), kSm90a));
    CHECK(text.find(adds ? "tensor add y" : "tensor store y") != std::string::npos);
    CHECK(to_string(read_program(text)) == text);
  }
}

TEST_CASE("a tensor without elements takes none") {
  for (const BoxWalk& walk : walks_of_nothing()) {
    StoredBoxes boxes{walk};
    for (const bool adds : {false, true}) {
      boxes.adds = adds;
      boxes.blocks = adds ? 2 : 1;
      check_boxes(boxes);
    }
  }
}

TEST_CASE("tensor stores of one to many warps store the same, awaited or not") {
  for (const int threads : {32, 64, 256}) {
    for (const bool is_async : {false, true}) {
      StoredBoxes boxes;
      boxes.threads = threads;
      boxes.is_async = is_async;
      check_boxes(boxes);
    }
  }
}

TEST_CASE("tensor stores count the bytes that are inside of the tensor") {
  StoredBoxes boxes;  // 3 boxes of 8 x 32 over 20 rows
  codegen::cpu::Counts counts;
  stored(boxes, kSm90a, &counts);
  CHECK(counts.global_store_bytes == 20 * 32 * 2);
  CHECK(counts.global_store_requests == 3);
  CHECK(counts.global_store_sectors == 20 * 2);
  CHECK(counts.global_store_least_sectors == 20 * 2);
}

TEST_CASE("additions of tiles are exact, by one block or by several") {
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32, DType::u64}) {
    const int64_t piece = 128 / bits(dtype);
    for (const int64_t blocks : {1, 3}) {
      for (const ir::Engine engine : {ir::Engine::automatic, ir::Engine::tensor}) {
        StoredBoxes boxes;
        boxes.dtype = dtype;
        boxes.shape = {20, 5 * piece};
        boxes.box = {8, 2 * piece};
        boxes.first = {-8, 4 * piece};
        boxes.adds = true;
        boxes.blocks = blocks;
        boxes.engine = engine;
        check_boxes(boxes);
      }
    }
  }
}

TEST_CASE("a tensor store adds subnormal numbers, atomics count those of f32 as zeros") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const Target target : {kSm90a, kSm80}) {
      CAPTURE(name(dtype), to_string(target));
      SubnormalSums sums(dtype);
      run_lowered(sums.kernel, {{.tensor = sums.x.view()}, {.tensor = sums.y.view()}}, target);
      const bool flushes = dtype == DType::f32 && target.major == 8;
      CHECK_THAT(sums.y, HasValues([&](int64_t i) { return flushes ? 0 : sums.sum(i); }));
    }
  }
}

TEST_CASE("a fragment is added by atomics") {
  Builder k("fragment_sum");
  auto x = k.input("x", DType::f32, {64, 64});
  auto y = k.output("y", DType::f32, {k.dim("rows"), 64});
  k.launch({1}, {.threads = 128});
  auto part = k.fragment(DType::f32, {64, 64}, "part");
  k.copy(x, part);
  k.copy_add(part, y.tile({0, 0}, {64, 64}));
  const ir::Kernel kernel = k.finish();
  CHECK(count_in<codegen::TensorStore>(kernel) == 0);
  CHECK(copies_of(kernel).find(
            "copy_add part -> y: atomics: expected a shared tile, got a fragment") !=
        std::string::npos);
  const HostTensor in = iota(DType::f32, {64, 64});
  const HostTensor out = tensor_by(DType::f32, {60, 64}, [](int64_t) { return 1; });
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));
}

TEST_CASE("explain tells stores, additions and their order") {
  StoredBoxes boxes;
  CHECK(copies_of(stored_boxes_kernel(boxes)).find("copy tile -> y: tensor stores of 8 x 32") !=
        std::string::npos);
  CHECK(copies_of(stored_boxes_kernel(boxes), kSm80)
            .find("copy tile -> y: stores: the target has no tensor copies") != std::string::npos);
  boxes.adds = true;
  const std::string once = copies_of(stored_boxes_kernel(boxes));
  CHECK(once.find("copy_add tile -> y: tensor additions of 8 x 32") != std::string::npos);
  CHECK(once.find("COPY_ADD_ORDER") == std::string::npos);
  CHECK(copies_of(stored_boxes_kernel(boxes), kSm80)
            .find("copy_add tile -> y: atomics: the target has no tensor copies") !=
        std::string::npos);
  boxes.blocks = 2;  // each adds to all boxes
  CHECK(
      copies_of(stored_boxes_kernel(boxes))
          .find("copy_add tile -> y: COPY_ADD_ORDER: an element may get several additions, in any "
                "order") != std::string::npos);
  boxes.dtype = DType::i32;
  CHECK(copies_of(stored_boxes_kernel(boxes)).find("COPY_ADD_ORDER") == std::string::npos);
}

TEST_CASE("an addition by blocks of their own boxes has one order") {
  const auto notes = [](int64_t stride, int times) {
    Builder k("sums");
    auto rows = k.dim("rows");
    auto y = k.output("y", DType::f32, {rows, 64});
    auto at = k.launch({2, ceil_div(rows, 16)}, {.threads = 64});
    auto tile = k.shared(DType::f32, {16, 32}, "tile");
    k.fill(tile, 1.0f);
    for (int i = 0; i < times; ++i) {
      k.copy_add(tile, y.tile({at.y * stride, at.x * 32}, {16, 32}));
    }
    return copies_of(k.finish());
  };
  CHECK(notes(16, 1).find("COPY_ADD_ORDER") == std::string::npos);
  CHECK(notes(8, 1).find("COPY_ADD_ORDER") != std::string::npos);   // boxes overlap
  CHECK(notes(16, 2).find("COPY_ADD_ORDER") != std::string::npos);  // two additions
}

TEST_CASE("no other copy stores by tensor stores unasked") {
  StoredBoxes boxes;
  boxes.engine = ir::Engine::automatic;
  CHECK(count_in<codegen::TensorStore>(stored_boxes_kernel(boxes)) == 0);
  boxes.engine = ir::Engine::tensor;
  CHECK(count_in<codegen::TensorStore>(stored_boxes_kernel(boxes), kSm80) == 0);
}

TEST_CASE("a tensor store that is impossible is refused by its first condition") {
  const auto refused = [](const Case& c, const std::string& expected) {
    const std::string error = refusal(c);
    CAPTURE(error);
    CHECK(error.find("[COPY_ENGINE]") != std::string::npos);
    CHECK(error.find("expected  " + expected) != std::string::npos);
  };
  CHECK(refusal({}) == "");
  refused({.multiple_of = 4}, "strides of multiples of 16 bytes");
  refused({.align = 8}, "a declared alignment of 16 bytes");
  refused({.box_rows = 512}, "at most 256 elements along each dimension before the last");
  refused({.box_columns = 12}, "rows of the tile of multiples of 16 bytes");
  refused({.first_column = 4}, "a first column at a multiple of 16 bytes");
  refused({.is_optional = true}, "a tensor that is always given");
  refused({.may_alias = true}, "a tensor that shares its memory with no other");
  refused({.is_part = true}, "a whole shared tile");
  refused({.tile = DType::f32}, "a tile of bf16");
  refused({.hint = ir::CacheHint::evict_first}, "no hint for the caches");
  refused({.multiple_of = 4, .is_async = true}, "strides of multiples of 16 bytes");
  const auto has_remedy = [](const Case& c, const std::string& remedy) {
    const std::string error = refusal(c);
    CAPTURE(error);
    CHECK(error.find("\n  hint      " + remedy + "\n") != std::string::npos);
  };
  has_remedy({.multiple_of = 4}, "declare .multiple_of = 8 for columns");
  has_remedy({.multiple_of = 4, .is_async = true},
             "declare .multiple_of = 8 for columns; or use k.copy");
  has_remedy({.is_optional = true},
             "declare it without .optional, or leave out the engine: threads store the tile");
  has_remedy({.may_alias = true},
             "declare it without .may_alias, or leave out the engine: threads store the tile");
  has_remedy({.tile = DType::f32},
             "declare the tile as bf16 and convert its elements where they are written");
}

TEST_CASE("a tensor store may stand under a condition that the author calls uniform") {
  const auto error = [](bool is_vouched) {
    Builder k("condition");
    auto flags = k.input("flags", DType::i32, {32});
    auto y = k.output("y", DType::bf16, {16, 64});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::bf16, {16, 64}, "tile");
    k.fill(tile, 1.0f);
    const Value any = k.warp_any(flags(k.lane()) != 0);
    k.if_(is_vouched ? k.uniform(any) : any, [&] { k.copy(tile, y, kByTensor); });
    const ir::Kernel kernel = k.finish();
    return error_of([&] { codegen::lower(kernel, kSm90a); });
  };
  CHECK(error(true) == "");
  CHECK(error(false).find("which may differ between threads") != std::string::npos);
}

TEST_CASE("a tensor store that may begin before the tensor is refused") {
  // The hardware faults at a negative coordinate of a store.
  const auto error_at = [](int64_t row, int64_t column) {
    StoredBoxes boxes;
    boxes.first = {row, column};
    return error_of([&] { codegen::lower(stored_boxes_kernel(boxes), kSm90a); });
  };
  CHECK(error_at(-8, -32).empty());  // boxes that are wholly before
  CHECK(error_at(3, 16).empty());
  CHECK(
      error_at(-3, 0).find("[COPY_ENGINE]\n  expected  dimension 0 from 0 or a multiple of 8 on\n"
                           "  got       first\n  hint      store under k.if_(first >= 0, ..)\n") !=
      std::string::npos);
  CHECK(error_at(0, -16).find("dimension 1 from 0 or a multiple of 32 on\n  got       -16\n") !=
        std::string::npos);
}

TEST_CASE("an addition that may begin before the tensor takes atomics") {
  StoredBoxes boxes;
  boxes.first = {-3, -8};
  boxes.adds = true;
  boxes.engine = ir::Engine::automatic;
  const ir::Kernel kernel = stored_boxes_kernel(boxes);
  CHECK(copies_of(kernel).find(
            "copy_add tile -> y: atomics: expected dimension 0 from 0 or a multiple of") !=
        std::string::npos);
  const HostTensor x = stored_boxes_input(boxes);
  CHECK_THAT(stored(boxes, kSm90a),
             HasValues([&](int64_t i) { return stored_boxes_value(boxes, x, i); }));
}

TEST_CASE("a tensor store at a row of a table needs the row's sign") {
  for (const bool is_checked : {false, true}) {
    Builder k("at_row");
    auto rows = k.dim("rows");
    auto first = k.input("first", DType::i32, {1});
    auto y = k.output("y", DType::i32, {rows, 32});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::i32, {16, 32}, "tile");
    k.fill(tile, 1);
    auto row = k.let("row", first(0));
    const auto store = [&] { k.copy(tile, y.tile({row, 0}, {16, 32}), kByTensor); };
    is_checked ? k.if_(row >= 0, store) : store();
    const ir::Kernel kernel = k.finish();
    const std::string error = error_of([&] { codegen::lower(kernel, kSm90a); });
    CAPTURE(error);
    CHECK(error.empty() == is_checked);
  }
}

TEST_CASE("a tensor store after threads have left is refused") {
  Builder k("left");
  auto y = k.output("y", DType::i32, {16, 32});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::i32, {16, 32}, "tile");
  k.fill(tile, 1);
  k.sync();
  k.return_if(k.thread() < 32);
  k.copy(tile, y, kByTensor);
  const ir::Kernel kernel = k.finish();
  const std::string error = error_of([&] { codegen::lower(kernel, kSm90a); });
  CHECK(error.find("some threads have left the kernel before this copy of the whole block "
                   "[RETURN_BEFORE_BARRIER]") != std::string::npos);
}

TEST_CASE("copies that no engine stores or adds are refused where they are recorded") {
  Builder k("refused");
  auto x = k.input("x", DType::bf16, {64, 64});
  auto y = k.output("y", DType::bf16, {64, 64});
  auto wide = k.output("wide", DType::f64, {64, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {64, 64}, "tile");
  auto doubles = k.shared(DType::f64, {64, 64}, "doubles");
  auto fragment = k.fragment(DType::bf16, {64, 64}, "fragment");
  const auto has = [](const std::string& error, const std::string& words) {
    CAPTURE(error);
    CHECK(error.find(words) != std::string::npos);
  };
  has(error_of([&] { k.copy(fragment, y, kByTensor); }),
      "copy from 'fragment' to 'y' has no choice of an engine [COPY_ENGINE]\n"
      "  expected  between a global tensor and a shared tile");
  has(error_of([&] { k.copy(tile, y, {.engine = ir::Engine::pieces}); }),
      "expected  Engine::tensor or Engine::automatic\n  got       pieces\n"
      "  hint      threads store in no pieces: pass Engine::tensor or leave out .engine");
  has(error_of([&] { k.copy(tile, y, {.outside = 1, .engine = ir::Engine::tensor}); }),
      "copy from 'tile', which has no outside [COPY_OUTSIDE]");
  has(error_of([&] { k.copy_async(fragment, y); }), "between global and shared memory");
  has(error_of([&] { k.copy_add(tile, tile); }), "copy_add from 'tile' to 'tile' [ATOMIC]");
  has(error_of([&] { k.copy_add(x, y); }), "from a shared tile or a fragment to an output tensor");
  has(error_of([&] { k.copy_add(tile, x); }), "[WRITE_READ_ONLY]");
  has(error_of([&] { k.copy_add(doubles, wide); }),
      "copy_add from 'doubles' to 'wide' cannot add [DTYPE]\n"
      "  expected  f32, f16, bf16, i32, u32 or u64 on both sides\n"
      "  got       f64 to f64");
  has(error_of([&] { k.copy_add(tile, wide); }), "got       bf16 to f64");
  has(error_of([&] { k.copy_add(fragment, y, kByTensor); }),
      "copy_add from 'fragment' to 'y' has no choice of an engine [COPY_ENGINE]\n"
      "  expected  a shared tile\n  got       a fragment\n"
      "  hint      copy the fragment into a shared tile first, or leave out .engine");
  has(error_of([&] { k.copy_add(tile, y.cached(ir::CacheHint::evict_first)); }), "[CACHE_HINT]");
  auto loaded = k.copy_async(x, tile);
  has(error_of([&] { k.wait_read(loaded); }), "wait_read of a copy to shared memory [ASYNC_TOKEN]");
}

TEST_CASE("NVRTC takes the text of tensor stores") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  std::vector<std::string> targets = kTargets;
  targets.push_back("sm_90");
  const auto compiles = [&](const ir::Kernel& kernel) {
    for (const std::string& target : targets) {
      if (!nvrtc->supports(target)) continue;
      const Compiled compiled = nvrtc->compile(
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text, target);
      CAPTURE(kernel.name, target, compiled.log);
      CHECK(compiled.ok);
    }
  };
  StagedProduct product;
  product.tile_rows = product.tile_columns = 128;
  compiles(product_with_stores(product, DType::bf16, 2));
  StoredBoxes boxes;
  const auto both = [&] {
    for (const bool adds : {false, true}) {
      boxes.adds = adds;
      compiles(stored_boxes_kernel(boxes));
    }
  };
  both();
  boxes.shape = {200};
  boxes.box = {64};
  boxes.first = {0};
  both();
  boxes.shape = {9, 5, 24};
  boxes.box = {4, 4, 16};
  boxes.first = {0, 0, 0};
  both();
  boxes.shape = {5, 3, 4, 16};
  boxes.box = {2, 2, 4, 8};
  boxes.first = {0, 0, 0, 0};
  both();
  boxes.shape = {5, 3, 2, 4, 16};
  boxes.box = {1, 2, 2, 2, 8};
  boxes.first = {0, 0, 0, 0, 0};
  both();
}
