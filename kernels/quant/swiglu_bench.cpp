#include "kernels/quant/swiglu_bench.h"

#include <optional>
#include <string>

#include "kernels/quant/scale_layout.h"
#include "kernels/quant/token_cast.h"

namespace tessera::kernels {
namespace {

struct Form {
  DType in = DType::bf16;
  int64_t group = 128;
  SfLayout layout = SfLayout::packed_ue8m0;
  bool has_experts = true, has_weights = false, has_count = false;
  std::optional<double> clamp = {};
};

BenchCase bench_case(int64_t rows, int64_t hidden, const Form& form) {
  BenchCase c;
  c.label = "P=" + std::to_string(rows) + " H=" + std::to_string(hidden) + " " +
            std::string(name(form.in)) + " / " + std::to_string(form.group) + " " +
            std::string(name(form.layout)) + (form.has_experts ? ", experts" : "") +
            (form.has_weights ? ", weights" : "") + (form.clamp ? ", clamped" : "") +
            (form.has_count ? " and counted" : "");
  c.params = {{"num_per_channels", form.group},
              {"round_sf", form.layout != SfLayout::row_major},
              {"sf_layout", std::string(name(form.layout))}};
  if (form.clamp) c.params["swiglu_clamp_value"] = *form.clamp;
  c.inputs.push_back({"x", form.in, {rows, 2 * hidden}});
  if (form.has_weights) {
    c.inputs.push_back(
        {"pos_to_token_topk", DType::i32, {rows}, {1}, [](int64_t row) { return 2 * row; }});
    c.inputs.push_back({"topk_weights", DType::f32, {rows, 2}});
  }
  if (form.has_experts) {  // one row of padding in 128
    c.inputs.push_back({"pos_to_expert", DType::i32, {rows}, {1}, [](int64_t row) {
                          return row % 128 == 127 ? -1 : row / 128;
                        }});
  }
  if (form.has_count) c.inputs.push_back({"clamped_count", DType::i64, {3}});
  c.bytes = rows * hidden * (2 * bytes(form.in) + 1) +
            scale_bytes(rows, num_blocks(hidden, form.group), form.layout);
  return c;
}

constexpr SfLayout kByRow = SfLayout::row_major, kPacked = SfLayout::packed_ue8m0;

}  // namespace

std::vector<BenchCase> swiglu_examples() {
  return {bench_case(37, 1024, {}), bench_case(5, 1280, {.layout = kByRow, .has_experts = false}),
          bench_case(9, 512, {.in = DType::f32, .layout = SfLayout::col_major_tma, .clamp = 0.5}),
          bench_case(3, 3584, {.group = 3584, .layout = kByRow, .has_weights = true, .clamp = 10}),
          bench_case(6, 512, {.has_weights = true, .has_count = true, .clamp = 0.5})};
}

std::vector<BenchCase> swiglu_bench() {
  return {bench_case(8656, 1024, {}),
          bench_case(10080, 1024, {}),
          bench_case(32736, 1024, {}),
          bench_case(34080, 1024, {}),
          bench_case(8656, 1024, {.has_count = true, .clamp = 0.5}),
          bench_case(8656, 3584, {.layout = kPacked}),
          bench_case(8, 2048, {.layout = kByRow, .has_experts = false}),
          bench_case(1024, 2048, {.layout = kByRow, .has_experts = false})};
}

}  // namespace tessera::kernels
