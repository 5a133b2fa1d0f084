// Tile programs with hints for the caches: what is emitted, and that no value changes.

#include <fmt/format.h>

#include <string>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::CacheHint;
using dsl::Value;

namespace {

/// The kernel's text without the breaks of long lines.
std::string unbroken_text(const ir::Kernel& kernel) {
  std::string text;
  for (const char letter : cuda_text(kernel)) {
    const char next = letter == '\n' ? ' ' : letter;
    if (next != ' ' || text.empty() || text.back() != ' ') text += next;
  }
  return text;
}

const CacheHint kHints[] = {CacheHint::evict_first, CacheHint::evict_last, CacheHint::no_allocate};

}  // namespace

TEST_CASE("a copy hints at the caches and moves the same bytes", "[language][slow]") {
  const CacheHint hint = kHints[GENERATE(0, 1, 2)];
  const DType dtype = GENERATE(DType::u8, DType::bf16, DType::f32);
  const std::string word(ir::name(hint));
  CAPTURE(word, dtype);
  Builder k("hinted_copy_" + word);
  auto n = k.dim("n", {.multiple_of = 16});
  auto x = k.input("x", dtype, {n, 64});
  auto y = k.output("y", dtype, {n, 64});
  const auto at = k.launch({ceil_div(n, 32)}, {.threads = 64});
  auto tile = k.fragment(dtype, {32, 64}, "tile");
  k.copy(x.tile({at.x * 32, 0}, {32, 64}).cached(hint), tile);
  k.copy(tile, y.tile({at.x * 32, 0}, {32, 64}).cached(hint));
  const ir::Kernel kernel = k.finish();
  const int width = 16 / bytes(dtype);
  const std::string text = unbroken_text(kernel);
  CHECK(count(text, fmt::format("load_or_zero_as<{}, true, {}>(", word, width)) == 1);
  CHECK(count(text, fmt::format("store_as<{}, {}>(", word, width)) == 1);
  CHECK(codegen::explain(kernel).find(", " + word) != std::string::npos);
  const HostTensor source = iota(dtype, {48, 64});
  const HostTensor result(dtype, {48, 64});
  run_kernel(kernel, {&source, &result});
  CHECK(values_of(result) == values_of(source));
}

TEST_CASE("single elements of every width carry a hint", "[language][slow]") {
  const CacheHint hint = kHints[GENERATE(0, 1, 2)];
  const DType dtype = GENERATE(DType::i8, DType::f16, DType::i32, DType::i64);
  const std::string word(ir::name(hint));
  CAPTURE(word, dtype);
  Builder k("hinted_elements");
  auto x = k.input("x", dtype, {40, 3});
  auto y = k.output("y", dtype, {40, 3});
  auto z = k.output("z", dtype, {40, 3});
  k.launch({1}, {.threads = 32});
  k.parallel({40}, [&](Value i) {
    y(i, 1).cached(hint) = x(i, 2).cached(hint);
    z(i, 0).cached(hint) = y(i, 1).cached(hint);
  });
  const ir::Kernel kernel = k.finish();
  const std::string text = unbroken_text(kernel);
  CHECK(count(text, "read_as<" + word + ", true>(") == 1);
  CHECK(count(text, "read_as<" + word + ", false>(") == 1);
  CHECK(count(text, "write_as<" + word + ", ") == 2);
  const HostTensor source = iota(dtype, {40, 3});
  HostTensor middle(dtype, {40, 3});
  HostTensor last(dtype, {40, 3});
  middle.fill_bytes(std::byte{0});
  last.fill_bytes(std::byte{0});
  run_kernel(kernel, {&source, &middle, &last});
  for (int64_t i = 0; i < 40; ++i) {
    CHECK(middle.value(i * 3 + 1) == source.value(i * 3 + 2));
    CHECK(last.value(i * 3) == source.value(i * 3 + 2));
  }
}

TEST_CASE("a kernel that waits for the one before it does not take hinted reads for constant",
          "[language]") {
  Builder k("hinted_wait");
  auto x = k.input("x", DType::f32, {256});
  auto y = k.output("y", DType::f32, {256});
  k.launch({1}, {.threads = 64});
  k.wait_for_previous_kernel();
  k.parallel({256}, [&](Value i) { y(i) = x(i).cached(CacheHint::evict_first) + 1.0f; });
  const ir::Kernel kernel = k.finish();
  CHECK(count(unbroken_text(kernel), "load_as<evict_first, false, 4>(") == 1);
  const HostTensor source = iota(DType::f32, {256});
  const HostTensor result(DType::f32, {256});
  run_kernel(kernel, {&source, &result});
  CHECK(result.value(255) == 256);
}

// An illegal instruction was the answer to some of them with a hint.
TEST_CASE("asynchronous copies go without the hint of their source", "[language]") {
  const CacheHint hint = kHints[GENERATE(0, 1, 2)];
  const int64_t columns = GENERATE(64, 1);  // 16 and 4 bytes each
  const int64_t rows = GENERATE(32, 19);
  CAPTURE(hint, columns, rows);
  Builder k("hinted_copy");
  auto last = k.dim("rows");
  auto x = k.input("x", DType::f32, {last, columns});
  auto y = k.output("y", DType::f32, {32, columns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(DType::f32, {32, columns}, "tile");
  k.wait(k.copy_async(x.tile({0, 0}, {32, columns}).cached(hint), tile));
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), std::string(ir::name(hint))) == 0);
  const HostTensor source = iota(DType::f32, {rows, columns});
  const HostTensor result(DType::f32, {32, columns});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t i) { return i < rows * columns ? i : 0; }));
}

TEST_CASE("what cannot carry a hint says so", "[language][errors]") {
  Builder k("no_hint");
  auto codes = k.output("codes", DType::e2m1, {64});
  auto counts = k.output("counts", DType::i32, {64});
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(DType::f32, {64}, "tile");
  const std::string on_chip = error_of([&] { tile.cached(CacheHint::evict_last); });
  CHECK(on_chip.find("CACHE_HINT") != std::string::npos);
  CHECK(on_chip.find("'tile' takes no hint for the caches") != std::string::npos);
  CHECK(on_chip.find("got       shared f32") != std::string::npos);
  const std::string packed = error_of([&] { codes.cached(CacheHint::evict_last); });
  CHECK(packed.find("expected  a global tensor of another dtype than e2m1") != std::string::npos);
  const std::string atomic =
      error_of([&] { k.atomic_add(counts(0).cached(CacheHint::evict_last), 1); });
  CHECK(atomic.find("on 'counts' takes no hint for the caches") != std::string::npos);
}
