// Tile programs about tables of constants.

#include <algorithm>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// y[i] = values[x[i]] by a table, of 64 elements.
ir::Kernel look_up(DType dtype, const std::vector<int64_t>& values) {
  Builder k("look_up");
  auto x = k.input("x", DType::i32, {64});
  auto y = k.output("y", dtype, {64});
  k.launch({1}, {.threads = 32});
  auto table = k.table(dtype, std::vector<dsl::Arg>(values.begin(), values.end()));
  k.parallel({64}, [&](Value i) { y(i) = table(x(i)); });
  return k.finish();
}

}  // namespace

TEST_CASE("a table gives the constant at each index", "[language]") {
  const auto length = static_cast<size_t>(GENERATE(1, 2, 3, 5, 16, 37, 256));
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::i32, DType::i64);
  CAPTURE(length, name(dtype));
  std::vector<int64_t> values;
  for (size_t i = 0; i < length; ++i) values.push_back(static_cast<int64_t>(i * i % 23) - 5);
  HostTensor x(DType::i32, {64});
  for (int64_t i = 0; i < 64; ++i) {
    x.set_value(i, static_cast<double>(static_cast<size_t>(i * 37) % length));
  }
  const HostTensor y(dtype, {64});
  run_kernel(look_up(dtype, values), {&x, &y});
  for (int64_t i = 0; i < 64; ++i)
    CHECK(y.value(i) == static_cast<double>(values[static_cast<size_t>(x.value(i))]));
}

TEST_CASE("a table chooses by bits, and only between constants that differ", "[language]") {
  const auto text = [](const std::vector<int64_t>& values) {
    return codegen::cuda::emit(codegen::lower(look_up(DType::i32, values))).text;
  };
  const auto count = [](const std::string& in, char what) {
    return std::count(in.begin(), in.end(), what);
  };
  const std::string four = text({10, 20, 30, 40}), two = text({10, 10, 30, 30});
  CHECK(count(four, '?') == count(two, '?') + 2);
}

TEST_CASE("an index outside of a table gives one of its constants", "[language]") {
  HostTensor x(DType::i32, {64});
  for (int64_t i = 0; i < 64; ++i) x.set_value(i, static_cast<double>(i * 5 - 100));
  const HostTensor y(DType::i32, {64});
  run_kernel(look_up(DType::i32, {10, 20, 30}), {&x, &y});
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t place = static_cast<int64_t>(x.value(i)) & 3;
    CHECK(y.value(i) == static_cast<double>(place < 3 ? 10 * (place + 1) : 30));
  }
}

TEST_CASE("a loop with a table reads and writes vectors", "[language]") {
  Builder k("codes");
  auto x = k.input("x", DType::u8, {1024});
  auto y = k.output("y", DType::bf16, {1024});
  k.launch({1}, {.threads = 128});
  auto table = k.table(DType::bf16, {0, 1, 2, -4});
  k.parallel({1024}, [&](Value i) { y(i) = table(x(i)); });
  const std::string text = codegen::cuda::emit(codegen::lower(k.finish())).text;
  CHECK(text.find("load<8>") != std::string::npos);
  CHECK(text.find("store<8>") != std::string::npos);
}

TEST_CASE("a table of what is no constant is refused", "[language]") {
  Builder k("wrong");
  auto x = k.input("x", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  const auto text = [&](std::vector<dsl::Arg> values) {
    return error_of([&] { k.table(DType::bf16, std::move(values)); });
  };
  CHECK(text({}).find("[TABLE]") != std::string::npos);
  CHECK(text(std::vector<dsl::Arg>(257, 1)).find("expected  1 .. 256") != std::string::npos);
  CHECK(text({1, Value(x(0))}).find("element 1 of a table is no constant") != std::string::npos);
  CHECK(text({1, 0.1F}).find("[LITERAL]") != std::string::npos);
  auto table = k.table(DType::f32, {1, 2});
  CHECK(error_of([&] { table(x(0)); }).find("[DTYPE]") != std::string::npos);
}
