// multilayer_recompute: inputs of a run of sub-layers and the residual streams after each.
//
// Method   one launch for every kLayers layers, whose tensors are parameters of one kernel; those of
//          the layers that a call does not have are null. A thread keeps one 16-byte vector of every
//          stream in registers over all layers, and loads the output and the mixes of the next layer
//          before it computes the current one. Every byte is moved once, so the bound is bytes / copy
//          bandwidth.
// Maths    apply_pre_mix and apply_post_mix of mix_sequences.h, as pre_apply_mix_fwd and post_fwd: the
//          streams are rounded to bf16 after every layer
// Tuned    H100: 10 layers of 8192 tokens of 4 x 2560 took 946 us, 94 % of copy, before the bound
//          on registers that sm_80 needs; tiles of post_fwd.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "kernels/all_ops.h"
#include "kernels/mhc/mix_sequences.h"
#include "kernels/mhc/row_tile.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kLayers = 10;  // of a launch; a longer run reads the streams in between again

constexpr int kThreadsPerSm = 480;  // with up to 4 streams: below it ptxas spills on sm_80

struct Spec {
  int32_t streams, hidden;
  int32_t align, mix_align;  // bytes, of the bf16 tensors and of the mixes
};

/// Runs `then` where all of these tensors are given.
void if_all_present(dsl::Builder& k, const std::vector<dsl::Ref>& tensors,
                    const std::function<void()>& then) {
  std::function<void()> body = then;
  for (const dsl::Ref& tensor : tensors) {
    body = [&k, tensor, inner = std::move(body)] { k.if_present(tensor, inner); };
  }
  body();
}

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::RowTile tile = mhc::pick_row_tile(s.hidden);
  const int64_t n = s.streams;
  OpBuilder k(multilayer_recompute_op, {{"n", n}, {"H", s.hidden}});
  auto initial_residual = k.tensor("initial_residual", {.align = s.align});
  auto tokens = k.extent("T");
  const std::vector<Arg> of_input = {tokens, s.hidden}, of_streams = {tokens, n, s.hidden};
  const TensorOptions of_rows{.align = s.align, .optional = true};
  const TensorOptions of_mixes{.align = s.mix_align, .optional = true};
  std::vector<Ref> pre_mix, layer_output, post_mix, comb_mix, layer_input, residual;  // by layer
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto name = [&](const char* list) { return fmt::format("{}_{}", list, l); };
    pre_mix.push_back(k.input(name("pre_mix_list"), DType::f32, {tokens, n}, of_mixes));
    layer_output.push_back(k.input(name("layer_output_list"), DType::bf16, of_input, of_rows));
    post_mix.push_back(k.input(name("post_mix_list"), DType::f32, {tokens, n}, of_mixes));
    comb_mix.push_back(k.input(name("comb_mix_list"), DType::f32, {tokens, n, n}, of_mixes));
    layer_input.push_back(k.output(name("layer_input_list"), DType::bf16, of_input, of_rows));
    residual.push_back(k.output(name("residual_list"), DType::bf16, of_streams, of_rows));
  }
  const int blocks = n <= 4 ? kThreadsPerSm / tile.threads : 0;
  auto at = k.launch({ceil_div(tokens, tile.rows) * tile.chunks},
                     {.threads = tile.threads, .min_blocks_per_sm = blocks});
  auto first_token = k.let("first_token", at.x / tile.chunks * tile.rows);
  auto first_col = k.let("first_col", at.x % tile.chunks * tile.cols);

  const auto vectors = layout::plan({tile.rows, tile.cols}, tile.threads, 8);
  std::vector<Ref> streams, output, pre, post, comb;  // in registers; all but the first by layer
  for (int64_t i = 0; i < n; ++i) {
    streams.push_back(k.fragment(DType::bf16, vectors, "stream"));
    k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
      streams.back()(row, col) = initial_residual(first_token + row, i, first_col + col);
    });
  }
  for (int64_t l = 0; l < kLayers; ++l) {
    output.push_back(k.fragment(DType::bf16, vectors, "output"));
    pre.push_back(k.fragment(DType::f32, {tile.rows, n}, "pre"));
    post.push_back(k.fragment(DType::f32, {tile.rows, n}, "post"));
    comb.push_back(k.fragment(DType::f32, {tile.rows, n, n}, "comb"));
  }
  const auto load = [&](size_t l) {
    k.if_present(pre_mix[l], [&] {
      k.copy(pre_mix[l].tile({first_token, 0}, {tile.rows, n}), pre[l]);
    });
    if_all_present(k, {layer_output[l], post_mix[l], comb_mix[l]}, [&] {
      k.copy(layer_output[l].tile({first_token, first_col}, {tile.rows, tile.cols}), output[l]);
      k.copy(post_mix[l].tile({first_token, 0}, {tile.rows, n}), post[l]);
      k.copy(comb_mix[l].tile({first_token, 0, 0}, {tile.rows, n, n}), comb[l]);
    });
  };
  load(0);
  for (size_t l = 0; l < static_cast<size_t>(kLayers); ++l) {
    if_all_present(k, {pre_mix[l], layer_input[l]}, [&] {
      if (l + 1 < static_cast<size_t>(kLayers)) load(l + 1);
      // the input of the layer
      k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
        std::vector<Value> weights, values;
        for (int64_t i = 0; i < n; ++i) {
          weights.push_back(pre[l](row, i));
          values.push_back(f32(streams[static_cast<size_t>(i)](row, col)));
        }
        layer_input[l](first_token + row, first_col + col) =
            cast(DType::bf16, mhc::apply_pre_mix(weights, values));
      });
      // the streams after it
      if_all_present(k, {layer_output[l], post_mix[l], comb_mix[l], residual[l]}, [&] {
        k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
          std::vector<Value> values, mixed;
          for (const Ref& stream : streams) values.push_back(f32(stream(row, col)));
          for (int64_t o = 0; o < n; ++o) {
            std::vector<Value> weights;
            for (int64_t i = 0; i < n; ++i) weights.push_back(comb[l](row, i, o));
            mixed.push_back(cast(
                DType::bf16,
                mhc::apply_post_mix(post[l](row, o), f32(output[l](row, col)), weights, values)));
          }
          for (int64_t o = 0; o < n; ++o) {
            const Ref stream = streams[static_cast<size_t>(o)](row, col);
            stream = mixed[static_cast<size_t>(o)];
            residual[l](first_token + row, o, first_col + col) = stream;
          }
        });
      });
    });
  }
  return k.finish();
}

void check(const Call& c) {
  c.need(c["L"] >= 1, "pre_mix_list", "there must be a layer", "L >= 1", "L = 0");
  c.need(c["Q"] == c["L"] || c["Q"] == c["L"] - 1, "layer_output_list",
         "list 'layer_output_list' has the wrong length", "Q = L or L - 1",
         fmt::format("L = {}, Q = {}", c["L"], c["Q"]));
}

void launches(const Call& c, Launches& go) {
  const Spec spec = {
      c.i32("n"), c.i32("H"),
      c.align({"initial_residual", "layer_output_list", "layer_input_list", "residual_list"}),
      c.align({"pre_mix_list", "post_mix_list", "comb_mix_list"})};
  for (int64_t first = 0; first < c["L"]; first += kLayers) {
    More more;
    const auto bind = [&](const char* list, int64_t length) {
      for (int64_t l = 0; l < kLayers; ++l) {
        const bool is_there = first + l < length;
        more.tensors.push_back(
            {fmt::format("{}_{}", list, l),
             is_there ? c.tensor(fmt::format("{}.{}", list, first + l)) : TensorView()});
      }
    };
    bind("pre_mix_list", c["L"]);
    bind("layer_input_list", c["L"]);
    for (const char* list :
         {"layer_output_list", "post_mix_list", "comb_mix_list", "residual_list"})
      bind(list, c["Q"]);
    more.tensors.push_back(
        {"initial_residual", first == 0 ? c.tensor("initial_residual")
                                        : c.tensor(fmt::format("residual_list.{}", first - 1))});
    go.add(build, spec, more);
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
