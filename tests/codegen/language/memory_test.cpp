// Tile programs about memory: guards, vectors, shared memory and barriers.

#include "codegen/cpu/executor.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

namespace {

/// Copies [n, 64] through fragments, 8 rows per block.
ir::Kernel copy_rows(int64_t multiple_of, int64_t stride_multiple, DType dtype) {
  Builder k("copy_rows");
  auto n = k.dim("n", {.multiple_of = multiple_of});
  auto stride = k.stride("stride", {.multiple_of = stride_multiple});
  auto x = k.input("x", dtype, {n, 64}, {.strides = {stride, 1}});
  auto y = k.output("y", dtype, {n, 64});
  auto at = k.launch({ceil_div(n, 8)}, {.threads = 64});
  auto tile = k.fragment(dtype, {8, 64}, "tile");
  k.copy(x.tile({at.x * 8, 0}, {8, 64}), tile);
  k.copy(tile, y.tile({at.x * 8, 0}, {8, 64}));
  return k.finish();
}

HostTensor zeros(Dims shape) {
  return tensor_by(DType::i32, std::move(shape), [](int64_t) { return 0; });
}

/// s[i] = x[i]; y[i] = s[where(i)] in a block of 256.
template <class Where>
ir::Kernel through_shared(const Where& where) {
  Builder k("through_shared");
  auto x = k.input("x", DType::i32, {256});
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 256});
  auto s = k.shared(DType::i32, {256}, "s");
  k.parallel({256}, [&](Value i) { s(i) = x(i); });
  k.parallel({256}, [&](Value i) { y(i) = s(where(i)); });
  return k.finish();
}

}  // namespace

TEST_CASE("a dynamic row count is guarded per vector, the columns are proved (G01)", "[language]") {
  const std::string text = cuda_text(copy_rows(1, 8, DType::f32));
  CHECK(count(text, "< n") == 2);
  CHECK(count(text, "< 64") == 0);
}

TEST_CASE("a declared multiple of the tile needs no guard (G02)", "[language]") {
  CHECK(count(cuda_text(copy_rows(8, 8, DType::f32)), "< n") == 0);
}

TEST_CASE("one block per row needs no guard (G03)", "[language]") {
  Builder k("row_per_block");
  auto n = k.dim("n");
  auto x = k.input("x", DType::f32, {n, 128});
  auto y = k.output("y", DType::f32, {n, 128});
  auto at = k.launch({n}, {.threads = 32});
  auto row = k.fragment(DType::f32, {128}, "row");
  k.copy(x(at.x), row);
  k.copy(row, y(at.x));
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "< n") == 0);
  const HostTensor in = iota(DType::f32, {3, 128});
  const HostTensor out(DType::f32, {3, 128});
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == values_of(in));
}

TEST_CASE("a guard of one product of floats does not stand for another (G03)", "[language]") {
  Builder k("two_products");
  auto v = k.input("v", DType::f32, {32});
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  k.launch({1}, {.threads = 32});
  k.parallel({32}, [&](Value i) {
    const Value a = v(i);
    k.if_(i32(a * 2.0f) >= 0 && i32(a * 2.0f) < n, [&] { y(i32(a * 3.0f)) = 1; });
  });
  const HostTensor in = iota(DType::f32, {32});
  const HostTensor out = zeros({64});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i % 3 == 0; }));
}

TEST_CASE("a difference of two casts is not their common argument's (G03)", "[language]") {
  Builder k("two_casts");
  auto v = k.input("v", DType::i32, {32});
  auto x = k.input("x", DType::i32, {512});
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  k.parallel({32}, [&](Value i) {
    const Value a = v(i);
    y(i) = x(i32(cast(DType::u8, a)) - i32(cast(DType::i8, a)));
  });
  const HostTensor in = tensor_by(DType::i32, {32}, [](int64_t i) { return i * 8; });
  const HostTensor table = iota(DType::i32, {512});
  const HostTensor out(DType::i32, {32});
  run_kernel(k.finish(), {&in, &table, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i < 16 ? 0 : 256; }));
}

TEST_CASE("windows of a tensor that is too short for one are guarded (G03)", "[language]") {
  const int64_t rows = GENERATE(9, 15, 16, 17, 24);
  CAPTURE(rows);
  Builder k("windows");
  auto n = k.dim("n");
  auto x = k.input("x", DType::i32, {n});
  auto y = k.output("y", DType::i32, {ceil_div(n, 8), 16});
  auto at = k.launch({(n - 16) / 8 + 1}, {.threads = 32});
  auto window = k.fragment(DType::i32, {16}, "window");
  k.copy(x.tile({at.x * 8}, {16}), window);
  k.copy(window, y(at.x));
  const HostTensor in = iota(DType::i32, {rows});
  const HostTensor out = zeros({(rows + 7) / 8, 16});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               const int64_t from = i / 16 * 8 + i % 16;
               return i / 16 <= (rows - 16) / 8 && from < rows ? from : 0;
             }));
}

TEST_CASE("rows outside read as zero and are not written (G04)", "[language]") {
  const HostTensor in = iota(DType::f32, {13, 64});
  const HostTensor out(DType::f32, {13, 64});
  run_kernel(copy_rows(1, 64, DType::f32), {&in, &out});  // the canaries around `out` are checked
  CHECK(values_of(out) == values_of(in));

  Builder k("tail");
  auto x = k.input("x", DType::i32, {5});
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto tile = k.fragment(DType::i32, {32}, "tile");
  k.copy(x.tile({k.warp()}, {32}), tile);
  k.copy(tile, y);
  const HostTensor five = tensor_of(DType::i32, {5}, {1, 2, 3, 4, 5});
  const HostTensor padded(DType::i32, {32});
  run_kernel(k.finish(), {&five, &padded});
  CHECK(padded.value(4) == 5);
  for (int64_t i = 5; i < 32; ++i) CHECK(padded.value(i) == 0);
}

TEST_CASE("a gathered row is checked at the end that the condition leaves open (G05)",
          "[language]") {
  Builder k("gather");
  auto n = k.dim("n");
  auto m = k.dim("m");
  auto x = k.input("x", DType::i32, {n, 32});
  auto at_row = k.input("at_row", DType::i32, {m});
  auto y = k.output("y", DType::i32, {m, 32});
  auto at = k.launch({m}, {.threads = 32});
  Value row = at_row(at.x);
  k.if_else(
      row >= 0, [&] { y(at.x, k.thread()) = x(row, k.thread()); },
      [&] { y(at.x, k.thread()) = -1; });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "< n") == 1);
  CHECK(count(text, "0 <=") == 1);  // the author's own condition, no second one
  const HostTensor in = iota(DType::i32, {4, 32});
  const HostTensor rows = tensor_of(DType::i32, {3}, {2, -1, 9});
  const HostTensor out(DType::i32, {3, 32});
  run_kernel(kernel, {&in, &rows, &out});
  CHECK(out.value(5) == 69);
  CHECK(out.value(32 + 5) == -1);
  CHECK(out.value(64 + 5) == 0);
}

TEST_CASE("constant indices and regions out of range are rejected (G06)", "[language]") {
  auto text_of = [](const std::function<void(Builder&, dsl::Ref&)>& body) {
    Builder k("constants");
    auto x = k.output("x", DType::i32, {8});
    k.launch({1}, {.threads = 32});
    return error_of([&] { body(k, x); });
  };
  for (const std::string& text :
       {text_of([](Builder&, dsl::Ref&x) { x(8) = 1; }),
        text_of([](Builder&, dsl::Ref&x) { Value v = x(-1); }),
        text_of([](Builder&k, dsl::Ref&x) { k.fill(x.tile({6}, {6}), 0); }),
        text_of([](Builder&k, dsl::Ref&x) {
          auto tile = k.fragment(DType::i32, {6}, "tile");
          k.copy(x.tile({6}, {6}), tile);
        })}) {
    CHECK(text.find("[OOB_CONST]") != std::string::npos);
  }
}

TEST_CASE("a store whose value is a conditional keeps its guard (G08)", "[language]") {
  Builder k("conditional");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto at = k.launch({ceil_div(n, 64)}, {.threads = 64});
  k.parallel({64}, [&](Value i) { y(at.x * 64 + i) = select(i < 32, i, -i); });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "< n") >= 1);
  const HostTensor out(DType::i32, {70});
  run_kernel(kernel, {&out});
  CHECK(out.value(69) == 5);
}

TEST_CASE("7168 bf16 columns over 128 threads are seven 16-byte accesses (V01)", "[language]") {
  Builder k("row");
  auto n = k.dim("n");
  auto x = k.input("x", DType::bf16, {n, 7168});
  auto y = k.output("y", DType::bf16, {n, 7168});
  auto at = k.launch({n}, {.threads = 128});
  auto row = k.fragment(DType::bf16, {7168}, "row");
  k.copy(x(at.x), row);
  k.copy(row, y(at.x));
  const std::string text = cuda_text(k.finish());
  CHECK(count(text, "load<8>") == 1);
  CHECK(count(text, "s < 7") == 2);
}

TEST_CASE("the declared divisibility of a stride decides the width (V02, V03)", "[language]") {
  CHECK(count(cuda_text(copy_rows(1, 4, DType::bf16)), "load_here_or_zero<4>") == 1);
  const std::string scalar = cuda_text(copy_rows(1, 1, DType::bf16));
  CHECK(count(scalar, "load") == 0);  // element by element
  CHECK(count(scalar, "? x[") == 1);
}

TEST_CASE("many slots are moved in four rounds, those of registers are written out", "[language]") {
  const auto kernel = [](bool through_registers) {
    Builder k("copy");
    auto x = k.input("x", DType::u8, {4096}, {.align = 1});
    auto y = k.output("y", DType::u8, {4096}, {.align = 1});
    k.launch({1}, {.threads = 128});
    auto held = through_registers ? k.fragment(DType::u8, {4096}, "held")
                                  : k.shared(DType::u8, {4096}, "held");
    k.copy(x, held);
    k.copy(held, y);
    return k.finish();
  };
  const HostTensor x = tensor_by(DType::u8, {4096}, [](int64_t i) { return i % 251; });
  const HostTensor y(DType::u8, {4096});
  run_kernel(kernel(false), {&x, &y});
  CHECK(values_of(y) == values_of(x));
  CHECK(count(cuda_text(kernel(false)), "#pragma unroll 8\n  for (int s = 0; s < 32; ++s)") == 2);
  CHECK(count(cuda_text(kernel(true)), "#pragma unroll\n  for (int s = 0; s < 32; ++s)") == 2);
}

TEST_CASE("a vectorized loop is a contract (V10)", "[language]") {
  auto kernel = [](int64_t step) {
    Builder k("contract");
    auto x = k.input("x", DType::f32, {256});
    auto y = k.output("y", DType::f32, {256});
    k.launch({1}, {.threads = 32});
    auto t = k.thread();
    k.vectorized(4, [&](Value v) { y(t * 4 + v) = x(t * 4 + v * step) + 1.0f; });
    return k.finish();
  };
  const HostTensor in = iota(DType::f32, {256});
  const HostTensor out(DType::f32, {256});
  run_kernel(kernel(1), {&in, &out});
  CHECK(out.value(127) == 128);
  CHECK(count(cuda_text(kernel(1)), "load<4>") == 1);
  const std::string text = error_of([&] { cuda_text(kernel(2)); });
  CHECK(text.find("[VEC_NOT_CONTIGUOUS]") != std::string::npos);
  CHECK(text.find("'x' cannot be accessed as a vector") != std::string::npos);
}

TEST_CASE("an index modulo something that does not divide the loop (V09)", "[language]") {
  Builder k("modulo");
  auto b = k.input("b", DType::i32, {5});
  auto y = k.output("y", DType::i32, {4, 12});
  k.launch({1}, {.threads = 32});
  k.parallel({4, 12}, [&](Value i, Value j) { y(i, j) = b(j % 5) + i * 100; });
  const HostTensor in = iota(DType::i32, {5});
  const HostTensor out(DType::i32, {4, 12});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i % 12 % 5 + i / 12 * 100; }));
}

TEST_CASE("a barrier stands exactly where another thread reads (S01, S02)", "[language]") {
  const ir::Kernel reversed = through_shared([](const Value& i) { return 255 - i; });
  CHECK(count(cuda_text(reversed), "__syncthreads") == 1);
  const ir::Kernel same = through_shared([](const Value& i) { return i + 0; });
  CHECK(count(cuda_text(same), "__syncthreads") == 0);
  const HostTensor in = iota(DType::i32, {256});
  const HostTensor out(DType::i32, {256});
  run_kernel(reversed, {&in, &out});
  CHECK(out.value(3) == 252);
  run_kernel(same, {&in, &out});
  CHECK(values_of(out) == values_of(in));
}

TEST_CASE("a loop that writes and reads reversed has two barriers per round (S03)", "[language]") {
  Builder k("rounds");
  auto y = k.output("y", DType::i32, {256});
  k.launch({1}, {.threads = 256});
  auto s = k.shared(DType::i32, {256}, "s");
  auto sum = k.var(DType::i32, 0, "sum");
  auto t = k.thread();
  k.serial(0, 5, [&](Value round) {
    s(t) = t * (round + 1);
    sum = sum + s(255 - t);
  });
  y(t) = sum;
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "__syncthreads") == 2);
  const HostTensor out(DType::i32, {256});
  run_kernel(kernel, {&out});
  CHECK_THAT(out, HasValues([](int64_t i) { return (255 - i) * 15; }));
}

TEST_CASE("a barrier inside a condition needs a condition of the whole block (S06, S07)",
          "[language]") {
  auto kernel = [](bool uniform) {
    Builder k("conditional_sync");
    auto flag = k.input("flag", DType::i32, {4});
    auto y = k.output("y", DType::i32, {64});
    auto at = k.launch({4}, {.threads = 64});
    auto s = k.shared(DType::i32, {64}, "s");
    auto t = k.thread();
    auto condition = uniform ? flag(at.x) > 0 : t < 48;
    k.if_(condition, [&] {
      s(t) = t;
      y(t) = s(63 - t);
    });
    return k.finish();
  };
  CHECK(count(cuda_text(kernel(true)), "__syncthreads") == 1);
  const std::string text = error_of([&] { cuda_text(kernel(false)); });
  CHECK(text.find("[SYNC_DIVERGENT]") != std::string::npos);
  CHECK(text.find("memory_test.cpp") != std::string::npos);
}

TEST_CASE("rows that belong to one warp need only the author's warp sync (S08)", "[language]") {
  Builder k("warp_rows");
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 128});
  auto s = k.shared(DType::i32, {4, 32}, "s");
  s(k.warp(), k.lane()) = k.thread();
  k.sync_warp();
  y(k.thread()) = s(k.warp(), 31 - k.lane());
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "__syncthreads") == 0);
  const HostTensor out(DType::i32, {128});
  run_kernel(kernel, {&out});
  CHECK(out.value(33) == 62);
}

TEST_CASE("a block that needs more shared memory than there is names its buffers (S13)",
          "[language]") {
  Builder k("greedy");
  auto y = k.output("y", DType::f32, {32});
  k.launch({1}, {.threads = 32});
  auto a = k.shared(DType::f32, {32768}, "first");
  auto b = k.shared(DType::f32, {32768}, "second");
  a(k.thread()) = 1.0f;
  b(k.thread()) = 2.0f;
  y(k.thread()) = a(k.thread()) + b(k.thread());
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { cuda_text(kernel); });
  CHECK(text.find("[SMEM_LIMIT]") != std::string::npos);
  CHECK(text.find("first 131072 bytes, second 131072 bytes") != std::string::npos);
  CHECK(text.find("at most 232448 bytes on sm_90a") != std::string::npos);
}

TEST_CASE("an extent so large that tile indices would overflow is refused", "[language]") {
  const int64_t n = (int64_t{1} << 31) - 5;
  alignas(16) std::byte few[16]{};
  const TensorView huge(few, DType::f32, Dims{n, 64}, Dims{64, 1}, Device::cpu());
  const TensorView views[] = {huge, huge};
  const ir::Kernel kernel = copy_rows(1, 64, DType::f32);
  const std::string text = error_of([&] { kernels::jit::run(kernel, views, {}, nullptr); });
  CAPTURE(text);
  CHECK(text.find("tessera: copy_rows: argument 'x' has an extent 2147483643 that the kernel does "
                  "not take\n"
                  "  expected  n (dimension 0) below 2130706425\n"
                  "  got       f32[2147483643, 64]\n"
                  "  at        ") == 0);
}

TEST_CASE("what a branch assumes or tests is forgotten after it", "[language]") {
  Builder k("scoped_facts");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  auto z = k.output("z", DType::i32, {n});
  k.launch({1}, {.threads = 32});
  auto i = k.thread();
  k.if_(i < n, [&] {
    k.assume(i + 1 <= n);
    y(i) = 1;
  });
  z(i) = 2;
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "< n") == 2);  // the author's condition, and the guard of z
  const HostTensor few(DType::i32, {5});
  const HostTensor out(DType::i32, {5});
  run_kernel(kernel, {&few, &out});  // the canaries around both are checked
  CHECK(values_of(out) == std::vector<double>(5, 2.0));
}

TEST_CASE("a value stored and read back in one iteration is the new one", "[language]") {
  Builder k("read_back");
  auto x = k.input("x", DType::f32, {256});
  auto y = k.output("y", DType::f32, {256});
  auto z = k.output("z", DType::bf16, {256});
  k.launch({1}, {.threads = 32});
  auto f = k.fragment(DType::bf16, {256}, "f");
  k.parallel({256}, [&](Value i) {
    y(i) = x(i) + 1.0f;
    f(i) = cast(DType::bf16, y(i) * 2.0f);
    z(i) = f(i);
  });
  const HostTensor in = iota(DType::f32, {256});
  const HostTensor out(DType::f32, {256});
  const HostTensor twice(DType::bf16, {256});
  run_kernel(k.finish(), {&in, &out, &twice});
  CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));
  CHECK_THAT(twice, HasValues([](int64_t i) { return 2 * i + 2; }));
}

TEST_CASE("a reshaped shared buffer names the same elements in another shape", "[language]") {
  for (const int64_t columns : {128, 32, 6}) {
    CAPTURE(columns);
    Builder k("view");
    auto x = k.input("x", DType::f32, {24, 64});
    auto y = k.output("y", DType::f32, {24 * 64 / columns, columns});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(DType::f32, {24, 64}, "tile");
    k.copy(x, tile);
    k.copy(tile.reshape({24 * 64 / columns, columns}), y);
    const HostTensor in = iota(DType::f32, {24, 64});
    const HostTensor out(DType::f32, {24 * 64 / columns, columns});
    run_kernel(k.finish(), {&in, &out});
    CHECK(values_of(out) == values_of(in));
  }
}

TEST_CASE("what lies outside of a tensor is read as the author says (G09)", "[language]") {
  const bool through_shared = GENERATE(false, true);
  const int64_t height = GENERATE(8, 13);
  CAPTURE(through_shared, height);
  Builder k("padding");
  auto n = k.dim("n");
  auto m = k.dim("m");
  auto x = k.input("x", DType::i32, {n, m});
  auto y = k.output("y", DType::f32, {16, 32});
  auto at = k.launch({1}, {.threads = 64});
  auto tile = through_shared ? k.shared(DType::f32, {16, 32}, "tile")
                             : k.fragment(DType::f32, {16, 32}, "tile");
  k.copy(x.tile({at.x - 1, 0}, {16, 32}), tile, {.outside = -99});
  k.copy(tile, y);
  const HostTensor source = iota(DType::i32, {height, 30});
  const HostTensor result(DType::f32, {16, 32});
  run_kernel(k.finish(), {&source, &result});
  CHECK_THAT(result, HasValues([&](int64_t element) {
               const int64_t i = element / 32, j = element % 32;
               const bool inside = i >= 1 && i <= height && j < 30;
               return inside ? source.value((i - 1) * 30 + j) : -99.0;
             }));
}

TEST_CASE("a copy with a value outside says what it cannot do", "[language]") {
  Builder k("padding");
  auto x = k.input("x", DType::f32, {32});
  k.launch({1}, {.threads = 32});
  auto a = k.shared(DType::f32, {32}, "a");
  auto b = k.shared(DType::f32, {32}, "b");
  const std::string on_chip = error_of([&] { k.copy(a, b, {.outside = 1}); });
  CHECK(on_chip.find("copy from 'a', which has no outside [COPY_OUTSIDE]") != std::string::npos);
  CHECK(on_chip.find("from a global tensor") != std::string::npos);
  const Value t = cast(DType::f32, k.thread());
  const std::string computed = error_of([&] { k.copy(x.tile({0}, {32}), a, {.outside = t}); });
  CHECK(computed.find("copy from 'x' with a computed value outside [COPY_OUTSIDE]") !=
        std::string::npos);
}

TEST_CASE("a tile of fewer elements than threads is loaded once", "[language]") {
  Builder k("small");
  auto x = k.input("x", DType::f32, {32}), y = k.output("y", DType::f32, {128});
  k.launch({1}, {.threads = 128});
  auto tile = k.shared(DType::f32, {32}, "tile");
  k.copy(x, tile);
  k.parallel({128}, [&](Value i) { y(i) = tile(i / 4); });
  const ir::Kernel kernel = k.finish();
  const HostTensor in = iota(DType::f32, {32}), out(DType::f32, {128});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i / 4; }));
  codegen::cpu::Counts counts;
  const codegen::cpu::Argument arguments[] = {{.tensor = in.view()}, {.tensor = out.view()}};
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, {.counts = &counts});
  CHECK(counts.global_load_bytes == 128);
  CHECK(counts.global_load_requests == 1);
}

TEST_CASE("two fine steps of each coarse step need no guard", "[language]") {
  Builder k("steps");
  auto depth = k.dim("depth", {.multiple_of = 64});
  auto whole = k.input("whole", DType::f32, {depth});
  auto x = k.input("x", DType::f32, {depth / 32}), y = k.output("y", DType::f32, {1});
  k.launch({1}, {.threads = 32});
  auto sum = k.var(DType::f32, 0.0f);
  k.serial(0, depth / 64, [&](Value s) {
    sum += x(s * 2 + 1);
    sum += whole(s * 64 + 63);
  });
  k.if_(k.thread() == 0, [&] { y(0) = sum; });
  const ir::Kernel kernel = k.finish();
  CHECK(count(codegen::explain(kernel), "guarded") == 0);
  const HostTensor all = iota(DType::f32, {192}), fine = iota(DType::f32, {6});
  const HostTensor out(DType::f32, {1});
  run_kernel(kernel, {&all, &fine, &out});
  CHECK(out.value(0) == 1 + 3 + 5 + 63 + 127 + 191);
}
