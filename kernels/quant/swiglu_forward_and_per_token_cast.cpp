// swiglu_forward_and_per_token_cast: host side; the kernel and its description are in
// swiglu_forward.cpp.

#include "kernels/quant/swiglu_forward_and_per_token_cast.h"

#include <cmath>

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/quant/swiglu_bench.h"
#include "kernels/quant/swiglu_forward.h"
#include "kernels/quant/token_cast.h"
#include "kernels/value_check.h"

namespace tessera::kernels {
namespace {

// 3. Host function
struct Call {
  SwigluSpec spec;
  float clamp = 0, amax_floor = 0;
};

std::optional<float> number_of(const Params& params, const std::string& name) {
  const ParamValue& value = params.at(name);
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return static_cast<float>(std::get<double>(value));
}

void check_row_tensors(ArgCheck& check, const Tensors& tensors, const Params& params) {
  check.optional("pos_to_token_topk", tensors).dtype(DType::i32).shape("P").row_major();
  check.optional("topk_weights", tensors).dtype(DType::f32).shape("T", "K").row_major();
  check.optional("pos_to_expert", tensors).dtype(DType::i32).shape("P").row_major();
  check.require(check.has("pos_to_token_topk") == check.has("topk_weights"),
                check.has("topk_weights") ? "pos_to_token_topk" : "topk_weights",
                "'pos_to_token_topk' and 'topk_weights' belong together", "both or none",
                "one of them");
  check.optional_output("clamped_count", tensors).dtype(DType::i64).shape(3).row_major();
  check.require(!check.has("clamped_count") || number_of(params, "swiglu_clamp_value"),
                "clamped_count", "'clamped_count' needs 'swiglu_clamp_value'",
                "swiglu_clamp_value given", "none");
}

void check_numbers(const ArgCheck& check, const Params& params, Call& call) {
  const std::optional<float> clamp = number_of(params, "swiglu_clamp_value");
  const std::optional<float> floor = number_of(params, "sf_clamp_min");
  call.spec.clamp = clamp ? SwigluSpec::Clamp::given : SwigluSpec::Clamp::none;
  call.clamp = clamp.value_or(0.0f);
  check.require(!clamp || *clamp > 0, "swiglu_clamp_value",
                "parameter 'swiglu_clamp_value' is out of range", "a number above 0",
                to_string(params.at("swiglu_clamp_value")));
  call.spec.has_floor = floor.has_value();
  call.amax_floor = floor.value_or(0.0f);
  check.require(!floor || (*floor >= 0x1p-117f && std::isfinite(*floor)), "sf_clamp_min",
                "parameter 'sf_clamp_min' is out of range", "2^-117 (6.02e-36) or more, finite",
                to_string(params.at("sf_clamp_min")));
}

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("P", "2H").row_major();
  check.in_range("2H", 0, INT32_MAX, ErrorKind::unsupported);
  check.multiple_of("2H", 256);
  const int64_t hidden = check["2H"] / 2;
  const TensorView& x = tensors.at("x");
  check.bind("H", hidden, "2H / 2");
  check_row_tensors(check, tensors, params);

  Call call;
  TokenCast cast;
  cast.group = std::get<int64_t>(params.at("num_per_channels"));
  check.require(cast.group == 128 || cast.group == hidden, "num_per_channels",
                "parameter 'num_per_channels' is out of range",
                "128 or H = " + std::to_string(hidden), std::to_string(cast.group));
  check_scale_params(check, params, cast);
  check.require(cast.group == 128 || cast.sf_layout == SfLayout::row_major, "sf_layout",
                "one scale per row is stored row-major", "row_major",
                std::string(name(cast.sf_layout)));
  check.require(cast.group == 128 || hidden <= 32768, "num_per_channels",
                "one scale for so many columns is not supported", "at most 32768",
                std::to_string(cast.group), ErrorKind::unsupported);
  check.bind("C", num_blocks(hidden, cast.group), "ceil(H / num_per_channels)");
  check_numbers(check, params, call);

  using Weights = SwigluSpec::Weights;
  SwigluSpec& s = call.spec;
  s.in = x.dtype;
  s.sf_layout = cast.sf_layout;
  s.round_sf = cast.round_sf;
  s.align = static_cast<uint8_t>(common_alignment({x}));
  s.weights = !check.has("topk_weights")               ? Weights::none
              : tensors.at("topk_weights").size() == 0 ? Weights::all_zero
                                                       : Weights::given;
  s.has_experts = check.has("pos_to_expert");
  if (check.has("clamped_count")) s.clamp = SwigluSpec::Clamp::counted;
  s.hidden = static_cast<int32_t>(hidden);
  s.group = static_cast<int32_t>(cast.group);
  cut_work(s, check["P"]);
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("swiglu_forward_and_per_token_cast");
  const Call call = check_input(check, inputs, params);
  return {codes_output("out", DType::e4m3, {check["P"], check["H"]}),
          scale_output("out_sf", call.spec.sf_layout, check["P"], check["C"])};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("swiglu_forward_and_per_token_cast");
  const Call call = check_input(check, tensors, params);
  const SwigluSpec& s = call.spec;
  check.output("out", tensors).dtype(DType::e4m3).shape("P", "H").row_major().aligned(16);
  check_scale_output(check, "out_sf", tensors, s.sf_layout, "P", "C");
  check.memory();
  if (check.has("topk_weights")) {
    require_values(check, "pos_to_token_topk", tensors.at("pos_to_token_topk"), INT32_MIN,
                   tensors.at("topk_weights").size() - 1, [&](int64_t row) {
                     return !s.has_experts || integer_at(tensors.at("pos_to_expert"), row) >= 0;
                   });
  }
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;

  TensorView arguments[7];
  size_t used = 0;
  const auto pass = [&](const TensorView& view) { arguments[used++] = view; };
  pass({x.data, x.dtype, {x.shape[0], 2, s.hidden}, x.device});
  if (s.weights == SwigluSpec::Weights::given) {
    const TensorView& weights = tensors.at("topk_weights");
    pass(tensors.at("pos_to_token_topk"));
    pass({weights.data, DType::f32, {weights.size()}, weights.device});
  }
  if (s.has_experts) pass(tensors.at("pos_to_expert"));
  pass(tensors.at("out"));
  pass(written_scales(tensors.at("out_sf"), s.sf_layout, check["P"], check["C"]));
  if (s.clamp == SwigluSpec::Clamp::counted) pass(tensors.at("clamped_count"));
  std::vector<jit::Scalar> scalars;
  if (s.has_floor) scalars.emplace_back(call.amax_floor);
  if (s.clamp != SwigluSpec::Clamp::none) scalars.emplace_back(call.clamp);
  jit::run_op("swiglu_forward_and_per_token_cast", s, build_swiglu_forward,
              std::span(arguments, used), scalars, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("swiglu_forward_and_per_token_cast");
  const Call call = check_input(check, tensors, params);
  if (tensors.at("x").size() == 0) return {};
  return {build_swiglu_forward(call.spec)};
}

// 4. Registration
OpInfo op_info() {
  OpInfo op;
  op.name = "swiglu_forward_and_per_token_cast";
  op.family = "quant";
  op.purpose = "gated activation of an expert's rows to 8-bit floats with one scale per group";
  op.tensors = {input("x", {"bf16", "f32"}, {"P", "2H"}),
                optional(input("pos_to_token_topk", {"i32"}, {"P"})),
                optional(input("topk_weights", {"f32"}, {"T", "K"})),
                optional(input("pos_to_expert", {"i32"}, {"P"})),
                output("out", {"e4m3"}, {"P", "H"}),
                output("out_sf", {}, {}, "SF(1,num_per_channels) sf_layout"),
                optional(inout("clamped_count", {"i64"}, {"3"}))};
  op.params = {integer("num_per_channels", {"128", "H"}),
               sf_layout_param("sf_layout"),
               flag("round_sf", false),
               number("swiglu_clamp_value", ParamValue()),
               number("sf_clamp_min", ParamValue()),
               word("format", {"e4m3"}, "e4m3")};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = swiglu_examples();
  op.bench = swiglu_bench();
  return op;
}

}  // namespace

void swiglu_forward_and_per_token_cast(const TensorView& x, const SwigluRows& rows,
                                       const TensorView& out, const TensorView& out_sf,
                                       const SwigluForwardOptions& options, Stream stream) {
  call_op(swiglu_forward_and_per_token_cast_op(),
          {{"x", x},
           {"pos_to_token_topk", rows.pos_to_token_topk},
           {"topk_weights", rows.topk_weights},
           {"pos_to_expert", rows.pos_to_expert},
           {"clamped_count", rows.clamped_count},
           {"out", out},
           {"out_sf", out_sf}},
          {{"num_per_channels", options.num_per_channels},
           {"sf_layout", options.sf_layout},
           {"round_sf", options.round_sf},
           {"swiglu_clamp_value", options.clamp_value},
           {"sf_clamp_min", options.sf_clamp_min}},
          stream);
}

const OpInfo& swiglu_forward_and_per_token_cast_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
