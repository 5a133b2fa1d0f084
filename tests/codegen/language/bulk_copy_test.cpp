// Tile programs with bulk copies.

#include <functional>
#include <iterator>
#include <regex>
#include <string>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Arg;
using dsl::Builder;
using dsl::PipelineOptions;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kColumns = 96;

struct Shape {
  int64_t tile_rows = 8;
  int threads = 64;
  bool with_pieces = false;  // another tensor comes in pieces
  ir::CacheHint hint = ir::CacheHint::none;
};

/// y[c] = sum over rows r of (r % tile_rows + 1) * x[r, c + 32], and of z[r, c]: each thread reads
/// what others have copied.
ir::Kernel weighted_columns(PipelineOptions options, Shape shape) {
  const int64_t rows = shape.tile_rows;
  Builder k("weighted_columns");
  auto num_rows = k.dim("rows");
  auto x = k.input("x", DType::bf16, {num_rows, kColumns + 32});
  auto z = k.input("z", DType::bf16, {num_rows, kColumns});
  auto y = k.output("y", DType::f32, {kColumns});
  k.launch({1}, {.threads = shape.threads});
  auto ring = k.shared(DType::bf16, {rows, kColumns + 8}, "ring");
  auto tile = ring.tile({0, 0}, {rows, kColumns});
  auto other = k.shared(DType::bf16, {rows, kColumns}, "other");
  auto sum = k.fragment(DType::f32, {kColumns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, ceil_div(num_rows, rows), options, [&](Value i) {
    auto row = k.let("row", i * rows);
    k.copy(x.tile({row, 32}, {rows, kColumns}).cached(shape.hint).bulk(), tile);
    if (shape.with_pieces) k.copy(z.tile({row, 0}, {rows, kColumns}), other);
    k.parallel({kColumns}, [&](Value c) {
      for (int r = 0; r < rows; ++r) {
        sum(c) += f32(tile(r, c)) * static_cast<float>(r + 1);
        if (shape.with_pieces) sum(c) += f32(other(r, c));
      }
    });
  });
  k.copy(sum, y);
  return k.finish();
}

/// Small whole numbers, exact in bf16.
HostTensor numbers(Dims shape) {
  HostTensor result(DType::bf16, std::move(shape));
  for (int64_t i = 0; i < result.size(); ++i) result.set_value(i, static_cast<double>(i * 7 % 97));
  return result;
}

void check(PipelineOptions options, Shape shape, int64_t rows) {
  const HostTensor x = numbers({rows, kColumns + 32}), z = numbers({rows, kColumns});
  HostTensor y(DType::f32, {kColumns});
  run_kernel(weighted_columns(options, shape), {&x, &z, &y});
  CHECK_THAT(y, HasValues([&](int64_t c) {
               double want = 0;
               for (int64_t r = 0; r < rows; ++r) {
                 want += x.value(r * (kColumns + 32) + 32 + c) *
                         static_cast<double>(r % shape.tile_rows + 1);
                 if (shape.with_pieces) want += z.value(r * kColumns + c);
               }
               return want;
             }));
}

/// Barriers with a proxy fence before them.
int fenced_barriers(const std::string& text) {
  const std::regex fenced("fence_proxy\\(\\);\\s*__sync");
  return static_cast<int>(std::distance(std::sregex_iterator(text.begin(), text.end(), fenced),
                                        std::sregex_iterator()));
}

/// The text of the error of lowering a copy of `from` to `to` in bulk.
std::string refusal(int threads, const Arg& columns, int64_t width, int64_t pitch) {
  Builder k("refused");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::bf16, {rows, columns});
  k.launch({1}, {.threads = threads});
  auto ring = k.shared(DType::bf16, {8, pitch}, "ring");
  k.copy_async(x.tile({0, 0}, {8, width}).bulk(), ring.tile({0, 0}, {8, width}));
  return error_of([&] { codegen::lower(k.finish()); });
}

}  // namespace

TEST_CASE("a pipelined loop with bulk copies equals the serial one for any trip count",
          "[language][rows][slow]") {
  const int stages = GENERATE(1, 2, 3);
  const bool in_place = GENERATE(false, true);
  const int64_t rows = GENERATE(1, 8, 13, 16, 40, 77);
  CAPTURE(stages, in_place, rows);
  check({.stages = in_place ? stages : stages + 1, .in_place = in_place}, {}, rows);
}

TEST_CASE("bulk copies are shared out among any number of warps", "[language][rows][slow]") {
  const int64_t tile_rows = GENERATE(1, 3, 8);
  const int threads = GENERATE(32, 96, 512);
  CAPTURE(tile_rows, threads);
  check({.stages = 2, .in_place = true}, {tile_rows, threads}, 21);
}

TEST_CASE("bulk copies and pieces land together", "[language][rows][slow]") {
  const bool in_place = GENERATE(false, true);
  CAPTURE(in_place);
  check({.stages = in_place ? 2 : 3, .in_place = in_place}, {.with_pieces = true}, 45);
}

TEST_CASE("bulk copies carry their hint for the caches", "[language][rows]") {
  const auto text = [](ir::CacheHint hint) {
    return cuda_text(weighted_columns({.stages = 3}, {.hint = hint}));
  };
  CHECK(count(text(ir::CacheHint::none), "expect_and_copy_bulk<192>(") == 2);
  CHECK(count(text(ir::CacheHint::evict_first), "expect_and_copy_bulk<192, evict_first>(") == 2);
  check({.stages = 3}, {.hint = ir::CacheHint::evict_first}, 20);
}

TEST_CASE("an explicit bulk copy is awaited by its token", "[language][rows]") {
  Builder k("one_tile");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {8, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {8, 64}, "tile");
  k.wait(k.copy_async(x.tile({0, 0}, {8, 64}).bulk(), tile));
  k.parallel({8, 64}, [&](Value r, Value c) { y(r, c) = tile(r, 63 - c); });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::f32, {5, 64});
  HostTensor result(DType::f32, {8, 64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return i < 5 * 64 ? source.value(i / 64 * 64 + 63 - i % 64) : 0;
             }));
}

TEST_CASE("a reader in lane 0 waits for the lanes that copied its row", "[language][rows]") {
  Builder k("first_lanes");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {2});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {2, 64}, "tile");
  k.wait(k.copy_async(x.tile({0, 0}, {2, 64}).bulk(), tile));
  k.if_(k.lane() == 0, [&] {
    auto sum = k.var(DType::f32, 0.0f);
    k.serial(0, 64, [&](Value c) { sum += tile(k.warp(), c); });
    y(k.warp()) = sum;
  });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "__syncwarp()") == 1);
  const HostTensor source = iota(DType::f32, {2, 64});
  HostTensor result(DType::f32, {2});
  run_kernel(kernel, {&source, &result});
  CHECK(values_of(result) == std::vector<double>{2016, 6112});
}

TEST_CASE("the executor counts a bulk copy as a write of all lanes", "[language][rows][errors]") {
  const bool reads_first = GENERATE(false, true);
  Builder k("first_lanes");
  auto x = k.input("x", DType::f32, {1, 64});
  auto y = k.output("y", DType::f32, {1});
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(DType::f32, {1, 64}, "tile");
  k.fill(tile, 1.0f);
  k.sync();
  k.manual_sync([&] {
    const auto read = [&] { k.if_(k.lane() == 0, [&] { y(0) = tile(0, 0); }); };
    if (reads_first) read();
    k.wait(k.copy_async(x.tile({0, 0}, {1, 64}).bulk(), tile));
    if (!reads_first) read();
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::f32, {1, 64});
  HostTensor result(DType::f32, {1});
  const std::string error = error_of([&] { run_kernel(kernel, {&source, &result}); });
  CHECK(error.find("RACE") != std::string::npos);
  CHECK(error.find(reads_first ? "written here and read by thread 0"
                               : "read here and written by thread 1") != std::string::npos);
}

TEST_CASE("rows of bulk copies stay in one piece in a tile that a product reads",
          "[language][rows]") {
  Builder k("product");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::bf16, {rows, 64});
  auto y = k.output("y", DType::f32, {16, 16});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::bf16, {16, 64}, "tile");
  auto acc = k.fragment(DType::f32, {16, 16}, "acc");
  k.fill(acc, 0.0f);
  k.pipelined(0, ceil_div(rows, 16), {.stages = 2, .in_place = true}, [&](Value i) {
    k.copy(x.tile({i * 16, 0}, {16, 64}).bulk(), tile);
    k.gemm(tile, tile.transposed(), acc);
  });
  k.copy(acc, y);
  const ir::Kernel kernel = k.finish();
  CHECK(codegen::explain(kernel).find("exchanged by xor") == std::string::npos);
  HostTensor source(DType::bf16, {16, 64});
  for (int64_t i = 0; i < source.size(); ++i) source.set_value(i, static_cast<double>(i * 5 % 7));
  HostTensor result(DType::f32, {16, 16});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               double want = 0;
               for (int64_t c = 0; c < 64; ++c) {
                 want += source.value(i / 16 * 64 + c) * source.value(i % 16 * 64 + c);
               }
               return want;
             }));
}

TEST_CASE("no block ends before its bulk copies", "[language][rows]") {
  const bool returns = GENERATE(false, true);
  Builder k("leaves");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {64});
  auto at = k.launch({2}, {.threads = 64});
  auto tile = k.shared(DType::f32, {8, 64}, "tile");
  auto copied = k.copy_async(x.tile({0, 0}, {8, 64}).bulk(), tile);
  if (returns) {
    k.return_if(at.x == 1);
    k.wait(copied);
  }
  k.if_(at.x == 0, [&] { y(k.thread()) = 1.0f; });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "return;") == (returns ? 1 : 0));
  CHECK(count(text, "wait_for_phase(") == (returns ? 2 : 1));
  const HostTensor source = iota(DType::f32, {8, 64});
  HostTensor result(DType::f32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t) { return 1; }));
}

TEST_CASE("a return from a pipelined loop waits for the bulk copies in flight",
          "[language][rows]") {
  Builder k("leaves");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {8, 64}, "tile");
  k.pipelined(0, ceil_div(rows, 8), 3, [&](Value i) {
    k.copy(x.tile({i * 8, 0}, {8, 64}).bulk(), tile);
    k.return_if(i == 1);
    y(k.thread()) = tile(1, 63 - k.thread());
  });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "    return;\n") == 1);
  const HostTensor source = iota(DType::f32, {32, 64});
  HostTensor result(DType::f32, {64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return 127 - i; }));
}

TEST_CASE("stores are fenced from the bulk copies that follow them", "[language][rows]") {
  const bool stores = GENERATE(false, true);
  Builder k("in_turn");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {rows, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {8, 64}, "tile");
  k.serial(0, ceil_div(rows, 8), [&](Value i) {
    k.wait(k.copy_async(x.tile({i * 8, 0}, {8, 64}).bulk(), tile));
    if (stores) k.parallel({8, 64}, [&](Value r, Value c) { tile(r, c) = tile(r, c) * 2.0f; });
    k.parallel({8, 64}, [&](Value r, Value c) {
      k.if_(i * 8 + r < rows, [&] { y(i * 8 + r, c) = tile(r, 63 - c); });
    });
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  const int barriers = count(text, "__syncthreads();") + count(text, "__syncwarp();");
  CHECK(barriers > 1);
  CHECK(fenced_barriers(text) == (stores ? barriers - 1 : 0));  // but that of the initialisation
  const HostTensor source = iota(DType::f32, {13, 64});
  HostTensor result(DType::f32, {13, 64});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return source.value(i / 64 * 64 + 63 - i % 64) * (stores ? 2 : 1);
             }));
}

TEST_CASE("stores after all bulk copies need no fence", "[language][rows]") {
  CHECK(fenced_barriers(cuda_text(weighted_columns({.stages = 3}, {}))) == 0);
}

TEST_CASE("the mbarriers of bulk copies have their part of shared memory",
          "[language][rows][errors]") {
  const auto error_at = [](int64_t rows) {
    Builder k("biggest");
    auto x = k.input("x", DType::f32, {rows, 4});
    auto y = k.output("y", DType::f32, {rows, 4});
    k.launch({1}, {.threads = 256});
    auto tile = k.shared(DType::f32, {rows, 4}, "tile");
    k.wait(k.copy_async(x.tile({0, 0}, {rows, 4}).bulk(), tile));
    k.parallel({rows, 4}, [&](Value r, Value c) { y(r, c) = tile(r, 3 - c); });
    return error_of([&] { codegen::lower(k.finish()); });
  };
  CHECK(error_at(14527).empty());
  const std::string error = error_at(14528);
  CHECK(error.find("at most 232448 bytes") != std::string::npos);
  CHECK(error.find("tile 232448 bytes, mbarriers 16 bytes") != std::string::npos);
}

TEST_CASE("what cannot be copied in bulk says so", "[language][rows][errors]") {
  SECTION("memory") {
    Builder k("no_rows");
    auto codes = k.input("codes", DType::e2m1, {64, 64});
    auto sums = k.output("sums", DType::f32, {64, 64});
    k.launch({1}, {.threads = 32});
    auto tile = k.shared(DType::f32, {8, 64}, "tile");
    const std::string on_chip = error_of([&] { tile.bulk(); });
    CHECK(on_chip.find("CPASYNC_ROWS") != std::string::npos);
    CHECK(on_chip.find("'tile' has no rows to copy") != std::string::npos);
    CHECK(on_chip.find("got       shared f32") != std::string::npos);
    const std::string packed = error_of([&] { codes.bulk(); });
    CHECK(packed.find("expected  a global tensor of another dtype than e2m1") != std::string::npos);
    const std::string written = error_of([&] { sums.bulk(); });
    CHECK(written.find("expected  a tensor that the kernel does not write") != std::string::npos);
  }
  SECTION("warps") {
    const std::string error = refusal(48, 64, 64, 64);
    CHECK(error.find("'x' cannot be copied to 'ring' in bulk") != std::string::npos);
    CHECK(error.find("expected  a block of whole warps") != std::string::npos);
    CHECK(error.find("got       48 threads") != std::string::npos);
  }
  SECTION("width") {
    const std::string error = refusal(32, 64, 20, 24);
    CHECK(error.find("expected  rows of multiples of 16 bytes, at such addresses") !=
          std::string::npos);
    CHECK(error.find("rows of 20 x bf16 of 'x'") != std::string::npos);
  }
  SECTION("address") {
    CHECK(refusal(32, 68, 64, 64).find("rows of 64 x bf16 of 'x', 8 bytes at a time") !=
          std::string::npos);
  }
  SECTION("place in shared memory") {
    CHECK(refusal(32, 64, 64, 68).find("of 'ring', 8 bytes at a time") != std::string::npos);
  }
  SECTION("edge") {
    Builder k("refused");
    auto rows = k.dim("rows"), columns = k.dim("columns", {.multiple_of = 8});
    auto x = k.input("x", DType::bf16, {rows, columns});
    k.launch({1}, {.threads = 32});
    auto tile = k.shared(DType::bf16, {8, 64}, "tile");
    k.copy_async(x.tile({0, 0}, {8, 64}).bulk(), tile);
    const std::string error = error_of([&] { codegen::lower(k.finish()); });
    CHECK(error.find("expected  rows of the tile inside of the tensor's") != std::string::npos);
    CHECK(error.find("got       a tile that may be wider") != std::string::npos);
    CHECK(error.find("leave out bulk()") != std::string::npos);
  }
}

TEST_CASE("bulk copies need all warps of the block", "[language][rows][errors]") {
  const bool by_return = GENERATE(false, true);
  Builder k("some_warps");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, 64});
  auto y = k.output("y", DType::f32, {32});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {1, 64}, "tile");
  const auto start = [&] { k.copy_async(x.tile({0, 0}, {1, 64}).bulk(), tile); };
  if (by_return) {
    k.return_if(k.thread() >= 32);
    start();
  } else {
    k.if_(x(0, k.thread()) < 32.0f, start);
  }
  y(k.lane()) = 0.0f;
  const std::string error = error_of([&] { codegen::lower(k.finish()); });
  CHECK(error.find(by_return
                       ? "some threads have left the kernel before this copy of the whole block"
                       : "an asynchronous copy that some threads may never start, in a kernel "
                         "that copies in bulk") != std::string::npos);
  CHECK(error.find(by_return ? "RETURN_BEFORE_BARRIER" : "SYNC_DIVERGENT") != std::string::npos);
}
