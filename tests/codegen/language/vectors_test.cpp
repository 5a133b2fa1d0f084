// Tile programs about the width of accesses.
//
// Left out: V11, 32-byte accesses on sm_100a. Lowering does not know the target, and the widest
// access of the thread IR is 16 bytes.

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "kernels/jit/jit.h"
#include "tests/support/catch.h"
#include "tests/support/conversion_cases.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Value;

TEST_CASE("a base pointer off its declared alignment is a launch error (V04)", "[language]") {
  Builder k("aligned");
  auto x = k.output("x", DType::bf16, {64}, {.align = 16});
  k.launch({1}, {.threads = 32});
  k.fill(x, 1);
  const HostTensor memory(DType::bf16, {72});
  TensorView shifted(static_cast<std::byte*>(memory.view().data) + 2, DType::bf16, Dims{64},
                     Device::cpu());
  const ir::Kernel kernel = k.finish();
  const std::string text = error_of([&] { kernels::jit::run(kernel, {&shifted, 1}, {}, nullptr); });
  CHECK(text.find("argument 'x' is not aligned") != std::string::npos);
  CHECK(text.find("an address that is a multiple of 16 bytes") != std::string::npos);
}

TEST_CASE("e4m3 is converted in pairs and stored 16 at a time (V06)", "[language]") {
  Builder k("pairs");
  auto x = k.input("x", DType::f32, {512});
  auto y = k.output("y", DType::e4m3, {512});
  k.launch({1}, {.threads = 32});
  // Through shared memory: in registers the layout of the loads, four wide, would rule the stores.
  auto tile = k.shared(DType::f32, {512}, "tile");
  k.copy(x, tile);
  k.parallel({512}, [&](Value i) { y(i) = cast(DType::e4m3, tile(i) * 0.5f); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "store<16>(") == 1);
  CHECK(count(text, "f32_to_e4m3x4(") == 1);
  const HostTensor in = tensor_by(DType::f32, {512}, [](int64_t i) { return i % 32; });
  const HostTensor out(DType::e4m3, {512});
  run_kernel(kernel, {&in, &out});
  const HostTensor rounded =
      tensor_by(DType::e4m3, {512}, [&](int64_t i) { return in.value(i) * 0.5; });
  CHECK(values_of(out) == values_of(rounded));
}

TEST_CASE("rows that a fragment names are read and written as vectors", "[language]") {
  Builder k("rows_by_index");
  auto from = k.input("from", DType::i32, {4}), to = k.input("to", DType::i32, {4});
  auto x = k.input("x", DType::bf16, {4, 64});
  auto y = k.output("y", DType::bf16, {4, 64});
  k.launch({1}, {.threads = 32});
  auto rows_of_8 = layout::Layout({4}, {{0, 1, 4, 8, 0}}, {{8, 1}});
  auto source = k.fragment(DType::i32, rows_of_8, "source");
  auto target = k.fragment(DType::i32, rows_of_8, "target");
  k.copy(from, source);
  k.copy(to, target);
  k.parallel({4, 64}, [&](Value r, Value c) { y(target(r), c) = x(source(r), c); });
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(count(text, "load_here_or_zero<8>(") == 1);
  CHECK(count(text, "store<8>(") == 1);

  const HostTensor in = tensor_by(DType::bf16, {4, 64}, [](int64_t i) { return i % 251; });
  const HostTensor source_rows = tensor_by(DType::i32, {4}, [](int64_t i) { return 3 - i; });
  const HostTensor target_rows = tensor_by(DType::i32, {4}, [](int64_t i) { return i ^ 1; });
  const HostTensor out(DType::bf16, {4, 64});
  run_kernel(kernel, {&source_rows, &target_rows, &in, &out});
  const HostTensor want = tensor_by(DType::bf16, {4, 64}, [](int64_t i) {
    const int64_t target_row = i / 64, source_row = 3 - (target_row ^ 1);
    return (source_row * 64 + i % 64) % 251;
  });
  CHECK(values_of(out) == values_of(want));
}

TEST_CASE("columns that a fragment names are read one by one", "[language]") {
  Builder k("columns_by_index");
  auto index = k.input("index", DType::i32, {64});
  auto x = k.input("x", DType::f32, {4, 64});
  auto y = k.output("y", DType::f32, {4, 64});
  k.launch({1}, {.threads = 64});
  auto column = k.fragment(
      DType::i32, layout::Layout({64}, {{0, 1, 4, 0, 1}, {0, 4, 16, 1, 0}}, {{4, 16}}), "column");
  k.copy(index, column);
  k.parallel({4, 64}, [&](Value r, Value c) { y(r, c) = x(r, column(c)); });
  const ir::Kernel kernel = k.finish();

  const HostTensor in = tensor_by(DType::f32, {4, 64}, [](int64_t i) { return i; });
  const HostTensor columns = tensor_by(DType::i32, {64}, [](int64_t i) { return i * 37 % 64; });
  const HostTensor out(DType::f32, {4, 64});
  run_kernel(kernel, {&columns, &in, &out});
  const HostTensor want =
      tensor_by(DType::f32, {4, 64}, [](int64_t i) { return i / 64 * 64 + i % 64 * 37 % 64; });
  CHECK(values_of(out) == values_of(want));
}

TEST_CASE("an e2m1 tile that begins at an odd column is refused (V07)", "[language]") {
  const auto write_at = [](int64_t column) {
    Builder k("nibbles");
    auto x = k.input("x", DType::f32, {32});
    auto y = k.output("y", DType::e2m1, {64});
    k.launch({1}, {.threads = 32});
    auto tile = k.fragment(DType::f32, {32}, "tile");
    k.copy(x, tile);
    k.copy(tile, y.tile({column}, {32}));
    return k.finish();
  };
  const ir::Kernel odd = write_at(3);
  CHECK(error_of([&] {
          codegen::lower(odd);
        }).find("'y' holds two e2m1 codes per byte and is written one at a time") !=
        std::string::npos);
  CHECK(error_of([&] { codegen::lower(write_at(4)); }).empty());
}

TEST_CASE("a branch that all lanes of a vector take stands around their loop", "[language]") {
  const auto doubled_if = [](bool by_row) {
    Builder k("rows");
    auto x = k.input("x", DType::bf16, {4, 256});
    auto wanted = k.input("wanted", DType::i32, {4});
    auto y = k.output("y", DType::bf16, {4, 256});
    k.launch({1}, {.threads = 32});
    auto tile = k.fragment(DType::bf16, {4, 256}, "tile");
    k.copy(x, tile);
    k.parallel({4, 256}, [&](Value i, Value j) {
      const Value condition = by_row ? wanted(i) >= 0 : wanted(i) >= j;
      k.if_else(
          condition, [&] { y(i, j) = tile(i, j) + tile(i, j); }, [&] { y(i, j) = 1.0f; });
    });
    return k.finish();
  };
  const HostTensor in = tensor_by(DType::bf16, {4, 256}, [](int64_t i) { return i % 128; });
  const HostTensor wanted = tensor_by(DType::i32, {4}, [](int64_t i) { return i % 2 * 9 - 3; });
  for (const bool by_row : {true, false}) {
    CAPTURE(by_row);
    const ir::Kernel kernel = doubled_if(by_row);
    const std::string text = cuda_text(kernel);
    CHECK(count(text, "store<8>(") == (by_row ? 2 : 0));
    CHECK(count(text, "in_pairs<add_bf16x2, 8>(") == (by_row ? 1 : 0));
    const HostTensor out(DType::bf16, {4, 256});
    run_kernel(kernel, {&in, &wanted, &out});
    for (int64_t i = 0; i < 4 * 256; ++i) {
      const bool taken = wanted.value(i / 256) >= (by_row ? 0 : static_cast<double>(i % 256));
      REQUIRE(out.value(i) == (taken ? 2 * in.value(i) : 1));
    }
  }
}

TEST_CASE("a condition that varies inside a vector is kept per element (V08)", "[language]") {
  Builder k("varying");
  auto x = k.input("x", DType::f32, {256});
  auto y = k.output("y", DType::f32, {256});
  k.launch({1}, {.threads = 32});
  auto tile = k.fragment(DType::f32, {256}, "tile");
  k.copy(x, tile);
  k.parallel({256}, [&](Value i) {
    k.if_else(
        i % 3 == 0, [&] { y(i) = tile(i) * 2.0f; }, [&] { y(i) = 1.0f; });
  });
  const HostTensor in = iota(DType::f32, {256});
  const HostTensor out(DType::f32, {256});
  run_kernel(k.finish(), {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i % 3 == 0 ? 2 * i : 1; }));
}

namespace {

constexpr int64_t kCasts = 512;
const std::vector<int64_t> kWidths = {1, 2, 4, 8};

/// x [512] to one output [widths, 512] per dtype, cast in vectors of each width.
ir::Kernel cast_matrix(DType from, const std::vector<DType>& targets) {
  Builder k("cast_matrix");
  auto x = k.input("x", from, {kCasts});
  const auto widths = static_cast<int64_t>(kWidths.size());
  std::vector<dsl::Ref> outputs;
  for (const DType to : targets) {
    outputs.push_back(k.output(fmt::format("to_{}", name(to)), to, {widths, kCasts}));
  }
  k.launch({1}, {.threads = 64});
  for (size_t i = 0; i < targets.size(); ++i) {
    for (int64_t row = 0; row < widths; ++row) {
      const int64_t width = kWidths[static_cast<size_t>(row)];
      k.serial(0, 8 / width, [&](Value part) {
        const Value first = k.thread() * 8 + part * width;
        k.vectorized(width,
                     [&](Value v) { outputs[i](row, first + v) = cast(targets[i], x(first + v)); });
      });
    }
  }
  return k.finish();
}

}  // namespace

// e2m1, two codes to a byte, is covered by the conversion programs of tests/codegen/cpu.
TEST_CASE("the second store to an element is the one that stays (V08)", "[language]") {
  Builder k("two_stores");
  auto x = k.input("x", DType::i32, {128});
  auto place = k.input("place", DType::i32, {128});
  auto y = k.output("y", DType::i32, {128});
  k.launch({1}, {.threads = 32});
  k.parallel({128}, [&](Value i) {
    y(i) = 0;
    y(place(i)) = x(i);
  });
  const HostTensor source = iota(DType::i32, {128});
  HostTensor result(DType::i32, {128});
  run_kernel(k.finish(), {&source, &source, &result});
  CHECK_THAT(result, HasValues([](int64_t i) { return i; }));
}

TEST_CASE("two stores to rows of their own stay vectors (V08)", "[language]") {
  Builder k("two_rows");
  auto x = k.input("x", DType::i32, {128});
  auto y = k.output("y", DType::i32, {2, 128});
  k.launch({1}, {.threads = 32});
  k.parallel({128}, [&](Value i) {
    y(0, i) = x(i);
    y(1, i) = x(i) + 1;
  });
  const ir::Kernel kernel = k.finish();
  const HostTensor source = iota(DType::i32, {128});
  HostTensor result(DType::i32, {2, 128});
  run_kernel(kernel, {&source, &result});
  CHECK_THAT(result, HasValues([](int64_t e) { return e % 128 + e / 128; }));
  CHECK(count(cuda_text(kernel), "store<") == 2);
}

TEST_CASE("every cast at widths 1, 2, 4 and 8 equals the model (V14)", "[language][slow]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  std::vector<DType> all = all_dtypes();
  all.erase(std::find(all.begin(), all.end(), DType::e2m1));
  for (const DType from : all) {
    CAPTURE(name(from));
    std::vector<DType> types = all;
    types.erase(std::find(types.begin(), types.end(), from));
    const ir::Kernel kernel = cast_matrix(from, types);
    const std::vector<uint64_t> inputs = conversion_inputs(from);
    HostTensor x(from, {kCasts});
    for (size_t i = 0; i < kCasts; ++i) {
      x.set_bits(static_cast<int64_t>(i), inputs[i * inputs.size() / kCasts]);
    }
    std::vector<HostTensor> outputs;
    std::vector<TensorView> views = {x.view()};
    for (const DType to : types) {
      outputs.emplace_back(to, Dims{static_cast<int64_t>(kWidths.size()), kCasts});
    }
    for (const HostTensor& output : outputs) views.push_back(output.view());
    {
      const kernels::jit::TrapScope traps;
      kernels::jit::run(kernel, views, {}, nullptr);
    }
    int64_t wrong = 0;
    for (size_t t = 0; t < types.size(); ++t) {
      for (int64_t i = 0; i < outputs[t].size(); ++i) {
        const uint64_t expected = converted(from, types[t], x.bits(i % kCasts));
        if (outputs[t].bits(i) != expected) ++wrong;
      }
    }
    CHECK(wrong == 0);
    if (!nvrtc) continue;
    // The path without conversion instructions; that with them is compiled by conversion programs.
    const Compiled compiled =
        nvrtc->compile(codegen::cuda::emit(codegen::lower(kernel, {8, 0, 0})).text, "sm_80");
    CAPTURE(compiled.log);
    CHECK(compiled.ok);
  }
}

TEST_CASE("the last element of a tensor beyond 2^31 elements (G11)", "[language]") {
  // Two rows, far apart: address space without memory behind most of it.
  constexpr int64_t kPitch = (int64_t{1} << 31) + 4096;
  constexpr size_t kBytes = static_cast<size_t>(kPitch) + 64;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) TESSERA_SKIP("no address space for 2 GiB");
  Builder k("far");
  auto pitch = k.stride("pitch");
  auto y = k.output("y", DType::u8, {2, 64}, {.strides = {pitch, 1}});
  auto at = k.launch({2}, {.threads = 64});
  y(at.x, k.thread()) = cast(DType::u8, at.x * 100 + k.thread());
  const TensorView view(memory, DType::u8, Dims{2, 64}, Dims{kPitch, 1}, Device::cpu());
  const ir::Kernel kernel = k.finish();
  {
    const kernels::jit::TrapScope traps;
    kernels::jit::run(kernel, {&view, 1}, {}, nullptr);
  }
  const auto* bytes = static_cast<const uint8_t*>(memory);
  CHECK(bytes[63] == 63);
  CHECK(bytes[kPitch + 63] == 163);
  CHECK(bytes[kPitch - 1] == 0);
  munmap(memory, kBytes);
}
