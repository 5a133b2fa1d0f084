// Products of block-scaled 8-bit floats on the executor: the references, the bits of the tensor cores of
// sm_90, the mistakes that the cases catch, what bad calls are told.

#include <cmath>

#include "kernels/gemm/parts/fp8_kernel.h"
#include "tests/reference/gemm.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

HostTensors block_inputs() {
  return {{"a", HostTensor(DType::e4m3, {5, 192})},
          {"a_sf", HostTensor(DType::f32, {5, 2})},
          {"b", HostTensor(DType::e4m3, {140, 192})},
          {"b_sf", HostTensor(DType::f32, {2, 2})}};
}

HostTensors grouped_inputs() {
  HostTensors inputs = block_inputs();
  inputs["b"] = HostTensor(DType::e4m3, {3, 140, 192});
  inputs["b_sf"] = HostTensor(DType::f32, {3, 2, 2});
  inputs["m_indices"] = tensor_of(DType::i32, {5}, {2});
  inputs["out"] = HostTensor(DType::bf16, {5, 140});
  return inputs;
}

HostTensors masked_inputs() {
  HostTensors inputs = grouped_inputs();
  inputs.erase("m_indices");
  inputs["a"] = HostTensor(DType::e4m3, {3, 7, 192});
  inputs["a_sf"] = HostTensor(DType::f32, {3, 7, 2});
  inputs["masked_m"] = tensor_of(DType::i32, {3}, {7, 0, 3});
  inputs["out"] = HostTensor(DType::bf16, {3, 7, 140});
  return inputs;
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

bool is_caught_misled(const std::string& op, const std::vector<OpCase>& cases,
                      const std::function<void(HostTensors&, Params&)>& mistake) {
  return is_caught(op, cases, misled(op, mistake));
}

/// A scale is that of the block before.
void shift(HostTensor& scales) {
  for (int64_t i = scales.size() - 1; i > 0; --i) scales.set_bits(i, scales.bits(i - 1));
}

/// Mistakes about the rows that psum and alignment give to groups.
void check_group_mutants() {
  const auto misread = [](const std::function<void(HostTensors&, Params&)>& mistake) {
    CHECK(is_caught_misled("gemm_fp8_grouped", gemm_fp8_grouped_cases(), mistake));
  };
  misread([](HostTensors& in, Params& params) {  // groups follow each other without padding
    if (in.contains("psum")) params["alignment"] = int64_t{1};
  });
  misread([](HostTensors& in, Params& params) {  // the alignment is always 128
    if (in.contains("psum")) params["alignment"] = int64_t{128};
  });
  misread([](HostTensors& in, Params&) {  // a group ends one row later
    for (int64_t g = 0; in.contains("psum") && g < in["psum"].size(); ++g) {
      in["psum"].set_value(g, in["psum"].value(g) + 1);
    }
  });
  misread([](HostTensors& in, Params&) {  // only 32 groups count
    for (int64_t g = 32; in.contains("psum") && g < in["psum"].size(); ++g) {
      in["psum"].set_value(g, in["psum"].value(31));
    }
  });
  misread([](HostTensors& in, Params& params) {  // a tile of 64 rows has the first group of its ids
    if (!in.contains("m_indices") || !params.contains("alignment")) return;
    HostTensor& ids = in["m_indices"];
    for (int64_t row = 0; row < ids.size(); ++row) {
      if (ids.value(row) >= 0) ids.set_value(row, ids.value(row / 64 * 64));
    }
  });
}

/// The message of values that a CPU call refuses.
std::string refusal(const std::string& op, const HostTensors& inputs) {
  try {
    op_runner(op, Device::cpu())(inputs, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("gemm_fp8_block equals its reference on the executor", "[gemm][gemm_fp8_block]") {
  check_products("gemm_fp8_block", gemm_fp8_block_cases());
}

TEST_CASE("gemm_fp8_grouped equals its reference on the executor", "[gemm][gemm_fp8_grouped]") {
  check_products("gemm_fp8_grouped", gemm_fp8_grouped_cases());
}

TEST_CASE("gemm_fp8_masked equals its reference on the executor", "[gemm][gemm_fp8_masked]") {
  check_products("gemm_fp8_masked", gemm_fp8_masked_cases());
}

TEST_CASE("gemm_fp8_k_grouped equals its reference on the executor", "[gemm][gemm_fp8_k_grouped]") {
  check_products("gemm_fp8_k_grouped", gemm_fp8_k_grouped_cases());
}

TEST_CASE("gemm_fp8_block has the bits of the tensor cores, promoted every 128 of k",
          "[gemm][gemm_fp8_block]") {
  const int64_t m = 80, n = 272, depth = 304, parts = 3, column_parts = 3;
  const HostTensor a = random_tensor(DType::e4m3, {m, depth}, Values::normal, 1);
  const HostTensor b = random_tensor(DType::e4m3, {n, depth}, Values::normal, 2);
  const HostTensor a_sf = random_tensor(DType::f32, {m, parts}, Values::uniform, 3);
  const HostTensor b_sf = random_tensor(DType::f32, {column_parts, parts}, Values::uniform, 4);
  const HostTensor want_f32 = reference::gemm_fp8_block({a, a_sf, b, b_sf}, DType::f32);
  const HostTensor want_bf16 = reference::gemm_fp8_block({a, a_sf, b, b_sf}, DType::bf16);
  using kernels::gemm::Tile;
  struct Form {
    Tile tile;
    int64_t blocks = 132;
    uint32_t schedule = 0;
    int32_t by_engine = 0;
  };
  std::vector<Form> forms = {{{64, 128, 128, 3, 0}},          {{64, 128, 128, 3, 0}, 1},
                             {{128, 128, 128, 2, 1}, 1, 1},   {{128, 128, 128, 2, 1}, 1, 2},
                             {{64, 128, 128, 3, 1, 2}, 2},    {{128, 64, 128, 2, 1, 2}, 132, 3},
                             {{128, 128, 128, 2, 1}, 1, 1, 1}};
  for (const Tile& tile : kernels::gemm::kFp8Tiles) {
    forms.push_back({tile});
    forms.push_back({.tile = tile, .by_engine = 1});
  }
  for (const auto& [tile, blocks, schedule, by_engine] : forms) {
    CAPTURE(tile.rows, tile.columns, tile.by_roles, tile.cluster, blocks, schedule, by_engine);
    const int32_t vector = by_engine != 0 ? 8 : 4;
    const kernels::gemm::Fp8Spec spec{.groups = kernels::gemm::Groups::one,
                                      .a_vector = 16,
                                      .b_vector = 16,
                                      .out_vector = vector,
                                      .n_multiple = vector,
                                      .k_multiple = 16,
                                      .has_depth = 1,
                                      .is_f32 = by_engine != 0 ? 0 : 1,
                                      .by_engine = by_engine,
                                      .tile = tile};
    const HostTensor& want = by_engine != 0 ? want_bf16 : want_f32;
    HostTensor out(want.dtype(), {m, n});
    const auto stack = [](const HostTensor& x) {
      const TensorView view = x.view();
      return TensorView(view.data, view.dtype, {1, view.shape[0], view.shape[1]}, view.device);
    };
    run_with_target_sums(kernels::gemm::build_fp8(spec), "sm_90a",
                         {{{"a", stack(a)},
                           {"a_sf", stack(a_sf)},
                           {"b", stack(b)},
                           {"b_sf", stack(b_sf)},
                           {"out", stack(out)}},
                          {{"m", m},
                           {"n", n},
                           {"depth", depth},
                           {"parts", parts},
                           {"column_parts", column_parts},
                           {"a_apart", m * depth},
                           {"a_stride", depth},
                           {"b_apart", n * depth},
                           {"b_stride", depth},
                           {"a_sf_apart", m * parts},
                           {"a_sf_down", parts},
                           {"a_sf_across", 1},
                           {"b_sf_apart", column_parts * parts},
                           {"b_sf_down", parts},
                           {"b_sf_across", 1},
                           {"out_apart", m * n},
                           {"out_stride", n},
                           {tile.by_roles != 0 ? "device_blocks" : "device_blocks_2", blocks}}},
                         schedule);
    CHECK(out.raw() == want.raw());
  }
}

TEST_CASE("groups of any size have the bits of the tensor cores in every tile",
          "[gemm][gemm_fp8_grouped]") {
  using kernels::gemm::Groups;
  using kernels::gemm::Tile;
  const int64_t m = 200, n = 136, depth = 304, parts = 3, column_parts = 2, groups = 5;
  const HostTensor a = random_tensor(DType::e4m3, {1, m, depth}, Values::normal, 1);
  const HostTensor b = random_tensor(DType::e4m3, {groups, n, depth}, Values::normal, 2);
  const HostTensor a_sf = random_tensor(DType::f32, {1, m, parts}, Values::uniform, 3);
  const HostTensor b_sf =
      random_tensor(DType::f32, {groups, column_parts, parts}, Values::uniform, 4);
  const HostTensor before = random_tensor(DType::bf16, {m, n}, Values::normal, 5);
  const HostTensor psum = tensor_of(DType::i32, {groups}, {3, 70, 70, 199, 199});
  const std::vector<int64_t> of_rows = reference::groups_by_ends(psum, 4, m);
  const HostTensor ids =
      tensor_by(DType::i32, {m}, [&](int64_t row) { return of_rows[static_cast<size_t>(row)]; });
  const HostTensor want = reference::gemm_fp8_grouped({a, a_sf, b, b_sf}, of_rows, before);
  struct Form {
    Tile tile;
    int64_t blocks = 132;
    uint32_t schedule = 0;
  };
  std::vector<Form> forms = {{{64, 128, 128, 3, 0}}, {{64, 128, 128, 3, 0}, 1}};
  for (const Tile& tile : kernels::gemm::fp8_tiles(Groups::by_ends)) {
    forms.push_back({tile});
    forms.push_back({tile, 2, 1});
  }
  for (const Groups form : {Groups::by_ends, Groups::by_ids}) {
    for (const auto& [tile, blocks, schedule] : forms) {
      CAPTURE(static_cast<int>(form), tile.rows, tile.columns, tile.by_roles, blocks, schedule);
      const kernels::gemm::Fp8Spec spec{.groups = form,
                                        .a_vector = 16,
                                        .b_vector = 16,
                                        .out_vector = 8,
                                        .n_multiple = 8,
                                        .k_multiple = 16,
                                        .has_depth = 1,
                                        .is_f32 = 0,
                                        .by_engine = 0,
                                        .tile = tile};
      HostTensor out = before;
      const TensorView view = out.view();
      const TensorView stack(view.data, view.dtype, {1, m, n}, view.device);
      run_with_target_sums(kernels::gemm::build_fp8(spec), "sm_90a",
                           {{{"a", a.view()},
                             {"a_sf", a_sf.view()},
                             {"b", b.view()},
                             {"b_sf", b_sf.view()},
                             {"psum", psum.view()},
                             {"m_indices", ids.view()},
                             {"out", stack}},
                            {{"m", m},
                             {"n", n},
                             {"depth", depth},
                             {"parts", parts},
                             {"column_parts", column_parts},
                             {"groups", groups},
                             {"alignment", 4},
                             {"a_apart", m * depth},
                             {"a_stride", depth},
                             {"b_apart", n * depth},
                             {"b_stride", depth},
                             {"a_sf_apart", m * parts},
                             {"a_sf_down", parts},
                             {"a_sf_across", 1},
                             {"b_sf_apart", column_parts * parts},
                             {"b_sf_down", parts},
                             {"b_sf_across", 1},
                             {"out_apart", m * n},
                             {"out_stride", n},
                             {tile.by_roles != 0 ? "device_blocks" : "device_blocks_2", blocks}}},
                           schedule);
      CHECK(out.raw() == want.raw());
    }
  }
}

TEST_CASE("gemm_fp8_block is as near to f64 as promised", "[gemm][gemm_fp8_block]") {
  const int64_t m = 24, n = 40, depth = 640, parts = 5;
  const HostTensor a = random_tensor(DType::e4m3, {m, depth}, Values::normal, 11);
  const HostTensor b = random_tensor(DType::e4m3, {n, depth}, Values::normal, 12);
  const HostTensor a_sf = random_tensor(DType::f32, {m, parts}, Values::uniform, 13);
  const HostTensor b_sf = random_tensor(DType::f32, {1, parts}, Values::uniform, 14);
  const HostTensors inputs = {{"a", a}, {"a_sf", a_sf}, {"b", b}, {"b_sf", b_sf}};
  for (const auto& [dtype, allowed] : {std::pair{"f32", 5e-6}, std::pair{"bf16", 3e-5}}) {
    const Params params = {{"out_dtype", std::string(dtype)}};
    const HostTensor by_executor =
        op_runner("gemm_fp8_block", Device::cpu())(inputs, params).at("out");
    const HostTensor by_model = reference::runner("gemm_fp8_block")(inputs, params).at("out");
    for (const HostTensor* out : {&by_executor, &by_model}) {
      double products = 0, squares = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          sum += a.value(i / n * depth + k) * b.value(i % n * depth + k) *
                 a_sf.value(i / n * parts + k / 128) * b_sf.value(k / 128);
        }
        products += sum * out->value(i);
        squares += sum * sum + out->value(i) * out->value(i);
      }
      CAPTURE(dtype);
      CHECK(1 - 2 * products / squares <= allowed);
      CHECK(squares > 0);
    }
  }
}

TEST_CASE("the gemm_fp8 tests catch every mutant", "[gemm][mutants]") {
  const auto check = [](const std::string& op, const std::vector<OpCase>& cases) {
    CAPTURE(op);
    CHECK_FALSE(is_caught_misled(op, cases, [](HostTensors&, Params&) {}));
    CHECK(is_caught_misled(op, cases, [](HostTensors& in, Params&) { shift(in["a_sf"]); }));
    CHECK(is_caught_misled(op, cases, [](HostTensors& in, Params&) { shift(in["b_sf"]); }));
    CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                      HostTensor& c = out["out"];  // the last element stays
                      if (c.size() > 0) c.set_bits(c.size() - 1, 0x1234);
                    })));
  };
  check("gemm_fp8_block", gemm_fp8_block_cases());
  check("gemm_fp8_grouped", gemm_fp8_grouped_cases());
  check("gemm_fp8_masked", gemm_fp8_masked_cases());
  check("gemm_fp8_k_grouped", gemm_fp8_k_grouped_cases());
  const auto k_grouped = gemm_fp8_k_grouped_cases();
  CHECK(is_caught_misled("gemm_fp8_k_grouped", k_grouped, [](HostTensors& in, Params&) {
    in["out"].fill_bytes(std::byte{0});  // written, not added to
  }));
  CHECK(is_caught_misled("gemm_fp8_k_grouped", k_grouped, [](HostTensors& in, Params&) {
    HostTensor& offsets = in["k_offsets"];  // each group takes the columns of all before
    for (int64_t i = 0; i + 1 < offsets.size(); ++i) offsets.set_value(i, 0);
  }));
  const auto zero_unless_kept = [](const char* op) {  // rows that stay are cleared
    return spoiled(op, [](const HostTensors& in, HostTensors& out) {
      for (int64_t i = 0; i < out["out"].size(); ++i) {
        if (out["out"].bits(i) == in.at("out").bits(i)) out["out"].set_bits(i, 0);
      }
    });
  };
  CHECK(is_caught("gemm_fp8_grouped", gemm_fp8_grouped_cases(),
                  zero_unless_kept("gemm_fp8_grouped")));
  CHECK(is_caught("gemm_fp8_masked", gemm_fp8_masked_cases(), zero_unless_kept("gemm_fp8_masked")));
  CHECK(
      is_caught_misled("gemm_fp8_grouped", gemm_fp8_grouped_cases(), [](HostTensors& in, Params&) {
        HostTensor& groups = in["m_indices"];  // the group of the first rows for all
        for (int64_t i = 1; i < groups.size(); ++i) groups.set_bits(i, groups.bits(0));
      }));
  check_group_mutants();
  CHECK(is_caught_misled("gemm_fp8_masked", gemm_fp8_masked_cases(), [](HostTensors& in, Params&) {
    HostTensor& counts = in["masked_m"];  // one row more
    for (int64_t i = 0; i < counts.size(); ++i) counts.set_value(i, counts.value(i) + 1);
  }));
}

TEST_CASE("gemm_fp8_block explains wrong arguments", "[gemm][gemm_fp8_block][errors]") {
  const auto told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("gemm_fp8_block", inputs, params);
  };
  CHECK(told(block_inputs()) == "no error");
  CHECK(told(with(block_inputs(), "a_sf", HostTensor(DType::f32, {5, 1}))) ==
        "tessera: gemm_fp8_block: argument 'a_sf' has the wrong shape\n"
        "  expected  f32[5, 2]   (M = 5 from a dim 0; columns of a_sf = 2 = ceil(K / 128))\n"
        "  got       f32[5, 1] on cpu");
  CHECK(told(with(block_inputs(), "b_sf", HostTensor(DType::f32, {1, 2})))
            .find("argument 'b_sf' has the wrong shape") != std::string::npos);
  CHECK(told(with(block_inputs(), "b", HostTensor(DType::e5m2, {140, 192}))) ==
        "tessera: gemm_fp8_block: argument 'b' has the wrong dtype\n"
        "  expected  e4m3\n"
        "  got       e5m2[140, 192] on cpu");
  CHECK(told(block_inputs(), {{"a_sf_layout", std::string("packed_ue8m0")}}) ==
        "tessera: gemm_fp8_block: parameter 'a_sf_layout' has a wrong value\n"
        "  expected  {row_major, col_major_tma}\n"
        "  got       packed_ue8m0");
}

TEST_CASE("gemm_fp8_grouped explains wrong arguments", "[gemm][gemm_fp8_grouped][errors]") {
  const auto told = [](const HostTensors& inputs) {
    return outputs_error("gemm_fp8_grouped", inputs, {});
  };
  CHECK(told(grouped_inputs()) == "no error");
  CHECK(told(with(grouped_inputs(), "b_sf", HostTensor(DType::f32, {3, 2, 1})))
            .find("argument 'b_sf' has the wrong shape") != std::string::npos);
  CHECK(told(with(grouped_inputs(), "m_indices", HostTensor(DType::i32, {6}))) ==
        "tessera: gemm_fp8_grouped: argument 'm_indices' has the wrong shape\n"
        "  expected  i32[5]   (M = 5 from a dim 0)\n"
        "  got       i32[6] on cpu");
  CHECK(refusal("gemm_fp8_grouped",
                with(grouped_inputs(), "m_indices", tensor_of(DType::i32, {5}, {3}))) ==
        "tessera: gemm_fp8_grouped: argument 'm_indices' has a value out of range\n"
        "  expected  -1 .. 2\n"
        "  got       3 at [0]");
  CHECK(refusal("gemm_fp8_grouped",
                with(grouped_inputs(), "m_indices", tensor_of(DType::i32, {5}, {1, 1, 1, 0, 1}))) ==
        "tessera: gemm_fp8_grouped: argument 'm_indices' has several groups in 128 rows\n"
        "  expected  1 as at [0], or -1\n"
        "  got       0 at [3]");
}

TEST_CASE("gemm_fp8_grouped takes either m_indices or psum", "[gemm][gemm_fp8_grouped][errors]") {
  HostTensors inputs = grouped_inputs();
  inputs["psum"] = tensor_of(DType::i32, {3}, {1, 3, 5});
  CHECK(outputs_error("gemm_fp8_grouped", inputs, {}) ==
        "tessera: gemm_fp8_grouped: argument 'm_indices' goes with other arguments only\n"
        "  expected  a tensor only where not psum\n"
        "  got       psum of i32");
  inputs.erase("m_indices");
  CHECK(outputs_error("gemm_fp8_grouped", inputs, {}) == "no error");
  CHECK(outputs_error("gemm_fp8_grouped", inputs, {{"alignment", int64_t{0}}}) ==
        "tessera: gemm_fp8_grouped: parameter 'alignment' has a wrong value\n"
        "  expected  int >= 1\n"
        "  got       0");
  CHECK(outputs_error("gemm_fp8_grouped", with(inputs, "psum", tensor_of(DType::i32, {2}, {1, 5})),
                      {}) ==
        "tessera: gemm_fp8_grouped: argument 'psum' has the wrong shape\n"
        "  expected  i32[3]   (G = 3 from b dim 0)\n"
        "  got       i32[2] on cpu");
  inputs.erase("psum");
  CHECK(outputs_error("gemm_fp8_grouped", inputs, {}) ==
        "tessera: gemm_fp8_grouped: argument 'm_indices' is missing\n"
        "  expected  a tensor named m_indices where not psum\n"
        "  got       no psum");
}

TEST_CASE("psum, small groups and 128 rows per group give a row equal bits",
          "[gemm][gemm_fp8_grouped]") {
  const int64_t rows = 300, depth = 272, columns = 136, groups = 3, parts = 3;
  const HostTensor b = random_tensor(DType::e4m3, {groups, columns, depth}, Values::normal, 2);
  const HostTensor b_sf = random_tensor(DType::f32, {groups, 2, parts}, Values::uniform, 4);
  const HostTensor a = random_tensor(DType::e4m3, {rows, depth}, Values::normal, 1);
  const HostTensor a_sf = random_tensor(DType::f32, {rows, parts}, Values::uniform, 3);
  const std::vector<double> ends = {100, 256, 300};  // groups begin at 0, 128 and 256
  const auto run = [&](const std::string& name, const HostTensor& tensor, int64_t alignment) {
    return op_runner("gemm_fp8_grouped", Device::cpu())(
               {{"a", a},
                {"a_sf", a_sf},
                {"b", b},
                {"b_sf", b_sf},
                {name, tensor},
                {"out", tensor_of(DType::bf16, {rows, columns}, {-7})}},
               {{"alignment", alignment}})
        .at("out");
  };
  const HostTensor ids = tensor_by(DType::i32, {rows}, [&](int64_t row) {
    return row < 100 ? 0.0 : row < 128 ? -1.0 : row < 256 ? 1.0 : 2.0;
  });
  const HostTensor want = run("m_indices", ids, 128);
  CHECK(run("psum", tensor_of(DType::i32, {groups}, ends), 128).raw() == want.raw());
  CHECK(run("m_indices", ids, 4).raw() == want.raw());
  CHECK(run("m_indices", ids, 1).raw() == want.raw());
}

TEST_CASE("a grouped product takes the experts of a mapping as they are",
          "[gemm][gemm_fp8_grouped]") {
  const HostTensor ids = tensor_of(DType::i64, {3, 2}, {0, 1, 1, 2, 1, 0});
  const HostTensors mapping = op_runner("get_fused_mapping", Device::cpu())(
      {{"topk_idx", ids}}, {{"num_experts", int64_t{3}}, {"alignment", int64_t{128}}});
  const HostTensor& experts = mapping.at("pos_to_expert");  // rows of an expert, then -1
  const int64_t rows = experts.size();
  REQUIRE(rows == 384);
  const HostTensors in = {{"a", tensor_of(DType::e4m3, {rows, 32}, {1})},
                          {"a_sf", tensor_of(DType::f32, {rows, 1}, {1})},
                          {"b", tensor_of(DType::e4m3, {3, 8, 32}, {1})},
                          {"b_sf", tensor_of(DType::f32, {3, 1, 1}, {1, 2, 3})},
                          {"m_indices", experts},
                          {"out", tensor_of(DType::bf16, {rows, 8}, {-7})}};
  const HostTensor out = op_runner("gemm_fp8_grouped", Device::cpu())(in, {}).at("out");
  int64_t kept = 0;
  for (int64_t i = 0; i < out.size(); ++i) {
    const double expert = experts.value(i / 8);
    kept += expert < 0 ? 1 : 0;
    CHECK(out.value(i) == (expert < 0 ? -7 : 32 * (expert + 1)));
  }
  CHECK(kept == (384 - 6) * 8);
}

TEST_CASE("gemm_fp8_masked explains wrong arguments", "[gemm][gemm_fp8_masked][errors]") {
  const auto told = [](const HostTensors& inputs) {
    return outputs_error("gemm_fp8_masked", inputs, {});
  };
  CHECK(told(masked_inputs()) == "no error");
  CHECK(told(with(masked_inputs(), "b", HostTensor(DType::e4m3, {2, 140, 192}))) ==
        "tessera: gemm_fp8_masked: argument 'b' has the wrong shape\n"
        "  expected  e4m3[3, N, 192]   (G = 3 from a dim 0; K = 192 from a dim 2)\n"
        "  got       e4m3[2, 140, 192] on cpu");
  CHECK(refusal("gemm_fp8_masked",
                with(masked_inputs(), "masked_m", tensor_of(DType::i32, {3}, {7, 8, 0}))) ==
        "tessera: gemm_fp8_masked: argument 'masked_m' has a value out of range\n"
        "  expected  0 .. 7\n"
        "  got       8 at [1]");
}

TEST_CASE("gemm_fp8_k_grouped explains wrong arguments", "[gemm][gemm_fp8_k_grouped][errors]") {
  const HostTensors inputs = {{"a", HostTensor(DType::e4m3, {5, 256})},
                              {"a_sf", HostTensor(DType::f32, {2, 5})},
                              {"b", HostTensor(DType::e4m3, {7, 256})},
                              {"b_sf", HostTensor(DType::f32, {2, 7})},
                              {"k_offsets", tensor_of(DType::i32, {3}, {0, 128, 256})},
                              {"out", HostTensor(DType::f32, {2, 5, 7})}};
  const auto told = [](const HostTensors& given) {
    return outputs_error("gemm_fp8_k_grouped", given, {});
  };
  CHECK(told(inputs) == "no error");
  CHECK(told(with(inputs, "a_sf", HostTensor(DType::f32, {5, 2})))
            .find("argument 'a_sf' has the wrong shape") != std::string::npos);
  CHECK(told(with(inputs, "k_offsets", HostTensor(DType::i32, {0}))).find("argument 'k_offsets'") !=
        std::string::npos);
  CHECK(refusal("gemm_fp8_k_grouped",
                with(inputs, "k_offsets", tensor_of(DType::i32, {3}, {0, 100, 256}))) ==
        "tessera: gemm_fp8_k_grouped: argument 'k_offsets' has a value that starts no group\n"
        "  expected  multiples of 128, each at least the one before\n"
        "  got       100 at [1]");
  CHECK(refusal("gemm_fp8_k_grouped",
                with(inputs, "k_offsets", tensor_of(DType::i32, {3}, {0, 128, 384}))) ==
        "tessera: gemm_fp8_k_grouped: argument 'k_offsets' has a value out of range\n"
        "  expected  0 .. 256\n"
        "  got       384 at [2]");
}
