// per_token_cast_with_precomputed_sf: rows to e4m3 or e2m1 with given scales.
//
// Shapes   x [tokens, hidden], sf [tokens, ceil(hidden / group)], out [tokens, hidden]
// Dtypes   x bf16|f32, sf f32, out e4m3|e2m1 (two per byte)
// Method   one pass: load a tile and its scales, invert, multiply, store.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    code = cast(x * (1 / sf)), an IEEE division
// Tuned    as per_token_cast

#include "kernels/quant/per_token_cast_with_precomputed_sf.h"

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
  const TokenTile tile = pick_token_tile(s, 1);

  Builder k("per_token_cast_with_precomputed_sf");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  const ScaleReader sf(k, "sf", SfLayout::row_major, rows.tokens, num_blocks(s.hidden, s.group));
  auto out = k.output("out", s.format, {rows.tokens, s.hidden});
  const TileOrigin at = launch_tiles(k, rows.tokens, tile.rows, s.hidden, tile.cols, tile.threads);

  // load
  auto x_frag = load_tile(k, rows, at, tile);                                  // (rows, cols)
  auto inverse = k.fragment(DType::f32, {tile.rows, tile.groups}, "inverse");  // (rows, groups)
  k.parallel({tile.rows, tile.groups}, [&](Value r, Value g) {
    inverse(r, g) = 1.0f / sf.load(at.row + r, at.col_tile * tile.groups + g);
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
  const TokenCast call = check_token_cast(check, tensors, params);
  check_scale_input(check, "sf", tensors, SfLayout::row_major, "T", "C");
  return call;
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast_with_precomputed_sf");
  const TokenCast call = check_input(check, inputs, params);
  return {codes_output("out", call.format, inputs.at("x").shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast_with_precomputed_sf");
  const TokenCast call = check_input(check, tensors, params);
  check_codes_output(check, "out", tensors, call.format);
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const Spec spec = spec_of(x, call);
  const TensorView arguments[] = {x, tensors.at("sf"), codes_view(tensors.at("out"))};
  jit::run_op("per_token_cast_with_precomputed_sf", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast_with_precomputed_sf");
  const TokenCast call = check_input(check, tensors, params);
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build(spec_of(x, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType in, int64_t group, DType format) {
  BenchCase c = token_cast_case(tokens, hidden, in, format, group);
  const int64_t num_groups = num_blocks(hidden, group);
  c.inputs.push_back({"sf", DType::f32, {tokens, num_groups}});
  c.bytes = tokens * hidden * bytes(in) + codes_bytes(tokens, hidden, format) +
            scale_bytes(tokens, num_groups, SfLayout::row_major);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast_with_precomputed_sf";
  op.family = "quant";
  op.purpose = "rows to 8-bit or 4-bit floats with given scales per group of columns";
  op.tensors = {input("x", {"bf16", "f32"}, {"T", "H"}, "rows"),
                input("sf", {"f32"}, {"T", "C"}, "rows"), output("out", {"format"}, {"T", "H"})};
  op.params = {format_param(), group_param()};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  op.examples = {bench_case(37, 7168, DType::bf16, 128, DType::e4m3),
                 bench_case(13, 576, DType::f32, 32, DType::e2m1),
                 bench_case(9, 320, DType::bf16, 16, DType::e4m3),
                 bench_case(3, 576, DType::bf16, 576, DType::e2m1)};
  op.bench = {bench_case(8001, 7168, DType::bf16, 128, DType::e4m3),
              bench_case(8001, 7168, DType::bf16, 32, DType::e2m1)};
  return op;
}

}  // namespace

void per_token_cast_with_precomputed_sf(const TensorView& x, const TensorView& sf,
                                        const TensorView& out, DType format,
                                        int64_t num_per_channels, Stream stream) {
  call_op(per_token_cast_with_precomputed_sf_op(), {{"x", x}, {"sf", sf}, {"out", out}},
          {{"format", format}, {"num_per_channels", num_per_channels}}, stream);
}

const OpInfo& per_token_cast_with_precomputed_sf_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
