// Cases of the norms: rows of one warp to several steps of a block, several rows per block, all dtypes
// and optional tensors, strides, values at the ends of the formats.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/reference/ops.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Size {
  Dims tokens = {5};
  int64_t hidden = 256;
  DType dtype = DType::bf16;
  bool weight = true, residual = false;
  Values values = Values::normal;
};

Dims rows_of(const Size& s) {
  Dims shape = s.tokens;
  shape.push_back(s.hidden);
  return shape;
}

OpCase norm_case(const Size& s, kernels::Params params = {}) {
  OpCase test;
  test.label = fmt::format("T={} H={} {}{}{}", to_string(s.tokens), s.hidden, name(s.dtype),
                           s.weight ? " weight" : "", s.residual ? " residual" : "");
  test.inputs["x"] = random_tensor(s.dtype, rows_of(s), s.values, 31);
  if (s.weight) test.inputs["weight"] = random_tensor(s.dtype, {s.hidden}, Values::normal, 32);
  if (s.residual) test.inputs["residual"] = random_tensor(s.dtype, rows_of(s), s.values, 33);
  params.try_emplace("norm_eps", 1e-6);
  test.params = std::move(params);
  return test;
}

OpCase labelled(OpCase test, const std::string& text) {
  test.label += " " + text;
  return test;
}

/// Rows of zeros, of one large value, with NaN and infinities.
OpCase extreme_rows(DType dtype) {
  OpCase test = labelled(norm_case({{6}, 64, dtype}), "extreme rows");
  HostTensor& x = test.inputs["x"];
  for (int64_t i = 0; i < 64; ++i) {
    x.set_value(i, 0);
    x.set_value(64 + i, i == 7 ? 3e38 : 0);  // the square is infinite
    x.set_value(2 * 64 + i, 1e-30);          // the square is 0
  }
  x.set_value(3 * 64 + 63, std::numeric_limits<double>::quiet_NaN());
  x.set_value(4 * 64, -std::numeric_limits<double>::infinity());
  return test;
}

std::vector<Size> sizes() {
  std::vector<Size> sizes;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int64_t hidden : {16, 128, 240, 256, 528, 1024, 2032, 2048, 2064, 4096, 7168}) {
      const bool is_odd = hidden % 32 == 16;
      sizes.push_back({{hidden < 500 ? 37 : 3}, hidden, dtype, !is_odd, is_odd});
    }
    sizes.push_back({{2}, 16384, dtype, true, true});
    sizes.push_back({{9}, 512, dtype, false, false});
    sizes.push_back({{9}, 512, dtype, true, true, Values::nasty});
    sizes.push_back({{1}, 7168, dtype, true, false});
    sizes.push_back({{0}, 256, dtype, true, true});
  }
  return sizes;
}

OpCase cast_case(const Size& s, int64_t group, bool round, const std::string& layout) {
  OpCase test =
      norm_case(s, {{"num_per_channels", group}, {"round_sf", round}, {"sf_layout", layout}});
  return labelled(std::move(test),
                  fmt::format("g={}{} {}", group, round ? " rounded" : "", layout));
}

OpCase mega_case(int64_t tokens, int64_t hidden, int64_t block, int64_t more_rows = 0) {
  OpCase test = cast_case({{tokens}, hidden, DType::bf16}, 32, true, "row_major");
  const int64_t rows = (tokens + block - 1) / block * ((block + 127) / 128 * 128) + more_rows;
  HostTensor mega(DType::i32, {rows, hidden / 128}, Dims{1, rows});
  fill_random(mega, Values::bits, 34);
  test.inputs["mega_moe_sf"] = std::move(mega);
  test.params["mega_moe_block_m"] = block;
  return labelled(std::move(test), fmt::format("mega M={} R={}", block, rows));
}

OpCase bwd_case(const Size& s, kernels::Params params = {}) {
  OpCase test = norm_case(s, std::move(params));
  test.params["save_rstd"] = true;
  const HostTensors saved = reference::runner("norm_fwd")(test.inputs, test.params);
  test.inputs["rstd"] = saved.at("rstd");
  if (s.residual) {
    test.inputs["grad_residual_out"] = test.inputs.at("residual");
    test.inputs.erase("residual");
  }
  test.inputs["grad_out"] = random_tensor(s.dtype, rows_of(s), s.values, 35);
  test.params.erase("save_rstd");
  test.params.erase("norm_eps");
  return test;
}

OpCase onto(OpCase test, DType dtype) {
  const Dims shape = test.inputs.at("weight").shape();
  test.inputs["grad_weight"] = random_tensor(dtype, shape, Values::normal, 36);
  return labelled(std::move(test), fmt::format("onto {}", name(dtype)));
}

}  // namespace

std::vector<OpCase> norm_fwd_cases() {
  std::vector<OpCase> cases;
  for (const Size& size : sizes()) cases.push_back(norm_case(size, {{"save_rstd", true}}));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    cases.push_back(norm_case({{3, 5}, 256, dtype, true, true}, {{"save_rstd", true}}));
    cases.push_back(labelled(norm_case({{5}, 256, dtype, false}, {{"out_scale", 0.3}}), "scaled"));
    cases.push_back(labelled(
        norm_case({{5}, 256, dtype}, {{"out_scale", -1.7}, {"norm_eps", 0.25}}), "scaled eps"));
    cases.push_back(extreme_rows(dtype));
    cases.push_back(labelled(norm_case({{5}, 64, dtype, false}, {{"norm_eps", 0.0}}), "no eps"));
  }
  const Size wide = {{7}, 2064, DType::bf16, true, true};
  cases.push_back(strided(norm_case(wide), "x", {4096, 1}));
  cases.push_back(strided(norm_case(wide), "residual", {2068, 1}));  // accesses of 8 bytes
  cases.push_back(strided(norm_case(wide), "x", {2065, 1}));         // of one element
  cases.push_back(strided(norm_case({{2, 3}, 64}), "x", {384, 128, 1}));
  cases.push_back(labelled(norm_case({{17000}, 16}), "several tiles per block"));
  cases.push_back(norm_case({{1024}, 528, DType::bf16, true, true}));  // weights are loaded late
  cases.push_back(norm_case({{1030}, 2064, DType::f32}));
  return cases;
}

std::vector<OpCase> norm_fwd_and_per_token_cast_cases() {
  std::vector<OpCase> cases;
  for (const Size& size : sizes()) {
    const auto number = static_cast<int64_t>(cases.size());
    const bool round = number % 2 == 0;
    cases.push_back(cast_case(size, number % 3 == 0 ? 128 : 32, round, "row_major"));
    cases.push_back(cast_case(size, 32, true, round ? "packed_ue8m0" : "col_major_tma"));
  }
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const char* layout : {"row_major", "col_major_tma", "packed_ue8m0"}) {
      OpCase saved = cast_case({{6}, 528, dtype, true, true}, 128, true, layout);
      saved.params["save_bf16"] = true;
      saved.params["save_rstd"] = true;
      saved.params["out_scale"] = 0.7;
      cases.push_back(labelled(std::move(saved), "saved"));
      cases.push_back(cast_case({{1}, 128, dtype}, 128, true, layout));
      cases.push_back(cast_case({{3}, 16, dtype}, 32, true, layout));
    }
    OpCase extreme = extreme_rows(dtype);
    extreme.params["round_sf"] = true;
    cases.push_back(std::move(extreme));
    cases.push_back(extreme_rows(dtype));
  }
  for (const int64_t block : {1, 64, 100, 128, 192, 256})
    cases.push_back(mega_case(300, 256, block));
  cases.push_back(mega_case(5, 128, 8, 4));
  cases.push_back(mega_case(130, 512, 100, 12));
  OpCase packed = mega_case(33, 384, 32);
  packed.params["sf_layout"] = std::string("packed_ue8m0");
  cases.push_back(labelled(std::move(packed), "packed"));
  cases.push_back(cast_case({{1027}, 528, DType::bf16, true, true}, 32, true, "packed_ue8m0"));
  cases.push_back(cast_case({{1024}, 2064, DType::f32}, 128, false, "col_major_tma"));
  const OpCase wide = cast_case({{7}, 2064, DType::bf16, true, true}, 32, false, "row_major");
  cases.push_back(strided(wide, "x", {2065, 1}));
  cases.push_back(strided(wide, "residual", {2068, 1}));
  return cases;
}

std::vector<OpCase> norm_bwd_cases() {
  std::vector<OpCase> cases;
  for (const Size& size : sizes()) cases.push_back(bwd_case(size));
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const int64_t tokens : {263, 264, 265, 600}) {  // one, several and unequal runs
      cases.push_back(bwd_case({{tokens}, 64, dtype, true, tokens == 265}));
    }
    for (const DType weight : {DType::bf16, DType::f32}) {
      cases.push_back(onto(bwd_case({{300}, 128, dtype}, {{"out_scale", 0.3}}), weight));
      cases.push_back(onto(bwd_case({{0}, 128, dtype}), weight));
    }
    cases.push_back(bwd_case({{3, 5}, 256, dtype, true, true}));
    cases.push_back(labelled(bwd_case({{5}, 256, dtype, false}, {{"out_scale", -2.5}}), "scaled"));
  }
  const Size wide = {{7}, 2064, DType::bf16, true, true};
  cases.push_back(strided(bwd_case(wide), "x", {4096, 1}));
  cases.push_back(strided(bwd_case(wide), "grad_out", {2068, 1}));
  cases.push_back(strided(bwd_case(wide), "grad_residual_out", {2065, 1}));
  return cases;
}

}  // namespace tessera::test
