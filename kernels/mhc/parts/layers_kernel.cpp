// The kernel of multilayer_recompute: the layer inputs of consecutive sub-layers, and the residual
// streams after each.
//
// Method   one launch per kLayers layers, whose tensors are parameters of one kernel; tensors of
//          absent layers are null. A thread keeps one 16-byte vector of every stream in registers
//          over all layers, and loads output and mixes of the next layer before it computes the
//          current one. Every byte moves once, so the bound is bytes / copy bandwidth.
// Maths    apply_pre_mix and apply_post_mix of mix_sequences.h, as pre_apply_mix_fwd and post_fwd: the
//          streams are rounded to bf16 after every layer
// Tuned    H100: 10 layers of 8192 tokens of 4 x 2560 took 946 us, 94 % of copy, before the bound
//          on registers that sm_80 needs; tiles of post_fwd.

#include "kernels/mhc/parts/layers_kernel.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "kernels/mhc/parts/mix_sequences.h"
#include "kernels/mhc/parts/row_tile.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels::mhc {
namespace {

constexpr int kThreadsPerSm = 480;  // with up to 4 streams: below it ptxas spills on sm_80

/// Runs `then` if all of these tensors are present.
void if_all_present(dsl::Builder& k, const std::vector<dsl::Ref>& tensors,
                    const std::function<void()>& then) {
  std::function<void()> body = then;
  for (const dsl::Ref& tensor : tensors) {
    body = [&k, tensor, inner = std::move(body)] { k.if_present(tensor, inner); };
  }
  body();
}

}  // namespace

ir::Kernel build_layers(const LayersSpec& s) {
  using namespace dsl;
  const RowTile tile = pick_row_tile(s.hidden);
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

  const auto vectors = layout::split({tile.rows, tile.cols}, tile.threads, 8);
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
        layer_input[l](first_token + row, first_col + col) =
            cast(DType::bf16, apply_pre_mix(pre[l], streams, row, col));
      });
      // The streams after the layer.
      if_all_present(k, {layer_output[l], post_mix[l], comb_mix[l], residual[l]}, [&] {
        k.parallel({tile.rows, tile.cols}, [&](Value row, Value col) {
          std::vector<Value> values, mixed;
          for (const Ref& stream : streams) values.push_back(f32(stream(row, col)));
          for (int64_t o = 0; o < n; ++o) {
            std::vector<Value> weights;
            for (int64_t i = 0; i < n; ++i) weights.push_back(comb[l](row, i, o));
            mixed.push_back(
                cast(DType::bf16,
                     apply_post_mix(post[l](row, o), f32(output[l](row, col)), weights, values)));
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

}  // namespace tessera::kernels::mhc
