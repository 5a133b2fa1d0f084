// Kernels of the language on CPU tensors: prepared once, run on the executor.

#include <malloc.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/op_table.h"
#include "kernels/jit/run_op.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/surroundings.h"
#include "tests/support/catch.h"
#include "tests/support/named_tensors.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
namespace jit = kernels::jit;
using test::NamedTensors;

namespace {

/// out[i] = x[i] * factor, for the first `rows` elements.
ir::Kernel scale_kernel(float factor) {
  dsl::Builder k("scale");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({ceil_div(rows, 64)}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {64});
  k.copy(x.tile({at.x * 64}, {64}), tile);
  k.parallel({64}, [&](dsl::Value i) { tile(i) = tile(i) * factor; });
  k.copy(tile, out.tile({at.x * 64}, {64}));
  return k.finish();
}

struct Vectors {
  explicit Vectors(int64_t size) : x(static_cast<size_t>(size)), out(x.size(), -1) {
    std::iota(x.begin(), x.end(), 1.0F);
  }
  std::vector<TensorView> views() {
    const auto size = static_cast<int64_t>(x.size());
    return {TensorView(x.data(), DType::f32, {size}), TensorView(out.data(), DType::f32, {size})};
  }
  std::vector<float> x, out;
};

NamedTensors x_and_out(std::span<const TensorView> views) {
  return {{"x", views[0]}, {"out", views[1]}};
}

/// The contents of a table.
struct Entry {
  std::string op, spec;
  Device device;
  int value;
};

}  // namespace

TEST_CASE("a kernel is built once per Spec and runs on CPU tensors") {
  int num_builds = 0;
  const auto build = [&] {
    ++num_builds;
    return scale_kernel(2.0F);
  };
  for (const int64_t size : {1, 64, 100}) {
    Vectors v(size);
    jit::run_op("jit_run_test_scale", "spec 2", build, x_and_out(v.views()), nullptr);
    for (size_t i = 0; i < v.x.size(); ++i) CHECK(v.out[i] == 2.0F * v.x[i]);
  }
  CHECK(num_builds == 1);
}

TEST_CASE("an empty call is a no-op and prepares nothing") {
  Vectors v(0);
  jit::run_op(
      "jit_run_test_empty", "", [] { return scale_kernel(2.0F); }, x_and_out(v.views()), nullptr);
}

TEST_CASE("kernels of one name with different texts do not meet") {
  Vectors v(10);
  const jit::Function twice(scale_kernel(2.0F));
  const jit::Function thrice(scale_kernel(3.0F));
  twice(v.views(), {}, nullptr);
  CHECK(v.out[4] == 10.0F);
  thrice(v.views(), {}, nullptr);
  CHECK(v.out[4] == 15.0F);
  jit::run(scale_kernel(4.0F), v.views(), {}, nullptr);
  CHECK(v.out[4] == 20.0F);
}

TEST_CASE("scalars reach the kernel") {
  dsl::Builder k("axpb");
  auto rows = k.dim("rows");
  auto a = k.scalar("a", DType::f32);
  auto b = k.scalar("b", DType::i32);
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({rows}, {.threads = 32});
  k.if_(k.thread() < 1, [&] { out(at.x) = a + dsl::cast(DType::f32, b); });
  std::vector<float> memory(3);
  jit::run(k.finish(), std::vector{TensorView(memory.data(), DType::f32, {3})},
           std::vector<jit::Scalar>{0.5F, -7}, nullptr);
  CHECK(memory == std::vector<float>{-6.5F, -6.5F, -6.5F});
}

TEST_CASE("a type error in a kernel names the author's file and line (R22.13)") {
  int line = 0;
  const auto build = [&] {
    dsl::Builder k("mistyped");
    auto x = k.input("x", DType::bf16, {64});
    auto out = k.output("out", DType::f32, {64});
    k.launch({1}, {.threads = 64});
    line = __LINE__ + 1;
    out(k.thread()) = x(k.thread());
    return k.finish();
  };
  std::vector<float> memory(64);
  try {
    jit::run_op("mistyped", "R22.13", build,
                NamedTensors{{"x", TensorView(memory.data(), DType::bf16, {64})},
                             {"out", TensorView(memory.data(), DType::f32, {64})}},
                nullptr);
    FAIL("no error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("tessera: mistyped: a value has the wrong dtype [DTYPE]\n"
                    "  expected  f32\n"
                    "  got       bf16\n"
                    "  hint      convert it with cast(DType::f32, value)\n"
                    "  at        ") == 0);
    CHECK(text.substr(text.rfind("jit_run_test.cpp:")) ==
          "jit_run_test.cpp:" + std::to_string(line) +
              "\n"
              "    out(k.thread()) = x(k.thread());\n"
              "    ^");
  }
}

TEST_CASE("tensors on different devices are refused") {
  Vectors v(4);
  std::vector<TensorView> views = v.views();
  views[1].device = Device::cuda(1);
  try {
    jit::run(scale_kernel(2.0F), views, {}, nullptr);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "tessera: scale: the tensors are on different devices\n"
          "  expected  all on cpu, like the first\n"
          "  got       f32[4] on cuda:1");
  }
}

namespace {

/// Block i writes x[i + 1]: beyond the tensor at the end, within the allocation.
ir::Kernel reads_beyond() {
  dsl::Builder k("reads_beyond");
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows}, {.align = 4});
  auto out = k.output("out", DType::f32, {rows}, {.align = 4});
  auto at = k.launch({rows}, {.threads = 32});
  k.if_(k.thread() < 1, [&] { out(at.x) = x.unchecked()(at.x + 1).read(); });
  return k.finish();
}

/// True if a call of `function` traps; else it must have worked.
bool traps(const std::function<void(std::span<const TensorView>)>& function) {
  Vectors v(8);
  std::vector<TensorView> views = v.views();
  v.x.reserve(9);
  views[0].data = v.x.data();
  try {
    function(views);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::trap);
    CHECK(error.argument() == "x");
    return true;
  }
  CHECK(v.out[0] == 2.0F);
  return false;
}

/// The process's runtime has these options while it lives.
class RuntimeWith {
 public:
  explicit RuntimeWith(runtime::Options options)
      : runtime_(std::move(options), {}), before_(runtime::Runtime::replace_instance(&runtime_)) {}
  ~RuntimeWith() { runtime::Runtime::replace_instance(before_); }
  RuntimeWith(const RuntimeWith&) = delete;
  RuntimeWith& operator=(const RuntimeWith&) = delete;

 private:
  runtime::Runtime runtime_;
  runtime::Runtime* before_;
};

}  // namespace

TEST_CASE("a user's own kernel stops at what is undefined without being asked to") {
  const jit::Function function(reads_beyond());
  const auto call = [&](std::span<const TensorView> tensors) { function(tensors, {}, nullptr); };
  const auto shipped = [&](std::span<const TensorView> tensors) {
    jit::run_op("jit_run_test_beyond", "", reads_beyond, x_and_out(tensors), nullptr);
  };
  const auto unbound = [&](std::span<const TensorView> tensors) {
    jit::run(reads_beyond(), tensors, {}, nullptr);
  };
  const auto with = [](std::optional<bool> traps) {
    runtime::Options options = runtime::options_from({{"TESSERA_CACHE", "off"}});
    options.traps = traps;
    return options;
  };
  SECTION("by default") {
    const RuntimeWith scope(with({}));
    CHECK(traps(call));
    CHECK(traps(unbound));
    CHECK_FALSE(traps(shipped));
  }
  SECTION("TESSERA_TRAPS=0: neither does") {
    const RuntimeWith scope(
        runtime::options_from({{"TESSERA_CACHE", "off"}, {"TESSERA_TRAPS", "0"}}));
    CHECK_FALSE(traps(call));
    CHECK_FALSE(traps(shipped));
  }
  SECTION("TESSERA_TRAPS=1: shipped ops do as well") {
    const RuntimeWith scope(
        runtime::options_from({{"TESSERA_CACHE", "off"}, {"TESSERA_TRAPS", "1"}}));
    CHECK(traps(call));
    CHECK(traps(shipped));
  }
  SECTION("a TrapScope decides for its thread, the innermost first") {
    const RuntimeWith scope(with({}));
    const jit::TrapScope off(false);
    CHECK_FALSE(traps(call));
    {
      const jit::TrapScope on;
      CHECK(traps(call));
      CHECK(traps(shipped));
    }
    CHECK_FALSE(traps(call));
  }
}

TEST_CASE("a call on CPU tensors runs the program of Options::cpu_target") {
  test::Product product = test::product_of(DType::bf16, 64, 64, 64);
  product.options.instruction = ir::Instruction::wgmma;
  const ir::Kernel kernel = test::product_kernel(product);
  const test::ProductData data = test::exact_operands(product);
  const auto call = [&](const char* target) {
    runtime::Options options = runtime::options_from({{"TESSERA_CACHE", "off"}});
    if (target != nullptr) options.cpu_target = target;
    const RuntimeWith scope(options);
    return test::error_of([&] {
      jit::run(kernel, std::vector<TensorView>{data.a.view(), data.b.view(), data.y.view()}, {},
               nullptr);
    });
  };
  CHECK(call(nullptr) == "");
  CHECK(call("sm_90a") == "");
  CHECK(call("sm_80").find("got       sm_80 has no wgmma") != std::string::npos);
  CHECK(call("sm_100a").find("got       sm_100a has no wgmma") != std::string::npos);
}

TEST_CASE("the table of prepared kernels grows with their number, not with its square") {
  jit::OpTable<Entry> table;
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  constexpr int kEntries = 4000;
  for (int i = 0; i < kEntries; ++i) {
    table.insert(std::make_unique<const Entry>(Entry{"a", std::to_string(i), Device::cpu(), i}));
  }
  CHECK(mallinfo2().uordblks + mallinfo2().hblkhd - before < 4 << 20);
  int sum = 0;
  table.for_each([&](const Entry& entry) { sum += entry.value; });
  CHECK(sum == kEntries * (kEntries - 1) / 2);
  CHECK(table.find("a", "3999", Device::cpu())->value == 3999);
}

TEST_CASE("the table of prepared kernels is read while it grows") {
  jit::OpTable<Entry> table;
  CHECK(table.find("a", "0", Device::cpu()) == nullptr);
  std::atomic<int> num_lost = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const std::string spec = std::to_string(i);
        table.insert(std::make_unique<const Entry>(Entry{"a", spec, Device::cpu(), i}));
        const Entry* found = table.find("a", spec, Device::cpu());
        num_lost += found && found->value == i ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_lost == 0);
  const Entry* first = table.find("a", "7", Device::cpu());
  REQUIRE(first);
  CHECK(&table.insert(std::make_unique<const Entry>(Entry{"a", "7", Device::cpu(), 1})) == first);
  CHECK(table.find("a", "7", Device::cuda(0)) == nullptr);
  CHECK(table.find("b", "7", Device::cpu()) == nullptr);
}
