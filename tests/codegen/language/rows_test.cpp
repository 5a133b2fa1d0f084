// Tile programs that copy rows which an index chooses.

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kRows = 40, kColumns = 64, kChosen = 16;

/// Rows of every kind: inside, twice the same, before and behind the tensor.
HostTensor index_of_rows() {
  HostTensor index(DType::i32, {4 * kChosen});
  for (int64_t i = 0; i < index.size(); ++i) {
    const int64_t row = i % 7 == 3 ? -1 : i % 11 == 5 ? kRows : i * 23 % kRows;
    index.set_value(i, static_cast<double>(row));
  }
  return index;
}

/// The value that the gather of row `row` gives in column `column`.
double gathered(const HostTensor& x, const HostTensor& index, int64_t row, int64_t column) {
  const auto from = static_cast<int64_t>(index.value(row));
  return from < 0 || from >= kRows ? 0 : x.value(from * kColumns + column);
}

enum class Space { global, shared, fragment };

}  // namespace

TEST_CASE("an index of each dimension chooses rows from a column on", "[language]") {
  const bool into_shared = GENERATE(false, true);
  CAPTURE(into_shared);
  constexpr int64_t kPart = 16;
  Builder k("columns_of_rows");
  auto n = k.dim("n");
  auto x = k.input("x", DType::bf16, {n, kColumns});
  auto index = k.input("index", DType::i32, {4 * kChosen});
  auto y = k.output("y", DType::f32, {4 * kChosen, kColumns + kPart});
  const auto at = k.launch({4}, {.threads = 64});
  const Ref tile = into_shared ? k.shared(DType::f32, {kChosen, kPart}, "tile")
                               : k.fragment(DType::f32, {kChosen, kPart}, "tile");
  k.serial(0, kColumns / kPart + 1, [&](Value part) {  // the last one is outside
    const auto place = [&](const Value& r) {
      Value row = index(at.x * kChosen + r);
      return std::vector<Value>{row, part * kPart};
    };
    k.copy(x.rows(kChosen, place), tile);
    k.copy(tile, y.tile({at.x * kChosen, part * kPart}, {kChosen, kPart}));
  });
  const HostTensor source =
      tensor_by(DType::bf16, {kRows, kColumns}, [](int64_t i) { return i % 251; });
  const HostTensor rows = index_of_rows();
  const HostTensor result(DType::f32, {4 * kChosen, kColumns + kPart});
  run_kernel(k.finish(), {&source, &rows, &result});
  int64_t wrong = 0;
  for (int64_t i = 0; i < result.size(); ++i) {
    const int64_t row = i / (kColumns + kPart), column = i % (kColumns + kPart);
    const double want = column < kColumns ? gathered(source, rows, row, column) : 0;
    wrong += result.value(i) != want;
  }
  CHECK(wrong == 0);
}

TEST_CASE("rows that an index chooses are gathered, and are 0 outside", "[language]") {
  const Space of_index = GENERATE(Space::global, Space::shared, Space::fragment);
  const bool into_shared = GENERATE(false, true);
  const DType dtype = GENERATE(DType::bf16, DType::f32);
  CAPTURE(static_cast<int>(of_index), into_shared, name(dtype));
  Builder k("gather");
  auto n = k.dim("n");
  auto x = k.input("x", dtype, {n, kColumns});
  auto index = k.input("index", DType::i32, {4 * kChosen});
  auto y = k.output("y", DType::f32, {4 * kChosen, kColumns});
  const auto at = k.launch({4}, {.threads = 64});
  const Ref here = index.tile({at.x * kChosen}, {kChosen});
  const Ref list = of_index == Space::shared     ? k.shared(DType::i32, {kChosen}, "list")
                   : of_index == Space::fragment ? k.fragment(DType::i32, {kChosen}, "list")
                                                 : here;
  if (of_index != Space::global) k.copy(here, list);
  const Ref tile = into_shared ? k.shared(DType::f32, {kChosen, kColumns}, "tile")
                               : k.fragment(DType::f32, {kChosen, kColumns}, "tile");
  k.copy(x.rows(list), tile);
  k.copy(tile, y.tile({at.x * kChosen, 0}, {kChosen, kColumns}));
  const HostTensor source = tensor_by(dtype, {kRows, kColumns}, [](int64_t i) { return i % 251; });
  const HostTensor rows = index_of_rows();
  const HostTensor result(DType::f32, {4 * kChosen, kColumns});
  const ir::Kernel kernel = k.finish();
  run_kernel(kernel, {&source, &rows, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return gathered(source, rows, i / kColumns, i % kColumns);
             }));
}

TEST_CASE("rows are scattered, but for those outside", "[language]") {
  Builder k("scatter");
  auto x = k.input("x", DType::f32, {kChosen, kColumns});
  auto index = k.input("index", DType::i64, {kChosen});
  auto y = k.output("y", DType::f32, {kRows, kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {kChosen, kColumns}, "tile");
  k.copy(x, tile);
  k.copy(tile, y.rows(index));
  const HostTensor source = iota(DType::f32, {kChosen, kColumns});
  std::vector<double> rows(kChosen), want(kRows * kColumns, -5);
  for (int64_t i = 0; i < kChosen; ++i) {
    const int64_t row = i % 5 == 2 ? -1 : i % 5 == 4 ? kRows + i : 3 * i % kRows;
    rows[static_cast<size_t>(i)] = static_cast<double>(row);
    if (row < 0 || row >= kRows) continue;
    for (int64_t c = 0; c < kColumns; ++c) {
      want[static_cast<size_t>(row * kColumns + c)] = source.value(i * kColumns + c);
    }
  }
  const HostTensor places = tensor_of(DType::i64, {kChosen}, rows);
  const HostTensor result =
      tensor_of(DType::f32, {kRows, kColumns}, std::vector<double>(want.size(), -5));
  run_kernel(k.finish(), {&source, &places, &result});
  CHECK(values_of(result) == want);
}

namespace {

/// y[c] = sum over 64 chosen rows, 16 at a time, of (r + 1) * x[index[r], c].
ir::Kernel weighted_rows(bool bulk, int threads, bool index_in_loop = false) {
  Builder k("weighted_rows");
  auto n = k.dim("n");
  auto x = k.input("x", DType::bf16, {n, kColumns});
  auto index = k.input("index", DType::i32, {4 * kChosen});
  auto y = k.output("y", DType::f32, {kColumns});
  k.launch({1}, {.threads = threads});
  auto tile = k.shared(DType::bf16, {kChosen, kColumns}, "tile");
  auto list = k.shared(DType::i32, {kChosen}, "list");
  auto sum = k.fragment(DType::f32, {kColumns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, 4, 3, [&](Value step) {
    const Ref here = index.tile({step * kChosen}, {kChosen});
    if (index_in_loop) {
      k.parallel({kChosen}, [&](Value r) { list(r) = here(r); });
    }
    const Ref from = bulk ? x.bulk() : x;
    k.copy(from.rows(index_in_loop ? list : here), tile);
    k.parallel({kColumns}, [&](Value c) {
      for (int r = 0; r < kChosen; ++r) {
        sum(c) += f32(tile(r, c)) * f32(step * kChosen + r + 1);
      }
    });
  });
  k.copy(sum, y);
  return k.finish();
}

void check_weighted_rows(const ir::Kernel& kernel) {
  const HostTensor source =
      tensor_by(DType::bf16, {kRows, kColumns}, [](int64_t i) { return i % 13 - 6; });
  const HostTensor rows = index_of_rows();
  const HostTensor result(DType::f32, {kColumns});
  run_kernel(kernel, {&source, &rows, &result});
  CHECK_THAT(result, HasValues([&](int64_t c) {
               double want = 0;
               for (int64_t r = 0; r < 4 * kChosen; ++r) {
                 want += gathered(source, rows, r, c) * static_cast<double>(r + 1);
               }
               return want;
             }));
}

}  // namespace

TEST_CASE("a pipelined loop gathers rows ahead, in pieces or in bulk", "[language]") {
  const bool bulk = GENERATE(false, true);
  const int threads = GENERATE(32, 64, 128);
  CAPTURE(bulk, threads);
  const ir::Kernel kernel = weighted_rows(bulk, threads);
  check_weighted_rows(kernel);
  const std::string explained = codegen::explain(kernel);
  CHECK(explained.find("copy rows of x -> tile: 2 iterations ahead, 3 versions") !=
        std::string::npos);
  CHECK(explained.find("waits for its loads") == std::string::npos);
  CHECK(count(cuda_text(kernel), bulk ? "copy_bulk" : "copy_async_or_zero<16>") > 0);
}

TEST_CASE("explain says why rows are not gathered ahead", "[language]") {
  const ir::Kernel kernel = weighted_rows(false, 64, true);
  check_weighted_rows(kernel);
  CHECK(codegen::explain(kernel).find(
            "copy rows of x -> tile: not ahead: the loop writes 'list'") != std::string::npos);
}

TEST_CASE("a gather goes on in the background until it is awaited", "[language]") {
  Builder k("background");
  auto x = k.input("x", DType::f32, {kRows, kColumns});
  auto index = k.input("index", DType::i32, {4 * kChosen});
  auto y = k.output("y", DType::f32, {kChosen, kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {kChosen, kColumns}, "tile");
  auto copied = k.copy_async(x.rows(index.tile({kChosen}, {kChosen})), tile);
  k.wait(copied);
  k.copy(tile, y);
  const HostTensor source = iota(DType::f32, {kRows, kColumns});
  const HostTensor rows = index_of_rows();
  const HostTensor result(DType::f32, {kChosen, kColumns});
  run_kernel(k.finish(), {&source, &rows, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) {
               return gathered(source, rows, kChosen + i / kColumns, i % kColumns);
             }));
}

TEST_CASE("a convolution gathers the pixels of each tap by a function", "[language]") {
  constexpr int64_t kHeight = 7, kWidth = 9, kChannels = 32, kFilters = 16;
  constexpr int64_t kTaps = 9, kPixels = 64;
  Builder k("convolution");
  auto x = k.input("x", DType::bf16, {kHeight, kWidth, kChannels});
  auto w = k.input("w", DType::bf16, {kTaps * kChannels, kFilters});
  auto y = k.output("y", DType::f32, {kPixels, kFilters});
  k.launch({1}, {.threads = 64});
  auto pixels = k.shared(DType::bf16, {kPixels, kChannels}, "pixels");
  auto weights = k.shared(DType::bf16, {kChannels, kFilters}, "weights");
  auto sum = k.fragment(DType::f32, {kPixels, kFilters}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, kTaps, 3, [&](Value tap) {
    // Pixel p is column p % 9 of line p / 9; there are 63.
    const auto at = [&](Value p) {
      return std::vector<Value>{p / kWidth + tap / 3 - 1, p % kWidth + tap % 3 - 1};
    };
    k.copy(x.rows(kPixels, at), pixels);
    k.copy(w.tile({tap * kChannels, 0}, {kChannels, kFilters}), weights);
    k.gemm(pixels, weights, sum);
  });
  k.copy(sum, y);
  const ir::Kernel kernel = k.finish();
  CHECK(codegen::explain(kernel).find("copy rows of x -> pixels, ") == std::string::npos);
  CHECK(codegen::explain(kernel).find("copy rows of x -> pixels: 2 iterations ahead") !=
        std::string::npos);
  const HostTensor image =
      tensor_by(DType::bf16, {kHeight, kWidth, kChannels}, [](int64_t i) { return i % 7 - 3; });
  const HostTensor filter =
      tensor_by(DType::bf16, {kTaps * kChannels, kFilters}, [](int64_t i) { return i % 5 - 2; });
  const HostTensor result(DType::f32, {kPixels, kFilters});
  run_kernel(kernel, {&image, &filter, &result});
  for (int64_t p = 0; p < kHeight * kWidth; ++p) {
    for (int64_t f = 0; f < kFilters; ++f) {
      double want = 0;
      for (int64_t tap = 0; tap < kTaps; ++tap) {
        const int64_t line = p / kWidth + tap / 3 - 1, column = p % kWidth + tap % 3 - 1;
        if (line < 0 || line >= kHeight || column < 0 || column >= kWidth) continue;
        for (int64_t c = 0; c < kChannels; ++c) {
          want += image.value((line * kWidth + column) * kChannels + c) *
                  filter.value((tap * kChannels + c) * kFilters + f);
        }
      }
      CAPTURE(p, f);
      REQUIRE(result.value(p * kFilters + f) == want);
    }
  }
}

TEST_CASE("what does not choose rows is refused", "[language]") {
  const auto refusal = [](const auto& body) {
    return error_of([&] {
      Builder k("refused");
      auto x = k.input("x", DType::f32, {kRows, kColumns});
      auto index = k.input("index", DType::i32, {4, kChosen});
      k.launch({1}, {.threads = 64});
      auto tile = k.shared(DType::f32, {kChosen, kColumns}, "tile");
      body(k, x, index, tile);
    });
  };
  const std::string rank =
      refusal([](Builder& k, Ref& x, Ref& index, Ref& tile) { k.copy(x.rows(index), tile); });
  CHECK(rank.find("rows of 'x' cannot be chosen so [GATHER]") != std::string::npos);
  CHECK(rank.find("an index of one dimension") != std::string::npos);
  const std::string dtype =
      refusal([](Builder& k, Ref& x, Ref&, Ref& tile) { k.copy(x.rows(tile(0)), tile); });
  CHECK(dtype.find("an index of i32, i64 or u32") != std::string::npos);
  const std::string count = refusal([](Builder& k, Ref& x, Ref& index, Ref& tile) {
    k.copy(x.rows(index(0).tile({0}, {8})), tile);
  });
  CHECK(count.find("a tile of 8 rows") != std::string::npos);
  const std::string places = refusal([](Builder& k, Ref& x, Ref&, Ref& tile) {
    k.copy(x.rows(kChosen, [](Value r) { return std::vector<Value>{r, r, r}; }), tile);
  });
  CHECK(places.find("1 leading indices") != std::string::npos);
  const std::string written =
      refusal([](Builder& k, Ref& x, Ref& index, Ref& tile) { k.copy(tile, x.rows(index(0))); });
  CHECK(written.find("[WRITE_READ_ONLY]") != std::string::npos);
}
