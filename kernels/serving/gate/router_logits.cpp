// router_logits: the logits of a router, x times w transposed, with the same bits for any number of tokens.
//
// Dtypes   x, w bf16, logits f32
// Method   a block has a tile of 64 tokens and 64 experts and multiplies chunk after chunk (parts/logits_tile.h). Up to 1024
//          tokens it has one chunk, up to 64 also 16 tokens, and a second kernel adds the chunks: reading w is the bound there,
//          and a few blocks would not keep memory busy.
// Maths    chunks of 1024 columns, each by the chain of gemm_bf16 from +0, added ascending in f32. Up to 1024 columns
//          that is gemm_bf16 with out_dtype f32.
// Bound    bytes of x, w and logits at the copy rate; 2 T E H operations of the tensor cores

#include <algorithm>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/gate/parts/chunk_sums.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using serving::chunks_of;

struct JoinSpec {
  int32_t threads;
};

constexpr int64_t kApartTokens = 1024;  // up to here chunks are summed side by side
constexpr int kThreads = 128;

ir::Kernel build_join(const JoinSpec& s) {
  using namespace dsl;
  Builder k("router_logits_join");
  auto chunks = k.dim("chunks"), entries = k.dim("entries");
  auto parts = k.input("parts", DType::f32, {chunks, entries});
  auto logits = k.output("logits", DType::f32, {entries});
  auto at = k.launch({ceil_div(entries, s.threads)}, {.threads = s.threads});
  auto entry = k.let("entry", at.x * s.threads + k.thread());
  k.if_(entry < entries, [&] {
    auto sum = k.var(DType::f32, parts(0, entry), "sum");
    k.serial(1, chunks, [&](Value chunk) { sum += parts(chunk, entry); });
    logits(entry) = sum;
  });
  return k.finish();
}

bool is_apart(const Call& c) {
  return c["T"] <= kApartTokens && chunks_of(c) > 1;
}

/// Sums of all chunks; at least one element, so that the workspace is never empty.
int64_t elements(const Call& c) {
  return is_apart(c) ? std::max<int64_t>(chunks_of(c) * c["T"] * c["E"], 1) : 1;
}

void launches(const Call& c, Launches& go) {
  if (!is_apart(c)) return go.add(serving::build_logits, serving::logits_kernel_spec(c, false));
  TensorView parts = serving::add_chunk_sums(c, go);
  const TensorView& logits = c.given("logits");
  const int64_t entries = c["T"] * c["E"];
  parts = TensorView(parts.data, DType::f32, {chunks_of(c), entries}, parts.device);
  go.add(build_join, JoinSpec{kThreads},
         {.tensors = {{"parts", parts},
                      {"logits", TensorView(logits.data, DType::f32, {entries}, logits.device)}}},
         "join");
}

}  // namespace

const Op router_logits_op{
    .name = "router_logits",
    .family = "serving",
    .purpose = "the logits of a router: a product whose bits do not depend on the number of tokens",
    .signature = R"(
      x           bf16 [T, H] rows
      w           bf16 [E, H]
      -> logits   f32 [T, E]
      workspace   f32 [elements()]
      need   H >= 1 on x "argument 'x' has no columns"
      limit  T <= 2130706431
      limit  E <= 65536 on w "too many experts"
      limit  H <= 65536 on x "rows this long are not supported"
      bucket T at 65, 1025              # tiles of more rows; chunks are summed one after the other
    )",
    .launches = launches,
    .functions = {{"elements", elements}},
    .examples = R"(
      T=70 E=256 H=1100; T=1030 E=8 H=1030; T=5 E=100 H=2080; T=9 E=33 H=1025; T=130 E=72 H=64; T=17 E=64 H=2056 x.strides=2064,1)",
    .bench = R"(
      T=1 E=384 H=7168; T=16 E=384 H=7168; T=64 E=384 H=7168; T=512 E=384 H=7168; T=4096 E=384 H=7168
      T=8192 E=384 H=7168; T=1 E=256 H=4096; T=64 E=256 H=4096; T=4096 E=256 H=4096; T=8192 E=256 H=4096)"};

}  // namespace tessera::kernels
