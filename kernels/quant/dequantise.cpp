#include "kernels/quant/dequantise.h"

#include <numeric>

#include "kernels/alignment.h"
#include "kernels/jit/run_op.h"
#include "kernels/quant/scale_access.h"
#include "kernels/quant/token_cast.h"
#include "kernels/quant/token_grid.h"

namespace tessera::kernels {
DequantiseSpec spec_of(const TensorView& x, const TensorView& x_sf, const Dequantise& call) {
  DequantiseSpec s;
  s.in = x.dtype == DType::i8 ? DType::e2m1 : x.dtype;
  s.out = call.out;
  s.sf_layout = call.sf_layout;
  s.align = static_cast<uint8_t>(common_alignment({x}));
  s.hidden = static_cast<int32_t>(codes_view(x).shape[1]);
  s.block_rows = static_cast<int32_t>(call.block_rows);
  s.block_cols = static_cast<int32_t>(call.block_cols);
  // Neighbouring columns read neighbouring scales only where each has its own.
  const bool vectors = call.block_cols == 1 && call.sf_layout == SfLayout::row_major;
  s.sf_vector = vectors ? static_cast<int32_t>(common_vector(x_sf, 4)) : 1;
  return s;
}

ir::Kernel build_dequantise(const std::string& op, const DequantiseSpec& s) {
  using namespace dsl;
  // 32 elements per thread, along a row as far as that leaves few of them idle.
  constexpr int64_t kElements = 4096;
  constexpr int64_t kLeastRun = 16;  // columns under one scale: more than a vector of a thread
  int64_t cols = 1024;
  while (cols > 64 && num_blocks(s.hidden, cols) * cols * 8 > s.hidden * int64_t{9}) cols /= 2;
  const int64_t rows = kElements / cols;

  Builder k(op);
  auto tokens = k.dim("tokens");
  auto x = k.input("x", s.in, {tokens, s.hidden}, {.align = s.align});
  const ScaleReader x_sf(k, "x_sf", s.sf_layout, ceil_div(tokens, s.block_rows),
                         num_blocks(s.hidden, s.block_cols), s.sf_vector);
  auto out = k.output("out", s.out, {tokens, s.hidden});
  const TileOrigin at = launch_tiles(k, tokens, rows, s.hidden, cols, 128);

  // load
  auto codes = k.fragment(s.in, {rows, cols}, "codes");  // (rows, cols)
  k.copy(x.tile({at.row, at.col}, {rows, cols}), codes);
  const auto scale_at = [&](const Value& r, const Value& c) {
    // Spelled out instead of at.col, a name: so the compiler sees which neighbours share a scale.
    return x_sf.load((at.row + r) / s.block_rows, (at.col_tile * cols + c) / s.block_cols);
  };
  const int64_t run = std::gcd<int64_t>(s.block_cols, cols);  // columns of the tile under one scale
  if (run < kLeastRun) {
    k.parallel({rows, cols}, [&](Value r, Value c) {
      out(at.row + r, at.col + c) = cast(s.out, f32(codes(r, c)) * scale_at(r, c));
    });
    return k.finish();
  }
  auto scale = k.fragment(DType::f32, {rows, cols / run}, "scale");  // (rows, runs)
  k.parallel({rows, cols / run}, [&](Value r, Value i) { scale(r, i) = scale_at(r, i * run); });

  // scale and store
  k.parallel({rows, cols}, [&](Value r, Value c) {
    out(at.row + r, at.col + c) = cast(s.out, f32(codes(r, c)) * scale(r, c / run));
  });
  return k.finish();
}

Dequantise check_dequantise(ArgCheck& check, const Tensors& tensors, const Params& params,
                            int64_t block_rows, int64_t block_cols) {
  Dequantise call;
  call.block_rows = block_rows;
  call.block_cols = block_cols;
  call.sf_layout = sf_layout_of(params, "x_sf_layout");
  call.out = std::get<std::string>(params.at("out_dtype")) == "f32" ? DType::f32 : DType::bf16;
  const auto x = tensors.find("x");
  if (x != tensors.end() && x->second.dtype == DType::i8) {
    check.tensor("x", tensors).dtype({DType::e4m3, DType::i8}).shape("T", "H/2").row_major();
    check.in_range("H/2", 0, INT32_MAX / 2, ErrorKind::unsupported);
    check.bind("H", check["H/2"] * 2, "two e2m1 codes per byte of x", "x");
  } else {
    check.tensor("x", tensors).dtype({DType::e4m3, DType::i8}).shape("T", "H").row_major();
  }
  check.in_range("H", 0, INT32_MAX, ErrorKind::unsupported);
  check.multiple_of("H", 64);
  check.bind("R", num_blocks(check["T"], block_rows),
             "ceil(T / " + std::to_string(block_rows) + ")");
  check.bind("C", num_blocks(check["H"], block_cols),
             "ceil(H / " + std::to_string(block_cols) + ")");
  check_scale_input(check, "x_sf", tensors, call.sf_layout, "R", "C");
  return call;
}

std::vector<OutputInfo> dequantise_outputs(const ArgCheck& check, const Dequantise& call) {
  const Dims shape{check["T"], check["H"]};
  return {row_major_output("out", call.out, shape)};
}

void run_dequantise(const std::string& op, ArgCheck& check, const Dequantise& call,
                    const Tensors& tensors, Stream stream) {
  check.output("out", tensors).dtype(call.out).shape("T", "H").row_major().aligned(16);
  check.memory();
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return;
  const DequantiseSpec spec = spec_of(x, tensors.at("x_sf"), call);
  const TensorView arguments[] = {codes_view(x), read_scales(tensors.at("x_sf"), call.sf_layout),
                                  tensors.at("out")};
  jit::run_op(
      op, jit::spec_bytes(spec), [&] { return build_dequantise(op, spec); }, arguments, {}, stream);
}

std::vector<ir::Kernel> dequantise_kernels(const std::string& op, const Dequantise& call,
                                           const Tensors& tensors) {
  const TensorView& x = tensors.at("x");
  if (x.size() == 0) return {};
  return {build_dequantise(op, spec_of(x, tensors.at("x_sf"), call))};
}

std::vector<TensorInfo> dequantise_tensors(const std::string& x_sf_blocks) {
  return {input("x", {"e4m3", "e2m1"}, {"T", "H"}),
          input("x_sf", {}, {}, "SF(" + x_sf_blocks + ") x_sf_layout"),
          output("out", {"out_dtype"}, {"T", "H"})};
}

std::vector<ParamInfo> dequantise_params(const ParamInfo& block) {
  return {block, word("out_dtype", {"bf16", "f32"}, "bf16"), sf_layout_param("x_sf_layout")};
}

BenchCase dequantise_case(int64_t tokens, int64_t hidden, DType x, DType out, const Dims& block,
                          SfLayout layout) {
  BenchCase c;
  const bool pairs = x == DType::e2m1;
  const OutputInfo scales =
      scale_output("x_sf", layout, num_blocks(tokens, block[0]), num_blocks(hidden, block[1]));
  c.label = "T=" + std::to_string(tokens) + " H=" + std::to_string(hidden) + " " +
            std::string(name(x)) + " / " + std::to_string(block[0]) + "x" +
            std::to_string(block[1]) + " to " + std::string(name(out));
  if (layout != SfLayout::row_major) c.label += " " + std::string(name(layout));
  c.params = {{"out_dtype", std::string(name(out))}, {"x_sf_layout", std::string(name(layout))}};
  const int64_t width = pairs ? hidden / 2 : hidden;
  c.inputs = {{"x", pairs ? DType::i8 : x, {tokens, width}, {width, 1}},
              {"x_sf", scales.dtype, scales.shape, scales.strides}};
  c.bytes = codes_bytes(tokens, hidden, x) + num_elements(scales.shape) * 4 +
            tokens * hidden * bytes(out);
  return c;
}

}  // namespace tessera::kernels
