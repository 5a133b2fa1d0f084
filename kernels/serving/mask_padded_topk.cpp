// mask_padded_topk: empties the padding rows of a routing.
//
// Dtypes   ids i32|i64
// Method   one thread per slot; other rows are not touched. A few bytes per slot of padding: the
//          bound is the latency of one load and one store.
// Maths    none

#include <optional>

#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t num_topk, id_bytes;
  int32_t has_weights;
};

constexpr int64_t kThreads = 256;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const DType dtype = s.id_bytes == 8 ? DType::i64 : DType::i32;
  OpBuilder k(mask_padded_topk_op, {{"K", s.num_topk}});
  auto tokens = k.extent("T");
  auto num_tokens = k.tensor("num_tokens");
  auto topk_idx = k.tensor("topk_idx", {.dtype = dtype});
  std::optional<Ref> topk_weights;
  if (s.has_weights) topk_weights = k.tensor("topk_weights");
  auto at = k.launch({ceil_div(tokens * s.num_topk, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto index = k.let("index", at.x * kThreads + k.thread());
  auto token = k.let("token", index / s.num_topk), slot = k.let("slot", index % s.num_topk);
  k.wait_for_previous_kernel();
  k.if_(token < tokens && token >= num_tokens(0), [&] {
    topk_idx(token, slot) = cast(dtype, -1);
    if (topk_weights) (*topk_weights)(token, slot) = 0.0f;
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("K"), bytes(c.dtype("topk_idx")), c.has("topk_weights")});
}

/// Only padding rows are stored.
int64_t padding_of(const Case& c) {
  return c["T"] / 4;
}

}  // namespace

const Op mask_padded_topk_op{
    .name = "mask_padded_topk",
    .family = "serving",
    .purpose = "empties the rows of a routing that are padding",
    .signature = R"(
      num_tokens               i32 [1]        # rows from here on are padding
      -> inout topk_idx        i32/i64 [T, K] rows
      -> inout topk_weights?   f32 [T, K] rows
      limit  T * K <= 2130706431 "'topk_idx' has too many slots"
    )",
    .launches = launches,
    .examples = R"(
      T=65 K=8 topk_idx=i64 topk_weights=given; T=130 K=6 topk_idx=i32 topk_idx.strides=8,1)",
    .bench = R"(
      T=1 K=7 topk_idx=i32 topk_weights=given; T=64 K=7 topk_idx=i32 topk_weights=given
      T=4096 K=7 topk_idx=i32 topk_weights=given; T=16384 K=7 topk_idx=i64 topk_weights=given)",
    .values = {{"num_tokens", [](const Case& c, int64_t) { return c["T"] - padding_of(c); }}},
    .bytes = [](const Case& c) { return 4 + 12 * c["K"] * padding_of(c); }};

}  // namespace tessera::kernels
