// engram_gate_fwd: host side; the kernel and its description are in gate_kernel.cpp.

#include "kernels/engram/engram_gate_fwd.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/engram/gate_kernel.h"
#include "kernels/jit/run_op.h"
#include "kernels/mhc/token_dims.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 3. Host function
constexpr const char* kOp = "engram_gate_fwd";
constexpr const char* kSaved[] = {"dot", "gate_score", "rstd_x", "rstd_k"};

mhc::TokenDims check_input(ArgCheck& check, const Tensors& tensors) {
  const mhc::TokenDims tokens(tensors, "hidden_states", 2);
  const std::vector<Extent> rows = tokens.shape({"hc", "D"});
  check.tensor("hidden_states", tensors).dtype(DType::bf16).shape_of(rows).row_major();
  check.multiple_of("D", 256);
  check.in_range("D", 512, int64_t{1} << 24);
  check.in_range("hc", 1, 1 << 16);
  check.tensor("k", tensors).dtype(DType::bf16).shape_of(rows).rows();
  check.tensor("v", tensors).dtype(DType::bf16).shape_of(tokens.shape({"D"})).rows();
  check.tensor("weight_fused", tensors).dtype(DType::f32).shape("hc", "D").row_major();
  return tokens;
}

engram::GateSpec spec_of(const ArgCheck& check, const Tensors& tensors, bool save) {
  int64_t vector = 8;
  for (const char* name : {"hidden_states", "k", "v", "out"}) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) vector = std::gcd(vector, common_vector(found->second, vector));
  }
  engram::GateSpec s;
  s.streams = static_cast<int32_t>(check["hc"]);
  s.hidden = static_cast<int32_t>(check["D"]);
  s.vector = static_cast<uint8_t>(vector);
  s.weight_vector = static_cast<uint8_t>(common_vector(tensors.at("weight_fused"), 4));
  s.save = save;
  return s;
}

bool saves(const Params& params) {
  return std::get<bool>(params.at("save_for_backward"));
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check(kOp);
  const mhc::TokenDims tokens = check_input(check, inputs);
  const TensorView& x = inputs.at("hidden_states");
  std::vector<OutputInfo> result = {row_major_output("out", DType::bf16, x.shape)};
  const Dims scores = tokens.output(check, "x", x, {check["hc"]});
  for (const char* name : kSaved) {
    if (saves(params)) {
      result.push_back(row_major_output(name, DType::f32, scores));
    }
  }
  return result;
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check(kOp);
  const mhc::TokenDims tokens = check_input(check, tensors);
  check.output("out", tensors).dtype(DType::bf16).same_shape("hidden_states").row_major();
  for (const char* name : kSaved) {
    if (!saves(params)) break;
    check.output(name, tensors).dtype(DType::f32).shape_of(tokens.shape({"hc"})).row_major();
  }
  check.memory();
  const TensorView x = tokens.flat(tensors.at("hidden_states"));
  if (x.size() == 0) return;
  const engram::GateSpec spec = spec_of(check, tensors, saves(params));
  const auto rows = [&](const TensorView& view) {  // of all tokens and streams
    return TensorView(view.data, view.dtype, {x.shape[0] * spec.streams, spec.hidden}, view.device);
  };
  std::vector<TensorView> arguments = {rows(x), tokens.flat_rows(check, "k", tensors.at("k")),
                                       tokens.flat_rows(check, "v", tensors.at("v")),
                                       tensors.at("weight_fused"), rows(tensors.at("out"))};
  for (const char* name : kSaved) {
    if (spec.save) arguments.push_back(tokens.flat(tensors.at(name)));
  }
  // Enough blocks for every SM first, then fewer reads of the weights.
  const int64_t tokens_per_block = std::clamp<int64_t>(x.shape[0] * spec.streams / 2048, 1, 8);
  const jit::Scalar scalars[] = {std::get<double>(params.at("eps")),
                                 std::get<double>(params.at("clamp_value")), tokens_per_block};
  jit::run_op(kOp, spec, engram::build_gate, arguments, scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check(kOp);
  check_input(check, tensors);
  if (tensors.at("hidden_states").size() == 0) return {};
  return {engram::build_gate(spec_of(check, tensors, saves(params)))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t streams, int64_t hidden, bool save) {
  const int64_t token = streams * hidden;
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " hc=" + std::to_string(streams) +
            " D=" + std::to_string(hidden) + (save ? " saving" : "");
  c.params = {{"eps", 1e-20}, {"save_for_backward", save}};
  c.inputs = {{"hidden_states", DType::bf16, {tokens, streams, hidden}, {token, hidden, 1}},
              {"k", DType::bf16, {tokens, streams, hidden}, {token, hidden, 1}},
              {"v", DType::bf16, {tokens, hidden}},
              {"weight_fused", DType::f32, {streams, hidden}}};
  c.bytes = tokens * hidden * (6 * streams + 2) + 4 * streams * hidden +
            (save ? 16 * tokens * streams : 0);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = kOp;
  op.family = "engram";
  op.purpose = "residual streams plus the value row, weighted by the gate of each stream";
  op.tensors = {
      input("hidden_states", {"bf16"}, {"T", "hc", "D"}),
      input("k", {"bf16"}, {"T", "hc", "D"}, "rows"), input("v", {"bf16"}, {"T", "D"}, "rows"),
      input("weight_fused", {"f32"}, {"hc", "D"}), output("out", {"bf16"}, {"T", "hc", "D"})};
  for (const char* name : kSaved) {
    op.tensors.push_back(optional(output(name, {"f32"}, {"T", "hc"})));
  }
  op.params = {number("eps"), number("clamp_value", 1e-6), flag("save_for_backward", true)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(5, 4, 7168, true), bench_case(9, 4, 4096, false),
                 bench_case(3, 2, 512, true), bench_case(2, 1, 3328, false)};
  op.bench = {bench_case(8001, 4, 7168, true), bench_case(8001, 4, 7168, false),
              bench_case(4001, 4, 4096, true), bench_case(128, 4, 7168, false),
              bench_case(1, 4, 7168, false)};
  return op;
}

}  // namespace

void engram_gate_fwd(const EngramGateTensors& tensors, const EngramGateFwdOptions& options,
                     Stream stream) {
  const TensorView* const saved[] = {&tensors.dot, &tensors.gate_score, &tensors.rstd_x,
                                     &tensors.rstd_k};
  const bool save = !std::all_of(std::begin(saved), std::end(saved),
                                 [](const TensorView* view) { return is_absent(*view); });
  call_op(engram_gate_fwd_op(),
          {{"hidden_states", tensors.hidden_states},
           {"k", tensors.k},
           {"v", tensors.v},
           {"weight_fused", tensors.weight_fused},
           {"out", tensors.out},
           {"dot", tensors.dot},
           {"gate_score", tensors.gate_score},
           {"rstd_x", tensors.rstd_x},
           {"rstd_k", tensors.rstd_k}},
          {{"eps", options.eps}, {"clamp_value", options.clamp_value}, {"save_for_backward", save}},
          stream);
}

const OpInfo& engram_gate_fwd_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
