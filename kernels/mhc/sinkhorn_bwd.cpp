// sinkhorn_bwd: the gradient of the Sinkhorn projection with respect to its logits.
//
// Method   one lane per element, sums by shuffles. A lane keeps all 2 * repeat states and divisors
//          in registers, so the Spec contains the number of rounds and the rounds are unrolled; no
//          shared memory. The bound is the latency of 4 * repeat dependent sums and divisions, which
//          many warps hide.
// Maths    sinkhorn.h; sinkhorn_bwd.h has the gradient of one step. sum(dy * y) uses the state
//          after the step, which saves a division.
// Tuned    H200: 4 warps per block, as sinkhorn_fwd.

#include "kernels/mhc/parts/sinkhorn.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t streams, repeat;
};

constexpr int64_t kThreads = 128;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::MatrixLanes matrix{s.streams};
  const int64_t side = matrix.side(), block_tokens = kThreads / matrix.lanes();
  const int64_t more_rounds = s.repeat - 1, last = 2 * s.repeat - 1;
  OpBuilder k(sinkhorn_bwd_op, {{"n", s.streams}});
  auto tokens = k.extent("T");
  auto grad_out = k.tensor("grad_out"), x = k.tensor("x"), grad_x = k.tensor("grad_x");
  auto eps = k.param("eps");
  auto at = k.launch({ceil_div(tokens, block_tokens)}, {.threads = kThreads});

  auto token = k.let("token", at.x * block_tokens + k.thread() / matrix.lanes());
  auto i = k.let("i", matrix.row(k.thread()));
  auto o = k.let("o", matrix.col(k.thread()));
  const auto keep = [&](const Value& v) { return mhc::inside(matrix, k.thread(), v, 0.0f); };

  // Forward: state 0 is the softmax plus eps, state s the result of step s, with sums along `stride`.
  // Lanes outside the matrix read 0 and take part in the shuffles. Lanes without a token repeat the
  // last one: zeros would take the slow path of every division.
  auto source = k.let("source", min(token, tokens - 1));
  k.assume(source >= 0 && source < tokens);
  Value logit = x(source, i, o), out_gradient = grad_out(source, i, o);
  auto p = k.let("p", keep(mhc::softmax(k, matrix, k.thread(), logit)));
  auto states = k.local(DType::f32, {last + 1}, "states");
  auto divisors = k.local(DType::f32, {last + 1}, "divisors");
  states(0) = keep(p + eps);
  const auto normalise = [&](Arg step, int64_t stride) {
    Value before = states(step.value() - 1);
    divisors(step) = mhc::lane_sum(k, before, side, stride) + eps;
    states(step) = keep(before / divisors(step));
  };
  normalise(1, side);
  if (more_rounds > 0) {
    k.unrolled(more_rounds, [&](Value round) {
      normalise(2 * round + 2, 1);
      normalise(2 * round + 3, side);
    });
  }
  // Backward through the same steps.
  auto grad = k.var(DType::f32, out_gradient, "grad");
  const auto step_back = [&](Arg step, int64_t stride) {
    Value dy = grad;
    auto product = k.let("product", dy * states(step));
    grad = keep((dy - mhc::lane_sum(k, product, side, stride)) / divisors(step));
  };
  if (more_rounds > 0) {
    k.unrolled(more_rounds, [&](Value round) {
      step_back(last - 2 * round, side);
      step_back(last - 1 - 2 * round, 1);
    });
  }
  step_back(1, side);
  Value dp = grad;
  auto product = k.let("product", dp * p);
  grad_x(token, i, o) = (dp - mhc::lane_sum(k, product, side, 1)) * p;
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("n"), c.i32("repeat")});
}

}  // namespace

const Op sinkhorn_bwd_op{
    .name = "sinkhorn_bwd",
    .family = "mhc",
    .purpose = "gradient of the Sinkhorn projection with respect to its logits",
    .signature = R"(
      grad_out   f32 [T.., n, n]
      x          f32 [T.., n, n]    # the logits
      -> grad_x  f32 [T.., n, n]
      param      repeat int 1..45 = 10
      param      eps float = 1e-6
      need       n >= 1 on grad_out "there must be a stream"
      limit      n <= 4 on grad_out "so many streams are not supported"   # 16 lanes per matrix
    )",
    .launches = launches,
    .examples = "T=37 n=4 repeat=10; T=5 n=3 repeat=2; T=9 n=2 repeat=1",
    .bench = R"(
      T=1 n=4 repeat=10; T=128 n=4 repeat=10; T=512 n=4 repeat=10; T=4096 n=4 repeat=10
      T=8192 n=4 repeat=10)"};

}  // namespace tessera::kernels
