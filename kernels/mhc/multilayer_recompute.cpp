// multilayer_recompute: the op. Its kernel and the description are in layers_kernel.cpp.

#include <fmt/format.h>

#include "kernels/mhc/parts/layers_kernel.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

void check(const Call& c) {
  c.need(c["L"] >= 1, "pre_mix_list", "there must be a layer", "L >= 1", "L = 0");
  c.need(c["Q"] == c["L"] || c["Q"] == c["L"] - 1, "layer_output_list",
         "list 'layer_output_list' has the wrong length", "Q = L or L - 1",
         fmt::format("L = {}, Q = {}", c["L"], c["Q"]));
}

void launches(const Call& c, Launches& go) {
  const mhc::LayersSpec spec = {
      c.i32("n"), c.i32("H"),
      c.align({"initial_residual", "layer_output_list", "layer_input_list", "residual_list"}),
      c.align({"pre_mix_list", "post_mix_list", "comb_mix_list"})};
  for (int64_t first = 0; first < c["L"]; first += mhc::kLayers) {
    Args args;
    const auto bind = [&](const char* list, int64_t length) {
      for (int64_t l = 0; l < mhc::kLayers; ++l) {
        const bool is_there = first + l < length;
        args.tensors.push_back(
            {fmt::format("{}_{}", list, l),
             is_there ? c.tensor(fmt::format("{}.{}", list, first + l)) : TensorView()});
      }
    };
    bind("pre_mix_list", c["L"]);
    bind("layer_input_list", c["L"]);
    for (const char* list :
         {"layer_output_list", "post_mix_list", "comb_mix_list", "residual_list"})
      bind(list, c["Q"]);
    args.tensors.push_back(
        {"initial_residual", first == 0 ? c.tensor("initial_residual")
                                        : c.tensor(fmt::format("residual_list.{}", first - 1))});
    go.add(mhc::build_layers, spec, args);
  }
}

}  // namespace

const Op multilayer_recompute_op{
    .name = "multilayer_recompute",
    .family = "mhc",
    .purpose = "inputs of a run of sub-layers and the residual streams after each, from its first",
    .signature = R"(
      initial_residual            bf16 [T.., n, H]
      list pre_mix_list (L)       f32 [T.., n]
      list layer_output_list (Q)  bf16 [T.., H]
      list post_mix_list (Q)      f32 [T.., n]
      list comb_mix_list (Q)      f32 [T.., n, n]     # rows are the streams read
      -> list layer_input_list (L)  bf16 [T.., H]
      -> list residual_list (Q)   bf16 [T.., n, H]
      need   n >= 1 on initial_residual "there must be a stream"
      limit  n <= 8 on initial_residual "so many streams are not supported"   # registers
    )",
    .launches = launches,
    .check = check,
    .examples = R"(
      T=5 n=4 H=2560 L=3 Q=3; T=3 n=4 H=7168 L=1 Q=0; T=9 n=2 H=512 L=10 Q=9
      T=3 n=3 H=100 L=2 Q=2)",
    .bench = R"(
      T=8192 n=4 H=2560 L=10 Q=10; T=8192 n=4 H=2560 L=10 Q=9; T=8192 n=4 H=7168 L=10 Q=10
      T=8192 n=4 H=7168 L=10 Q=9; T=128 n=4 H=7168 L=10 Q=10; T=1 n=4 H=7168 L=10 Q=10)"};

}  // namespace tessera::kernels
