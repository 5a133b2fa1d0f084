// sinkhorn_bwd: the gradient of the Sinkhorn projection with respect to its logits.
//
// Shapes   grad_out, x and grad_x [tokens, streams, streams]
// Dtypes   f32
// Method   one lane per element, sums by shuffles. All 2 * repeat states and divisors of a lane stay
//          in its registers, so the number of rounds is part of the Spec and the rounds are
//          unrolled; no shared memory. The bound is the latency of 4 * repeat dependent sums and
//          divisions, which many warps hide.
// Maths    sinkhorn.h; sinkhorn_bwd.h has the gradient of one step. sum(dy * y) takes the state
//          behind the step: one division fewer than with the state before it.
// Tuned    H200: 4 warps per block, as sinkhorn_fwd.

#include "kernels/mhc/sinkhorn_bwd.h"

#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/sinkhorn.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t streams, repeat;
};

constexpr int64_t kThreads = 128;

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::MatrixLanes matrix{s.streams};
  const int64_t side = matrix.side(), block_tokens = kThreads / matrix.lanes();
  const int64_t more_rounds = s.repeat - 1, last = 2 * s.repeat - 1;
  Builder k("sinkhorn_bwd");
  auto tokens = k.dim("tokens");
  const std::vector<Arg> shape = {tokens, s.streams, s.streams};
  auto grad_out = k.input("grad_out", DType::f32, shape, {.align = 4});
  auto x = k.input("x", DType::f32, shape, {.align = 4});
  auto grad_x = k.output("grad_x", DType::f32, shape, {.align = 4});
  auto eps = k.scalar("eps", DType::f32);
  auto at = k.launch({ceil_div(tokens, block_tokens)}, {.threads = kThreads});

  auto token = k.let("token", at.x * block_tokens + k.thread() / matrix.lanes());
  auto i = k.let("i", matrix.row(k.thread()));
  auto o = k.let("o", matrix.col(k.thread()));
  const auto keep = [&](const Value& v) { return mhc::inside(matrix, k.thread(), v, 0.0f); };

  // Forward: state 0 is the softmax plus eps, state s that of step s, sums along `stride`.
  // Lanes outside of the matrix read 0 and take part in the shuffles. Lanes without a token do as the
  // last one: with zeros every division would take its long way.
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

// 3. Host function
struct Call {
  mhc::TokenDims tokens;
  int64_t repeat;
  float eps;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const Call call{mhc::TokenDims(tensors, "grad_out", 2), std::get<int64_t>(params.at("repeat")),
                  static_cast<float>(std::get<double>(params.at("eps")))};
  check.tensor("grad_out", tensors)
      .dtype(DType::f32)
      .shape_of(call.tokens.shape({"n", "n"}))
      .row_major();
  check.tensor("x", tensors).dtype(DType::f32).same_shape("grad_out").row_major();
  mhc::require_streams(check, "grad_out", mhc::kMaxSinkhornStreams);
  check.param_in_range("repeat", call.repeat, 1, mhc::kMaxSinkhornRepeat);
  return call;
}

Spec spec_of(const ArgCheck& check, const Call& call) {
  return {static_cast<int32_t>(check["n"]), static_cast<int32_t>(call.repeat)};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("sinkhorn_bwd");
  check_input(check, inputs, params);
  const Dims shape = inputs.at("x").shape;
  return {row_major_output("grad_x", DType::f32, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("sinkhorn_bwd");
  const Call call = check_input(check, tensors, params);
  check.output("grad_x", tensors).dtype(DType::f32).same_shape("grad_out").row_major();
  check.memory();
  if (tensors.at("x").size() == 0) return;
  const Spec spec = spec_of(check, call);
  const TensorView arguments[] = {call.tokens.flat(tensors.at("grad_out")),
                                  call.tokens.flat(tensors.at("x")),
                                  call.tokens.flat(tensors.at("grad_x"))};
  const jit::Scalar scalars[] = {call.eps};
  jit::run_op("sinkhorn_bwd", spec, build, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("sinkhorn_bwd");
  const Call call = check_input(check, tensors, params);
  if (tensors.at("x").size() == 0) return {};
  return {build(spec_of(check, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t repeat) {
  const Dims shape = {tokens, streams, streams};
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams) +
            " repeat=" + std::to_string(repeat);
  c.params = {{"repeat", repeat}};
  c.inputs = {{"grad_out", DType::f32, shape}, {"x", DType::f32, shape}};
  c.bytes = 12 * num_elements(shape);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "sinkhorn_bwd";
  op.family = "mhc";
  op.purpose = "gradient of the Sinkhorn projection with respect to its logits";
  op.tensors = {input("grad_out", {"f32"}, {"T", "n", "n"}), input("x", {"f32"}, {"T", "n", "n"}),
                output("grad_x", {"f32"}, {"T", "n", "n"})};
  op.params = {count("repeat", "1..45", 10), number("eps", 1e-6)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(37, 4, 10), bench_case(5, 3, 2), bench_case(9, 2, 1)};
  for (const int64_t tokens : {1, 128, 512, 4096, 8192}) {
    op.bench.push_back(bench_case(tokens, 4, 10));
  }
  return op;
}

}  // namespace

void sinkhorn_bwd(const TensorView& grad_out, const TensorView& x, const TensorView& grad_x,
                  const SinkhornOptions& options, Stream stream) {
  call_op(sinkhorn_bwd_op(), {{"grad_out", grad_out}, {"x", x}, {"grad_x", grad_x}},
          {{"repeat", options.repeat}, {"eps", options.eps}}, stream);
}

const OpInfo& sinkhorn_bwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
