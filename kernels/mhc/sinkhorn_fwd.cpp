// sinkhorn_fwd: logits of the residual mix to nearly doubly stochastic matrices.
//
// Shapes   x and out [tokens, streams, streams]
// Dtypes   f32
// Method   one lane per element, sums by shuffles: a token is 2 * repeat dependent steps of one
//          short sum and one division, so the bound is their latency, which many warps hide; one
//          division per lane and step keeps the chain short. Few bytes, read and written once.
// Maths    sinkhorn.h
// Tuned    H200: 4 warps per block, so that few tokens spread over many SMs.

#include "kernels/mhc/sinkhorn_fwd.h"

#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/sinkhorn.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  int32_t streams;
};

constexpr int64_t kThreads = 128;

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const mhc::MatrixLanes matrix{s.streams};
  const int64_t block_tokens = kThreads / matrix.lanes();
  Builder k("sinkhorn_fwd");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::f32, {tokens, s.streams, s.streams}, {.align = 4});
  auto out = k.output("out", DType::f32, {tokens, s.streams, s.streams}, {.align = 4});
  auto repeat = k.scalar("repeat", DType::i32);
  auto eps = k.scalar("eps", DType::f32);
  auto at = k.launch({ceil_div(tokens, block_tokens)}, {.threads = kThreads});

  auto token = k.let("token", at.x * block_tokens + k.thread() / matrix.lanes());
  auto i = k.let("i", matrix.row(k.thread()));
  auto o = k.let("o", matrix.col(k.thread()));
  // Lanes without a token or outside of the matrix read 0 and take part in the shuffles.
  Value logit = x(token, i, o);
  out(token, i, o) = mhc::sinkhorn(k, matrix, k.thread(), logit, repeat, eps);
  return k.finish();
}

// 3. Host function
struct Call {
  mhc::TokenDims tokens;
  int64_t repeat;
  float eps;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const Call call{mhc::TokenDims(tensors, "x", 2), std::get<int64_t>(params.at("repeat")),
                  static_cast<float>(std::get<double>(params.at("eps")))};
  check.tensor("x", tensors).dtype(DType::f32).shape_of(call.tokens.shape({"n", "n"})).row_major();
  mhc::require_streams(check, "x", mhc::kMaxSinkhornStreams);
  check.param_in_range("repeat", call.repeat, 1, mhc::kMaxSinkhornRepeat);
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("sinkhorn_fwd");
  check_input(check, inputs, params);
  const Dims shape = inputs.at("x").shape;
  return {row_major_output("out", DType::f32, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("sinkhorn_fwd");
  const Call call = check_input(check, tensors, params);
  check.output("out", tensors).dtype(DType::f32).same_shape("x").row_major();
  check.memory();
  if (tensors.at("x").size() == 0) return;
  const Spec spec{static_cast<int32_t>(check["n"])};
  const TensorView arguments[] = {call.tokens.flat(tensors.at("x")),
                                  call.tokens.flat(tensors.at("out"))};
  const jit::Scalar scalars[] = {call.repeat, call.eps};
  jit::run_op("sinkhorn_fwd", spec, build, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("sinkhorn_fwd");
  check_input(check, tensors, params);
  if (tensors.at("x").size() == 0) return {};
  return {build({static_cast<int32_t>(check["n"])})};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t repeat) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams) +
            " repeat=" + std::to_string(repeat);
  c.params = {{"repeat", repeat}};
  c.inputs = {{"x", DType::f32, {tokens, streams, streams}}};
  c.bytes = 8 * tokens * streams * streams;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "sinkhorn_fwd";
  op.family = "mhc";
  op.purpose = "logits of the residual mix to nearly doubly stochastic matrices";
  op.tensors = {input("x", {"f32"}, {"T", "n", "n"}), output("out", {"f32"}, {"T", "n", "n"})};
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

void sinkhorn_fwd(const TensorView& x, const TensorView& out, const SinkhornOptions& options,
                  Stream stream) {
  call_op(sinkhorn_fwd_op(), {{"x", x}, {"out", out}},
          {{"repeat", options.repeat}, {"eps", options.eps}}, stream);
}

const OpInfo& sinkhorn_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
