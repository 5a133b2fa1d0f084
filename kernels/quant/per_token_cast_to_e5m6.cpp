// per_token_cast_to_e5m6: rows to 12-bit floats with one scale per row.
//
// Shapes   x [tokens, hidden], out [tokens, hidden * 3 / 8] words, out_sf [tokens, 1]
// Dtypes   x bf16|f32, out e5m6 (eight codes in three u32), out_sf f32 or exponents of powers of two
// Method   one pass: load whole rows, amax, scale, encode; each thread packs its runs of eight codes
//          to three words and shared memory lines them up for 16-byte stores.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    scale = max(amax, 1e-4) / 65024: see scale_factor.h; codes: see e5m6.h
// Tuned    not yet measured

#include "kernels/quant/per_token_cast_to_e5m6.h"

#include <bit>

#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/quant/e5m6.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_rows.h"

namespace tessera::kernels {
namespace {

// 1. Spec
using Spec = TokenCastSpec;
constexpr int64_t kMaxHidden = 24576;  // the words of a row fit the shared memory of a block

/// Short rows: one string of eight codes per thread, and several rows in a block. Of f32 up to four
/// strings where whole warps share a row evenly, for the compiler's sake; bf16 wants the loads of
/// seven in flight.
TokenTile row_tile(const Spec& s) {
  const int64_t strings = s.hidden / e5m6::kCodes;
  for (int threads = 128; threads <= 1024 && s.in == DType::f32; threads += 32) {
    if (strings % threads == 0 && strings / threads <= 4) {
      return {1, s.hidden, threads, s.hidden, 1};
    }
  }
  const auto lanes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(strings)));
  if (lanes > 128) return whole_row_tile(s.hidden, e5m6::kCodes);
  return {128 / lanes, lanes * e5m6::kCodes, 128, s.hidden, 1};
}

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  constexpr int64_t kCodes = e5m6::kCodes, kWords = e5m6::kWords;
  const TokenTile tile = row_tile(s);
  const int64_t strings = tile.cols / kCodes;  // of eight codes, in a row of the tile

  Builder k("per_token_cast_to_e5m6");
  const TokenRows rows = declare_rows(k, s);  // x [tokens, hidden]
  auto out = k.output("out", DType::u32, {rows.tokens, s.hidden / kCodes * kWords});
  const ScaleWriter out_sf(k, s.sf_layout, rows.tokens, 1);
  const TileOrigin at =
      launch_tiles(k, out_sf.rows(), tile.rows, s.hidden, tile.cols, tile.threads);

  // load: eight neighbours in one thread
  auto x_frag = k.fragment(s.in, layout::plan({tile.rows, tile.cols}, tile.threads, kCodes),
                           "x_frag");  // (rows, cols)
  k.copy(rows.x.tile({at.row, at.col}, {tile.rows, tile.cols}), x_frag);

  // amax per row
  auto amax = k.fragment(DType::f32, {tile.rows, 1}, "amax");  // (rows, 1)
  k.reduce_absmax(x_frag.reshape({tile.rows, 1, tile.cols}), amax, Axis(2));

  // scales
  auto inverse = k.fragment(DType::f32, {tile.rows, 1}, "inverse");  // (rows, 1)
  k.parallel({tile.rows, 1}, [&](Value r, Value g) {
    auto sf = scale_factor(k, kE5m6, amax(r, g), s.round_sf);
    inverse(r, g) = sf.inverse;
    out_sf.store(at.row + r, g, sf);
  });

  // encode, pack and store
  auto x_strings = x_frag.reshape({tile.rows, strings, kCodes});
  auto row_words = k.shared(DType::u32, {tile.rows, strings * kWords}, "row_words");
  k.parallel({tile.rows, strings}, [&](Value r, Value n) {
    std::array<Value, kCodes> codes;
    const auto value = [&](size_t i) {
      return k.let("value", f32(x_strings(r, n, static_cast<int64_t>(i))) * inverse(r, 0));
    };
    for (size_t i = 0; i < codes.size(); i += 2) {
      const Value even = value(i), odd = value(i + 1);
      const auto pair = e5m6::encode(k, even, odd);
      codes[i] = pair[0];
      codes[i + 1] = pair[1];
    }
    const auto words = e5m6::pack(codes);
    for (size_t w = 0; w < words.size(); ++w) {
      row_words(r, n * kWords + static_cast<int64_t>(w)) = words[w];
    }
  });
  k.copy(row_words, out.tile({at.row, at.col / kCodes * kWords}, {tile.rows, strings * kWords}));
  return k.finish();
}

// 3. Host function
TokenCast check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  TokenCast call;
  check.tensor("x", tensors).dtype({DType::bf16, DType::f32}).shape("T", "H").rows();
  check.multiple_of("H", e5m6::kCodes);
  call.hidden = check["H"];
  check.require(call.hidden <= kMaxHidden, "x", "rows of so many columns are not supported",
                "at most " + std::to_string(kMaxHidden), std::to_string(call.hidden),
                ErrorKind::unsupported);
  call.group = call.hidden;
  call.num_groups = call.hidden > 0 ? 1 : 0;
  check.bind("C", call.num_groups, "one scale per row, none of nothing");
  check_scale_params(check, params, call);
  return call;
}

Dims bytes_shape(const ArgCheck& check) {
  return {check["T"], check["H"] / 2 * 3};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("per_token_cast_to_e5m6");
  const TokenCast call = check_input(check, inputs, params);
  const Dims shape = bytes_shape(check);
  return {row_major_output("out", DType::u8, shape),
          scale_output("out_sf", call.sf_layout, check["T"], call.num_groups)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("per_token_cast_to_e5m6");
  const TokenCast call = check_input(check, tensors, params);
  check.bind("H*3/2", check["H"] / 2 * 3, "H * 3 / 2, twelve bits per code");
  const TensorView& x = tensors.at("x");
  check.output("out", tensors).dtype(DType::u8).shape("T", "H*3/2").row_major().aligned(16);
  check_scale_output(check, "out_sf", tensors, call.sf_layout, "T", "C");
  check.memory();
  if (x.size() == 0) return;
  const Spec spec = spec_of(x, call);
  const TensorView& out = tensors.at("out");
  const TensorView arguments[] = {
      x,
      {out.data, DType::u32, {out.shape[0], out.shape[1] / 4}, out.device},
      written_scales(tensors.at("out_sf"), call.sf_layout, check["T"], 1)};
  jit::run_op("per_token_cast_to_e5m6", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("per_token_cast_to_e5m6");
  const TokenCast call = check_input(check, tensors, params);
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build(spec_of(x, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType in, bool round_sf, SfLayout layout) {
  BenchCase c;
  c.label = "T=" + std::to_string(tokens) + " H=" + std::to_string(hidden) + " " +
            std::string(name(in)) + (round_sf ? " rounded" : "");
  if (layout != SfLayout::row_major) c.label += " " + std::string(name(layout));
  c.params = {{"round_sf", round_sf}, {"sf_layout", std::string(name(layout))}};
  c.inputs.push_back({"x", in, {tokens, hidden}});
  c.bytes = tokens * hidden * bytes(in) + tokens * hidden / 2 * 3 + scale_bytes(tokens, 1, layout);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "per_token_cast_to_e5m6";
  op.family = "quant";
  op.purpose = "rows to 12-bit floats with one scale per row";
  op.tensors = {input("x", {"bf16", "f32"}, {"T", "H"}, "rows"),
                output("out", {"e5m6"}, {"T", "H"}), output("out_sf", {}, {}, "SF(1,H) sf_layout")};
  op.params = {sf_layout_param("sf_layout"), flag("round_sf", false)};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  using enum SfLayout;
  constexpr DType bf16 = DType::bf16, f32 = DType::f32;
  op.examples = {
      bench_case(5, 7168, bf16, true, row_major), bench_case(3, 7168, f32, true, packed_ue8m0),
      bench_case(13, 576, bf16, false, col_major_tma), bench_case(9, 40, f32, false, row_major)};
  op.bench = {bench_case(8001, 7168, bf16, true, row_major),
              bench_case(8001, 7168, f32, true, row_major),
              bench_case(8001, 7168, f32, true, packed_ue8m0),
              bench_case(128, 7168, bf16, true, row_major)};
  return op;
}

}  // namespace

void per_token_cast_to_e5m6(const TensorView& x, const TensorView& out, const TensorView& out_sf,
                            const PerTokenCastToE5m6Options& options, Stream stream) {
  call_op(per_token_cast_to_e5m6_op(), {{"x", x}, {"out", out}, {"out_sf", out_sf}},
          {{"sf_layout", options.sf_layout}, {"round_sf", options.round_sf}}, stream);
}

const OpInfo& per_token_cast_to_e5m6_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
