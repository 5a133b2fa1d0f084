// norm_fwd: root mean square norm of rows, after an addition and before a cast.
//
// Shapes   x, residual, out [tokens, hidden], weight [hidden], rstd [tokens], out_sf [tokens,
//          ceil(hidden / group)]
// Dtypes   x bf16|f32, weight and residual as x; out as x, or e4m3 with scales
// Method   a row in at most 256 threads, short rows several to a block. A block keeps the weights of its
//          columns in registers for a run of rows. Rows are read and written once; the bound is bytes /
//          copy bandwidth.
// Maths    n = round(x + residual); s = sum of squares in the order of norm_row.h; r = 1 / sqrt(s /
//          hidden + eps), IEEE; y = (n * r) * (weight * out_scale), each step rounded; out = round(y). The
//          cast is that of per_token_cast on the rounded y.

#include "kernels/serving/norm/parts/norm_kernel.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "kernels/quant/parts/scale_access.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

// Blocks enough for several waves on any GPU; beyond, a block takes more rows with the same weights.
constexpr int64_t kManyBlocks = 2048, kMaxTiles = 8;
constexpr int64_t kMegaTile = 128;  // rows of mega_moe_sf that are interleaved

/// The outputs of the cast.
class Codes {
 public:
  Codes(Builder& k, const NormSpec& s, const Value& tokens)
      : k_(k), s_(s), scales_(k, s.sf_layout, tokens, num_blocks(s.hidden, s.group)) {
    out_ = k.output("out", DType::e4m3, {tokens, s.hidden});
    if (s.save_bf16) rounded_ = k.output("out_bf16", DType::bf16, {tokens, s.hidden});
    if (!s.has_mega) return;
    mega_rows_ = k.dim("mega_rows");
    mega_ = k.output("mega_moe_sf", DType::u8, {s.hidden / 128, *mega_rows_, 4}, {.align = 4});
    mega_block_ = k.scalar("mega_moe_block_m", DType::i32);
  }

  const Value& rows() const { return scales_.rows(); }

  /// Casts the run of `step`, z [8] of the dtype of x; 0 beyond the row.
  void store(const NormRow& row, const Value& token, const Value& valid, int64_t step,
             const Ref& z) const {
    auto amax = k_.var(DType::f32, 0.0f, "amax");
    k_.unrolled(kRowRun, [&](Value i) { amax = max(amax, abs(f32(z(i)))); });
    const int threads = static_cast<int>(s_.group / kRowRun);
    for (int distance = 1; distance < threads; distance *= 2) {
      const Value other = k_.shuffle_xor(amax, distance);
      amax = max(amax, other);
    }
    const ScaleFactor scale = scale_factor(k_, kE4m3, amax, s_.round_sf);
    auto inverse = k_.let("inverse", scale.inverse);
    row.in_row(step, [&](const Value& column) {
      k_.if_(valid, [&] {
        auto codes = k_.local(DType::e4m3, {kRowRun}, "codes");
        k_.unrolled(kRowRun, [&](Value i) { codes(i) = cast(DType::e4m3, f32(z(i)) * inverse); });
        row.store(codes, (*out_)(token), column, kRowRun);
        if (rounded_) row.store(z, (*rounded_)(token), column, kRowRun);
      });
      k_.if_(row.thread() % threads == 0, [&] {
        auto group = k_.let("group", column / i32(s_.group));
        scales_.store(token, group, scale);
        if (mega_) k_.if_(valid, [&] { store_mega(token, group, scale); });
      });
    });
  }

  /// Stores the unused bytes of the last word of packed scales.
  void fill_word(const NormRow& row, const Value& token) const {
    const int64_t groups = num_blocks(s_.hidden, s_.group),
                  unused = num_blocks(groups, 4) * 4 - groups;
    if (s_.sf_layout != SfLayout::packed_ue8m0 || groups == 1 || unused == 0) return;
    k_.if_(row.thread() < unused, [&] {
      scales_.store(token, groups + row.thread(), {f32(0.0f), f32(0.0f), u32(0)});
    });
  }

 private:
  void store_mega(const Value& token, const Value& group, const ScaleFactor& scale) const {
    const Value block = *mega_block_;
    auto padded = (block + (kMegaTile - 1)) / kMegaTile * kMegaTile;
    auto i = k_.let("token_of_block", token % block);
    auto place =
        i64(token / block) * padded + i / kMegaTile * kMegaTile + i % 32 * 4 + i % kMegaTile / 32;
    (*mega_)(group / 4, place, group % 4) = cast(DType::u8, scale.exponent);
  }

  Builder& k_;
  const NormSpec& s_;
  ScaleWriter scales_;
  std::optional<Ref> out_, rounded_, mega_;
  std::optional<Value> mega_rows_, mega_block_;
};

/// Columns per store of a 16-byte aligned output.
int64_t store_width(DType dtype) {
  return std::min<int64_t>(kRowRun, 16 / bytes(dtype));
}

}  // namespace

ir::Kernel build_norm(const NormSpec& s) {
  const RowTile tile = pick_row_tile(s.hidden, true);
  Builder k(s.group == 0 ? "norm_fwd" : "norm_fwd_and_per_token_cast");
  auto tokens = k.dim("tokens");
  const auto rows_of = [&](const std::string& name) {
    auto stride = k.stride(name + "_stride", {.multiple_of = s.width});
    return k.input(name, s.dtype, {tokens, s.hidden},
                   {.strides = {stride, 1}, .align = int64_t{bytes(s.dtype)} * s.width});
  };
  auto x = rows_of("x");
  std::optional<Ref> residual, residual_out, weight, rstd, out;
  if (s.has_residual) {
    residual = rows_of("residual");
    residual_out = k.output("residual_out", s.dtype, {tokens, s.hidden});
  }
  if (s.has_weight) {
    weight =
        k.input("weight", s.dtype, {s.hidden}, {.align = int64_t{bytes(s.dtype)} * s.weight_width});
  }
  if (s.save_rstd) rstd = k.output("rstd", DType::f32, {tokens}, {.align = 4});
  auto eps = k.scalar("norm_eps", DType::f32), out_scale = k.scalar("out_scale", DType::f32);
  auto tiles_per_block = k.scalar("tiles_per_block", DType::i32);
  std::optional<Codes> codes;
  if (s.group > 0) {
    codes.emplace(k, s, tokens);
  } else {
    out = k.output("out", s.dtype, {tokens, s.hidden});
  }
  const auto tiles = ceil_div(codes ? codes->rows() : tokens, tile.rows);
  auto at = k.launch({(tiles + tiles_per_block - 1) / tiles_per_block},
                     {.threads = tile.block_threads()});
  k.let_next_kernel_start();
  const NormRow row(k, s.hidden, tile);
  const int64_t stored = store_width(s.dtype);
  k.wait_for_previous_kernel();
  auto w = row.local(s.dtype, "w");
  if (weight) {
    row.clear(w);
    for (int64_t step = 0; step < tile.steps; ++step) {
      row.in_row(step,
                 [&](const Value& column) { row.load(*weight, column, w(step), s.weight_width); });
    }
  }
  k.serial(at.x * tiles_per_block, min((at.x + 1) * tiles_per_block, tiles), [&](Value tile_of) {
    auto token = k.let("token", tile_of * tile.rows + row.row());
    auto valid = k.let("valid", token < tokens);
    auto n = row.local(s.dtype, "n");
    row.clear(n);
    std::optional<Ref> added;
    if (residual) {
      added = row.local(s.dtype, "added");
      row.clear(*added);
    }
    k.if_(valid, [&] {
      for (int64_t step = 0; step < tile.steps; ++step) {
        row.in_row(step, [&](const Value& column) {
          row.load(x(token), column, n(step), s.width);
          if (added) row.load((*residual)(token), column, (*added)(step), s.width);
        });
      }
    });
    if (added) {
      for (int64_t step = 0; step < tile.steps; ++step) {
        k.unrolled(kRowRun, [&](Value i) {
          n(step, i) = cast(s.dtype, f32(n(step, i)) + f32((*added)(step, i)));
        });
        row.in_row(step, [&](const Value& column) {
          k.if_(valid, [&] { row.store(n(step), (*residual_out)(token), column, stored); });
        });
      }
    }
    const Value squares = row.sum([&](int64_t step, const Value& i) {
      auto value = f32(n(step, i));
      return std::pair(value, value);
    });
    auto r = k.let("r", 1.0f / sqrt(squares / static_cast<float>(s.hidden) + eps));
    if (rstd) k.if_(valid && row.thread() == 0, [&] { (*rstd)(token).unchecked() = r; });
    for (int64_t step = 0; step < tile.steps; ++step) {
      k.unrolled(kRowRun, [&](Value i) {
        const Value scale = weight ? f32(w(step, i)) * out_scale : out_scale;
        n(step, i) = cast(s.dtype, f32(n(step, i)) * r * scale);
      });
      if (codes) {
        codes->store(row, token, valid, step, n(step));
      } else {
        row.in_row(step, [&](const Value& column) {
          k.if_(valid, [&] { row.store(n(step), (*out)(token), column, stored); });
        });
      }
    }
    if (codes) codes->fill_word(row, token);
  });
  return k.finish();
}

NormSpec norm_spec(const Call& c) {
  const TensorView x = c.tensor("x");
  const int64_t most = 16 / bytes(x.dtype);
  const auto width_of = [&](const char* name) {
    return c.has(name) ? common_vector(c.tensor(name), most) : most;
  };
  NormSpec s{};
  s.dtype = x.dtype;
  s.hidden = c.i32("H");
  s.has_weight = c.has("weight");
  s.has_residual = c.has("residual");
  s.save_rstd = c.flag("save_rstd");
  s.width = static_cast<int8_t>(std::gcd(width_of("x"), width_of("residual")));
  s.weight_width = static_cast<int8_t>(width_of("weight"));
  return s;
}

void add_norm(const Call& c, Launches& go, const NormSpec& s, Args args) {
  if (c["T"] == 0) return;  // mega_moe_sf keeps its values
  const int64_t tiles = num_blocks(c["T"], pick_row_tile(s.hidden, true).rows);
  const int64_t per_block = std::clamp<int64_t>(tiles / kManyBlocks, 1, kMaxTiles);
  args.scalars.push_back({"tiles_per_block", per_block});
  go.add(build_norm, s, args);
}

int64_t mega_rows(int64_t tokens, int64_t block) {
  return num_blocks(tokens, block) * num_blocks(block, kMegaTile) * kMegaTile;
}

}  // namespace tessera::kernels::serving
