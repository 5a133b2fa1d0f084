// norm_fn_fwd: the projection of the normalised residual and its sum of squares.
//
// Shapes   residual [tokens, streams, hidden], fn [entries, streams * hidden], norm_weight [streams *
//          hidden], out and out_mul [tokens, entries], sqrsum [tokens]
// Dtypes   residual bf16, the rest f32
// Method   two launches: the projection writes partial sums of the columns, norm_kernel.cpp adds them
//          and scales

#include "kernels/mhc/norm_fn_fwd.h"

#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/norm_kernel.h"
#include "kernels/mhc/projection.h"
#include "kernels/mhc/projection_args.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// Host function
struct Call {
  mhc::TokenDims tokens;
  mhc::ProjectionShape shape;
  float eps;
  bool save;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  Call call{mhc::TokenDims(tensors, "residual", 2),
            {},
            static_cast<float>(std::get<double>(params.at("norm_eps"))),
            std::get<bool>(params.at("save_for_backward"))};
  call.shape =
      mhc::check_projection(check, call.tokens, tensors, std::get<int64_t>(params.at("n_splits")));
  return call;
}

mhc::NormSpec spec_of(const Call& call, const mhc::ProjectionTensors& tensors) {
  return {static_cast<int32_t>(call.shape.entries), static_cast<int32_t>(call.shape.width),
          call.save ? 1 : 0, call.shape.tokens <= 512 ? 1 : 0,
          mhc::PartSum(call.shape, tensors.workspace)};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("norm_fn_fwd");
  const Call call = check_input(check, inputs, params);
  const Dims rows =
      call.tokens.output(check, "residual", inputs.at("residual"), {call.shape.entries});
  const Dims tokens = call.tokens.output(check, "residual", inputs.at("residual"), {});
  std::vector<OutputInfo> result = {row_major_output("out", DType::f32, rows)};
  if (call.save) {
    result.push_back(row_major_output("out_mul", DType::f32, rows));
    result.push_back(row_major_output("sqrsum", DType::f32, tokens));
  }
  result.push_back(mhc::workspace_info(mhc::projection_workspace(call.shape)));
  return result;
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("norm_fn_fwd");
  const Call call = check_input(check, tensors, params);
  const auto rows = call.tokens.shape({"M"});
  check.output("out", tensors).dtype(DType::f32).shape_of(rows).row_major();
  if (call.save) {
    check.output("out_mul", tensors).dtype(DType::f32).shape_of(rows).row_major();
    check.output("sqrsum", tensors).dtype(DType::f32).shape_of(call.tokens.shape({})).row_major();
  }
  mhc::check_workspace(check, tensors, mhc::projection_workspace(call.shape));
  check.memory();
  if (call.shape.tokens == 0) return;
  const mhc::ProjectionTensors inputs = mhc::projection_tensors(tensors, /*is_last_reader=*/true);
  const mhc::NormSpec spec = spec_of(call, inputs);
  mhc::run_projection("norm_fn_fwd", call.shape, inputs, stream);
  std::vector<TensorView> arguments;
  if (spec.sum.parts > 0) {
    arguments = {mhc::product_parts(call.shape, inputs.workspace),
                 mhc::square_parts(call.shape, inputs.workspace)};
  }
  arguments.push_back(call.tokens.flat(tensors.at("out")));
  if (call.save) {
    arguments.push_back(call.tokens.flat(tensors.at("out_mul")));
    arguments.push_back(call.tokens.flat(tensors.at("sqrsum")));
  }
  const jit::Scalar scalars[] = {call.eps};
  jit::run_op("norm_fn_fwd", spec, mhc::build_norm, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("norm_fn_fwd");
  const Call call = check_input(check, tensors, params);
  if (call.shape.tokens == 0) return {};
  const mhc::ProjectionTensors inputs = mhc::projection_tensors(tensors, /*is_last_reader=*/true);
  const ir::Kernel add = mhc::build_norm(spec_of(call, inputs));
  if (call.shape.width == 0) return {add};
  return {mhc::projection_kernel(call.shape, inputs), add};
}

// Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden, int64_t n_splits,
                     bool weight = false) {
  const int64_t width = streams * hidden, entries = streams * (streams + 2);
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " n=" + std::to_string(streams) +
            " H=" + std::to_string(hidden) + " splits=" + std::to_string(n_splits) +
            (weight ? " weighted" : "");
  c.params = {{"n_splits", n_splits}};
  c.inputs = {{"residual", DType::bf16, {tokens, streams, hidden}, {width, hidden, 1}},
              {"fn", DType::f32, {entries, width}}};
  if (weight) c.inputs.push_back({"norm_weight", DType::f32, {width}});
  c.bytes = 2 * tokens * width + 4 * entries * width + 4 * tokens * (2 * entries + 1);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "norm_fn_fwd";
  op.family = "mhc";
  op.purpose = "projection of the normalised residual, from which the mixes are made";
  op.tensors = {
      input("residual", {"bf16"}, {"T", "n", "H"}),     input("fn", {"f32"}, {"M", "n*H"}),
      optional(input("norm_weight", {"f32"}, {"n*H"})), output("out", {"f32"}, {"T", "M"}),
      optional(output("out_mul", {"f32"}, {"T", "M"})), optional(output("sqrsum", {"f32"}, {"T"}))};
  op.params = {number("norm_eps", 1e-6), count("n_splits", "1..16", 16),
               flag("save_for_backward", true)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(13, 4, 1280, 16), bench_case(600, 4, 256, 16, true),
                 bench_case(2050, 4, 64, 1), bench_case(9, 2, 384, 3)};
  for (const int64_t tokens : {1, 16, 128, 512, 4096, 8192}) {
    op.bench.push_back(bench_case(tokens, 4, 7168, 16));
  }
  op.bench.push_back(bench_case(4096, 4, 7168, 1));
  op.bench.push_back(bench_case(4096, 4, 2560, 1));
  op.bench.push_back(bench_case(8192, 4, 4096, 1));
  op.bench.push_back(bench_case(8192, 4, 4096, 16));
  return op;
}

}  // namespace

int64_t norm_fn_workspace(int64_t tokens, int64_t entries, int64_t columns, int64_t n_splits) {
  return mhc::projection_workspace({tokens, entries, columns, n_splits});
}

void norm_fn_fwd(const TensorView& residual, const TensorView& fn, const TensorView& norm_weight,
                 const NormFnOutputs& outputs, const TensorView& workspace,
                 const NormFnOptions& options, Stream stream) {
  call_op(norm_fn_fwd_op(),
          {{"residual", residual},
           {"fn", fn},
           {"norm_weight", norm_weight},
           {"out", outputs.out},
           {"out_mul", outputs.out_mul},
           {"sqrsum", outputs.sqrsum},
           {"workspace", workspace}},
          {{"norm_eps", options.norm_eps},
           {"n_splits", options.n_splits},
           {"save_for_backward", options.save_for_backward}},
          stream);
}

const OpInfo& norm_fn_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
