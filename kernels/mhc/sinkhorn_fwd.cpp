// sinkhorn_fwd: projects logits of the residual mix to nearly doubly stochastic matrices.
//
// Method   one lane per element, sums by shuffles. A token is a chain of 2 * repeat steps, each a
//          short sum and one division, so the bound is latency, which many warps hide. Few bytes,
//          read and written once.
// Maths    sinkhorn.h
// Tuned    H200: 4 warps per block, so that few tokens spread over many SMs. One token takes 2.49 us
//          (peer 2.38), 8192 take 3.7.

#include "kernels/mhc/parts/sinkhorn.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t streams;
};

constexpr int64_t kThreads = 128;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::MatrixLanes matrix{s.streams};
  const int64_t block_tokens = kThreads / matrix.lanes();
  OpBuilder k(sinkhorn_fwd_op, {{"n", s.streams}});
  auto x = k.tensor("x"), out = k.tensor("out");
  auto repeat = k.param("repeat"), eps = k.param("eps");
  auto at = k.launch({ceil_div(k.extent("T"), block_tokens)}, {.threads = kThreads});

  auto token = k.let("token", at.x * block_tokens + k.thread() / matrix.lanes());
  auto i = k.let("i", matrix.row(k.thread()));
  auto o = k.let("o", matrix.col(k.thread()));
  // Lanes without a token or outside the matrix read 0 and take part in the shuffles.
  Value logit = x(token, i, o);
  out(token, i, o) = mhc::sinkhorn(k, matrix, k.thread(), logit, repeat, eps);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("n")});
}

}  // namespace

const Op sinkhorn_fwd_op{
    .name = "sinkhorn_fwd",
    .family = "mhc",
    .purpose = "logits of the residual mix to nearly doubly stochastic matrices",
    .signature = R"(
      x       f32 [T.., n, n]
      -> out  f32 [T.., n, n]
      param   repeat int 1..45 = 10
      param   eps float = 1e-6
      need    n >= 1 on x "there must be a stream"
      limit   n <= 4 on x "so many streams are not supported"   # 16 lanes per matrix
    )",
    .launches = launches,
    .examples = "T=37 n=4 repeat=10; T=5 n=3 repeat=2; T=9 n=2 repeat=1",
    .bench = R"(
      T=1 n=4 repeat=10; T=128 n=4 repeat=10; T=512 n=4 repeat=10; T=4096 n=4 repeat=10
      T=8192 n=4 repeat=10)"};

}  // namespace tessera::kernels
