// cast_back_e5m6: 12-bit codes to bf16 or f32, with one scale per block of the matrix.
//
// Shapes   x [tokens, hidden * 3 / 8] words, x_sf [ceil(tokens / block_rows),
//          ceil(hidden / block_cols)], out [tokens, hidden]
// Dtypes   x e5m6 (eight codes in three u32), x_sf f32 or exponents of powers of two, out bf16|f32
// Method   one pass: the three words of eight codes in one thread (f32: in two neighbours), decode,
//          multiply, 16-byte stores. The bound is bytes / copy bandwidth; scales come from caches.
// Maths    out = round(code * scale), one f32 multiply; codes: see e5m6.h
// Tuned    not yet measured

#include "kernels/quant/cast_back_e5m6.h"

#include <algorithm>

#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"
#include "kernels/quant/e5m6.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_grid.h"

namespace tessera::kernels {
namespace {

// 1. Spec
struct Spec {
  DType out;
  SfLayout sf_layout;
  uint16_t unused = 0;  // no padding: a Spec is compared as bytes
  int32_t hidden, block_rows, block_cols;
};

// 2. Builder
ir::Kernel build(const Spec& s) {
  using namespace dsl;
  constexpr int64_t kCodes = e5m6::kCodes, kWords = e5m6::kWords;
  const int64_t vector = 16 / bytes(s.out);  // columns of one store
  // 32 elements per thread, along a row as far as that leaves few of them idle; 16 where a store may
  // need several scales.
  const bool one_scale = s.block_cols >= s.hidden || s.block_cols % vector == 0;
  const int64_t elements = one_scale ? 4096 : 2048;
  int64_t cols = 1024;
  while (cols > 64 && num_blocks(s.hidden, cols) * cols * 8 > s.hidden * int64_t{9}) cols /= 2;
  const int64_t rows = elements / cols;
  const int64_t strings = cols / kCodes;

  Builder k("cast_back_e5m6");
  auto tokens = k.dim("tokens");
  auto x = k.input("x", DType::u32, {tokens, s.hidden / kCodes * kWords}, {.align = 4});
  const ScaleReader x_sf(k, "x_sf", s.sf_layout, ceil_div(tokens, s.block_rows),
                         num_blocks(s.hidden, s.block_cols));
  auto out = k.output("out", s.out, {tokens, s.hidden});
  const TileOrigin at = launch_tiles(k, tokens, rows, s.hidden, cols, 128);

  // load
  std::vector<Ref> words;
  for (int64_t w = 0; w < kWords; ++w) {
    words.push_back(k.fragment(DType::u32, {rows, strings}, "word" + std::to_string(w)));
  }
  k.parallel({rows, strings}, [&](Value r, Value n) {
    auto first = (at.col_tile * strings + n) * kWords;
    for (int64_t w = 0; w < kWords; ++w) {
      words[static_cast<size_t>(w)](r, n) = x(at.row + r, first + w);
    }
  });

  // decode, scale and store
  k.parallel({rows, strings, kCodes / vector, vector}, [&](Value r, Value n, Value h, Value i) {
    auto code = e5m6::code_of({words[0](r, n), words[1](r, n), words[2](r, n)}, h * vector + i);
    // Spelled out instead of at.col, a name: so the compiler sees which neighbours share a scale.
    auto col = at.col_tile * cols + n * kCodes + h * vector + i;
    auto block = s.block_cols >= s.hidden ? col * 0 : col / s.block_cols;
    auto scale = x_sf.load((at.row + r) / s.block_rows, block);
    out(at.row + r, col) = cast(s.out, e5m6::decode(code) * scale);
  });
  return k.finish();
}

// 3. Host function
struct Call {
  Dims block;
  SfLayout sf_layout;
  DType out;
};

Call check_input(ArgCheck& check, const Tensors& tensors, const Params& params) {
  check.tensor("x", tensors).dtype(DType::u8).shape("T", "H*3/2").row_major().aligned(4);
  check.in_range("H*3/2", 0, INT32_MAX, ErrorKind::unsupported);
  check.multiple_of("H*3/2", 12);
  check.bind("H", check["H*3/2"] / 3 * 2, "2 / 3 of x dim 1, twelve bits per code", "x");
  Call call;
  call.block = {1, std::max<int64_t>(check["H"], 1)};
  if (!std::holds_alternative<std::monostate>(params.at("x_block_size"))) {
    call.block = block_size_of(check, params, "x_block_size");
  }
  call.sf_layout = sf_layout_of(params, "x_sf_layout");
  call.out = std::get<std::string>(params.at("out_dtype")) == "f32" ? DType::f32 : DType::bf16;
  const auto blocks = [&](const char* symbol, const char* extent, int64_t block) {
    check.bind(symbol, num_blocks(check[extent], block),
               "ceil(" + std::string(extent) + " / " + std::to_string(block) + ")");
  };
  blocks("R", "T", call.block[0]);
  blocks("C", "H", call.block[1]);
  check_scale_input(check, "x_sf", tensors, call.sf_layout, "R", "C");
  return call;
}

Spec spec_of(const ArgCheck& check, const Call& call) {
  return {call.out,
          call.sf_layout,
          0,
          static_cast<int32_t>(check["H"]),
          static_cast<int32_t>(call.block[0]),
          static_cast<int32_t>(call.block[1])};
}

std::vector<OutputInfo> outputs(const Tensors& inputs, const Params& params) {
  ArgCheck check("cast_back_e5m6");
  const Call call = check_input(check, inputs, params);
  const Dims shape{check["T"], check["H"]};
  return {row_major_output("out", call.out, shape)};
}

void run(const Tensors& tensors, const Params& params, Stream stream) {
  ArgCheck check("cast_back_e5m6");
  const Call call = check_input(check, tensors, params);
  check.output("out", tensors).dtype(call.out).shape("T", "H").row_major().aligned(16);
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const Spec spec = spec_of(check, call);
  const TensorView arguments[] = {{x.data, DType::u32, {x.shape[0], x.shape[1] / 4}, x.device},
                                  read_scales(tensors.at("x_sf"), call.sf_layout),
                                  tensors.at("out")};
  jit::run_op("cast_back_e5m6", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors, const Params& params) {
  ArgCheck check("cast_back_e5m6");
  const Call call = check_input(check, tensors, params);
  if (tensors.at("x").size() == 0) return {};
  return {build(spec_of(check, call))};
}

// 4. Registration
BenchCase bench_case(int64_t tokens, int64_t hidden, DType out, const Dims& block,
                     SfLayout layout = SfLayout::row_major) {
  BenchCase c;
  const OutputInfo scales =
      scale_output("x_sf", layout, num_blocks(tokens, block[0]), num_blocks(hidden, block[1]));
  c.label = "T=" + std::to_string(tokens) + " H=" + std::to_string(hidden) + " / " +
            std::to_string(block[0]) + "x" + std::to_string(block[1]) + " to " +
            std::string(name(out));
  if (layout != SfLayout::row_major) c.label += " " + std::string(name(layout));
  c.params = {{"x_block_size", std::vector<int64_t>{block[0], block[1]}},
              {"out_dtype", std::string(name(out))},
              {"x_sf_layout", std::string(name(layout))}};
  const int64_t width = hidden / 2 * 3;
  c.inputs = {{"x", DType::u8, {tokens, width}},
              {"x_sf", scales.dtype, scales.shape, scales.strides}};
  c.bytes = tokens * width + num_elements(scales.shape) * 4 + tokens * hidden * bytes(out);
  return c;
}

OpInfo op_info() {
  OpInfo op;
  op.name = "cast_back_e5m6";
  op.family = "quant";
  op.purpose = "12-bit floats with one scale per block back to bf16 or f32";
  op.tensors = {input("x", {"e5m6"}, {"T", "H"}),
                input("x_sf", {}, {}, "SF(x_block_size) x_sf_layout"),
                output("out", {"out_dtype"}, {"T", "H"})};
  op.params = {tuple("x_block_size", ParamValue()), word("out_dtype", {"bf16", "f32"}, "bf16"),
               sf_layout_param("x_sf_layout")};
  op.outputs = outputs;
  op.run = run;
  op.kernels = kernels;
  constexpr DType bf16 = DType::bf16, f32 = DType::f32;
  using enum SfLayout;
  op.examples = {bench_case(5, 7168, bf16, {1, 7168}), bench_case(13, 576, f32, {1, 576}),
                 bench_case(37, 512, bf16, {32, 128}, packed_ue8m0),
                 bench_case(9, 40, f32, {3, 5}, col_major_tma)};
  op.bench = {bench_case(8001, 7168, bf16, {1, 7168}), bench_case(8001, 7168, f32, {1, 7168}),
              bench_case(8001, 7168, f32, {1, 7168}, packed_ue8m0),
              bench_case(128, 7168, bf16, {1, 7168})};
  return op;
}

}  // namespace

void cast_back_e5m6(const TensorView& x, const TensorView& x_sf, const TensorView& out,
                    const CastBackE5m6Options& options, Stream stream) {
  std::optional<std::array<int64_t, 2>> block;
  if (options.block_cols > 0) block = {options.block_rows, options.block_cols};
  call_op(cast_back_e5m6_op(), {{"x", x}, {"x_sf", x_sf}, {"out", out}},
          {{"x_block_size", block}, {"out_dtype", out.dtype}, {"x_sf_layout", options.x_sf_layout}},
          stream);
}

const OpInfo& cast_back_e5m6_op() {
  static const OpInfo* const op = new OpInfo(op_info());
  return *op;
}

}  // namespace tessera::kernels
