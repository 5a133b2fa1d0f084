// mxfp4_prepack: MXFP4 weights as the products read them, each row's or block's greatest scale apart.
//
// Dtypes   w e2m1, w_sf u8 (UE8M0: 2^(s - 127) for 32 of k); out and out_shift u8, out_sf f32
// Method   a block takes 64 rows; with fold row it looks at all their scales first. The bound is bytes / copy bandwidth,
//          far from reached: weights are packed once
// Maths    R is the greatest byte of a group that has other codes than zeros and is no NaN (255), of a row or of 128 of
//          k; w = code * 2^(shift - 8) * out_sf with out_sf = 2^(R - 133) and shift = 14 - (R - s) for e4m3, code *
//          2^-shift * out_sf with out_sf = 2^(R - 127) and shift = R - s for bf16. Exact for 0 <= shift <= 14 and
//          shift <= 126; groups further down lose bits, which is an error or counted
// Layout   mxfp4_codes.h

#include <fmt/format.h>

#include <algorithm>

#include "kernels/checks/value_check.h"
#include "kernels/gemm/parts/mxfp4_codes.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

using dsl::Ref;
using dsl::Value;
using gemm::kMxBlock;
using gemm::kMxGroup;
using gemm::kMxRows;
using gemm::Mxfp4Operand;

constexpr const char* kLosesBits =
    "argument 'w_sf' has groups so small that their weights lose bits";
constexpr int32_t kNan = 255;
constexpr int64_t kGroups = kMxBlock / kMxGroup;  // of a block

struct Spec {
  Mxfp4Operand operand;
  int32_t by_block, counts;
};

/// The byte of a scale of 1 times the greatest code: of units without a group that counts.
constexpr int32_t kNeutral[] = {133, 127};

class Prepack {
 public:
  explicit Prepack(const Spec& s) : s_(s), k_("mxfp4_prepack") {
    groups_ = k_.dim("groups"), n_ = k_.dim("n"), pairs_ = k_.dim("pairs");
    row_tiles_ = k_.dim("row_tiles"), tiles_ = k_.dim("depth_tiles"), blocks_ = k_.dim("blocks");
    auto scales = k_.dim("scales");
    w_ = k_.input("w", DType::u8, {groups_, n_, pairs_}, {.align = 1});
    auto apart = k_.stride("w_sf_apart"), down = k_.stride("w_sf_down");
    w_sf_ = k_.input("w_sf", DType::u8, {groups_, n_, scales},
                     {.strides = {apart, down, 1}, .align = 1});
    out_ = k_.output("out", DType::u32,
                     {groups_, row_tiles_, tiles_, gemm::tile_bytes(s.operand) / 4});
    out_shift_ =
        k_.output("out_shift", DType::u8, {groups_, row_tiles_, blocks_, kMxRows * kGroups});
    std::vector<dsl::Arg> of_scales = {groups_, n_};
    if (s.by_block != 0) of_scales.emplace_back(blocks_);
    out_sf_ = k_.output("out_sf", DType::f32, of_scales, {.align = 4});
    if (s.counts != 0) inexact_ = k_.output("inexact", DType::i32, {groups_}, {.align = 4});
  }

  ir::Kernel kernel() {
    auto at = k_.launch({groups_ * row_tiles_}, {.threads = 128});
    group_ = k_.let("group", at.x / row_tiles_), tile_ = k_.let("row_tile", at.x % row_tiles_);
    codes_ = k_.shared(DType::u8, {kMxRows, kMxBlock / 2}, "codes");
    auto greatest = k_.fragment(DType::i32, {kMxRows}, "greatest");
    k_.fill(greatest, -1);
    if (s_.by_block == 0) {
      k_.serial(0, blocks_, [&](Value block) { look(block, greatest); });
      store_scales(greatest);
    }
    auto lost = k_.reducer(dsl::ReduceOp::sum, DType::i32, {1}, {}, "lost");
    lost.init();
    k_.serial(0, blocks_, [&](Value block) {
      if (s_.by_block != 0) {
        k_.fill(greatest, -1);
        look(block, greatest);
        store_scales(greatest, block);
      } else {
        load(block);
      }
      store_shifts(block, greatest, lost);
      s_.operand == Mxfp4Operand::e4m3 ? store_e4m3(block) : store_bf16(block);
    });
    auto all = lost.finalize();
    if (inexact_) {
      k_.if_(k_.thread() == 0, [&] { k_.atomic_add((*inexact_)(group_), all); });
    } else {
      k_.report_unless(all == 0, kLosesBits);
    }
    return k_.finish();
  }

 private:
  Value row(const Value& r) const { return tile_ * kMxRows + r; }
  void load(const Value& block) {
    k_.copy(w_->tile({group_, tile_ * kMxRows, block * (kMxBlock / 2)}, {1, kMxRows, kMxBlock / 2}),
            *codes_);
  }
  /// The byte of a group, and whether it has other codes than zeros.
  struct Group {
    Value scale, has_codes, counts;
  };
  Group look_at(const Value& block, const Value& r, const Value& g) {
    auto any = k_.var(DType::u32, 0u, "any");
    k_.unrolled(kMxGroup / 2, [&](Value i) {
      any = Value(any) | (dsl::u32((*codes_)(r, g * (kMxGroup / 2) + i)) & 0x77u);
    });
    auto scale = k_.let("scale", dsl::i32((*w_sf_)(group_, row(r), block * kGroups + g)));
    Value has_codes = Value(any) != 0u;
    return {scale, has_codes, has_codes && scale != kNan};
  }
  /// The greatest byte of the groups of a block that count, with what was found before.
  void look(const Value& block, const Ref& greatest) {
    load(block);
    auto seen = k_.fragment(DType::i32, {kMxRows, kGroups}, "seen");
    k_.parallel({kMxRows, kGroups}, [&](Value r, Value g) {
      const Group group = look_at(block, r, g);
      seen(r, g) = select(group.counts, group.scale, -1);
    });
    auto best = k_.fragment(DType::i32, {kMxRows}, "best");
    k_.reduce_max(seen, best, dsl::Axis(1));
    k_.parallel({kMxRows}, [&](Value r) {
      Value before = greatest(r), found = best(r);
      greatest(r) = max(before, found);
    });
  }
  Value reference(const Value& greatest) const {
    return select(greatest < 0, kNeutral[static_cast<int>(s_.operand)], greatest);
  }
  void store_scales(const Ref& greatest, const std::optional<Value>& block = {}) {
    k_.parallel({kMxRows}, [&](Value r) {
      // 2^(R - 133) or 2^(R - 127): its exponent as f32 stores it, below 1 a subnormal.
      auto exponent = k_.let(
          "exponent", reference(greatest(r)) - (kNeutral[static_cast<int>(s_.operand)] - 127));
      auto bits =
          select(exponent > 0, dsl::u32(exponent) << 23, dsl::u32(1) << max(exponent + 22, 0));
      auto scale = reinterpret(DType::f32, bits);
      k_.if_(row(r) < n_, [&] {
        if (block) {
          (*out_sf_)(group_, row(r), *block) = scale;
        } else {
          (*out_sf_)(group_, row(r)) = scale;
        }
      });
    });
  }
  void store_shifts(const Value& block, const Ref& greatest, const dsl::Reducer& lost) {
    auto of_rows = k_.shared(DType::i32, {kMxRows}, "of_rows");
    k_.copy(greatest, of_rows);
    const bool is_e4m3 = s_.operand == Mxfp4Operand::e4m3;
    k_.parallel({kMxRows, kGroups}, [&](Value r, Value g) {
      const Group group = look_at(block, r, g);
      auto below = k_.let("below", reference(of_rows(r)) - group.scale);
      Value shift = min(below, 127);
      if (is_e4m3) shift = select(below <= 14, 14 - below, min(below + 1, 20));
      shift = select(group.has_codes, shift, is_e4m3 ? 0 : 127);
      shift = select(group.scale == kNan, is_e4m3 ? int32_t{gemm::kMxNan} : kNan, shift);
      auto exists = row(r) < n_ && block * kMxBlock + g * kMxGroup < pairs_ * 2;
      (*out_shift_)(group_, tile_, block, r * kGroups + g) =
          cast(DType::u8, select(exists, shift, 0));
      lost.update(dsl::i32(group.counts && below > (is_e4m3 ? 14 : 126)));
    });
  }
  /// Two codes; the first of k is in the low nibble.
  Value pair(const Value& r, const Value& of_block) const {
    return dsl::u32((*codes_)(r, of_block));
  }
  /// A word of eight codes with their signs where the products look for them.
  static Value word(const Value& raw) {
    Value made = raw & 0x77777777u;
    for (int x = 0; x < 8; ++x) {
      const int from = 4 * x + 3, to = x < 4 ? 8 * x + 7 : 8 * (x - 4) + 3;
      const Value sign = raw & (1u << from);
      made = made | (to > from ? sign << (to - from) : sign >> (from - to));
    }
    return made;
  }
  void store_e4m3(const Value& block) {
    k_.parallel({4, 8, 4, 2}, [&](Value warp, Value r, Value lane, Value half_tile) {
      k_.unrolled(4, [&](Value i) {  // step of k, half of the rows
        auto from = k_.let("from", half_tile * 32 + i / 2 * 16 + lane * 2);
        auto at_row = k_.let("at_row", warp * 16 + i % 2 * 8 + r);
        auto raw =
            k_.let("raw", pair(at_row, from) | (pair(at_row, from + 1) << 8) |
                              (pair(at_row, from + 8) << 16) | (pair(at_row, from + 9) << 24));
        (*out_)(group_, tile_, block, half_tile * 512 + warp * 128 + r * 16 + lane * 4 + i) =
            word(raw);
      });
    });
  }
  void store_bf16(const Value& block) {
    k_.parallel({2, 4, 8, 4}, [&](Value tile, Value warp, Value r, Value lane) {
      k_.unrolled(4, [&](Value step) {
        auto from = k_.let("from", tile * 32 + step * 8 + lane);
        auto at_row = k_.let("at_row", warp * 16 + r);
        auto raw =
            k_.let("raw", pair(at_row, from) | (pair(at_row, from + 4) << 8) |
                              (pair(at_row + 8, from) << 16) | (pair(at_row + 8, from + 4) << 24));
        k_.if_(block * 2 + tile < tiles_, [&] {
          (*out_)(group_, tile_, block * 2 + tile, warp * 128 + r * 16 + lane * 4 + step) =
              word(raw);
        });
      });
    });
  }

  const Spec s_;
  dsl::Builder k_;
  Value groups_, n_, pairs_, row_tiles_, tiles_, blocks_, group_, tile_;
  std::optional<Ref> w_, w_sf_, out_, out_shift_, out_sf_, inexact_, codes_;
};

ir::Kernel build(const Spec& s) {
  return Prepack(s).kernel();
}

/// A tensor of equal numbers.
struct FillSpec {
  int32_t is_scale;  // 1: f32 ones, else i32 zeros
};
ir::Kernel build_fill(const FillSpec& s) {
  constexpr int32_t kThreads = 128;
  dsl::Builder k("mxfp4_prepack_fill");
  auto count = k.dim("count");
  const DType dtype = s.is_scale != 0 ? DType::f32 : DType::i32;
  auto out = k.output("out", dtype, {count}, {.align = 4});
  auto at = k.launch({ceil_div(count, kThreads)}, {.threads = kThreads});
  k.parallel({kThreads}, [&](dsl::Value i) {
    out(at.x * kThreads + i) = s.is_scale != 0 ? dsl::Arg(1.0f) : dsl::Arg(0);
  });
  return k.finish();
}
Args filled(const TensorView& x) {
  return {.tensors = {{"out", TensorView(x.data, x.dtype, {x.size()}, x.device)}}};
}

Mxfp4Operand operand_of(const Call& c) {
  return c.word("operand") == "bf16" ? Mxfp4Operand::bf16 : Mxfp4Operand::e4m3;
}
bool is_by_block(const Call& c) {
  if (c.has_value("fold")) return c.word("fold") == "block";
  return operand_of(c) == Mxfp4Operand::e4m3;
}

void launches(const Call& c, Launches& go) {
  const int64_t groups = c["G"], row_tiles = (c["N"] + 63) / 64, blocks = (c["K"] + 127) / 128;
  if (c.writes("inexact") && groups > 0) {
    go.add(build_fill, FillSpec{0}, filled(c.given("inexact")), "fill");
  }
  if (groups * c["N"] == 0) return;
  if (c["K"] == 0) {  // the scales of rows are left
    if (!is_by_block(c)) go.add(build_fill, FillSpec{1}, filled(c.given("out_sf")), "fill");
    return;
  }
  TensorView w = c.given("w"), out = c.given("out");
  w.dtype = DType::u8;
  out = TensorView(out.data, DType::u32,
                   {groups, row_tiles, out.shape[2], gemm::tile_bytes(operand_of(c)) / 4},
                   out.device);
  const TensorView shift(c.given("out_shift").data, DType::u8,
                         {groups, row_tiles, blocks, kMxRows * kGroups}, out.device);
  go.add(build, Spec{operand_of(c), is_by_block(c) ? 1 : 0, c.writes("inexact") ? 1 : 0},
         {.tensors = {{"w", w}, {"out", out}, {"out_shift", shift}}});
}

/// The greatest byte of the groups first .. end - 1 of a row that count; -1: none does.
class HostWeights {
 public:
  explicit HostWeights(const Call& c)
      : w_(c.given("w")), sf_(c.given("w_sf")), pairs_(c["K"] / 2) {}

  int scale(int64_t g, int64_t n, int64_t q) const {
    return static_cast<const uint8_t*>(
        sf_.data)[g * sf_.strides[0] + n * sf_.strides[1] + q * sf_.strides[2]];
  }
  bool counts(int64_t g, int64_t n, int64_t q) const {
    if (scale(g, n, q) == kNan) return false;
    const auto* row = static_cast<const uint8_t*>(w_.data) + g * w_.strides[0] + n * w_.strides[1];
    const int64_t end = std::min((q + 1) * kMxGroup / 2, pairs_);
    return std::any_of(row + q * kMxGroup / 2, row + end,
                       [](uint8_t b) { return (b & 0x77) != 0; });
  }

 private:
  const TensorView w_, sf_;
  int64_t pairs_;
};

void check_values(const Call& c) {
  if (c.flag("save_inexact") || !values_are_checked(c.given("w")) ||
      !values_are_checked(c.given("w_sf"))) {
    return;
  }
  const HostWeights weights(c);
  const int64_t groups = (c["K"] + kMxGroup - 1) / kMxGroup;
  const int64_t unit = is_by_block(c) ? kGroups : std::max<int64_t>(groups, 1);
  const int window = operand_of(c) == Mxfp4Operand::e4m3 ? 14 : 126;
  for (int64_t row = 0; row < c["G"] * c["N"]; ++row) {
    const int64_t g = row / c["N"], n = row % c["N"];
    for (int64_t first = 0; first < groups; first += unit) {
      int greatest = -1, least = kNan;
      int64_t where = first;
      for (int64_t q = first; q < std::min(first + unit, groups); ++q) {
        if (!weights.counts(g, n, q)) continue;
        greatest = std::max(greatest, weights.scale(g, n, q));
        if (weights.scale(g, n, q) < least) least = weights.scale(g, n, q), where = q;
      }
      c.need(greatest - least <= window, "w_sf", kLosesBits,
             fmt::format("at least {}, {} less than the greatest, or save_inexact",
                         greatest - window, window),
             fmt::format("{} at {}", least, to_string(Dims{g, n, where})));
    }
  }
}

}  // namespace

const Op mxfp4_prepack_op{
    .name = "mxfp4_prepack",
    .family = "gemm",
    .purpose = "MXFP4 weights in the order and with the scales that the products read",
    .signature = R"(
      w             e2m1 [G, N, K]
      w_sf          u8 [G, N, ceil(K / 32)] rows    # UE8M0 bytes; 255: NaN
      -> out        u8 [G, ceil(N / 64), depth_tiles(), tile_bytes()] align 16
      -> out_shift  u8 [G, ceil(N / 64), ceil(K / 128), 64, 4] align 16
      -> out_sf     f32 [G, N, ceil(K / 128) if by_block()]    # fold row: [G, N]
      -> inexact?   i32 [G]                         iff save_inexact
      param         operand {e4m3, bf16} = e4m3
      param         fold {none, row, block} = none  # none: block with e4m3, row with bf16
      param         save_inexact bool = false
      need          fold != block                   if operand = bf16 on fold
      |             "parameter 'fold' is row where operand is bf16"
      limit         N <= 2130706431
      limit         K <= 2130706431
      limit         G * ceil(N / 64) <= 2130706431
    )",
    .launches = launches,
    .check_values = check_values,
    .functions = {{"depth_tiles",
                   [](const Call& c) {
                     const int64_t depth = gemm::tile_depth(operand_of(c));
                     return (c["K"] + depth - 1) / depth;
                   }},
                  {"tile_bytes", [](const Call& c) { return gemm::tile_bytes(operand_of(c)); }},
                  {"by_block", [](const Call& c) { return int64_t{is_by_block(c)}; }}},
    .examples = R"(
      G=2 N=100 K=160 save_inexact=true; G=1 N=70 K=96 operand=bf16 save_inexact=true
      G=1 N=65 K=130 fold=row save_inexact=true)",
    .bench = R"(
      G=8 N=4096 K=7168 save_inexact=true; G=8 N=4096 K=7168 operand=bf16 save_inexact=true)"};

}  // namespace tessera::kernels
