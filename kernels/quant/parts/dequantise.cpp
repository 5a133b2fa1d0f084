#include "kernels/quant/parts/dequantise.h"

#include <numeric>

#include "kernels/quant/parts/scale_access.h"
#include "kernels/quant/parts/token_cast.h"
#include "kernels/quant/parts/token_grid.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
ir::Kernel build_dequantise(const std::string& op, const DequantiseSpec& s) {
  using namespace dsl;
  // 32 elements per thread, along a row unless that leaves many threads idle.
  constexpr int64_t kElements = 4096;
  constexpr int64_t kLeastRun = 16;  // columns per scale: more than a vector of a thread
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
    // The expression instead of the name at.col lets the compiler see which neighbours share a
    // scale.
    return x_sf.load((at.row + r) / s.block_rows, (at.col_tile * cols + c) / s.block_cols);
  };
  const int64_t run = std::gcd<int64_t>(s.block_cols, cols);  // columns of the tile per scale
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

void add_dequantise(const Call& c, Launches& go) {
  const SfLayout layout = sf_layout_of(c.params(), "x_sf_layout");
  DequantiseSpec s;
  s.in = c.dtype("x");
  s.out = c.dtype("out_dtype");
  s.sf_layout = layout;
  s.align = static_cast<uint8_t>(c.align({"x"}));
  s.hidden = c.i32("H");
  s.block_rows = c.i32("br");
  s.block_cols = c.i32("bc");
  // Scales are loaded as vectors only if each column has its own scale.
  const bool vectors = s.block_cols == 1 && layout == SfLayout::row_major;
  s.sf_vector = vectors ? static_cast<int32_t>(common_vector(c.given("x_sf"), 4)) : 1;
  const std::string op(c.op().name);
  go.add([&](const DequantiseSpec& spec) { return build_dequantise(op, spec); }, s);
}

}  // namespace tessera::kernels
