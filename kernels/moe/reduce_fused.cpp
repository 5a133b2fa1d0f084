// reduce_fused: host side; the kernel and its description are in reduce_kernel.cpp.

#include "kernels/moe/reduce_fused.h"

#include <algorithm>

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/moe/even_mapping.h"
#include "kernels/moe/reduce_kernel.h"
#include "kernels/op_call.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

// 3. Host function
constexpr const char* kOp = "reduce_fused";

/// The dtype of out; binds P, H, T and K.
DType check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  const bool e4m3 = std::holds_alternative<std::string>(params.at("format"));
  check.tensor("x", tensors).dtype({DType::f32, DType::bf16}).shape("P", "H").row_major();
  check.multiple_of("H", 256);
  check.optional("x_sf", tensors).dtype(DType::f32).shape("P").row_major();
  check.tensor("token_topk_to_pos", tensors).dtype(DType::i32).shape("T", "K").row_major();
  check.optional("topk_weights", tensors).dtype(DType::f32).shape("T", "K").row_major();
  check.optional("sf", tensors).dtype(DType::f32).shape(1).row_major();
  check.require(e4m3 || !tensors.contains("sf"), "sf", "'sf' scales e4m3 outputs only",
                "format=e4m3 or no sf", "format=none");
  return e4m3 ? DType::e4m3 : tensors.at("x").dtype;
}

moe::ReduceSpec spec_of(const ArgCheck& check, const Tensors& tensors, DType out_dtype) {
  const TensorView& x = tensors.at("x");
  moe::ReduceSpec s;
  s.in = x.dtype;
  s.out = out_dtype;
  s.num_topk = x.shape[0] == 0 ? 0 : static_cast<int32_t>(check["K"]);
  s.has_x_sf = s.num_topk > 0 && tensors.contains("x_sf");
  s.has_weights = s.num_topk > 0 && tensors.contains("topk_weights");
  s.has_sf = tensors.contains("sf");
  s.align = static_cast<uint8_t>(common_alignment(tensors, {"x", "out"}));
  s.vector = static_cast<uint8_t>(std::max(1, s.align / bytes(s.in)));
  s.hidden = static_cast<int32_t>(check["H"]);
  s.walk = moe::pick_walk(check["T"], s.hidden / s.vector);
  return s;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, inputs, params);
  const Dims shape{check["T"], check["H"]};
  return {row_major_output("out", dtype, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, tensors, params);
  check.output("out", tensors).dtype(dtype).shape("T", "H").row_major();
  check.memory();
  require_values(check, "token_topk_to_pos", tensors.at("token_topk_to_pos"), -1, check["P"] - 1);
  if (tensors.at("out").size() == 0) return;
  const moe::ReduceSpec spec = spec_of(check, tensors, dtype);
  std::vector<TensorView> arguments = {tensors.at("out")};
  const auto add = [&](const char* name, bool used) {
    if (used) arguments.push_back(tensors.at(name));
  };
  add("x", spec.num_topk > 0);
  add("token_topk_to_pos", spec.num_topk > 0);
  add("x_sf", spec.has_x_sf);
  add("topk_weights", spec.has_weights);
  add("sf", spec.has_sf);
  jit::run_op(kOp, spec, moe::build_reduce, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  const DType dtype = check_input(check, tensors, params);
  if (check["T"] * check["H"] == 0) return {};
  return {moe::build_reduce(spec_of(check, tensors, dtype))};
}

// 4. Registration
BenchCase bench_case(const moe::EvenMapping& mapping, int64_t hidden, DType in, bool x_sf,
                     bool weights, bool e4m3 = false) {
  const int64_t tokens = mapping.num_tokens, topk = mapping.num_topk, positions = tokens * topk;
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " K=" + std::to_string(topk) +
            " E=" + std::to_string(mapping.num_experts) + " H=" + std::to_string(hidden) + " " +
            std::string(name(in)) + (x_sf ? " x_sf" : "") + (weights ? " weights" : "") +
            (e4m3 ? " to e4m3" : "");
  c.inputs = {{"x", in, {positions, hidden}}, mapping.token_topk_to_pos()};
  if (x_sf) c.inputs.push_back({"x_sf", DType::f32, {positions}});
  if (weights) c.inputs.push_back({"topk_weights", DType::f32, {tokens, topk}});
  if (e4m3) {
    c.params["format"] = std::string("e4m3");
    c.inputs.push_back({"sf", DType::f32, {1}});
  }
  c.bytes = positions * (4 + (x_sf ? 4 : 0) + (weights ? 4 : 0)) +
            tokens * hidden * (e4m3 ? 1 : bytes(in)) + mapping.num_entries * hidden * bytes(in);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "moe";
  op.purpose = "the rows of each token's positions, weighted and summed";
  op.tensors = {input("x", {"f32", "bf16"}, {"P", "H"}),
                optional(input("x_sf", {"f32"}, {"P"})),
                optional(input("topk_weights", {"f32"}, {"T", "K"})),
                input("token_topk_to_pos", {"i32"}, {"T", "K"}),
                optional(input("sf", {"f32"}, {"1"})),
                output("out", {"as x, or e4m3"}, {"T", "H"})};
  op.params = {word("format", {"none", "e4m3"}, ParamValue())};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType f32 = DType::f32, bf16 = DType::bf16;
  op.examples = {bench_case({17, 6, 9, 25, 1}, 7168, bf16, true, true),
                 bench_case({9, 8, 4, 20, 1}, 2560, f32, true, true),
                 bench_case({5, 2, 3, 9, 1}, 256, bf16, false, true, true),
                 bench_case({3, 20, 64, 50, 1}, 768, f32, false, false)};
  op.bench = {bench_case(moe::rank_mapping(18431, 6, 9, 1), 7168, bf16, true, true),
              bench_case(moe::rank_mapping(18578, 6, 32, 1), 7168, bf16, true, true),
              bench_case(moe::rank_mapping(18311, 6, 9, 1), 7168, f32, true, true),
              bench_case(moe::rank_mapping(25023, 6, 4, 1), 7168, f32, true, true),
              bench_case({1, 8, 256, 8, 1}, 7168, bf16, false, true),
              bench_case({128, 8, 256, 1024, 1}, 7168, bf16, false, true),
              bench_case({1, 8, 256, 8, 1}, 7168, f32, false, true),
              bench_case({128, 8, 256, 1024, 1}, 7168, f32, false, true)};
  return op;
}

}  // namespace

void reduce_fused(const ReduceFusedTensors& tensors, Stream stream) {
  call_op(reduce_fused_op(),
          {{"x", tensors.x},
           {"x_sf", tensors.x_sf},
           {"topk_weights", tensors.topk_weights},
           {"token_topk_to_pos", tensors.token_topk_to_pos},
           {"sf", tensors.sf},
           {"out", tensors.out}},
          {{"format", tensors.out.dtype == DType::e4m3 ? "e4m3" : "none"}}, stream);
}

const OpInfo& reduce_fused_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
