// pre_big_fuse: everything in front of a sub-layer.
//
// Shapes   residual [tokens, streams, hidden], fn [entries, streams * hidden], scale [3], base
//          [entries], post_mix [tokens, streams], comb_mix [tokens, streams, streams], layer_input
//          [tokens, hidden]
// Dtypes   residual and layer_input bf16, the rest f32
// Method   two launches: the projection of the residual, then everything else, in mix_kernel.cpp. The
//          bound is reading the residual twice, the second time from L2 where it fits.
// Maths    projection.h, mix_sequences.h, sinkhorn.h: the sequences of the single ops.
// Tuned    H200; see projection_kernel.cpp and pick_row_tile.

#include "kernels/mhc/pre_big_fuse.h"

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/mix_kernel.h"
#include "kernels/mhc/projection.h"
#include "kernels/mhc/projection_args.h"
#include "kernels/mhc/sinkhorn.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 3. Host function
struct Call {
  mhc::TokenDims tokens;
  mhc::ProjectionShape shape;
  int64_t streams = 0, hidden = 0;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  Call call{mhc::TokenDims(tensors, "residual", 2), {}};
  call.shape =
      mhc::check_projection(check, call.tokens, tensors, std::get<int64_t>(params.at("n_splits")));
  call.streams = check["n"];
  call.hidden = check["H"];
  mhc::require_streams(check, "residual", mhc::kMaxSinkhornStreams);
  const int64_t entries = call.streams * (call.streams + 2);
  check.require(check["M"] == entries, "fn", "argument 'fn' has the wrong number of rows",
                "M = n (n + 2) = " + std::to_string(entries), std::to_string(check["M"]));
  check.tensor("scale", tensors).dtype(DType::f32).shape(3).row_major();
  check.tensor("base", tensors).dtype(DType::f32).shape("M").row_major();
  check.param_in_range("sinkhorn_repeat", std::get<int64_t>(params.at("sinkhorn_repeat")), 1,
                       mhc::kMaxSinkhornRepeat);
  return call;
}

int64_t workspace_of(const Call& call) {
  return mhc::projection_workspace(call.shape);
}

mhc::ProjectionTensors tensors_of(const Tensors& tensors) {
  return mhc::projection_tensors(tensors, /*is_last_reader=*/false);
}

mhc::MixSpec spec_of(const Call& call, const Tensors& tensors) {
  return {static_cast<int32_t>(call.streams), static_cast<int32_t>(call.hidden),
          common_alignment(tensors, {"residual", "layer_input"}),
          mhc::PartSum(call.shape, tensors_of(tensors).workspace)};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("pre_big_fuse");
  const Call call = check_input(check, inputs, params);
  const TensorView& residual = inputs.at("residual");
  const Dims post = call.tokens.output(check, "residual", residual, {call.streams});
  const Dims comb = call.tokens.output(check, "residual", residual, {call.streams, call.streams});
  const Dims rows = call.tokens.output(check, "residual", residual, {call.hidden});
  return {row_major_output("post_mix", DType::f32, post),
          row_major_output("comb_mix", DType::f32, comb),
          row_major_output("layer_input", DType::bf16, rows),
          mhc::workspace_info(workspace_of(call))};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("pre_big_fuse");
  const Call call = check_input(check, tensors, params);
  const mhc::TokenDims& dims = call.tokens;
  check.output("post_mix", tensors).dtype(DType::f32).shape_of(dims.shape({"n"})).row_major();
  check.output("comb_mix", tensors).dtype(DType::f32).shape_of(dims.shape({"n", "n"})).row_major();
  check.output("layer_input", tensors).dtype(DType::bf16).shape_of(dims.shape({"H"})).row_major();
  mhc::check_workspace(check, tensors, workspace_of(call));
  check.memory();
  if (call.shape.tokens == 0) return;
  const mhc::ProjectionTensors inputs = tensors_of(tensors);
  mhc::run_projection("pre_big_fuse", call.shape, inputs, stream);

  std::vector<TensorView> arguments;
  if (call.shape.width > 0) {
    arguments = {mhc::product_parts(call.shape, inputs.workspace),
                 mhc::square_parts(call.shape, inputs.workspace), dims.flat(inputs.residual),
                 dims.flat(tensors.at("layer_input"))};
  }
  for (const TensorView& view :
       {tensors.at("scale"), tensors.at("base"), dims.flat(tensors.at("post_mix")),
        dims.flat(tensors.at("comb_mix"))}) {
    arguments.push_back(view);
  }
  std::vector<jit::Scalar> scalars;
  for (const char* name : {"norm_eps", "pre_eps", "sinkhorn_eps", "post_mult_value"}) {
    scalars.emplace_back(std::get<double>(params.at(name)));
  }
  scalars.emplace_back(std::get<int64_t>(params.at("sinkhorn_repeat")));
  jit::run_op("pre_big_fuse", spec_of(call, tensors), mhc::build_mix, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("pre_big_fuse");
  const Call call = check_input(check, tensors, params);
  if (call.shape.tokens == 0) return {};
  const ir::Kernel mix = mhc::build_mix(spec_of(call, tensors));
  if (call.shape.width == 0) return {mix};
  return {mhc::projection_kernel(call.shape, tensors_of(tensors)), mix};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden, bool weight = false) {
  const int64_t n = streams, width = n * hidden, entries = n * (n + 2);
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(n) +
            " H=" + std::to_string(hidden) + (weight ? " weighted" : "");
  c.inputs = {{"residual", DType::bf16, {tokens, n, hidden}, {width, hidden, 1}},
              {"fn", DType::f32, {entries, width}},
              {"scale", DType::f32, {3}},
              {"base", DType::f32, {entries}}};
  if (weight) c.inputs.push_back({"norm_weight", DType::f32, {width}});
  c.bytes = 2 * tokens * (width + hidden) + 4 * tokens * (n + n * n) + 4 * entries * width;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "pre_big_fuse";
  op.family = "mhc";
  op.purpose = "mixes and input of a sub-layer from the residual, in one";
  op.tensors = {input("residual", {"bf16"}, {"T", "n", "H"}),
                input("fn", {"f32"}, {"M", "n*H"}),
                input("scale", {"f32"}, {"3"}),
                input("base", {"f32"}, {"M"}),
                optional(input("norm_weight", {"f32"}, {"n*H"})),
                output("post_mix", {"f32"}, {"T", "n"}),
                output("comb_mix", {"f32"}, {"T", "n", "n"}),
                output("layer_input", {"bf16"}, {"T", "H"})};
  op.params = {number("norm_eps", 1e-6),
               number("pre_eps", 1e-6),
               number("sinkhorn_eps", 1e-6),
               number("post_mult_value", 1.0),
               count("sinkhorn_repeat", "1..45", 10),
               count("n_splits", "1..16", 16)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(13, 4, 1280), bench_case(600, 4, 256, true), bench_case(9, 3, 256),
                 bench_case(5, 1, 512)};
  for (const int64_t tokens : {1, 16, 128, 512, 4096, 8192}) {
    op.bench.push_back(bench_case(tokens, 4, 7168));
  }
  op.bench.push_back(bench_case(8192, 4, 4096));
  return op;
}

}  // namespace

int64_t pre_big_fuse_workspace(int64_t tokens, int64_t streams, int64_t hidden, int64_t n_splits) {
  return mhc::projection_workspace({tokens, streams * (streams + 2), streams * hidden, n_splits});
}

void pre_big_fuse(const TensorView& residual, const TensorView& fn, const TensorView& scale,
                  const TensorView& base, const TensorView& norm_weight,
                  const PreBigFuseOutputs& outputs, const TensorView& workspace,
                  const PreBigFuseOptions& options, Stream stream) {
  call_op(pre_big_fuse_op(),
          {{"residual", residual},
           {"fn", fn},
           {"scale", scale},
           {"base", base},
           {"norm_weight", norm_weight},
           {"post_mix", outputs.post_mix},
           {"comb_mix", outputs.comb_mix},
           {"layer_input", outputs.layer_input},
           {"workspace", workspace}},
          {{"norm_eps", options.norm_eps},
           {"pre_eps", options.pre_eps},
           {"sinkhorn_eps", options.sinkhorn_eps},
           {"post_mult_value", options.post_mult_value},
           {"sinkhorn_repeat", options.sinkhorn_repeat},
           {"n_splits", options.n_splits}},
          stream);
}

const OpInfo& pre_big_fuse_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
