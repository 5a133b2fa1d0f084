// Rings that are filled with rows which an index chooses.

#include <string>

#include "codegen/cpu/executor.h"
#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/nvrtc.h"
#include "tests/support/product_kernel.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;
using dsl::Builder;
using dsl::Ref;
using dsl::Value;

namespace {

constexpr int64_t kRows = 40, kColumns = 64, kChosen = 16, kSteps = 5;

struct Gather {
  enum class Index { global, shared, function };
  Index index = Index::global;
  bool bulk = false;
  DType of_tile = DType::bf16;
  int stages = 2;
  int warps = 1;  // of the role that loads
};

/// y[c] = the sum over chosen rows, 16 of a fill, of (r + 1) * x[index[r], c].
ir::Kernel weighted_rows(const Gather& options) {
  Builder k("role_rows");
  auto n = k.dim("n");
  auto x = k.input("x", DType::bf16, {n, kColumns});
  auto index = k.input("index", DType::i32, {kSteps * kChosen});
  auto y = k.output("y", DType::f32, {kColumns});
  k.launch({1}, {.threads = 32 * (options.warps + 2)});
  auto ring = k.ring({.stages = options.stages});
  auto tile = ring.shared(options.of_tile, {kChosen, kColumns});
  const auto load = [&] {
    auto list = k.shared(DType::i32, {kChosen}, "list");
    k.serial(0, kSteps, [&](Value step) {
      const Ref here = index.tile({step * kChosen}, {kChosen});
      if (options.index == Gather::Index::shared) k.copy(here, list);
      ring.fill([&] {
        const Ref from = options.bulk ? x.bulk() : x;
        if (options.index == Gather::Index::function) {
          const auto place = [&](const Value& r) {
            return std::vector<Value>{index(step * kChosen + r)};
          };
          k.copy(from.rows(kChosen, place), tile);
        } else {
          k.copy(from.rows(options.index == Gather::Index::shared ? list : here), tile);
        }
      });
    });
  };
  const auto add = [&] {
    auto sum = k.fragment(DType::f32, {kColumns}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, kSteps, [&](Value step) {
      ring.take([&] {
        k.parallel({kColumns}, [&](Value c) {
          for (int r = 0; r < kChosen; ++r) {
            sum(c) += f32(tile(r, c)) * f32(step * kChosen + r + 1);
          }
        });
      });
    });
    k.copy(sum, y);
  };
  k.roles({{.name = "load", .warps = options.warps, .body = load},
           {.name = "add", .warps = 2, .body = add}});
  return k.finish();
}

void check_weighted_rows(const Gather& options) {
  const HostTensor x =
      tensor_by(DType::bf16, {kRows, kColumns}, [](int64_t i) { return i % 13 - 6; });
  // Inside, twice the same, before and behind the tensor.
  const HostTensor index = tensor_by(DType::i32, {kSteps * kChosen}, [](int64_t i) {
    return i % 7 == 3 ? -1 : i % 11 == 5 ? kRows : i * 23 % kRows;
  });
  const HostTensor result(DType::f32, {kColumns});
  run_kernel(weighted_rows(options), {&x, &index, &result});
  CHECK_THAT(result, HasValues([&](int64_t c) {
               double want = 0;
               for (int64_t r = 0; r < kSteps * kChosen; ++r) {
                 const auto row = static_cast<int64_t>(index.value(r));
                 if (row < 0 || row >= kRows) continue;
                 want += x.value(row * kColumns + c) * static_cast<double>(r + 1);
               }
               return want;
             }));
}

}  // namespace

TEST_CASE("a role fills a ring with rows that an index chooses", "[language][roles]") {
  Gather options;
  options.index = GENERATE(Gather::Index::global, Gather::Index::shared, Gather::Index::function);
  options.bulk = GENERATE(false, true);
  options.stages = GENERATE(1, 3);
  options.warps = GENERATE(1, 2);
  CAPTURE(static_cast<int>(options.index), options.bulk, options.stages, options.warps);
  check_weighted_rows(options);
}

TEST_CASE("rows go into a ring in the background, or explain says why not", "[language][roles]") {
  const std::string pieces = cuda_text(weighted_rows({}));
  CHECK(count(pieces, "copy_async_or_zero<16>(") == 1);
  CHECK(codegen::explain(weighted_rows({})).find("filled by 'load' in pieces") !=
        std::string::npos);
  const Target sm90a = parse_target("sm_90a").value();
  const std::string bulk = codegen::explain(weighted_rows({.bulk = true}), sm90a);
  CHECK(bulk.find("filled by 'load' in bulk") != std::string::npos);
  const Gather widened{.of_tile = DType::f32};
  check_weighted_rows(widened);
  const std::string stores = codegen::explain(weighted_rows(widened));
  CAPTURE(stores);
  CHECK(stores.find("filled by 'load' by stores") != std::string::npos);
  CHECK(stores.find("copy x -> tile: waits for its loads: it converts bf16 to f32") !=
        std::string::npos);
}

TEST_CASE("rows in bulk go into a ring, or nowhere in a kernel with roles", "[language][roles]") {
  const std::string error = error_of([] {
    Builder k("rows_outside");
    auto x = k.input("x", DType::bf16, {kRows, kColumns});
    auto index = k.input("index", DType::i32, {kChosen});
    auto y = k.output("y", DType::bf16, {kChosen, kColumns});
    k.launch({1}, {.threads = 64});
    const auto load = [&] {
      auto tile = k.shared(DType::bf16, {kChosen, kColumns}, "tile");
      k.copy(x.bulk().rows(index), tile);
      k.copy(tile, y);
    };
    k.roles(
        {{.name = "load", .warps = 1, .body = load}, {.name = "rest", .warps = 1, .body = [] {}}});
    codegen::lower(k.finish());
  });
  CAPTURE(error);
  CHECK(error.find("a bulk copy outside of a fill, in a kernel with roles [CPASYNC_ROWS]") !=
        std::string::npos);
}

namespace {

/// y [64, 64] = the rows of a that an index chooses * b, by wgmma on sm_90a.
ir::Kernel product_of_rows(bool bulk) {
  constexpr int64_t kTile = 64, kDepth = 256;
  Builder k("product_of_rows");
  auto a = k.input("a", DType::bf16, {kRows, kDepth});
  auto b = k.input("b", DType::bf16, {kDepth, kTile});
  auto index = k.input("index", DType::i32, {kTile});
  auto y = k.output("y", DType::f32, {kTile, kTile});
  k.launch({1}, {.threads = 256});
  auto ring = k.ring({.stages = 2});
  auto a_tile = ring.shared(DType::bf16, {kTile, kTile}, "a_tile");
  auto b_tile = ring.shared(DType::bf16, {kTile, kTile}, "b_tile");
  const auto load = [&] {
    k.serial(0, kDepth / kTile, [&](Value step) {
      ring.fill([&] {
        const auto place = [&](const Value& r) { return std::vector<Value>{index(r)}; };
        const Ref columns = a.tile({0, step * kTile}, {kRows, kTile});
        k.copy((bulk ? columns.bulk() : columns).rows(kTile, place), a_tile);
        k.copy(b.tile({step * kTile, 0}, {kTile, kTile}), b_tile);
      });
    });
  };
  const auto multiply = [&] {
    auto sum = k.fragment(DType::f32, {kTile, kTile}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, kDepth / kTile, [&](Value) { ring.take([&] { k.gemm(a_tile, b_tile, sum); }); });
    k.copy(sum, y);
  };
  k.roles({{.name = "load", .warps = 4, .body = load},
           {.name = "multiply", .warpgroups = 1, .body = multiply}});
  return k.finish();
}

}  // namespace

TEST_CASE("rows that an index chooses are operands of a product by roles",
          "[language][roles][gemm]") {
  const bool bulk = GENERATE(false, true);
  CAPTURE(bulk);
  const ir::Kernel kernel = product_of_rows(bulk);
  const HostTensor a = tensor_by(DType::bf16, {kRows, 256}, [](int64_t i) { return i % 7 - 3; });
  const HostTensor b = tensor_by(DType::bf16, {256, 64}, [](int64_t i) { return i % 5 - 2; });
  const HostTensor index =
      tensor_by(DType::i32, {64}, [](int64_t i) { return i % 9 == 4 ? -1 : i * 23 % kRows; });
  const auto check = [&](const HostTensor& y) {
    CHECK_THAT(y, HasValues([&](int64_t i) {
                 const auto row = static_cast<int64_t>(index.value(i / 64));
                 double want = 0;
                 for (int64_t d = 0; row >= 0 && d < 256; ++d) {
                   want += a.value(row * 256 + d) * b.value(d * 64 + i % 64);
                 }
                 return want;
               }));
  };
  const HostTensor y(DType::f32, {64, 64});
  run_kernel(kernel, {&a, &b, &index, &y});
  check(y);
  const codegen::Program program = codegen::lower(kernel, kSm90a);
  CHECK((to_string(program).find("wgmma") != std::string::npos) ==
        !bulk);  // rows in bulk have no swizzle
  const HostTensor by_wgmma(DType::f32, {64, 64});
  const std::vector<codegen::cpu::Argument> arguments = {{.tensor = a.view()},
                                                         {.tensor = b.view()},
                                                         {.tensor = index.view()},
                                                         {.tensor = by_wgmma.view()}};
  codegen::cpu::Executable(program).run(arguments, {.traps = true});
  check(by_wgmma);
}

TEST_CASE("rings of chosen rows compile for every target", "[language][roles][nvrtc]") {
  std::string reason;
  const auto nvrtc = Nvrtc::open(reason);
  if (!nvrtc) return note_skip(reason);
  for (const std::string& target : kTargets) {
    if (!nvrtc->supports(target)) continue;
    for (const bool bulk : {false, true}) {
      const ir::Kernel kernel = weighted_rows({.index = Gather::Index::shared, .bulk = bulk});
      const std::string text =
          codegen::cuda::emit(codegen::lower(kernel, parse_target(target).value())).text;
      const Compiled compiled = nvrtc->compile(text, target);
      CAPTURE(target, bulk, compiled.log);
      CHECK(compiled.ok);
    }
  }
}
