// expand_to_fused_with_sf: rows of tokens and their scales to the positions of their experts.
//
// Shapes   x [tokens, hidden], x_sf [tokens, C], token_topk_to_pos [tokens, num_topk],
//          pos_to_expert [positions], out [positions, hidden], out_sf [positions, C] with
//          C = ceil(hidden / num_per_channels), a quarter of that in packed words
// Dtypes   x and out e4m3|e2m1 (two per byte), scales f32|i32 (four exponents)
// Method   one warp per row: it reads the row of its token once into registers and stores it to each
//          position; then it clears the row of the same number if that is padding. Rows and scales
//          are moved once, so the bound is bytes / copy bandwidth.
// Maths    none, bytes are moved
// Tuned    H200: 4 rows per block, 14 vectors of 16 bytes per lane in flight.

#include "kernels/moe/expand_to_fused_with_sf.h"

#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/moe/even_mapping.h"
#include "kernels/moe/expand_kernel.h"
#include "kernels/moe/mapping_values.h"
#include "kernels/moe/row_scatter.h"
#include "kernels/op_call.h"
#include "kernels/quant/token_cast.h"

namespace tessera::kernels {
namespace {

// 1. Spec: ExpandSpec; 2. Builder: build_expand
using Spec = moe::ExpandSpec;

// 3. Host function
struct Call {
  int64_t num_per_channels = 0;
  SfLayout sf_layout = SfLayout::row_major;
};

Call call_of(const Params& params) {
  return {std::get<int64_t>(params.at("num_per_channels")), sf_layout_of(params, "sf_layout")};
}

void check_input(ArgCheck& check, const Tensors& tensors, const Call& call) {
  const auto x = tensors.find("x");
  const bool pairs = x != tensors.end() && x->second.dtype == DType::i8;
  check.tensor("x", tensors)
      .dtype({DType::e4m3, DType::i8})
      .shape("T", pairs ? "H/2" : "H")
      .row_major();
  check.in_range(pairs ? "H/2" : "H", 0, INT64_MAX / 2, ErrorKind::unsupported);
  if (pairs) check.bind("H", check["H/2"] * 2, "two e2m1 codes per byte of x");
  const int64_t rest = check["H"] % call.num_per_channels == 0 ? 0 : 1;  // no sum to overflow
  check.bind("C", check["H"] / call.num_per_channels + rest, "ceil(H / num_per_channels)");
  const auto x_sf = tensors.find("x_sf");
  const bool packed = x_sf != tensors.end() && x_sf->second.dtype == DType::i32;
  check.bind("words", (check["C"] + 3) / 4, "ceil(C / 4), four exponents per word");
  check.tensor("x_sf", tensors)
      .dtype({DType::f32, DType::i32})
      .shape("T", packed ? "words" : "C")
      .any_strides();
  check.require(packed == (call.sf_layout == SfLayout::packed_ue8m0), "sf_layout",
                "parameter 'sf_layout' does not go with the dtype of x_sf",
                packed ? "packed_ue8m0 for i32" : "row_major or col_major_tma for f32",
                name(call.sf_layout));
  check.tensor("token_topk_to_pos", tensors).dtype(DType::i32).shape("T", "K").row_major();
  check.tensor("pos_to_expert", tensors).dtype(DType::i32).shape("P").row_major();
}

OutputInfo out_info(const ArgCheck& check, const TensorView& x) {
  const Dims shape{check["P"], x.shape[1]};
  return row_major_output("out", x.dtype, shape);
}

Spec spec_of(const ArgCheck& check, const Tensors& tensors, const Call& call) {
  const TensorView &x = tensors.at("x"), &x_sf = tensors.at("x_sf");
  Spec s;
  s.row_bytes = static_cast<int32_t>(x.shape[1]);
  s.scales = static_cast<int32_t>(x_sf.shape[1]);
  s.num_topk = check["T"] == 0 ? 0 : static_cast<int32_t>(check["K"]);
  s.align = common_alignment(tensors, {"x", "out"});
  s.sf_layout = call.sf_layout;
  return s;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("expand_to_fused_with_sf");
  const Call call = call_of(params);
  check_input(check, inputs, call);
  return {out_info(check, inputs.at("x")),
          scale_output("out_sf", call.sf_layout, check["P"], check["C"])};
}

/// The same bytes as rows of words.
TensorView words_view(const TensorView& rows, const moe::RowWords& row) {
  return {rows.data, row.dtype, {rows.shape[0], row.words}, rows.device};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("expand_to_fused_with_sf");
  const Call call = call_of(params);
  check_input(check, tensors, call);
  const TensorView& x = tensors.at("x");
  check.output("out", tensors)
      .dtype(x.dtype)
      .shape("P", x.dtype == DType::i8 ? "H/2" : "H")
      .row_major();
  check_scale_output(check, "out_sf", tensors, call.sf_layout, "P", "C");
  check.memory();
  moe::require_expansion(check, tensors.at("token_topk_to_pos"), tensors.at("pos_to_expert"));
  const TensorView& out = tensors.at("out");
  if (out.size() == 0) return;
  const Spec spec = spec_of(check, tensors, call);
  const moe::RowWords row = moe::row_words(spec.row_bytes, spec.align);
  TensorView sf = tensors.at("x_sf"), out_sf = tensors.at("out_sf");
  const bool sf_by_column = call.sf_layout != SfLayout::row_major;
  if (sf_by_column) {
    out_sf = {out_sf.data, DType::u32, {spec.scales, (check["P"] + 3) / 4 * 4}, out_sf.device};
  }
  sf.dtype = out_sf.dtype = DType::u32;
  std::vector<TensorView> arguments = {tensors.at("pos_to_expert"), words_view(out, row), out_sf};
  if (spec.num_topk > 0) {
    arguments.insert(arguments.end(), {words_view(x, row), sf, tensors.at("token_topk_to_pos")});
  }
  const jit::Scalar scalars[] = {moe::rows_apart(check["T"], out_sf.shape[sf_by_column ? 1 : 0])};
  jit::run_op("expand_to_fused_with_sf", spec, moe::build_expand, arguments,
              std::span(scalars, spec.num_topk > 0 ? 1 : 0), stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("expand_to_fused_with_sf");
  const Call call = call_of(params);
  check_input(check, tensors, call);
  if (check["P"] * check["H"] == 0) return {};
  return {moe::build_expand(spec_of(check, tensors, call))};
}

// 4. Registration
BenchCase bench_case(const moe::EvenMapping& mapping, int64_t hidden, DType dtype, int64_t group,
                     SfLayout layout) {
  const int64_t tokens = mapping.num_tokens, positions = mapping.num_positions();
  const int64_t width = dtype == DType::e2m1 ? hidden / 2 : hidden;
  const OutputInfo sf = scale_output("x_sf", layout, tokens, (hidden + group - 1) / group);
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " K=" + std::to_string(mapping.num_topk) +
            " E=" + std::to_string(mapping.num_experts) + " H=" + std::to_string(hidden) + " " +
            std::string(name(dtype)) + " / " + std::to_string(group) + " " +
            std::string(name(layout));
  c.params = {{"num_per_channels", group}, {"sf_layout", std::string(name(layout))}};
  c.inputs = {{"x", dtype == DType::e2m1 ? DType::i8 : dtype, {tokens, width}, {width, 1}},
              {"x_sf", sf.dtype, sf.shape, sf.strides},
              mapping.token_topk_to_pos(),
              mapping.pos_to_expert()};
  c.bytes = (tokens + positions) * (width + 4 * sf.shape[1]) + 4 * tokens * mapping.num_topk +
            4 * positions;
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "expand_to_fused_with_sf";
  op.family = "moe";
  op.purpose = "quantised rows and their scales to the positions of their experts";
  op.tensors = {input("x", {"e4m3", "e2m1"}, {"T", "H"}),
                input("x_sf", {"f32", "i32"}, {"T", "C"}, "any"),
                input("token_topk_to_pos", {"i32"}, {"T", "K"}),
                input("pos_to_expert", {"i32"}, {"P"}),
                output("out", {"as x"}, {"P", "H"}),
                output("out_sf", {"as x_sf"}, {"P", "C"}, "in sf_layout")};
  op.params = {integer("num_per_channels", {"32", "128"}), sf_layout_param("sf_layout")};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType e4m3 = DType::e4m3, e2m1 = DType::e2m1;
  using enum SfLayout;
  op.examples = {bench_case({65, 8, 9, 97, 16}, 7168, e4m3, 32, row_major),
                 bench_case({33, 2, 4, 40, 16}, 576, e4m3, 128, col_major_tma),
                 bench_case({19, 6, 9, 30, 16}, 2560, e4m3, 128, packed_ue8m0),
                 bench_case({7, 1, 3, 7, 1}, 1000, e2m1, 32, row_major)};
  op.bench = {bench_case(moe::rank_mapping(7891, 2, 9, 16), 7168, e4m3, 32, row_major),
              bench_case(moe::rank_mapping(9948, 2, 4, 16), 7168, e4m3, 32, row_major),
              bench_case(moe::rank_mapping(21845, 8, 9, 16), 7168, e4m3, 32, row_major),
              bench_case(moe::rank_mapping(32515, 8, 4, 16), 7168, e4m3, 32, row_major),
              bench_case({128, 8, 256, 1024, 16}, 7168, e4m3, 128, row_major)};
  return op;
}

}  // namespace

void expand_to_fused_with_sf(const TensorView& x, const TensorView& x_sf,
                             const TensorView& token_topk_to_pos, const TensorView& pos_to_expert,
                             const TensorView& out, const TensorView& out_sf,
                             const ExpandToFusedWithSfOptions& options, Stream stream) {
  call_op(expand_to_fused_with_sf_op(),
          {{"x", x},
           {"x_sf", x_sf},
           {"token_topk_to_pos", token_topk_to_pos},
           {"pos_to_expert", pos_to_expert},
           {"out", out},
           {"out_sf", out_sf}},
          {{"num_per_channels", options.num_per_channels}, {"sf_layout", options.sf_layout}},
          stream);
}

const OpInfo& expand_to_fused_with_sf_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
