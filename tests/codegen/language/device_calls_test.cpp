// Tile programs about assertions, printing, the author's own functions and kernels that overlap.

#include <fmt/format.h>

#include <cstring>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::ExternFunction;
using dsl::Value;

namespace {

/// Rounds an f32 to f16 towards zero.
ExternFunction half_towards_zero() {
  ExternFunction f;
  f.name = "half_towards_zero";
  f.source =
      "__device__ __forceinline__ unsigned short half_towards_zero(float x) {\n"
      "  unsigned short bits;\n"
      "  asm(\"cvt.rz.f16.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n"
      "  return bits;\n"
      "}\n";
  f.result = DType::f16;
  f.params = {DType::f32};
  f.model = [](void* result, const void* const* args) {
    float x = 0;
    std::memcpy(&x, args[0], sizeof x);
    uint32_t bits = 0;
    std::memcpy(&bits, &x, sizeof bits);
    // Normal results only, which is what the test gives.
    const auto half = static_cast<uint16_t>((bits >> 16 & 0x8000u) |
                                            (((bits & 0x7FFFFFFFu) - 0x38000000u) >> 13));
    std::memcpy(result, &half, sizeof half);
  };
  return f;
}

}  // namespace

TEST_CASE("a false assumption traps with the author's line (G10)", "[language][traps]") {
  Builder k("assumed");
  auto n = k.dim("n");
  auto y = k.output("y", DType::i32, {n});
  k.launch({1}, {.threads = 32});
  const int line = __LINE__ + 1;
  k.assume(k.thread() < n);
  y(k.thread()) = 1;
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "if (") == 0);  // no guard, and no check on the GPU
  const HostTensor enough(DType::i32, {32});
  run_kernel(kernel, {&enough});
  const HostTensor few(DType::i32, {31});
  try {
    run_kernel(kernel, {&few});
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(std::string(error.code()) == "FALSE_ASSUME");
    CHECK(error.loc().line == line);
    CHECK(std::string(error.what()).find("the assumption thread < n does not hold (thread 31") !=
          std::string::npos);
  }
}

TEST_CASE("a device assertion stops the kernel with the author's line", "[language][traps]") {
  Builder k("asserted");
  auto x = k.input("x", DType::i32, {32});
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  const Value value = x(k.thread());
  const int line = __LINE__ + 1;
  k.device_assert(value >= 0, "an index is \"negative\"");
  y(k.thread()) = value;
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(text.find("__assertfail(\"an index is \\\"negative\\\"\", ") != std::string::npos);
  CHECK(text.find(fmt::format("device_calls_test.cpp\", {}, \"asserted\", 1);", line)) !=
        std::string::npos);
  const HostTensor good = iota(DType::i32, {32});
  const HostTensor out(DType::i32, {32});
  run_kernel(kernel, {&good, &out});
  HostTensor bad = iota(DType::i32, {32});
  bad.set_value(7, -1);
  try {
    // Without traps too.
    const codegen::cpu::Executable executable(codegen::lower(kernel));
    const codegen::cpu::Argument arguments[] = {{.tensor = bad.view()}, {.tensor = out.view()}};
    executable.run(arguments);
    FAIL("no trap");
  } catch (const Error& error) {
    CHECK(std::string(error.code()) == "ASSERT");
    CHECK(error.loc().line == line);
    CHECK(std::string(error.what()).find("assertion failed: an index is \"negative\" (thread 7") !=
          std::string::npos);
  }
}

TEST_CASE("a report is noted and the kernel goes on", "[language]") {
  Builder k("reported");
  auto x = k.input("x", DType::i32, {32});
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  const Value value = k.let("value", x(k.thread()));
  k.report_unless(value >= 0, "an index is \"negative\"");
  k.if_(value < 100, [&] { k.report_unless(value < 50, "an index is large"); });
  k.report_unless(value >= 0, "an index is \"negative\"");
  y(k.thread()) = value;
  const ir::Kernel kernel = k.finish();
  CHECK(kernel.reports ==
        std::vector<std::string>{"an index is \"negative\"", "an index is large"});
  const std::string text = cuda_text(kernel);
  CHECK(text.find("report(2);") != std::string::npos);
  const auto reported = [&](int64_t element, double value_there) {
    HostTensor given = iota(DType::i32, {32});
    given.set_value(element, value_there);
    const HostTensor out(DType::i32, {32});
    std::atomic<int> number = 0;
    codegen::cpu::Options options;
    options.reported = &number;
    const codegen::cpu::Executable executable(codegen::lower(kernel));
    const codegen::cpu::Argument arguments[] = {{.tensor = given.view()}, {.tensor = out.view()}};
    executable.run(arguments, options);
    CHECK(out.value(element) == value_there);
    executable.run(arguments);  // nobody asks
    run_kernel(kernel, {&given, &out});
    return number.load();
  };
  CHECK(reported(7, 31) == 0);
  CHECK(reported(7, -1) == 1);
  CHECK(reported(0, 99) == 2);
  CHECK(reported(31, 100) == 0);
}

TEST_CASE("a device print writes one line per thread", "[language]") {
  Builder k("printed");
  auto x = k.input("x", DType::f32, {32});
  auto y = k.output("y", DType::i64, {32});
  k.launch({1}, {.threads = 32});
  auto t = k.thread();
  y(t) = i64(t);
  k.if_(t % 16 == 3, [&] {
    k.print("{}% of {}: {} {} {}", {t, x(t), t > 10, i64(t) * 5000000000, cast(DType::bf16, x(t))});
  });
  const ir::Kernel kernel = k.finish();
  CHECK(cuda_text(kernel).find("printf(\"%d%% of %.9g: %d %lld %.9g\\n\", ") != std::string::npos);
  HostTensor in = iota(DType::f32, {32});
  in.set_value(3, 0.25);
  const HostTensor out(DType::i64, {32});
  const codegen::cpu::Executable executable(codegen::lower(kernel));
  const codegen::cpu::Argument arguments[] = {{.tensor = in.view()}, {.tensor = out.view()}};
  std::string printed;
  codegen::cpu::Options options;
  options.print = [&](std::string_view text) { printed += text; };
  executable.run(arguments, options);
  CHECK(printed == "3% of 0.25: 0 15000000000 0.25\n19% of 19: 1 95000000000 19\n");

  Builder wrong("wrong");
  wrong.launch({1}, {.threads = 32});
  CHECK(error_of([&] {
          wrong.print("{} {}", {1});
        }).find("a text has another number of places than there are values") != std::string::npos);
}

TEST_CASE("a tensor may be called like a function of the author's own", "[language]") {
  Builder k("external");
  auto x = k.input("half_towards_zero", DType::f32, {64});
  auto y = k.output("printf", DType::f16, {64});
  k.launch({1}, {.threads = 64});
  y(k.thread()) = k.call(half_towards_zero(), {x(k.thread())});
  k.print("{}", {k.thread()});
  const std::string text = cuda_text(k.finish());
  CHECK(count(text, "half_towards_zero(half_towards_zero_2[thread])") == 1);
  CHECK(count(text, "printf_[thread] = ") == 1);
}

TEST_CASE("a function of the author's own is called and modelled", "[language]") {
  Builder k("external");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f16, {64});
  k.launch({1}, {.threads = 64});
  y(k.thread()) = k.call(half_towards_zero(), {x(k.thread())});
  k.call(half_towards_zero(), {x(0)});  // pure and unused: nothing remains of it
  const ir::Kernel kernel = k.finish();
  const std::string text = codegen::cuda::emit(codegen::lower(kernel)).text;
  CHECK(count(text, "half_towards_zero(float x) {") == 1);
  CHECK(count(text, "half_towards_zero(") == 2);
  const HostTensor in =
      tensor_by(DType::f32, {64}, [](int64_t i) { return 1.0 + static_cast<double>(i) * 0x1p-11; });
  const HostTensor out(DType::f16, {64});
  run_kernel(kernel, {&in, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 1.0 + static_cast<double>(i / 2) * 0x1p-10; }));
}

TEST_CASE("a function without a model runs on the GPU only", "[language]") {
  ExternFunction f = half_towards_zero();
  f.model = nullptr;
  Builder k("no_model");
  auto y = k.output("y", DType::f16, {32});
  k.launch({1}, {.threads = 32});
  const int line = __LINE__ + 1;
  y(k.thread()) = k.call(f, {1.0f});
  const ir::Kernel kernel = k.finish();
  try {
    codegen::cpu::Executable(codegen::lower(kernel));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK(error.loc().line == line);
    CHECK(std::string(error.what()).find("'half_towards_zero' has no model") != std::string::npos);
    CHECK(error.code() == "NO_MODEL");
  }
  CHECK(error_of([&] { k.call(f, {}); }).find("[RANK]") != std::string::npos);
}

TEST_CASE("a function that synchronises is a barrier", "[language]") {
  ExternFunction f;
  f.name = "all_together";
  f.source = "__device__ __forceinline__ int all_together(int x) { return __syncthreads_or(x); }\n";
  f.result = DType::i32;
  f.params = {DType::i32};
  f.pure = false;
  f.synchronises = true;
  f.model = [](void* result, const void* const*) {
    const int32_t one = 1;
    std::memcpy(result, &one, sizeof one);
  };
  Builder k("together");
  auto y = k.output("y", DType::i32, {64});
  k.launch({1}, {.threads = 64});
  auto s = k.shared(DType::i32, {64}, "s");
  s(k.thread()) = k.thread();
  k.call(f, {1});
  y(k.thread()) = s(63 - k.thread());
  const ir::Kernel kernel = k.finish();
  CHECK(count(cuda_text(kernel), "__syncthreads()") == 0);
  const HostTensor out(DType::i32, {64});
  run_kernel(kernel, {&out});
  CHECK_THAT(out, HasValues([](int64_t i) { return 63 - i; }));
}

TEST_CASE("a kernel that waits for its predecessor reads nothing from a read-only cache",
          "[language]") {
  Builder k("overlapping");
  auto weight = k.input("weight", DType::f32, {128});
  auto x = k.input("x", DType::f32, {128});
  auto y = k.output("y", DType::f32, {128});
  k.launch({1}, {.threads = 32});
  auto w = k.fragment(DType::f32, {128}, "w");
  k.copy(weight, w);
  k.wait_for_previous_kernel();
  k.let_next_kernel_start();
  k.parallel({128}, [&](Value i) { y(i) = x(i) * w(i); });
  const ir::Kernel kernel = k.finish();
  const codegen::Program program = codegen::lower(kernel);
  const std::string text = codegen::cuda::emit_kernel_text(program);
  const size_t wait = text.find("wait_for_previous_kernel();");
  CHECK(text.find("weight[") < wait);
  CHECK(text.find("&x[") > wait);
  CHECK(count(text, "__restrict__") == 0);
  CHECK(codegen::cuda::emit(program).waits_for_previous);
  CHECK_FALSE(codegen::cuda::emit(codegen::lower([] {
                Builder plain("plain");
                auto z = plain.output("z", DType::f32, {32});
                plain.launch({1}, {.threads = 32});
                z(plain.thread()) = 1.0f;
                return plain.finish();
              }()))
                  .waits_for_previous);
  const HostTensor a = iota(DType::f32, {128});
  const HostTensor out(DType::f32, {128});
  run_kernel(kernel, {&a, &a, &out});
  CHECK_THAT(out, HasValues([](int64_t i) { return i * i; }));
}

TEST_CASE("names of macros and bytes that are no UTF-8 reach NVRTC as text it takes",
          "[language]") {
  Builder k("macros");
  auto y = k.output("y", DType::i32, {1});
  k.launch({1}, {.threads = 1});
  y(0) = k.let("CUDART_VERSION", k.thread() + 1);
  k.print("\xff {}", {1});
  const ir::Kernel kernel = k.finish();
  const std::string text = cuda_text(kernel);
  CHECK(text.find("const int CUDART_VERSION_ = ") != std::string::npos);
  CHECK(text.find("printf(\"\\377 %d\\n\"") != std::string::npos);
  const HostTensor out(DType::i32, {1});
  run_kernel(kernel, {&out});
}
