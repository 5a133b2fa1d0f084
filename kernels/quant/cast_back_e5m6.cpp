// cast_back_e5m6: dequantises 12-bit codes to bf16 or f32, with one scale per block of the matrix.
//
// Method   one pass: one thread (f32: two neighbours) loads the three words of eight codes,
//          decodes, multiplies and stores 16 bytes. The bound is bytes / copy bandwidth; scales
//          come from the caches.
// Maths    out = round(code * scale), one f32 multiply; codes: see e5m6.h
// Tuned    not yet measured

#include <algorithm>

#include "kernels/quant/parts/e5m6.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_grid.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

struct Spec {
  DType out;
  SfLayout sf_layout;
  uint16_t unused = 0;  // explicit padding: a Spec is compared as bytes
  int32_t hidden, block_rows, block_cols;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  constexpr int64_t kCodes = e5m6::kCodes, kWords = e5m6::kWords;
  const int64_t vector = 16 / bytes(s.out);  // columns of one store
  // 32 elements per thread, along a row unless that leaves many threads idle; 16 if a store may need
  // several scales.
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
    // The expression instead of the name at.col lets the compiler see which neighbours share a
    // scale.
    auto col = at.col_tile * cols + n * kCodes + h * vector + i;
    auto block = s.block_cols >= s.hidden ? col * 0 : col / s.block_cols;
    auto scale = x_sf.load((at.row + r) / s.block_rows, block);
    out(at.row + r, col) = cast(s.out, e5m6::decode(code) * scale);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const bool by_row = !c.has_value("x_block_size");
  const Spec spec = {
      c.dtype("out_dtype"),     sf_layout_of(c.params(), "x_sf_layout"),       0, c.i32("H"),
      by_row ? 1 : c.i32("br"), by_row ? std::max(c.i32("H"), 1) : c.i32("bc")};
  go.add(build, spec, {.tensors = {{"x", retyped(c.given("x"), DType::u32)}}});
}

}  // namespace

const Op cast_back_e5m6_op{.name = "cast_back_e5m6",
                           .family = "quant",
                           .purpose = "12-bit floats with one scale per block back to bf16 or f32",
                           .signature = R"(
      x       e5m6 [T, H] align 4
      x_sf    SF(x_block_size) x_sf_layout
      -> out  out_dtype [T, H] align 16
      param   x_block_size tuple = none
      param   out_dtype {bf16, f32} = bf16
      param   x_sf_layout = row_major
      let     br, bc = x_block_size
      need    H % 8 = 0
      limit   H <= 1431655760     # bytes of a row below 2^31
    )",
                           .launches = launches,
                           .examples = R"(
      T=5 H=7168 x_block_size=1,7168; T=13 H=576 x_block_size=1,576 out_dtype=f32
      T=37 H=512 x_block_size=32,128 x_sf_layout=packed_ue8m0
      T=9 H=40 x_block_size=3,5 out_dtype=f32 x_sf_layout=col_major_tma)",
                           .bench = R"(
      T=8001 H=7168 x_block_size=1,7168; T=8001 H=7168 x_block_size=1,7168 out_dtype=f32
      T=8001 H=7168 x_block_size=1,7168 out_dtype=f32 x_sf_layout=packed_ue8m0
      T=128 H=7168 x_block_size=1,7168)"};

}  // namespace tessera::kernels
