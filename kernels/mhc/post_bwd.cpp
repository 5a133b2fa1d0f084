// post_bwd: host side; the kernel and its description are in post_bwd_kernel.cpp.

#include "kernels/mhc/post_bwd.h"

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/post_bwd_kernel.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 3. Host function
mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors) {
  const mhc::TokenDims tokens(tensors, "grad_out", 2);
  check.tensor("grad_out", tensors)
      .dtype(DType::bf16)
      .shape_of(tokens.shape({"n", "H"}))
      .row_major();
  check.tensor("x", tensors).dtype(DType::bf16).shape_of(tokens.shape({"H"})).row_major();
  check.tensor("residual", tensors).dtype(DType::bf16).same_shape("grad_out").row_major();
  check.tensor("post_mix", tensors).dtype(DType::f32).shape_of(tokens.shape({"n"})).row_major();
  check.tensor("comb_mix", tensors)
      .dtype(DType::f32)
      .shape_of(tokens.shape({"n", "n"}))
      .row_major();
  mhc::require_streams(check, "grad_out", mhc::kMaxPostBwdStreams);
  return tokens;
}

mhc::PostBwdSpec spec_of(const ArgCheck& check, const Tensors& tensors) {
  return {static_cast<int32_t>(check["n"]), static_cast<int32_t>(check["H"]),
          common_alignment(tensors, {"grad_out", "x", "residual", "grad_x", "grad_residual"})};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params&) {
  ArgCheck check("post_bwd");
  check_input(check, inputs);
  std::vector<OutputInfo> result;
  for (const char* name : {"x", "residual", "post_mix", "comb_mix"}) {
    const TensorView& like = inputs.at(name);
    result.push_back(row_major_output(std::string("grad_") + name, like.dtype, like.shape));
  }
  return result;
}

void run(const Tensors& tensors, const Params&, Stream stream) {
  ArgCheck check("post_bwd");
  const mhc::TokenDims tokens = check_input(check, tensors);
  check.output("grad_x", tensors).dtype(DType::bf16).same_shape("x").row_major();
  check.output("grad_residual", tensors).dtype(DType::bf16).same_shape("residual").row_major();
  check.output("grad_post_mix", tensors).dtype(DType::f32).same_shape("post_mix").row_major();
  check.output("grad_comb_mix", tensors).dtype(DType::f32).same_shape("comb_mix").row_major();
  check.memory();
  if (tensors.at("post_mix").size() == 0) return;
  const mhc::PostBwdSpec spec = spec_of(check, tensors);
  std::vector<TensorView> arguments;
  if (spec.hidden > 0) {
    for (const char* name :
         {"grad_out", "x", "residual", "post_mix", "comb_mix", "grad_x", "grad_residual"}) {
      arguments.push_back(tokens.flat(tensors.at(name)));
    }
  }
  for (const char* name : {"grad_post_mix", "grad_comb_mix"}) {
    arguments.push_back(tokens.flat(tensors.at(name)));
  }
  jit::run_op("post_bwd", spec, mhc::build_post_bwd, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params&) {
  ArgCheck check("post_bwd");
  check_input(check, tensors);
  if (tensors.at("post_mix").size() == 0) return {};
  return {mhc::build_post_bwd(spec_of(check, tensors))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden) {
  const int64_t n = streams;
  BenchCase c;
  c.label =
      "T=" + std::to_string(tokens) + " n=" + std::to_string(n) + " H=" + std::to_string(hidden);
  c.inputs = {{"grad_out", DType::bf16, {tokens, n, hidden}},
              {"x", DType::bf16, {tokens, hidden}},
              {"residual", DType::bf16, {tokens, n, hidden}},
              {"post_mix", DType::f32, {tokens, n}},
              {"comb_mix", DType::f32, {tokens, n, n}}};
  c.bytes = tokens * (6 * n * hidden + 4 * hidden + 8 * n + 8 * n * n);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "post_bwd";
  op.family = "mhc";
  op.purpose = "gradients of the residual streams behind a sub-layer and of their mixes";
  op.tensors = {input("grad_out", {"bf16"}, {"T", "n", "H"}),
                input("x", {"bf16"}, {"T", "H"}),
                input("residual", {"bf16"}, {"T", "n", "H"}),
                input("post_mix", {"f32"}, {"T", "n"}),
                input("comb_mix", {"f32"}, {"T", "n", "n"}),
                output("grad_x", {"bf16"}, {"T", "H"}),
                output("grad_residual", {"bf16"}, {"T", "n", "H"}),
                output("grad_post_mix", {"f32"}, {"T", "n"}),
                output("grad_comb_mix", {"f32"}, {"T", "n", "n"})};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(5, 4, 7168), bench_case(3, 4, 2560), bench_case(7, 4, 1280),
                 bench_case(9, 2, 512),  bench_case(3, 3, 100),  bench_case(2, 4, 0)};
  for (const int64_t hidden : {7168, 4096, 2560, 1280}) {
    op.bench.push_back(bench_case(4096, 4, hidden));
  }
  for (const int64_t tokens : {8192, 512, 128, 1}) {
    op.bench.push_back(bench_case(tokens, 4, 7168));
  }
  return op;
}

}  // namespace

void post_bwd(const TensorView& grad_out, const TensorView& x, const TensorView& residual,
              const TensorView& post_mix, const TensorView& comb_mix, const PostGradients& grad,
              Stream stream) {
  call_op(post_bwd_op(),
          {{"grad_out", grad_out},
           {"x", x},
           {"residual", residual},
           {"post_mix", post_mix},
           {"comb_mix", comb_mix},
           {"grad_x", grad.x},
           {"grad_residual", grad.residual},
           {"grad_post_mix", grad.post_mix},
           {"grad_comb_mix", grad.comb_mix}},
          {}, stream);
}

const OpInfo& post_bwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
