// per_token_cast_with_sf_only: the scales of per_token_cast.
//
// Shapes   x [tokens, hidden], out_sf [tokens, ceil(hidden / group)]
// Dtypes   x bf16|f32, out_sf f32 or the exponents of powers of two
// Method   one pass: load a tile, amax per group (warp shuffles), scales.
//          x is read once, so the bound is bytes / read bandwidth. Nothing is written that would
//          push what others wrote out of L2, and x shall not do it either.
// Maths    see scale_factor.h
// Tuned    as per_token_cast

#include "kernels/quant/per_token_cast_with_sf_only.h"

#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_rows.h"

namespace tessera::kernels {
namespace {

// 1. Spec
using Spec = TokenCastSpec;

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));

  Builder k("per_token_cast_with_sf_only");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, num_blocks(s.hidden, s.group));
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads);

  // load
  auto x_frag = load_tile(k, {rows.tokens, rows.x.cached(CacheHint::evict_first)}, at, tile);

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(x_frag.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(s.format), amax(r, g), s.round_sf);
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });
  return k.finish();
}

// 3. Host function
std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast_with_sf_only");
  const TokenCast call = check_token_cast(check, inputs, params);
  return {scale_output("out_sf", call.sf_layout, check["T"], call.num_groups)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast_with_sf_only");
  const TokenCast call = check_token_cast(check, tensors, params);
  check_scale_output(check, "out_sf", tensors, call.sf_layout, "T", "C");
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const Spec spec = spec_of(x, call);
  const TensorView arguments[] = {
      x, written_scales(tensors.at("out_sf"), call.sf_layout, check["T"], call.num_groups)};
  jit::run_op("per_token_cast_with_sf_only", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast_with_sf_only");
  const TokenCast call = check_token_cast(check, tensors, params);
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build(spec_of(x, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType in, int64_t group, SfLayout layout,
                     DType format) {
  BenchCase c = token_cast_case(tokens, hidden, in, format, group);
  c.label += " " + std::string(name(layout));
  c.params["round_sf"] = layout == SfLayout::packed_ue8m0;
  c.params["sf_layout"] = std::string(name(layout));
  c.bytes = tokens * hidden * bytes(in) + scale_bytes(tokens, num_blocks(hidden, group), layout);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast_with_sf_only";
  op.family = "quant";
  op.purpose = "the scales of per_token_cast alone";
  op.tensors = {input("x", {"bf16", "f32"}, {"T", "H"}, "rows"),
                output("out_sf", {}, {}, "SF(1,num_per_channels) sf_layout")};
  op.params = {format_param(), group_param(), sf_layout_param("sf_layout"),
               flag("round_sf", false)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  using enum SfLayout;
  op.examples = {bench_case(37, 7168, DType::bf16, 128, row_major, DType::e4m3),
                 bench_case(13, 576, DType::f32, 32, packed_ue8m0, DType::e2m1),
                 bench_case(7, 2048, DType::bf16, 64, col_major_tma, DType::e4m3),
                 bench_case(3, 576, DType::bf16, 576, packed_ue8m0, DType::e4m3)};
  op.bench = {bench_case(8001, 7168, DType::bf16, 128, row_major, DType::e4m3),
              bench_case(8001, 7168, DType::bf16, 32, packed_ue8m0, DType::e2m1)};
  return op;
}

}  // namespace

void per_token_cast_with_sf_only(const TensorView& x, const TensorView& out_sf,
                                 const PerTokenCastOptions& options, Stream stream) {
  call_op(per_token_cast_with_sf_only_op(), {{"x", x}, {"out_sf", out_sf}},
          {{"format", options.format},
           {"num_per_channels", options.num_per_channels},
           {"sf_layout", options.sf_layout},
           {"round_sf", options.round_sf}},
          stream);
}

const OpInfo& per_token_cast_with_sf_only_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
