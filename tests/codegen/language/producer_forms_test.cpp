// Pipelined loops with a producer: the program is that of roles by hand; kinds of copies and of loops.

#include <functional>
#include <regex>
#include <string>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr auto kI32 = DType::i32;
constexpr auto kBf16 = DType::bf16;
constexpr int64_t kColumns = 64;
constexpr dsl::PipelineOptions kProducer = {.stages = 3, .producer = true};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// A persistent product, by a producer or by roles.
ir::Kernel product(bool by_hand) {
  constexpr int kRows = 64, kStep = 64;
  Builder k("product");
  auto m = k.dim("m", {.multiple_of = kRows}), depth = k.dim("depth", {.multiple_of = kStep});
  auto a = k.input("a", kBf16, {m, depth}), b = k.input("b", kBf16, {m, depth});
  auto c = k.output("c", kBf16, {m, m});
  k.launch({8}, {.threads = by_hand ? 160 : 128});
  const auto copy = [&](const Value& row, const Value& column, const Value& s, const Ref& a_tile,
                        const Ref& b_tile) {
    const dsl::CopyOptions by = {.engine = ir::Engine::tensor};
    k.copy(a.tile({row * kRows, s * kStep}, {kRows, kStep}), a_tile, by);
    k.copy(b.tile({column * kRows, s * kStep}, {kRows, kStep}), b_tile, by);
  };
  const auto each = [&](const auto& body) {
    k.persistent({m / kRows, m / kRows}, body, {.group = 4});
  };
  const auto write = [&](const Ref& sum, const Ref& c_tile, const Value& row, const Value& column) {
    k.copy(sum, c_tile);
    k.copy(c_tile, c.tile({row * kRows, column * kRows}, {kRows, kRows}));
  };
  if (!by_hand) {
    auto a_tile = k.shared(kBf16, {kRows, kStep}, "a_tile");
    auto b_tile = k.shared(kBf16, {kRows, kStep}, "b_tile");
    auto c_tile = k.shared(kBf16, {kRows, kRows}, "c_tile");
    auto sum = k.fragment(DType::f32, {kRows, kRows}, "sum");
    each([&](Value row, Value column) {
      k.fill(sum, 0.0f);
      k.pipelined(0, depth / kStep, kProducer, [&](Value s) {
        copy(row, column, s, a_tile, b_tile);
        k.gemm(a_tile, b_tile.transposed(), sum);
      });
      write(sum, c_tile, row, column);
    });
    return k.finish();
  }
  auto ring = k.ring({.stages = kProducer.stages});
  auto a_tile = ring.shared(kBf16, {kRows, kStep}, "a_tile");
  auto b_tile = ring.shared(kBf16, {kRows, kStep}, "b_tile");
  auto c_tile = k.shared(kBf16, {kRows, kRows}, "c_tile");
  const auto load = [&] {
    each([&](Value row, Value column) {
      k.serial(0, depth / kStep,
               [&](Value s) { ring.fill([&] { copy(row, column, s, a_tile, b_tile); }); });
    });
  };
  const auto compute = [&] {
    auto sum = k.fragment(DType::f32, {kRows, kRows}, "sum");
    each([&](Value row, Value column) {
      k.fill(sum, 0.0f);
      k.serial(0, depth / kStep,
               [&](Value) { ring.take([&] { k.gemm(a_tile, b_tile.transposed(), sum); }); });
      write(sum, c_tile, row, column);
    });
  };
  k.roles({{.name = "load", .warps = 1, .body = load},
           {.name = "compute", .warpgroups = 1, .body = compute}});
  return k.finish();
}

/// Without the lines of the author and the names of thread indices.
std::string code_of(const ir::Kernel& kernel, const char* target) {
  std::string text =
      codegen::cuda::emit_kernel_text(codegen::lower(kernel, parse_target(target).value()));
  text = std::regex_replace(text, std::regex(R"(\(producer_forms_test\.cpp:\d+\))"), "");
  text = std::regex_replace(text, std::regex("(compute|block)_thread"), "thread");
  return std::regex_replace(text, std::regex(R"(\s+)"), " ");
}

}  // namespace

TEST_CASE("a producer makes the program of roles by hand", "[language][producer][gemm]") {
  for (const char* target : {"sm_80", "sm_90a", "sm_120a"}) {
    CAPTURE(target);
    CHECK(code_of(product(false), target) == code_of(product(true), target));
  }
}

namespace {

/// y[c] = the sum of what `copies` has copied to `tile`, whose element c is at(tile, c).
struct Sum {
  std::function<void(Builder&, const Ref& x, const Ref& tile, const Value& i)> copy =
      [](Builder& k, const Ref& x, const Ref& tile, const Value& i) { k.copy(x(i), tile); };
  std::function<Value(const Ref& tile, const Value& c)> at =
      [](const Ref& tile, const Value& c) -> Value { return tile(c); };
  std::function<void(Builder&, const Ref& x, const std::function<void()>&)> around =
      [](Builder&, const Ref&, const std::function<void()>& body) { body(); };
  bool optional = false;

  ir::Kernel kernel() const {
    Builder k("sum");
    auto tiles = k.dim("tiles");
    auto x = k.input("x", kI32, {tiles, kColumns}, {.optional = optional});
    auto y = k.output("y", kI32, {kColumns});
    k.launch({1}, {.threads = 64});
    auto tile = k.shared(kI32, {kColumns}, "tile");
    auto sum = k.fragment(kI32, {kColumns}, "sum");
    k.fill(sum, 0);
    around(k, x, [&] {
      k.pipelined(0, 7, kProducer, [&](Value i) {
        copy(k, x, tile, i);
        k.parallel({kColumns}, [&](Value c) { sum(c) += at(tile, 63 - c); });
      });
    });
    k.copy(sum, y);
    return k.finish();
  }

  void check(double times = 1) const {
    const HostTensor x = iota(kI32, {7, kColumns});
    HostTensor y(kI32, {kColumns});
    run_kernel(kernel(), {&x, &y});
    CHECK_THAT(y, HasValues([&](int64_t c) {
                 double want = 0;
                 for (int64_t i = 0; i < 7; ++i) want += times * x.value(i * kColumns + 63 - c);
                 return want;
               }));
  }
};

}  // namespace

TEST_CASE("a load role copies in bulk, in parts, and to tiles that are read reshaped",
          "[language][producer]") {
  Sum sum;
  sum.check();
  sum.copy = [](Builder& k, const Ref& x, const Ref& tile, const Value& i) {
    k.copy(x(i).bulk(), tile);
  };
  sum.check();
  CHECK(has(codegen::explain(sum.kernel(), kSm90a), "filled by 'load' in bulk"));
  sum.copy = [](Builder& k, const Ref& x, const Ref& tile, const Value& i) {
    k.copy(x(i).tile({0}, {16}), tile.tile({0}, {16}));
    k.copy(x(i).tile({16}, {48}), tile.tile({16}, {48}));
  };
  sum.check();
  sum.at = [](const Ref& tile, const Value& c) -> Value {
    return tile.reshape({8, 8})(c / 8, c % 8);
  };
  sum.check();
}

TEST_CASE("a load role copies from an optional tensor where it is given", "[language][producer]") {
  Sum sum;
  sum.optional = true;
  sum.around = [](Builder& k, const Ref& x, const std::function<void()>& body) {
    k.if_present(x, body);
  };
  sum.check();
}

TEST_CASE("loops without a producer stay as they are beside one", "[language][producer]") {
  Sum sum;
  sum.around = [](Builder& k, const Ref& x, const std::function<void()>& body) {
    auto other = k.shared(kI32, {kColumns}, "other");
    auto more = k.fragment(kI32, {kColumns}, "more");
    k.fill(more, 0);
    const auto plain = [&](dsl::PipelineOptions options) {
      k.pipelined(0, 7, options, [&](Value i) {
        k.copy(x(i), other);
        k.parallel({kColumns}, [&](Value c) { more(c) += other(c); });
      });
    };
    plain({.stages = 3});
    k.serial(0, 2, [&](Value) { body(); });
  };
  sum.check(2);
  const std::string text = codegen::explain(sum.kernel());
  CHECK(has(text, "copy x -> other: 2 iterations ahead, 3 versions"));
  CHECK(has(text, "copy x -> tile: by the load role, 3 stages"));
}

TEST_CASE("threads of the launch count as without a load role", "[language][producer]") {
  Builder k("counts");
  auto x = k.input("x", kI32, {4, kColumns});
  auto y = k.output("y", kI32, {kColumns});
  auto threads = k.output("threads", kI32, {64}), cells = k.output("cells", DType::u32, {1});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(kI32, {kColumns}, "tile");
  threads(k.thread()) = k.warp() * 1000 + k.lane();
  k.pipelined(0, 4, kProducer, [&](Value i) {
    k.copy(x(i), tile);
    k.sync();
    k.if_(k.thread() < kColumns, [&] { y(k.thread()) = tile(63 - k.thread()) + i; });
    k.sync();
  });
  k.signal_add(cells(0), 3u);
  k.wait_until(cells(0), 3);
  const ir::Kernel kernel = k.finish();
  const HostTensor from = iota(kI32, {4, kColumns});
  HostTensor to(kI32, {kColumns}), numbers(kI32, {64});
  const HostTensor cell = tensor_by(DType::u32, {1}, [](int64_t) { return 0; });
  run_kernel(kernel, {&from, &to, &numbers, &cell});
  CHECK_THAT(to, HasValues([&](int64_t c) { return from.value(3 * kColumns + 63 - c) + 3; }));
  CHECK_THAT(numbers, HasValues([](int64_t t) { return t / 32 * 1000 + t % 32; }));
  CHECK(cell.value(0) == 3);
}
