// per_token_cast: rows to e4m3 or e2m1 with one scale per group of columns.
//
// Shapes   x [tokens, hidden], out [tokens, hidden], out_sf [tokens, ceil(hidden / group)]
// Dtypes   x bf16|f32, out e4m3|e2m1 (two per byte), out_sf f32 or the exponents of powers of two;
//          an x of codes with scales: recast.cpp
// Method   one pass: load a tile, amax per group (warp shuffles), scales, multiply, store.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, floor) / max, code = cast(x * (max / max(amax, floor))): see
//          scale_factor.h
// Tuned    H200; see pick_token_tile.

#include "kernels/quant/per_token_cast.h"

#include <array>

#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/quant/recast.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_rows.h"

namespace tessera::kernels {
namespace {

// 1. Spec
using Spec = TokenCastSpec;

// 2. Builder
ir::Kernel build_cast(const Spec& s) {
  using namespace dsl;
  const TokenTile tile = pick_token_tile(s, ScaleWriter::cols_together(s.sf_layout));

  Builder k("per_token_cast");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  auto out = k.output("out", s.format, {rows.tokens, s.hidden});
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, num_blocks(s.hidden, s.group));
  // Up to 64 registers: left to itself ptxas finds room for 16 blocks, and puts off half of the loads
  // for that.
  const int blocks = is_ordinary_group(s.group) ? 8 : 0;
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads, blocks);

  // load
  auto x_frag = load_tile(k, rows, at, tile);  // (rows, cols)

  // amax per group
  auto amax = k.fragment(DType::f32, {tile.rows, tile.groups}, "amax");  // (rows, groups)
  k.reduce_absmax(x_frag.reshape({tile.rows, tile.groups, tile.group}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    auto sf = scale_factor(k, quant_format(s.format), amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf.store(at.row + r, at.col_tile * tile.groups + g, sf);
  });

  // cast and store
  auto codes = k.fragment(s.format, {tile.rows, tile.cols}, "codes");  // (rows, cols)
  k.parallel({tile.rows, tile.cols}, [&](Value r, Value c) {
    codes(r, c) = cast(s.format, f32(x_frag(r, c)) * inverse(r, c / tile.group));
  });
  k.copy(codes, out.tile({at.row, at.col}, {tile.rows, tile.cols}));
  return k.finish();
}

// 3. Host function
TokenCast check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  if (is_quantised(tensors)) return check_recast(check, tensors, params);
  require_plain(check, tensors, params);
  return check_token_cast(check, tensors, params);
}

ir::Kernel build(const Spec& s) {
  return s.block_cols > 0 ? build_recast(s) : build_cast(s);
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast");
  const TokenCast call = check_input(check, inputs, params);
  return {codes_output("out", call.format, {check["T"], check["H"]}),
          scale_output("out_sf", call.sf_layout, check["T"], call.num_groups)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast");
  const TokenCast call = check_input(check, tensors, params);
  check_codes_output(check, "out", tensors, call.format);
  check_scale_output(check, "out_sf", tensors, call.sf_layout, "T", "C");
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const Spec spec = spec_of(x, call);
  const TensorView out = codes_view(tensors.at("out"));
  const TensorView out_sf =
      written_scales(tensors.at("out_sf"), call.sf_layout, check["T"], call.num_groups);
  const auto launch = [&](std::span<const TensorView> arguments) {
    jit::run_op("per_token_cast", spec, build, arguments, {}, stream);
  };
  if (call.block_cols > 0) {
    const TensorView x_sf = read_scales(tensors.at("x_sf"), call.x_sf_layout);
    launch(std::array{codes_view(x), x_sf, out, out_sf});
  } else {
    launch(std::array{x, out, out_sf});
  }
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast");
  const TokenCast call = check_input(check, tensors, params);
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build(spec_of(x, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType in, int64_t group, bool round_sf,
                     const char* sf_layout = "row_major", DType format = DType::e4m3) {
  BenchCase c = token_cast_case(tokens, hidden, in, format, group);
  if (round_sf) c.label += " rounded";
  c.params["round_sf"] = round_sf;
  c.params["sf_layout"] = std::string(sf_layout);
  const SfLayout layout = sf_layout_of(c.params, "sf_layout");
  if (layout != SfLayout::row_major) c.label += std::string(" ") + sf_layout;
  c.bytes = tokens * hidden * bytes(in) + codes_bytes(tokens, hidden, format) +
            scale_bytes(tokens, num_blocks(hidden, group), layout);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast";
  op.family = "quant";
  op.purpose = "rows to 8-bit or 4-bit floats with one scale per group of columns";
  op.tensors = {input("x", {"bf16", "f32", "e4m3", "e2m1"}, {"T", "H"}, "rows"),
                optional(input("x_sf", {}, {}, "SF(x_block_size) x_sf_layout")),
                output("out", {"format"}, {"T", "H"}),
                output("out_sf", {}, {}, "SF(1,num_per_channels) sf_layout")};
  op.params = {format_param(),
               group_param(),
               tuple("x_block_size", ParamValue()),
               sf_layout_param("x_sf_layout"),
               sf_layout_param("sf_layout"),
               flag("round_sf", false)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType bf16 = DType::bf16, f32 = DType::f32;
  constexpr DType e4m3 = DType::e4m3, e2m1 = DType::e2m1;
  op.examples = {bench_case(37, 7168, bf16, 128, false),
                 bench_case(13, 576, f32, 128, true),
                 bench_case(9, 320, bf16, 16, false),
                 bench_case(5, 2048, f32, 32, true),
                 bench_case(6, 640, bf16, 64, true),
                 bench_case(3, 576, bf16, 576, false),
                 bench_case(2, 7168, f32, 7168, true),
                 bench_case(37, 7168, bf16, 128, true, "packed_ue8m0"),
                 bench_case(13, 576, f32, 32, true, "packed_ue8m0", e2m1),
                 bench_case(7, 2048, bf16, 128, false, "col_major_tma", e2m1),
                 bench_case(3, 576, bf16, 576, true, "packed_ue8m0"),
                 recast_case(13, 320, e4m3, {32, 32}, 128, "row_major", e2m1),
                 recast_case(13, 576, e4m3, {128, 128}, 32, "packed_ue8m0", e4m3),
                 recast_case(9, 640, e2m1, {1, 64}, 64, "col_major_tma", e4m3)};
  op.bench = {bench_case(8001, 7168, bf16, 128, false),
              bench_case(8001, 7168, bf16, 32, true),
              bench_case(8001, 7168, f32, 128, false),
              bench_case(8001, 7168, f32, 32, true),
              bench_case(8001, 7168, f32, 32, true, "packed_ue8m0"),
              bench_case(8001, 7168, f32, 128, true, "packed_ue8m0", e2m1),
              recast_case(8001, 7168, e4m3, {128, 128}, 32, "packed_ue8m0", e4m3),
              recast_case(8001, 7168, e4m3, {128, 128}, 128, "packed_ue8m0", e2m1),
              bench_case(8001, 7168, bf16, 7168, false),
              bench_case(8001, 576, bf16, 128, false),
              bench_case(1, 7168, bf16, 128, false),
              bench_case(1, 7168, bf16, 128, true, "packed_ue8m0"),
              bench_case(128, 7168, bf16, 128, false),
              bench_case(128, 7168, bf16, 128, true, "packed_ue8m0")};
  return op;
}

}  // namespace

void per_token_cast(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                    const PerTokenCastOptions& options, Stream stream) {
  call_op(per_token_cast_op(), {{"x", x}, {"out", out}, {"out_sf", out_sf}},
          {{"format", options.format},
           {"num_per_channels", options.num_per_channels},
           {"sf_layout", options.sf_layout},
           {"round_sf", options.round_sf}},
          stream);
}

void per_token_cast(const TensorView& x, const InputScales& x_scales, const TensorView& out,
                    const TensorView& out_sf, const PerTokenCastOptions& options, Stream stream) {
  call_op(per_token_cast_op(), {{"x", x}, {"x_sf", x_scales.sf}, {"out", out}, {"out_sf", out_sf}},
          {{"format", options.format},
           {"num_per_channels", options.num_per_channels},
           {"sf_layout", options.sf_layout},
           {"round_sf", options.round_sf},
           {"x_block_size", std::array{x_scales.block_rows, x_scales.block_cols}},
           {"x_sf_layout", x_scales.layout}},
          stream);
}

const OpInfo& per_token_cast_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
