// Tile programs that add neighbours to global memory: one instruction for a run of floats.

#include <fmt/format.h>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/program_text.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::MemoryOrder;
using dsl::Tile;
using dsl::Value;

namespace {

constexpr int64_t kRows = 8, kColumns = 64, kBlocks = 2;

/// y [8, 64] += x [8, 64], by two blocks.
ir::Kernel tile_sum(DType dtype) {
  Builder k("tile_sum");
  auto x = k.input("x", DType::f32, {kRows, kColumns});
  auto y = k.output("y", dtype, {kRows, kColumns});
  k.launch({kBlocks}, {.threads = 64});
  auto part = k.fragment(DType::f32, {kRows, kColumns}, "part");
  k.copy(x.tile({0, 0}, {kRows, kColumns}), part);
  k.atomic_add(y.tile({0, 0}, {kRows, kColumns}), Tile(part));
  return k.finish();
}

/// The output of `explain` for a kernel that adds once.
std::string explained(const std::function<void(Builder&, const dsl::Ref&)>& add,
                      dsl::DimOptions options = {}) {
  Builder k("explained");
  auto n = k.dim("n", options);
  auto y = k.output("y", DType::f32, {n, n});
  k.launch({1}, {.threads = 32});
  add(k, y);
  return codegen::explain(k.finish());
}

}  // namespace

TEST_CASE("a run of sums in memory is one instruction", "[language]") {
  const DType dtype = GENERATE(DType::f32, DType::f16, DType::bf16);
  CAPTURE(name(dtype));
  const ir::Kernel kernel = tile_sum(dtype);
  const std::string text = cuda_text(kernel);
  CHECK(count(text, fmt::format("  add_run_{}<4>(&y[", name(dtype))) == 1);
  CHECK(count(text, "atomicAdd(&") == 0);
  CHECK(codegen::explain(kernel).find("one atomic per element") == std::string::npos);
  const std::string program = codegen::to_string(codegen::lower(kernel));
  CHECK(count(program, " atomic add y[") == 1);
  CHECK(codegen::to_string(read_program(program)) == program);

  HostTensor x(DType::f32, {kRows, kColumns});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, static_cast<double>(i % 23));
  HostTensor y(dtype, {kRows, kColumns});
  for (int64_t i = 0; i < y.size(); ++i) y.set_value(i, 0.5);
  codegen::cpu::Counts counts;
  codegen::cpu::Options options;
  options.traps = true;
  options.counts = &counts;
  const codegen::cpu::Argument arguments[] = {{.tensor = x.view()}, {.tensor = y.view()}};
  codegen::cpu::Executable(codegen::lower(kernel)).run(arguments, options);
  CHECK_THAT(y, HasValues([](int64_t i) { return 0.5 + 2 * static_cast<double>(i % 23); }));
  CHECK(counts.atomics == kBlocks * kRows * kColumns / (4 * 32));

  for (int64_t i = 0; i < y.size(); ++i) y.set_value(i, 0.5);
  run_kernel(kernel, {&x, &y});
  CHECK_THAT(y, HasValues([](int64_t i) { return 0.5 + 2 * static_cast<double>(i % 23); }));
}

TEST_CASE("the parts of a product are added two neighbours at a time", "[language]") {
  constexpr int64_t kSize = 64, kParts = 2;
  Builder k("split");
  auto a = k.input("a", DType::bf16, {kSize, kParts * kSize});
  auto b = k.input("b", DType::bf16, {kParts * kSize, kSize});
  auto y = k.output("y", DType::f32, {kSize, kSize});
  auto at = k.launch({kParts}, {.threads = 128});
  auto left = k.shared(DType::bf16, {kSize, kSize}, "left");
  auto right = k.shared(DType::bf16, {kSize, kSize}, "right");
  auto part = k.fragment(DType::f32, {kSize, kSize}, "part");
  k.copy(a.tile({0, at.x * kSize}, {kSize, kSize}), left);
  k.copy(b.tile({at.x * kSize, 0}, {kSize, kSize}), right);
  k.fill(part, 0.0f);
  k.gemm(left, right, part);
  k.atomic_add(y, Tile(part));
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "  add_run_f32<2>(&y[") == 1);
  CHECK(count(cuda_text(kernel), "atomicAdd(&") == 0);
  HostTensor x(DType::bf16, {kSize, kParts * kSize}), w(DType::bf16, {kParts * kSize, kSize});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, static_cast<double>(i % 7 - 3));
  for (int64_t i = 0; i < w.size(); ++i) w.set_value(i, static_cast<double>(i % 5 - 2));
  const HostTensor out = tensor_of(DType::f32, {kSize, kSize},
                                   std::vector<double>(static_cast<size_t>(kSize * kSize), 1));
  run_kernel(kernel, {&x, &w, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               double sum = 1;
               for (int64_t d = 0; d < kParts * kSize; ++d) {
                 sum += x.value(i / kSize * kParts * kSize + d) * w.value(d * kSize + i % kSize);
               }
               return sum;
             }));
}

TEST_CASE("a run of sums in shared memory takes two halves at a time", "[language]") {
  const DType dtype = GENERATE(DType::f16, DType::bf16, DType::f32);
  CAPTURE(name(dtype));
  Builder k("shared_sums");
  auto x = k.input("x", DType::f32, {kRows, kColumns});
  auto y = k.output("y", dtype, {kRows, kColumns});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(dtype, {kRows, kColumns}, "tile");
  auto part = k.fragment(DType::f32, {kRows, kColumns}, "part");
  k.fill(tile, 0.5f);
  k.copy(x, part);
  k.atomic_add(tile, Tile(part));
  // Other threads add to the same elements.
  k.parallel({kRows, kColumns}, [&](Value r, Value c) {
    k.atomic_add(tile(kRows - 1 - r, c), cast(dtype, part(r, c)));
  });
  k.copy(tile, y);
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  const bool is_wide = dtype != DType::f32;
  CHECK(count(text, fmt::format("  add_shared_run_{}<", name(dtype))) == (is_wide ? 2 : 0));
  CHECK(count(text, "atomicAdd(&") == (is_wide ? 0 : 2));
  const std::string why = codegen::explain(kernel);
  CHECK(count(why, "tile: one atomic per element: shared memory adds one f32 at a time") ==
        (is_wide ? 0 : 2));
  const std::string program = codegen::to_string(codegen::lower(kernel));
  CHECK(codegen::to_string(read_program(program)) == program);

  HostTensor in(DType::f32, {kRows, kColumns});
  for (int64_t i = 0; i < in.size(); ++i) in.set_value(i, static_cast<double>(i % 23));
  const HostTensor out(dtype, {kRows, kColumns});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([&](int64_t i) {
               const int64_t other = (kRows - 1 - i / kColumns) * kColumns + i % kColumns;
               return 0.5 + in.value(i) + in.value(other);
             }));
}

TEST_CASE("f64 atomics and runs of sums in shared memory compile for every target",
          "[language][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  Builder k("all_forms");
  auto y = k.output("y", DType::f64, {64});
  auto z = k.output("z", DType::f16, {256});
  auto w = k.output("w", DType::bf16, {256});
  k.launch({1}, {.threads = 32});
  auto doubles = k.shared(DType::f64, {64}, "doubles");
  auto halves = k.shared(DType::f16, {256}, "halves");
  auto brains = k.shared(DType::bf16, {256}, "brains");
  auto ones = k.fragment(DType::f32, {256}, "ones");
  k.fill(ones, 1.0f);
  k.fill(doubles, 0.0);
  k.fill(halves, 0.0f);
  k.fill(brains, 0.0f);
  k.atomic_add(halves, Tile(ones));
  k.atomic_add(brains, Tile(ones));
  for (const dsl::Ref& place : {dsl::Ref(doubles), y}) {
    const auto element = place(k.thread());
    k.atomic_add(element, 1.0);
    k.atomic_max(element, 2.0);
    k.atomic_min(element, 3.0);
    const Value old = k.atomic_exchange(element, 4.0);
    k.atomic_add(place(63 - k.thread()), k.atomic_compare_exchange(element, old, 5.0));
  }
  k.scan_sum(doubles, doubles, dsl::Axis(0));
  k.copy(doubles, y);
  k.copy(halves, z);
  k.copy(brains, w);
  const ir::Kernel kernel = k.finish();
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    const std::string text =
        codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
    const Compiled compiled = nvrtc->compile(text, target);
    CAPTURE(target, compiled.log);
    CHECK(compiled.ok);
  }
}

TEST_CASE("sums of a vectorized loop and of guarded runs", "[language]") {
  Builder k("vectorized_sums");
  auto n = k.dim("n", {.multiple_of = 4});
  auto x = k.input("x", DType::f32, {n});
  auto y = k.output("y", DType::f32, {n});
  k.launch({1}, {.threads = 32});
  k.vectorized(4, [&](Value i) { k.atomic_add(y(k.thread() * 4 + i), x(k.thread() * 4 + i)); });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "add_run_f32<4>(&y[") == 1);
  CHECK(count(cuda_text(kernel), "if (") == 1);
  const HostTensor in = iota(DType::f32, {84});
  const HostTensor out = iota(DType::f32, {84});
  run_kernel(kernel, {&in, &out});  // the canaries around both are checked
  CHECK_THAT(out, HasValues([](int64_t i) { return 2 * i; }));
}

TEST_CASE("runs of sums keep what each instruction does to subnormals", "[language]") {
  constexpr double kTiny = 0x1p-140;
  Builder k("tiny_sums");
  auto x = k.input("x", DType::f32, {128});
  auto y = k.output("y", DType::f32, {128});
  k.launch({1}, {.threads = 32});
  k.parallel({128}, [&](Value i) { k.atomic_add(y(i), x(i)); });
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "add_run_f32<4>") == 1);
  const HostTensor in = tensor_of(DType::f32, {128}, std::vector<double>(128, kTiny));
  const HostTensor out = tensor_of(DType::f32, {128}, std::vector<double>(128, kTiny));
  run_kernel(kernel, {&in, &out});
  CHECK(values_of(out) == std::vector<double>(128, 0));
}

TEST_CASE("sums and stores of one element keep their order", "[language]") {
  Builder k("order");
  auto x = k.input("x", DType::f32, {128});
  auto y = k.output("y", DType::f32, {128});
  auto z = k.output("z", DType::f32, {128});
  k.launch({1}, {.threads = 32});
  k.parallel({128}, [&](Value i) {
    y(i) = 1.0f;
    k.atomic_add(y(i), x(i));
    z(i) = y(i);
  });
  const HostTensor in = iota(DType::f32, {128});
  const HostTensor out(DType::f32, {128}), seen(DType::f32, {128});
  run_kernel(k.finish(), {&in, &out, &seen});
  CHECK_THAT(out, HasValues([](int64_t i) { return i + 1; }));
  CHECK_THAT(seen, HasValues([](int64_t i) { return i + 1; }));
}

TEST_CASE("explain says why sums are made element by element", "[language]") {
  const auto parallel = [](const auto& body) {
    return [body](Builder& k, const dsl::Ref& y) {
      auto part = k.fragment(DType::f32, {4, 64}, "part");
      k.fill(part, 1.0f);
      k.parallel({4, 64}, [&](Value r, Value c) { body(k, y, part(r, c), r, c); });
    };
  };
  const auto plain = parallel([](Builder& k, const dsl::Ref& y, const Value& v, Value r, Value c) {
    k.atomic_add(y(r, c), v);
  });
  CHECK(explained(plain).find(": y: one atomic per element") != std::string::npos);
  const std::string aligned = explained(plain, {.multiple_of = 4});
  CAPTURE(aligned);
  CHECK(aligned.find("one atomic per element") == std::string::npos);
  const auto ordered = parallel([](Builder& k, const dsl::Ref& y, const Value& v, Value r,
                                   Value c) { k.atomic_add(y(r, c), v, MemoryOrder::acq_rel); });
  CHECK(explained(ordered, {.multiple_of = 4})
            .find(": y: one atomic per element: it orders other accesses") != std::string::npos);
  const auto counted = parallel([](Builder& k, const dsl::Ref& y, const Value& v, Value r,
                                   Value c) { y(r, c + 64) = k.atomic_fetch_add(y(r, c), v); });
  CHECK(explained(counted, {.multiple_of = 4})
            .find(": y: one atomic per element: its old value is used") != std::string::npos);
}
