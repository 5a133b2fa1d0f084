// MXFP4 weights on the executor: the references, the bits of the tensor cores of sm_90, the mistakes that the cases
// catch, what bad calls are told.

#include "tests/reference/mxfp4.h"

#include <bit>
#include <cmath>

#include "kernels/gemm/parts/mxfp4_kernel.h"
#include "tests/reference/gemm.h"
#include "tests/reference/numeric.h"
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

/// Weights that the tensor cores' 13 bits do not hold exactly, and tokens of any size.
struct Random {
  HostTensors packed, inputs;
};
Random random_operands(int64_t g, int64_t m, int64_t n, int64_t k, int64_t scaled, bool is_bf16,
                       bool by_block) {
  const int64_t scales = (k + 31) / 32;
  HostTensor w_sf(DType::u8, {g, n, scales});
  for (int64_t i = 0; i < w_sf.size(); ++i) {
    w_sf.set_bits(i, static_cast<uint64_t>(118 + i * 7 % 11));
  }
  Random made;
  made.packed = reference::mxfp4_prepack(random_tensor(DType::i8, {g, n, k / 2}, Values::bits, 1),
                                         w_sf, is_bf16, by_block);
  made.inputs["a"] =
      random_tensor(is_bf16 ? DType::bf16 : DType::e4m3, {g, m, k}, Values::normal, 2);
  if (!is_bf16) {
    made.inputs["a_sf"] =
        random_tensor(DType::f32, {g, m, (k + scaled - 1) / scaled}, Values::uniform, 3);
  }
  made.inputs["b"] = made.packed.at("out");
  made.inputs["b_shift"] = made.packed.at("out_shift");
  made.inputs["b_sf"] = made.packed.at("out_sf");
  return made;
}

/// Runs a form of the masked product with the sums of the tensor cores, all rows counted.
HostTensor run_form(const HostTensors& in, const kernels::gemm::Mxfp4Spec& spec, int64_t blocks,
                    uint32_t schedule) {
  const HostTensor &a = in.at("a"), &b = in.at("b");
  const int64_t g = a.shape()[0], m = a.shape()[1], depth = a.shape()[2];
  const int64_t n = in.at("b_sf").shape()[1], tiles = b.shape()[2], row_tiles = b.shape()[1];
  const int64_t depth_blocks = in.at("b_shift").shape()[2];
  HostTensor out(DType::bf16, {g, m, n});
  const HostTensor masked_m = tensor_of(DType::i32, {g}, {static_cast<double>(m)});
  const auto words = [](const HostTensor& x, const Dims& shape) {
    return TensorView(x.view().data, DType::u32, shape, Device::cpu());
  };
  NamedArguments given{{{"a", a.view()},
                        {"b", words(b, {g, row_tiles, tiles, b.shape()[3] / 4})},
                        {"b_shift", words(in.at("b_shift"), {g, row_tiles, depth_blocks, 64})},
                        {"b_sf", in.at("b_sf").view()},
                        {"masked_m", masked_m.view()},
                        {"out", out.view()}},
                       {{"m", m},
                        {"n", n},
                        {"groups", g},
                        {"depth", depth},
                        {"row_tiles", row_tiles},
                        {"depth_tiles", tiles},
                        {"depth_blocks", depth_blocks},
                        {"a_apart", m * depth},
                        {"a_stride", depth},
                        {"out_apart", m * n},
                        {"out_stride", n},
                        {spec.tile.by_roles != 0 ? "device_blocks" : "device_blocks_2", blocks}}};
  if (in.count("a_sf") > 0) {
    const HostTensor& a_sf = in.at("a_sf");
    given.tensors["a_sf"] = a_sf.view();
    given.dims["a_scales"] = a_sf.shape()[2];
    given.dims["a_sf_apart"] = m * a_sf.shape()[2];
    given.dims["a_sf_down"] = a_sf.shape()[2];
    given.dims["a_sf_across"] = 1;
  }
  run_with_target_sums(kernels::gemm::build_mxfp4(spec), "sm_90a", given, schedule);
  return out;
}

/// Bits of products by every tile, of one and of several rounds of blocks.
void check_tiles(int64_t scaled, bool is_bf16, bool by_block) {
  const int64_t m = 37, n = 200, k = 720;
  const Random made = random_operands(2, m, n, k, scaled, is_bf16, by_block);
  HostTensors inputs = made.inputs;
  inputs["masked_m"] = tensor_of(DType::i32, {2}, {static_cast<double>(m)});
  inputs["out"] = HostTensor(DType::bf16, {2, m, n});
  const HostTensor want =
      reference::mxfp4_runner("gemm_mxfp4_masked")(inputs, {{"num_per_channels", scaled}})
          .at("out");
  const int32_t step = is_bf16 ? 64 : 128;
  for (const kernels::gemm::Tile& tile : {kernels::gemm::Tile{64, 32, step, 3, 0},
                                          {128, 8, step, 3, 1},
                                          {256, 16, step, 2, 1},
                                          {64, 32, step, 4, 1},
                                          {128, 64, step, 2, 1},
                                          {128, 128, step, 2, 1}}) {
    for (const int64_t blocks : {1, 132}) {
      CAPTURE(scaled, is_bf16, by_block, tile.rows, tile.columns, tile.by_roles, blocks);
      const kernels::gemm::Mxfp4Spec spec{.groups = kernels::gemm::MxGroups::masked,
                                          .operand = is_bf16 ? kernels::gemm::Mxfp4Operand::bf16
                                                             : kernels::gemm::Mxfp4Operand::e4m3,
                                          .a_vector = is_bf16 ? 8 : 16,
                                          .out_vector = 8,
                                          .n_multiple = 8,
                                          .k_multiple = 16,
                                          .has_depth = 1,
                                          .is_f32 = 0,
                                          .by_block = by_block ? 1 : 0,
                                          .scaled = static_cast<int32_t>(scaled),
                                          .is_packed = 0,
                                          .has_bias = 0,
                                          .tile = tile};
      CHECK(run_form(made.inputs, spec, blocks, static_cast<uint32_t>(blocks)).raw() == want.raw());
    }
  }
}

HostTensors masked_inputs() {
  return {{"a", HostTensor(DType::e4m3, {3, 7, 192})},
          {"a_sf", HostTensor(DType::f32, {3, 7, 2})},
          {"b", HostTensor(DType::u8, {3, 3, 2, 4096})},
          {"b_shift", HostTensor(DType::u8, {3, 3, 2, 64, 4})},
          {"b_sf", HostTensor(DType::f32, {3, 140, 2})},
          {"masked_m", tensor_of(DType::i32, {3}, {7, 0, 3})},
          {"out", HostTensor(DType::bf16, {3, 7, 140})}};
}
HostTensors grouped_inputs() {
  HostTensors inputs = masked_inputs();
  inputs.erase("masked_m");
  inputs["a"] = HostTensor(DType::e4m3, {9, 192});
  inputs["a_sf"] = HostTensor(DType::f32, {9, 2});
  inputs["psum"] = tensor_of(DType::i32, {3}, {2, 4, 9});
  inputs["out"] = HostTensor(DType::bf16, {9, 140});
  return inputs;
}

HostTensors with(HostTensors inputs, const std::string& name, HostTensor tensor) {
  inputs[name] = std::move(tensor);
  return inputs;
}

std::string refusal(const std::string& op, const HostTensors& inputs, const Params& params = {}) {
  try {
    op_runner(op, Device::cpu())(inputs, params);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("mxfp4_prepack equals its reference on the executor", "[mxfp4]") {
  check_products("mxfp4_prepack", mxfp4_prepack_cases());
}

TEST_CASE("mxfp4_decode equals its reference on the executor", "[mxfp4]") {
  check_products("mxfp4_decode", mxfp4_decode_cases());
}

TEST_CASE("gemm_mxfp4_masked equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4_masked", gemm_mxfp4_masked_cases());
}

TEST_CASE("gemm_mxfp4 equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4", gemm_mxfp4_cases());
}

TEST_CASE("gemm_mxfp4_grouped equals its reference on the executor", "[mxfp4]") {
  check_products("gemm_mxfp4_grouped", gemm_mxfp4_grouped_cases());
}

TEST_CASE("products by MXFP4 weights have the bits of the tensor cores in every tile", "[mxfp4]") {
  check_tiles(128, false, true);
  check_tiles(128, false, false);
  check_tiles(32, false, true);
  check_tiles(32, false, false);
  check_tiles(128, true, false);
}

TEST_CASE("the reference of MXFP4 codes is the table of the contract", "[mxfp4]") {
  // 1.2 of the contract: magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6 below the window.
  const int want[5][8] = {{0, 0, 1, 2, 2, 3, 4, 6},
                          {0, 0, 0, 1, 1, 2, 2, 3},
                          {0, 0, 0, 0, 0, 1, 1, 2},
                          {0, 0, 0, 0, 0, 0, 0, 1},
                          {0, 0, 0, 0, 0, 0, 0, 0}};
  const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int m = 0; m < 8; ++m) {
    for (int shift = 0; shift <= 14; ++shift) {
      CAPTURE(m, shift);
      CHECK(reference::decode(DType::e4m3, reference::mxfp4_e4m3(m, shift)) ==
            std::ldexp(magnitudes[m], shift - 8));
    }
    CHECK(reference::mxfp4_e4m3(m, 15) == 0x7F);
    for (int i = 0; i < 5; ++i) {
      CHECK(reference::mxfp4_e4m3(m, 16 + i) == static_cast<uint32_t>(want[i][m]));
    }
    for (int shift = 0; shift <= 126; ++shift) {
      CHECK(reference::decode(DType::bf16, reference::mxfp4_bf16(m, shift)) ==
            std::ldexp(magnitudes[m], -shift));
    }
  }
}

TEST_CASE("packed weights come back by mxfp4_decode and their scales", "[mxfp4]") {
  for (const char* operand : {"e4m3", "bf16"}) {
    const int64_t n = 70, k = 354, scales = 12;
    const HostTensor w = random_tensor(DType::i8, {2, n, k / 2}, Values::bits, 5);
    HostTensor w_sf(DType::u8, {2, n, scales});
    for (int64_t i = 0; i < w_sf.size(); ++i) {
      w_sf.set_bits(i, static_cast<uint64_t>(100 + i * 13 % 15));
    }
    HostTensors packed = op_runner("mxfp4_prepack", Device::cpu())(
        {{"w", w}, {"w_sf", w_sf}}, {{"operand", std::string(operand)}});
    const HostTensor codes =
        op_runner("mxfp4_decode", Device::cpu())({{"b", packed.at("out")},
                                                  {"b_shift", packed.at("out_shift")},
                                                  {"b_sf", packed.at("out_sf")}},
                                                 {{"num_columns", k}})
            .at("out");
    const int64_t units = packed.at("out_sf").size() / (2 * n);
    for (int64_t i = 0; i < codes.size(); ++i) {
      const int64_t row = i / k, column = i % k;
      const auto code = static_cast<int>(w.bits(i / 2) >> (4 * (i % 2)) & 15);
      const double value = reference::decode(DType::e2m1, static_cast<uint32_t>(code));
      const auto byte = static_cast<int>(w_sf.bits(row * scales + column / 32));
      const double scale = packed.at("out_sf").value(row * units + (units > 1 ? column / 128 : 0));
      if (codes.value(i) * scale == std::ldexp(value, byte - 127)) continue;
      CAPTURE(operand, row, column, code, byte);
      FAIL("a weight has changed");
    }
  }
}

TEST_CASE("gemm_mxfp4 is gemm_fp8_block where blocks have one byte", "[mxfp4]") {
  const int64_t m = 21, n = 256, k = 384, blocks = 3;
  const HostTensor w = random_tensor(DType::i8, {1, n, k / 2}, Values::bits, 5);
  HostTensor w_sf(DType::u8, {1, n, 12}), b_sf(DType::f32, {2, blocks});
  for (int64_t i = 0; i < w_sf.size(); ++i) {
    const int64_t byte = 110 + i / 12 / 128 * 5 + i % 12 / 4;
    w_sf.set_bits(i, static_cast<uint64_t>(byte));
    b_sf.set_value(i / 12 / 128 * blocks + i % 12 / 4,
                   std::ldexp(1.0, static_cast<int>(byte) - 133));
  }
  const HostTensors packed = reference::mxfp4_prepack(w, w_sf, false, true);
  const HostTensor decoded =
      reference::mxfp4_decode(packed.at("out"), packed.at("out_shift"), n, k);
  HostTensor plain(DType::e4m3, {n, k}), tiles(DType::u8, {4, 3, 4096});
  HostTensor shifts(DType::u8, {4, 3, 64, 4}), scales(DType::f32, {n, blocks});
  for (int64_t i = 0; i < plain.size(); ++i) plain.set_bits(i, decoded.bits(i));
  for (int64_t i = 0; i < tiles.size(); ++i) tiles.set_bits(i, packed.at("out").bits(i));
  for (int64_t i = 0; i < shifts.size(); ++i) shifts.set_bits(i, packed.at("out_shift").bits(i));
  for (int64_t i = 0; i < scales.size(); ++i) scales.set_bits(i, packed.at("out_sf").bits(i));
  const HostTensor a = random_tensor(DType::e4m3, {m, k}, Values::normal, 1);
  const HostTensor a_sf = random_tensor(DType::f32, {m, blocks}, Values::uniform, 2);
  const HostTensor by_block = reference::runner("gemm_fp8_block")(
                                  {{"a", a}, {"a_sf", a_sf}, {"b", plain}, {"b_sf", b_sf}}, {})
                                  .at("out");
  const HostTensors in = {
      {"a", a}, {"a_sf", a_sf}, {"b", tiles}, {"b_shift", shifts}, {"b_sf", scales}};
  CHECK(reference::runner("gemm_mxfp4")(in, {}).at("out").raw() == by_block.raw());
}

TEST_CASE("the MXFP4 tests catch every mutant", "[mxfp4][mutants]") {
  // Signs where plain nibbles have them.
  const auto plain_signs = [](const HostTensors& in, HostTensors& out) {
    (void)in;
    HostTensor& words = out["out"];
    for (int64_t i = 0; i + 3 < words.size(); i += 4) {
      uint32_t word = 0;
      for (int64_t b = 0; b < 4; ++b) word |= static_cast<uint32_t>(words.bits(i + b)) << (8 * b);
      uint32_t plain = word & 0x77777777;
      for (int x = 0; x < 8; ++x) {
        plain |= (word >> (x < 4 ? 8 * x + 7 : 8 * (x - 4) + 3) & 1) << (4 * x + 3);
      }
      for (int64_t b = 0; b < 4; ++b) words.set_bits(i + b, plain >> (8 * b) & 255);
    }
  };
  const auto prepack = mxfp4_prepack_cases();
  CHECK_FALSE(is_caught("mxfp4_prepack", prepack,
                        spoiled("mxfp4_prepack", [](const HostTensors&, HostTensors&) {})));
  CHECK(is_caught("mxfp4_prepack", prepack, spoiled("mxfp4_prepack", plain_signs)));
  // Groups of zeros count: one code is not zero.
  CHECK(is_caught("mxfp4_prepack", prepack, misled("mxfp4_prepack", [](HostTensors& in, Params&) {
                    for (int64_t i = 0; i < in["w"].size(); i += 16) {
                      in["w"].set_bits(i, in["w"].bits(i) | 1);
                    }
                  })));
  CHECK(
      is_caught("mxfp4_prepack", prepack, misled("mxfp4_prepack", [](HostTensors&, Params& params) {
                  if (params["operand"] == kernels::ParamValue(std::string("e4m3")))
                    params["fold"] = std::string("row");
                })));
  const std::pair<const char*, std::vector<OpCase>> products[] = {
      {"gemm_mxfp4", gemm_mxfp4_cases()},
      {"gemm_mxfp4_grouped", gemm_mxfp4_grouped_cases()},
      {"gemm_mxfp4_masked", gemm_mxfp4_masked_cases()}};
  for (const auto& product : products) {
    const char* const op = product.first;
    const std::vector<OpCase>& cases = product.second;
    CAPTURE(op);
    const auto shifted = [&](const char* name) {
      return misled(op, [name](HostTensors& in, Params&) {
        const auto found = in.find(name);
        if (found == in.end()) return;
        HostTensor& x = found->second;
        for (int64_t i = x.size() - 1; i > 0; --i) x.set_bits(i, x.bits(i - 1));
      });
    };
    CHECK_FALSE(is_caught(op, cases, reference::mxfp4_runner(op)));
    for (const char* name : {"a_sf", "b_sf", "b_shift", "b", "bias"}) {
      CAPTURE(name);
      CHECK(is_caught(op, cases, shifted(name)));
    }
    CHECK(is_caught(op, cases,
                    reference::mxfp4_runner(op, reference::Mxfp4Mistake::next_block_scale)));
    CHECK(is_caught(op, cases, spoiled(op, [](const HostTensors&, HostTensors& out) {
                      HostTensor& c = out["out"];  // the last element stays
                      if (c.size() > 0) c.set_bits(c.size() - 1, 0x1234);
                    })));
  }
}

TEST_CASE("the gemm_mxfp4 tests catch a product and a sum in place of an fma", "[mxfp4][mutants]") {
  CHECK(is_caught("gemm_mxfp4", gemm_mxfp4_cases(),
                  reference::mxfp4_runner("gemm_mxfp4", reference::Mxfp4Mistake::product_and_sum)));
}

TEST_CASE("mxfp4_prepack says which weights lose bits", "[mxfp4][errors]") {
  HostTensors in = {
      {"w", tensor_of(DType::i8, {1, 2, 64}, {0x21})},
      {"w_sf", tensor_of(DType::u8, {1, 2, 4}, {120, 119, 118, 120, 120, 106, 105, 120})}};
  CHECK(refusal("mxfp4_prepack", in) ==
        "tessera: mxfp4_prepack: argument 'w_sf' has groups so small that their weights lose bits\n"
        "  expected  at least 106, 14 less than the greatest, or save_inexact\n"
        "  got       105 at [0, 1, 2]");
  CHECK(refusal("mxfp4_prepack", in, {{"save_inexact", true}}) == "no error");
  CHECK(refusal("mxfp4_prepack", in, {{"operand", std::string("bf16")}}) == "no error");
  CHECK(outputs_error("mxfp4_prepack", in,
                      {{"operand", std::string("bf16")}, {"fold", std::string("block")}}) ==
        "tessera: mxfp4_prepack: parameter 'fold' is row where operand is bf16\n"
        "  expected  fold != block where operand = bf16\n"
        "  got       fold = block, operand = bf16");
}

TEST_CASE("products by MXFP4 weights explain wrong arguments", "[mxfp4][errors]") {
  const auto told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("gemm_mxfp4_masked", inputs, params);
  };
  CHECK(told(masked_inputs()) == "no error");
  CHECK(told(with(masked_inputs(), "b", HostTensor(DType::u8, {3, 3, 2, 2048}))) ==
        "tessera: gemm_mxfp4_masked: argument 'b' has the wrong shape\n"
        "  expected  S = 4096 where a is e4m3\n"
        "  got       S = 2048 from b dim 3, a of e4m3");
  HostTensors short_rows = with(masked_inputs(), "b", HostTensor(DType::u8, {3, 2, 2, 4096}));
  short_rows["b_shift"] = HostTensor(DType::u8, {3, 2, 2, 64, 4});
  CHECK(told(short_rows) ==
        "tessera: gemm_mxfp4_masked: argument 'b' has the wrong shape\n"
        "  expected  Nt = ceil(N / 64)\n"
        "  got       Nt = 2 from b dim 1, N = 140 from b_sf dim 1");
  CHECK(told(with(masked_inputs(), "b_shift", HostTensor(DType::u8, {3, 3, 1, 64, 4}))) ==
        "tessera: gemm_mxfp4_masked: argument 'b_shift' has the wrong shape\n"
        "  expected  Kb = ceil(K / 128)\n"
        "  got       Kb = 1 from b_shift dim 2, K = 192 from a dim 2");
  CHECK(told(with(masked_inputs(), "b_sf", HostTensor(DType::f32, {3, 140, 1}))) ==
        "tessera: gemm_mxfp4_masked: argument 'b_sf' has the wrong shape\n"
        "  expected  a scale for each 128 of k: 2 = ceil(K / 128)\n"
        "  got       1 columns");
  CHECK(told(with(masked_inputs(), "a", HostTensor(DType::bf16, {3, 7, 192}))) ==
        "tessera: gemm_mxfp4_masked: argument 'a_sf' goes with other arguments only\n"
        "  expected  a tensor only where a is e4m3\n"
        "  got       a of bf16");
  HostTensors of_bf16 = with(masked_inputs(), "a", HostTensor(DType::bf16, {3, 7, 192}));
  of_bf16.erase("a_sf");
  CHECK(told(of_bf16) ==
        "tessera: gemm_mxfp4_masked: argument 'b' has the wrong shape\n"
        "  expected  S = 2048 where a is bf16\n"
        "  got       S = 4096 from b dim 3, a of bf16");
  of_bf16["b"] = HostTensor(DType::u8, {3, 3, 3, 2048});
  CHECK(told(of_bf16) ==
        "tessera: gemm_mxfp4_masked: argument 'b_sf' has the wrong shape\n"
        "  expected  a scale for each row: weights for bf16 are folded by rows\n"
        "  got       2 columns");
  CHECK(refusal("gemm_mxfp4_masked",
                with(masked_inputs(), "masked_m", tensor_of(DType::i32, {3}, {7, 8, 0}))) ==
        "tessera: gemm_mxfp4_masked: argument 'masked_m' has a value out of range\n"
        "  expected  0 .. 7\n"
        "  got       8 at [1]");
  const auto grouped_told = [](const HostTensors& inputs, const Params& params = {}) {
    return outputs_error("gemm_mxfp4_grouped", inputs, params);
  };
  CHECK(grouped_told(grouped_inputs(), {{"alignment", int64_t{1}}}) == "no error");
  HostTensors none = grouped_inputs();
  none.erase("psum");
  CHECK(grouped_told(none) ==
        "tessera: gemm_mxfp4_grouped: rows have their groups by 'psum' or by 'm_indices'\n"
        "  expected  one of the two\n"
        "  got       none");
  CHECK(grouped_told(with(grouped_inputs(), "m_indices", HostTensor(DType::i32, {9}))) ==
        "tessera: gemm_mxfp4_grouped: rows have their groups by 'psum' or by 'm_indices'\n"
        "  expected  one of the two\n"
        "  got       both");
  CHECK(refusal("gemm_mxfp4_grouped",
                with(grouped_inputs(), "psum", tensor_of(DType::i32, {3}, {2, 1, 9}))) ==
        "tessera: gemm_mxfp4_grouped: argument 'psum' has a value out of range\n"
        "  expected  2 .. 9\n"
        "  got       1 at [1]");
  none["m_indices"] = tensor_of(DType::i32, {9}, {1, 1, 1, 1, -1, 0, 0, 2, 2});
  CHECK(refusal("gemm_mxfp4_grouped", none, {{"alignment", int64_t{4}}}) ==
        "tessera: gemm_mxfp4_grouped: argument 'm_indices' has several groups in 'alignment' rows\n"
        "  expected  0 as at [5], or -1\n"
        "  got       2 at [7]");
}

TEST_CASE("tiles of packed weights begin at multiples of 16 bytes", "[mxfp4][errors]") {
  HostTensors memory = masked_inputs();
  kernels::Tensors views;
  for (const auto& [name, tensor] : memory) views[name] = tensor.view();
  views["b"].data = static_cast<std::byte*>(views["b"].data) + 8;
  CHECK(run_error("gemm_mxfp4_masked", views, {})
            .starts_with("tessera: gemm_mxfp4_masked: argument 'b' is not aligned\n"
                         "  expected  an address that is a multiple of 16 bytes\n"));
}

namespace {

/// FNV-1a of elements from first to last, each of so many bytes.
uint64_t digest(const std::vector<uint64_t>& elements, int bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint64_t element : elements) {
    for (int i = 0; i < bytes; ++i) hash = (hash ^ (element >> (8 * i) & 255)) * 0x100000001b3;
  }
  return hash;
}
std::vector<uint64_t> bits_of(const HostTensor& x) {
  std::vector<uint64_t> bits;
  for (int64_t i = 0; i < x.size(); ++i) bits.push_back(x.bits(i));
  return bits;
}

/// The shifts of the groups that exist, row by row.
std::vector<uint64_t> shifts_of(const HostTensor& shifts, int64_t n, int64_t groups) {
  const int64_t blocks = shifts.shape()[2];
  std::vector<uint64_t> bits;
  for (int64_t i = 0; i < n * groups; ++i) {
    const int64_t row = i / groups, q = i % groups;
    bits.push_back(shifts.bits(((row / 64 * blocks + q / 4) * 64 + row % 64) * 4 + q % 4));
  }
  return bits;
}

}  // namespace

TEST_CASE("the reference of MXFP4 weights is the specification's numpy model", "[mxfp4]") {
  // Recorded with mx.py of moe_serving: the same formulas give its inputs.
  constexpr int64_t kRows = 70, kDepth = 352, kGroups = 11, kTokens = 9;
  HostTensor w(DType::i8, {1, kRows, kDepth / 2}), w_sf(DType::u8, {1, kRows, kGroups});
  const auto code = [](int64_t i) -> uint64_t {
    if (i / kDepth == 7 && i % kDepth < 32) return 8;
    return static_cast<uint64_t>(i * 2654435761 >> 7) % 16;
  };
  for (int64_t i = 0; i < w.size(); ++i) w.set_bits(i, code(2 * i) | code(2 * i + 1) << 4);
  for (int64_t i = 0; i < w_sf.size(); ++i)
    w_sf.set_bits(i, static_cast<uint64_t>(118 + i * 7 % 11));
  w_sf.set_bits(3 * kGroups + 2, 255), w_sf.set_bits(5 * kGroups + 4, 90);
  for (int64_t q = 0; q < 4; ++q) {
    w_sf.set_bits(6 * kGroups + q, std::vector<uint64_t>{100, 84, 83, 82}[static_cast<size_t>(q)]);
  }
  struct Recorded {
    bool is_bf16, by_block;
    double inexact;
    uint64_t tiles, shifts, scales, codes, by_128, by_32;
  };
  for (const Recorded& want :
       {Recorded{false, true, 4, 0xb3068504202bd771, 0xa3d43a70b14141f8, 0xea59b252a5a4cf1f,
                 0xffa6e1e0fbb06d04, 0x44546c5f88e107d9, 0xd68464ae9ddea05b},
        Recorded{false, false, 5, 0xb3068504202bd771, 0x99d3d2d6e4b1c704, 0x619f64778ae08d72,
                 0x12205eb166f18c8d, 0x44546c5f88e107d9, 0xd79782aab74540b8},
        Recorded{true, false, 0, 0xdf7424948810c551, 0x5a3f4982b708a634, 0x352430a8ffed6df8,
                 0xc1876dd59781405f, 0, 0}}) {
    CAPTURE(want.is_bf16, want.by_block);
    HostTensors packed = reference::mxfp4_prepack(w, w_sf, want.is_bf16, want.by_block);
    CHECK(packed.at("inexact").value(0) == want.inexact);
    CHECK(digest(bits_of(packed.at("out")), 1) == want.tiles);
    CHECK(digest(shifts_of(packed.at("out_shift"), kRows, kGroups), 1) == want.shifts);
    CHECK(digest(bits_of(packed.at("out_sf")), 4) == want.scales);
    std::vector<uint64_t> codes =
        bits_of(reference::mxfp4_decode(packed.at("out"), packed.at("out_shift"), kRows, kDepth));
    if (want.is_bf16) {
      for (uint64_t& bits : codes) bits = (bits & 0x7FFF) > 0x7F80 ? 0 : bits;
    }
    CHECK(digest(codes, want.is_bf16 ? 2 : 1) == want.codes);
    if (want.is_bf16) continue;
    HostTensor a(DType::e4m3, {1, kTokens, kDepth});
    for (int64_t i = 0; i < a.size(); ++i) {
      a.set_bits(i, static_cast<uint64_t>((i * 40503 >> 3) % 120 + (i % 3 == 0 ? 128 : 0)));
    }
    for (const int64_t scaled : {128, 32}) {
      const int64_t scales = (kDepth + scaled - 1) / scaled;
      const HostTensor a_sf = tensor_by(DType::f32, {1, kTokens, scales}, [](int64_t i) {
        return 0.25 + 0.125 * static_cast<double>(i % 7);
      });
      const HostTensors in = {{"a", a},
                              {"a_sf", a_sf},
                              {"b", packed.at("out")},
                              {"b_shift", packed.at("out_shift")},
                              {"b_sf", packed.at("out_sf")}};
      const reference::Mxfp4Product product(in, {{"num_per_channels", scaled}});
      std::vector<uint64_t> sums;
      for (int64_t i = 0; i < kTokens * kRows; ++i) {
        const float sum = product(i / kRows, 0, i % kRows);
        CHECK(std::isnan(sum) == (i % kRows == 3));
        sums.push_back(std::bit_cast<uint32_t>(std::isnan(sum) ? 0.0f : sum + 0.0f));
      }
      CHECK(digest(sums, 4) == (scaled == 128 ? want.by_128 : want.by_32));
    }
  }
}
