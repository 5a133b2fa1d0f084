// norm_fn_fwd and pre_big_fuse on the executor: the references, the chain that the fused op equals,
// rows that do not depend on their neighbours, and what bad calls are told.

#include <algorithm>
#include <array>

#include "kernels/jit/jit.h"
#include "kernels/mhc/parts/projection_kernel.h"
#include "kernels/mhc/parts/projection_parts.h"
#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/ops/chain.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::test;

namespace {

void check_report(const CaseReport& report, size_t num_cases) {
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(static_cast<size_t>(report.passed) + report.unsupported.size() == num_cases);
  CHECK(report.unsupported.size() <= 1);
}

/// The projection of norm_fn_fwd for these tensors, nothing of which is read.
ir::Kernel projection_of(const TensorView& residual, const TensorView& fn, int64_t splits,
                         const std::string& name = "norm_fn_fwd") {
  const kernels::OpInfo& op = kernels::find_op(name);
  kernels::Tensors tensors = {{"residual", residual}, {"fn", fn}};
  if (name == "pre_big_fuse") {
    tensors["scale"] = TensorView(nullptr, DType::f32, {3});
    tensors["base"] = TensorView(nullptr, DType::f32, {fn.shape[0]});
  }
  return op.kernels(tensors, kernels::check_params(op, {{"n_splits", splits}})).front();
}

HostTensor some(DType dtype, Dims shape) {
  return random_tensor(dtype, shape, Values::normal, 1);
}

}  // namespace

TEST_CASE("norm_fn_fwd equals its reference on the executor", "[norm_fn_fwd][slow]") {
  const auto cases = norm_fn_fwd_cases();
  check_report(run_cases("norm_fn_fwd", cases, op_runner("norm_fn_fwd", Device::cpu())),
               cases.size());
}

TEST_CASE("a projection has the same bits however rows are given to blocks",
          "[norm_fn_fwd][slow]") {
  // 10 units of 256 columns: 1 run of 2 parts; 3 runs of 4 units, the last one shorter; 10 runs of one.
  const int64_t splits = GENERATE(1, 3, 16);
  const kernels::mhc::ProjectionShape shape{130, 3, 2560, splits};
  const HostTensor residual = some(DType::bf16, {130, 2560}), fn = some(DType::f32, {3, 2560});
  const kernels::mhc::ProjectionParts parts(shape);
  std::vector<std::vector<std::byte>> first;
  for (const int64_t row_blocks : {1, 4, 9}) {
    CAPTURE(splits, row_blocks);
    const HostTensor products(DType::f32, {parts.stored(), 130 * 3});
    const HostTensor squares(DType::f32, {130, parts.stored()});
    const kernels::jit::TrapScope traps;
    const TensorView one_stream(residual.view().data, DType::bf16, {130, 1, 2560});
    kernels::jit::run(
        projection_of(one_stream, fn.view(), splits),
        std::vector<TensorView>{residual.view(), fn.view(), products.view(), squares.view()},
        std::vector<kernels::jit::Scalar>{row_blocks}, nullptr);
    const std::vector<std::vector<std::byte>> bytes = {products.raw(), squares.raw()};
    if (first.empty()) first = bytes;
    CHECK(bytes == first);
  }
}

TEST_CASE("a projection that adds up late has the same bits", "[norm_fn_fwd][slow]") {
  const auto sizes = GENERATE(std::array<int64_t, 2>{1024, 130},  // tiles of 32 rows
                              std::array<int64_t, 2>{2048, 70});  // of 16
  const int64_t columns = sizes[0], tokens = sizes[1];
  const int64_t width = 2 * columns;
  const HostTensor residual = some(DType::bf16, {tokens, width}),
                   fn = some(DType::f32, {24, width});
  const auto run = [&](int32_t adds_late, int64_t row_blocks) {
    const kernels::mhc::ProjectionSpec spec = {.entries = 24,
                                               .width = static_cast<int32_t>(width),
                                               .part_columns = static_cast<int32_t>(columns),
                                               .halves = 1,
                                               .has_weight = 0,
                                               .is_last_reader = 1,
                                               .align = 16,
                                               .fn_align = 16,
                                               .workspace_align = 16,
                                               .most_tiles = 2,
                                               .adds_late = adds_late};
    REQUIRE(spec.by_row());
    const HostTensor products(DType::f32, {2, tokens * 24}), squares(DType::f32, {tokens, 2});
    const kernels::jit::TrapScope traps;
    kernels::jit::run(
        kernels::mhc::build_projection(spec),
        std::vector<TensorView>{residual.view(), fn.view(), products.view(), squares.view()},
        std::vector<kernels::jit::Scalar>{row_blocks}, nullptr);
    return std::vector<std::vector<std::byte>>{products.raw(), squares.raw()};
  };
  for (const int64_t row_blocks : {1, 2, 5}) {  // 5 tiles, then 3 and 2, then 1 each
    CAPTURE(columns, row_blocks);
    CHECK(run(1, row_blocks) == run(0, row_blocks));
  }
}

TEST_CASE("a projection adds up late where blocks have many tiles of 16 rows", "[norm_fn_fwd]") {
  const auto adds_late = [](int64_t tokens, int64_t hidden, int64_t splits,
                            const std::string& op = "norm_fn_fwd") {
    const ir::Kernel kernel =
        projection_of(TensorView(nullptr, DType::bf16, {tokens, 4, hidden}),
                      TensorView(nullptr, DType::f32, {24, 4 * hidden}), splits, op);
    return cuda_text(kernel).find("row_before") != std::string::npos;
  };
  CHECK(adds_late(4096, 7168, 16));
  CHECK(adds_late(8192, 4096, 1));
  CHECK_FALSE(adds_late(512, 7168, 16));
  CHECK_FALSE(adds_late(4096, 2560, 1));
  CHECK_FALSE(adds_late(8192, 4096, 16));                  // tiles of 32 rows
  CHECK_FALSE(adds_late(4096, 7168, 16, "pre_big_fuse"));  // which reads the residual again
}

TEST_CASE("the workspace of a projection of many tokens is enough for fewer", "[norm_fn_fwd]") {
  int64_t before = 0;
  for (int64_t tokens = 1; tokens < 300; ++tokens) {
    CAPTURE(tokens);
    const kernels::mhc::ProjectionShape shape{tokens, 24, 4 * 7168, 16};
    const int64_t elements = kernels::mhc::projection_workspace(shape);
    CHECK(elements >= kernels::mhc::ProjectionParts(shape).stored() * tokens * (24 + 1));
    CHECK(elements >= before);
    before = elements;
  }
}

TEST_CASE("rows of norm_fn_fwd have the same bits alone and among others", "[norm_fn_fwd]") {
  // With few tokens the halves of a part come from different blocks.
  const auto [tokens, hidden, splits] =
      GENERATE(std::array<int64_t, 3>{4100, 64, 16}, std::array<int64_t, 3>{140, 1088, 3});
  const int64_t width = 4 * hidden;
  const HostTensor residual = some(DType::bf16, {tokens, 4, hidden});
  const HostTensor fn = some(DType::f32, {3, width});
  const auto run = op_runner("norm_fn_fwd", Device::cpu());
  const HostTensors all = run({{"residual", residual}, {"fn", fn}}, {{"n_splits", splits}});
  HostTensor few(DType::bf16, {3, 4, hidden});
  const int64_t picked[] = {0, 77, tokens - 1};
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t h = 0; h < width; ++h) {
      few.set_bits(row * width + h, residual.bits(picked[row] * width + h));
    }
  }
  const HostTensors alone = run({{"residual", few}, {"fn", fn}}, {{"n_splits", splits}});
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t j = 0; j < 3; ++j) {
      CHECK(alone.at("out_mul").bits(row * 3 + j) == all.at("out_mul").bits(picked[row] * 3 + j));
      CHECK(alone.at("out").bits(row * 3 + j) == all.at("out").bits(picked[row] * 3 + j));
    }
    CHECK(alone.at("sqrsum").bits(row) == all.at("sqrsum").bits(picked[row]));
  }
}

TEST_CASE("norm_fn_fwd explains wrong arguments", "[norm_fn_fwd][errors]") {
  const auto told = [](HostTensors inputs, kernels::Params params = {}) {
    return outputs_error("norm_fn_fwd", inputs, params);
  };
  const HostTensor residual = some(DType::bf16, {6, 4, 64}), fn = some(DType::f32, {24, 256});
  CHECK(told({{"residual", residual}, {"fn", fn}}) == "no error");
  CHECK(told({{"residual", some(DType::bf16, {6, 4, 65})}, {"fn", fn}}) ==
        "tessera: norm_fn_fwd: argument 'residual': a row has the wrong number of columns\n"
        "  expected  n*H % 256 = 0\n"
        "  got       n = 4 from residual dim 1, H = 65 from residual dim 2");
  const std::string columns = told({{"residual", residual}, {"fn", some(DType::f32, {24, 512})}});
  CHECK(columns.starts_with("tessera: norm_fn_fwd: argument 'fn' has the wrong shape\n"));
  CHECK(told({{"residual", residual}, {"fn", some(DType::f32, {33, 256})}}) ==
        "tessera: norm_fn_fwd: argument 'fn': so many rows are not supported\n"
        "  expected  M <= 32\n"
        "  got       M = 33 from fn dim 0");
  CHECK(told({{"residual", residual}, {"fn", fn}}, {{"n_splits", int64_t{17}}}) ==
        "tessera: norm_fn_fwd: parameter 'n_splits' is out of range\n"
        "  expected  1 .. 16\n"
        "  got       17");
  CHECK(told({{"residual", residual}, {"fn", fn}, {"norm_weight", some(DType::bf16, {256})}}) ==
        "tessera: norm_fn_fwd: argument 'norm_weight' has the wrong dtype\n"
        "  expected  f32\n"
        "  got       bf16[256] on cpu");
  const kernels::OpInfo& op = kernels::find_op("norm_fn_fwd");
  const auto with_tokens = [&](int64_t tokens) {
    return error_of([&] {
      op.outputs({{"residual", TensorView(nullptr, DType::bf16, {tokens, 1, 256})},
                  {"fn", TensorView(nullptr, DType::f32, {24, 256})}},
                 kernels::check_params(op, {}));
    });
  };
  CHECK(with_tokens(89478485).empty());
  CHECK(with_tokens(89478486) ==
        "tessera: norm_fn_fwd: argument 'residual': so many tokens are not supported\n"
        "  expected  T * M <= 2147483647\n"
        "  got       T = 89478486 from residual dim 0, M = 24 from fn dim 0");
}

TEST_CASE("pre_big_fuse equals its reference on the executor", "[pre_big_fuse][slow]") {
  const auto cases = pre_big_fuse_cases();
  check_report(run_cases("pre_big_fuse", cases, op_runner("pre_big_fuse", Device::cpu())),
               cases.size());
}

TEST_CASE("pre_big_fuse equals the chain bit for bit on the executor", "[pre_big_fuse][slow]") {
  const auto cases = pre_big_fuse_cases();
  check_report(compare_with_chain("pre_big_fuse", cases, Device::cpu()), cases.size());
}

TEST_CASE("pre_big_fuse explains wrong arguments", "[pre_big_fuse][errors]") {
  HostTensors inputs;
  inputs["residual"] = some(DType::bf16, {6, 4, 64});
  inputs["fn"] = some(DType::f32, {24, 256});
  inputs["scale"] = some(DType::f32, {3});
  inputs["base"] = some(DType::f32, {24});
  const auto told = [&](const std::string& name, const HostTensor& tensor,
                        kernels::Params params = {}) {
    HostTensors changed = inputs;
    changed[name] = tensor;
    return outputs_error("pre_big_fuse", changed, params);
  };
  CHECK(told("fn", inputs["fn"]) == "no error");
  CHECK(told("fn", some(DType::f32, {23, 256})) ==
        "tessera: pre_big_fuse: argument 'fn' has the wrong number of rows\n"
        "  expected  M = n*(n+2)\n"
        "  got       M = 23 from fn dim 0, n = 4 from residual dim 1");
  CHECK(told("base", some(DType::f32, {23})) ==
        "tessera: pre_big_fuse: argument 'base' has the wrong shape\n"
        "  expected  f32[24]   (M = 24 from fn dim 0)\n"
        "  got       f32[23] on cpu");
  CHECK(told("scale", some(DType::f32, {2})) ==
        "tessera: pre_big_fuse: argument 'scale' has the wrong shape\n"
        "  expected  f32[3]\n"
        "  got       f32[2] on cpu");
  CHECK(told("fn", inputs["fn"], {{"sinkhorn_repeat", int64_t{46}}}) ==
        "tessera: pre_big_fuse: parameter 'sinkhorn_repeat' is out of range\n"
        "  expected  1 .. 45\n"
        "  got       46");
}
