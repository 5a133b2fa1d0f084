// 09_kv_cache: the compressed KV cache of one layer, as a server fills it. Of two requests, one comes
// in as a prompt and goes on token by token; the other comes in as a whole. Both have the same tokens,
// so their entries in the cache are the same bytes. CPU tensors run on the executor.
#include <tessera/kernels/ops.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace ts = tessera;
namespace ops = tessera::kernels;
using ts::DType;

constexpr int64_t kRatio = 4, kRing = 8;  // a window is 8 tokens, an entry stands for 4
constexpr int64_t kTokens = 40, kPrompt = 26, kLength = 4;  // parts of a row: kv and scores, twice
constexpr int64_t kChannels = 512, kBlock = 16;             // tokens of a block of the cache
constexpr int64_t kBlockBytes = (584 * kBlock + 575) / 576 * 576;

/// Memory of a tensor, zeros at first.
template <class T>
struct Tensor {
  Tensor(DType dtype_, std::initializer_list<int64_t> shape_)
      : dtype(dtype_), shape(shape_), data(static_cast<size_t>(ts::num_elements(shape))) {}
  Tensor(DType dtype_, std::initializer_list<int64_t> shape_, std::vector<T> values)
      : dtype(dtype_), shape(shape_), data(std::move(values)) {}
  operator ts::TensorView() { return {data.data(), dtype, shape}; }

  DType dtype;
  ts::Dims shape;
  std::vector<T> data;
};
using Integers = Tensor<int32_t>;
using Floats = Tensor<float>;

/// The state of the layer: weights, the state of requests that go on, and the cache.
struct Layer {
  Floats ape{DType::f32, {2 * kRatio, kChannels}};
  Floats norm_weight{DType::f32, {kChannels}};
  Floats cos_sin{DType::f32, {kTokens, 64}};
  Floats state{DType::f32, {2 * kRing, kLength* kChannels}};
  Tensor<uint8_t> cache{DType::u8, {2, kBlockBytes}};
  Integers state_slot{DType::i32, {1}}, page_table{DType::i32, {1, 1}};

  Layer() {
    for (size_t i = 0; i < ape.data.size(); ++i) ape.data[i] = 0.1f * static_cast<float>(i % 7);
    for (float& weight : norm_weight.data) weight = 1;
    for (size_t i = 0; i < cos_sin.data.size(); ++i) {
      const double angle =
          static_cast<double>(i / 64) * std::pow(1e4, -static_cast<double>(i % 64 / 2) / 32);
      cos_sin.data[i] = static_cast<float>(i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    }
  }

  /// Request `b` has ring `b` of the state and block `b` of the cache.
  void choose(int32_t b) { state_slot.data[0] = page_table.data[0] = b; }

  /// Tokens `first` .. `end` - 1 of the request.
  void prefill(std::vector<float>& tokens, int32_t first, int32_t end) {
    const int64_t count = end - first;
    Integers start{DType::i32, {1}, {first}}, row_start{DType::i32, {2}, {0, end - first}};
    Integers plan{DType::i32, {count / kRatio + 1, 8}}, counts{DType::i32, {2}};
    Integers write_plan{DType::i32, {kRing, 2}};
    const ts::TensorView x(&tokens[static_cast<size_t>(first * kLength * kChannels)], DType::f32,
                           {count, kLength * kChannels});
    ops::compress_plan({.start = start,
                        .row_start = row_start,
                        .state_slot = state_slot,
                        .page_table = page_table,
                        .plan = plan,
                        .write_plan = write_plan,
                        .counts = counts,
                        .ratio = kRatio,
                        .num_windows = plan.shape[0],
                        .num_writes = kRing,
                        .ring = kRing,
                        .page_size = kBlock},
                       nullptr);
    ops::compress_store({.x = x,
                         .ape = ape,
                         .state = state,
                         .plan = plan,
                         .norm_weight = norm_weight,
                         .cos_sin = cos_sin,
                         .cache = cache,
                         .ratio = kRatio,
                         .format = ops::Format::v4_fp8,
                         .page_size = kBlock},
                        nullptr);
    ops::compress_state_write({.x = x, .write_plan = write_plan, .state = state, .ratio = kRatio},
                              nullptr);
  }

  void decode(std::vector<float>& tokens, int32_t position) {
    Integers positions{DType::i32, {1}, {position}}, plan{DType::i32, {1, 8}};
    const ts::TensorView x(&tokens[static_cast<size_t>(position * kLength * kChannels)], DType::f32,
                           {1, kLength * kChannels});
    ops::compress_plan_decode({.positions = positions,
                               .state_slot = state_slot,
                               .page_table = page_table,
                               .plan = plan,
                               .ratio = kRatio,
                               .ring = kRing,
                               .page_size = kBlock},
                              nullptr);
    ops::compress_decode_store({.x = x,
                                .ape = ape,
                                .plan = plan,
                                .norm_weight = norm_weight,
                                .cos_sin = cos_sin,
                                .state = state,
                                .cache = cache,
                                .ratio = kRatio,
                                .format = ops::Format::v4_fp8,
                                .page_size = kBlock},
                               nullptr);
  }
};

int main() {
  std::vector<float> tokens(kTokens * kLength * kChannels);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::sin(0.37f * static_cast<float>(i));

  Layer layer;
  layer.choose(0);
  layer.prefill(tokens, 0, kPrompt);
  for (int32_t position = kPrompt; position < kTokens; ++position) layer.decode(tokens, position);
  layer.choose(1);
  layer.prefill(tokens, 0, kTokens);

  const uint8_t* served = layer.cache.data.data();
  const bool equal = std::memcmp(served, served + kBlockBytes, kBlockBytes) == 0;
  int64_t written = 0;
  for (int64_t i = 0; i < kBlockBytes; ++i) written += served[i] != 0 ? 1 : 0;
  std::printf("%d entries of %d tokens, %d bytes: %s\n", static_cast<int>(kTokens / kRatio),
              static_cast<int>(kTokens), static_cast<int>(kBlockBytes),
              equal ? "the same bits by prefill and by decode" : "DIFFERENT");
  return equal && written > kTokens / kRatio * kChannels ? 0 : 1;
}
