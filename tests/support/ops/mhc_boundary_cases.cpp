// Cases of pre_big_fuse_and_norm and of mhc_boundary: sizes of models and small ones, every optional tensor and output, all layouts of scales.

#include <fmt/format.h>

#include "tests/support/ops/mhc_inputs.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

constexpr int64_t kStreams = 4;

/// pre_big_fuse_and_norm of such streams.
OpCase normed(int64_t tokens, int64_t streams, int64_t hidden, bool weights,
              kernels::Params params = {}) {
  const int64_t width = streams * hidden, entries = streams * (streams + 2);
  OpCase test;
  test.label = fmt::format("T={} n={} H={}{}", tokens, streams, hidden, weights ? " weights" : "");
  test.inputs["residual"] =
      random_tensor(DType::bf16, {tokens, streams, hidden}, Values::normal, 82);
  test.inputs["fn"] = random_fn(entries, width, 85);
  test.inputs["scale"] = random_tensor(DType::f32, {3}, Values::normal, 86);
  test.inputs["base"] = random_tensor(DType::f32, {entries}, Values::normal, 87);
  if (weights) {
    test.inputs["norm_weight"] = random_weight(width, 88);
    test.inputs["weight"] = random_tensor(DType::bf16, {hidden}, Values::normal, 89);
  }
  test.params = std::move(params);
  test.params.try_emplace("rms_eps", 1e-6);
  // The projection sums in f32, the reference in f64; rows of bf16 differ by a rounding now and then.
  test.quantised = true;
  const Tolerance mixes{1e-4, 1e-5}, rows{1.6e-2, 1e-5};
  test.tolerances = {
      {"post_mix", mixes}, {"comb_mix", mixes}, {"layer_input", rows}, {"out_bf16", rows}};
  if (!test.params.contains("format")) test.tolerances["out"] = rows;
  for (const auto& [name, value] : test.params) {
    test.label += fmt::format(" {}={}", name, kernels::to_string(value));
  }
  return test;
}

/// mhc_boundary, the residual of whose next sub-layer is like that of normed().
OpCase boundary(int64_t tokens, int64_t hidden, bool weights, kernels::Params params = {}) {
  OpCase test = normed(tokens, kStreams, hidden, weights, std::move(params));
  test.inputs["x"] = random_tensor(DType::bf16, {tokens, hidden}, Values::normal, 81);
  test.inputs["post_mix"] = random_tensor(DType::f32, {tokens, kStreams}, Values::uniform, 83);
  test.inputs["comb_mix"] =
      random_tensor(DType::f32, {tokens, kStreams, kStreams}, Values::uniform, 84);
  for (const std::string name : {"post_mix", "comb_mix"}) {
    test.tolerances["next_" + name] = test.tolerances.at(name);
    test.tolerances.erase(name);
  }
  test.tolerances["next_residual"] = {0, 0};
  return test;
}

kernels::Params cast_to(int64_t group, bool round, const char* layout) {
  return {
      {"format", std::string("e4m3")},    {"num_per_channels", group}, {"round_sf", round},
      {"sf_layout", std::string(layout)}, {"save_bf16", true},         {"save_layer_input", true}};
}

}  // namespace

std::vector<OpCase> pre_big_fuse_and_norm_cases() {
  std::vector<OpCase> cases;
  const kernels::Params saved = {{"save_layer_input", true}};
  for (const int64_t splits : {1, 4, 16}) {
    cases.push_back(normed(13, 4, 256, splits != 4, {{"n_splits", splits}}));
  }
  for (const int64_t streams : {1, 2, 3}) {
    cases.push_back(normed(9, streams, 256, streams != 2, saved));
    cases.push_back(normed(9, streams, 1280, streams == 2, cast_to(32, true, "packed_ue8m0")));
  }
  cases.push_back(normed(7, 4, 64, true, saved));  // several rows of a warp each
  cases.push_back(
      normed(3, 4, 576, true, cast_to(128, false, "row_major")));  // the last group has 64 columns
  cases.push_back(normed(3, 4, 576, true, cast_to(128, true, "packed_ue8m0")));
  cases.push_back(normed(2, 2, 128, true, cast_to(128, true, "packed_ue8m0")));  // one group
  cases.push_back(normed(0, 4, 256, true, saved));
  cases.push_back(normed(0, 4, 256, true, cast_to(32, true, "packed_ue8m0")));
  cases.push_back(normed(512, 4, 256, true, saved));
  cases.push_back(normed(1, 4, 1280, true, saved));
  cases.push_back(normed(5, 4, 512, true, {{"save_bf16", true}}));
  cases.push_back(normed(2, 4, 4096, false));
  cases.push_back(normed(1, 4, 7168, true, cast_to(128, false, "row_major")));
  cases.push_back(normed(2, 4, 8192, true, saved));
  cases.push_back(normed(150, 4, 256, true,
                         {{"pre_eps", 0.01},
                          {"norm_eps", 0.25},
                          {"sinkhorn_eps", 0.125},
                          {"sinkhorn_repeat", int64_t{3}},
                          {"post_mult_value", 2.0},
                          {"rms_eps", 0.5},
                          {"out_scale", 0.25},
                          {"save_layer_input", true}}));
  for (const int64_t group : {32, 128}) {
    cases.push_back(normed(13, 4, 512, true, cast_to(group, false, "row_major")));
    cases.push_back(normed(5, 4, 256, false, cast_to(group, false, "col_major_tma")));
    cases.push_back(normed(9, 4, 1280, true, cast_to(group, true, "packed_ue8m0")));
  }
  return cases;
}

std::vector<OpCase> mhc_boundary_cases() {
  std::vector<OpCase> cases;
  const kernels::Params saved = {{"save_layer_input", true}};
  for (const int64_t splits : {1, 4, 16}) {
    cases.push_back(boundary(13, 256, splits != 4, {{"n_splits", splits}}));
  }
  cases.push_back(boundary(0, 256, true, saved));
  cases.push_back(boundary(512, 256, true, saved));
  cases.push_back(boundary(1, 1280, true, saved));
  cases.push_back(boundary(13, 1280, false));
  cases.push_back(boundary(5, 512, true, {{"save_bf16", true}}));
  cases.push_back(boundary(2, 4096, true));
  cases.push_back(boundary(1, 7168, true, cast_to(128, false, "row_major")));
  cases.push_back(boundary(150, 256, true,
                           {{"pre_eps", 0.01},
                            {"norm_eps", 0.25},
                            {"sinkhorn_eps", 0.125},
                            {"sinkhorn_repeat", int64_t{3}},
                            {"post_mult_value", 2.0},
                            {"rms_eps", 0.5},
                            {"out_scale", 0.25},
                            {"save_layer_input", true}}));
  for (const int64_t group : {32, 128}) {
    cases.push_back(boundary(13, 512, true, cast_to(group, false, "row_major")));
    cases.push_back(boundary(5, 256, false, cast_to(group, false, "col_major_tma")));
    cases.push_back(boundary(9, 1280, true, cast_to(group, true, "packed_ue8m0")));
  }
  cases.push_back(boundary(0, 256, true, cast_to(32, true, "packed_ue8m0")));
  return cases;
}

}  // namespace tessera::test
