#include "tests/reference/moe.h"

#include <cmath>

namespace tessera::reference {
namespace {

using test::HostTensor;

float at(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

int64_t integer_at(const HostTensor& tensor, int64_t element) {
  return static_cast<int64_t>(tensor.value(element));
}

/// Row `from` of one matrix to row `to` of another.
void move_row(const HostTensor& source, int64_t from, HostTensor& target, int64_t to) {
  const int64_t width = source.shape()[1];
  for (int64_t i = 0; i < width; ++i)
    target.set_bits(to * width + i, source.bits(from * width + i));
}

void clear_row(HostTensor& target, int64_t row) {
  const int64_t width = target.shape()[1];
  for (int64_t i = 0; i < width; ++i) target.set_bits(row * width + i, 0);
}

}  // namespace

HostTensor expand_to_fused(const HostTensor& x, const HostTensor& token_topk_to_pos,
                           const HostTensor& pos_to_expert) {
  const int64_t num_positions = pos_to_expert.size(), topk = token_topk_to_pos.shape()[1];
  HostTensor out(x.dtype(), {num_positions, x.shape()[1]});
  for (int64_t flat = 0; flat < token_topk_to_pos.size(); ++flat) {
    const int64_t p = integer_at(token_topk_to_pos, flat);
    if (p >= 0 && p < num_positions) move_row(x, flat / topk, out, p);
  }
  for (int64_t p = 0; p < num_positions; ++p) {
    if (integer_at(pos_to_expert, p) < 0) clear_row(out, p);
  }
  return out;
}

Expanded expand_to_fused_with_sf(const HostTensor& x, const HostTensor& x_sf,
                                 const HostTensor& token_topk_to_pos,
                                 const HostTensor& pos_to_expert, SfLayout layout) {
  const int64_t num_positions = pos_to_expert.shape()[0], width = x.shape()[1];
  const int64_t num_scales = x_sf.shape()[1];
  Expanded result;
  result.out = HostTensor(x.dtype(), {num_positions, width});
  const bool packed = layout == SfLayout::packed_ue8m0;
  result.out_sf = make_scales(layout, num_positions, packed ? 4 * num_scales : num_scales);
  const HostTensor unset(x_sf.dtype(), {1, num_scales});
  for (int64_t p = 0; p < num_positions; ++p) move_row(unset, 0, result.out_sf, p);

  const int64_t topk = token_topk_to_pos.shape()[1];
  for (int64_t flat = 0; flat < token_topk_to_pos.size(); ++flat) {
    const int64_t p = integer_at(token_topk_to_pos, flat);
    if (p < 0 || p >= num_positions) continue;
    move_row(x, flat / topk, result.out, p);
    move_row(x_sf, flat / topk, result.out_sf, p);
  }
  for (int64_t p = 0; p < num_positions; ++p) {
    if (integer_at(pos_to_expert, p) >= 0) continue;
    clear_row(result.out, p);
    clear_row(result.out_sf, p);
  }
  return result;
}

HostTensor reduce_fused(const HostTensor& x, const HostTensor* x_sf, const HostTensor* topk_weights,
                        const HostTensor& token_topk_to_pos, const HostTensor* sf,
                        DType out_dtype) {
  const int64_t num_tokens = token_topk_to_pos.shape()[0], topk = token_topk_to_pos.shape()[1];
  const int64_t num_positions = x.shape()[0], hidden = x.shape()[1];
  HostTensor out(out_dtype, {num_tokens, hidden});
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < hidden; ++h) {
      float acc = 0;
      for (int64_t k = 0; k < topk; ++k) {
        const int64_t p = integer_at(token_topk_to_pos, t * topk + k);
        if (p < 0 || p >= num_positions) continue;
        float s = topk_weights == nullptr ? 1.0F : at(*topk_weights, t * topk + k);
        if (x_sf != nullptr) s = s * at(*x_sf, p);
        acc = std::fma(at(x, p * hidden + h), s, acc);
      }
      if (sf != nullptr) acc = acc * at(*sf, 0);
      out.set_value(t * hidden + h, static_cast<double>(acc));
    }
  }
  return out;
}

}  // namespace tessera::reference
