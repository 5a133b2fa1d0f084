// The weights are the left operand: the groups of warps that multiply decode their codes into registers, where wgmma
// takes its left operand, while the last product runs. Tokens are the right operand, in shared memory, so eight of them
// fill an instruction. Codes come by bulk copies, tokens by tensor copies, through one ring.
//
// Each run of k that a scale of `a` covers is summed from 0 by the tensor cores, then sum = fma(part, a_sf * b_sf, sum)
// with the scales of the token and of the weight's row. Scales of whole rows of weights leave the loop.
//
// Bound     the codes of weights: 8 groups of 4096 x 7168 are 125 MB, 30 us at 4.2 TB/s.
// Measured  one H200, us: those groups with 16 tokens each 49 (goal 34; 70 as first built), with a scale per row 46; 32 groups of
//           6144 x 7168 with 20 232 (goal 198), with 192 980; 8 x 7168 x 2048 32 (goal 17.5); 4096 tokens by 4096 x 7168
//           369, with a scale per row 281.
// Where     a group of warps takes 200 instructions for a step of 64 rows, of which half decode codes (237 before). The 32
//           groups stream at 3.5 TB/s, 83 % of the copy rate; the 8 groups are one tile for each multiprocessor, so that
//           beginning and end count.
// Tried     in turn, 60 calls each, us for 8 x 16, 32 x 20 and 32 x 192: as it was 55.3, 274, 1021; prmt without a mask of its
//           selectors, and scales of rows that are cut into range and not checked 52.3, 251, 1011; also tables for all 256
//           shifts, a byte of which one instruction takes 50.5, 237, 1022. Lost: tables computed where all shifts are
//           linear (3 to 14) 50.8, 239, 1083.
// Lost      before, for those 8 groups: tiles of 128 rows by 32 tokens 63, 128 by 16 82, 256 by 16 88, 64 by 16 115. Scales of
//           rows through the ring, codes by a bulk copy for each 64 rows: 70. Not tried: tiles of 128 x 256, chunks of K.

#include "kernels/gemm/parts/mxfp4_kernel.h"

#include <optional>
#include <vector>

#include "kernels/gemm/parts/mxfp4_parts.h"
#include "kernels/gemm/parts/roles.h"

namespace tessera::kernels::gemm {
namespace {

using dsl::Ref;
using dsl::Value;
using Shape = std::vector<int64_t>;

constexpr int kPipelinedBlocks = 2;  // of a multiprocessor
constexpr int64_t kTurns = 2;        // of the ring in a round of the loop
constexpr int64_t kOverlapped =
    64;  // tokens of a tile, at most, whose products overlap: registers for two parts

bool overlaps(const Tile& t) {
  return t.columns <= kOverlapped;
}

/// The sums of a tile: of a run of k, twice where products overlap; of all of k.
class MxSums {
 public:
  MxSums(dsl::Builder& k, const Mxfp4Spec& s, const Ref& magnitudes)
      : k_(k),
        s_(s),
        t_(s.tile),
        magnitudes_(magnitudes),
        count_(overlaps(s.tile) && s.tile.by_roles != 0 ? 2 : 1) {
    for (size_t i = 0; i < count_; ++i) {
      weights_.push_back(k.fragment(operand_dtype(s.operand), {t_.rows, t_.step}, "weights"));
      if (!has_parts()) continue;
      parts_.push_back(k.fragment(DType::f32, {t_.rows, t_.columns}, "part"));
      tokens_.push_back(k.fragment(DType::f32, {t_.columns}, "token_scale"));
      if (s.by_block != 0) rows_.push_back(k.fragment(DType::f32, {t_.rows}, "row_scale"));
    }
    all_.emplace(k.fragment(DType::f32, {t_.rows, t_.columns}, "sum"));
  }

  const Ref& all() const { return *all_; }
  /// False for bf16: one sum over all of k.
  bool has_parts() const { return s_.operand == Mxfp4Operand::e4m3; }
  /// True if a product may run while the one before is added.
  bool overlap() const { return count_ > 1; }
  /// Parts of a step of k.
  int64_t parts() const { return has_parts() ? t_.step / s_.scaled : 1; }
  /// Decodes the weights of step number `i` of a round; `depth` of k are left.
  void decode(const MxStep& tiles, const Value& step, const Value& depth, int64_t i = 0) {
    const Ref& into = weights_[at(i)];
    if (has_parts()) return decode_e4m3(k_, tiles.b, magnitudes_, depth, into);
    decode_bf16(k_, tiles.b, magnitudes_, step, depth, into);
  }
  /// Loads the scales of rows for step number `i` of a round, which is `step`.
  void load_scales(Mxfp4Parts& parts, const GroupTile& place, const Value& step, int64_t i = 0) {
    if (s_.by_block != 0) parts.load_row_scales(place, step, rows_[at(i)]);
  }
  /// Multiplies part `part` of step number `i`; add() of the same ends it.
  void multiply(const MxStep& tiles, const Value& step, int64_t i = 0, int64_t part = 0) {
    if (!has_parts()) return k_.gemm(weights_[at(i)], tiles.a.transposed(), all());
    const size_t to = at(i * parts() + part);
    k_.parallel({t_.columns}, [&](Value c) { tokens_[to](c) = token_scale(tiles, step, c, part); });
    k_.fill(parts_[to], 0.0f);
    const int64_t width = s_.scaled, first = part * width;
    k_.gemm(weights_[at(i)].tile({0, first}, {t_.rows, width}),
            tiles.a.tile({0, first}, {t_.columns, width}).transposed(), parts_[to], {.promote = 0});
  }
  void add(int64_t i = 0, int64_t part = 0) {
    if (!has_parts()) return;
    const size_t from = at(i * parts() + part);
    k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
      Value value = parts_[from](r, c), scale = tokens_[from](c), before = all()(r, c);
      if (s_.by_block != 0) scale = scale * rows_[at(i)](r);
      all()(r, c) = fma(value, scale, before);
    });
  }

 private:
  size_t at(int64_t i) const { return static_cast<size_t>(i) % count_; }
  Value token_scale(const MxStep& tiles, const Value& step, const Value& c, int64_t part) const {
    if (s_.is_packed == 0) return (*tiles.a_scales)(c, part);
    const Value place = s_.scaled == 32 ? dsl::i32(8 * part) : step % 4 * 8;
    return reinterpret(DType::f32, ((*tiles.a_scales)(c) >> place & 255u) << 23);
  }

  dsl::Builder& k_;
  const Mxfp4Spec s_;
  const Tile t_;
  const Ref magnitudes_;
  const size_t count_;
  std::vector<Ref> weights_, parts_, tokens_, rows_;
  std::optional<Ref> all_;
};

ir::Kernel pipelined(const Mxfp4Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_mxfp4");
  Mxfp4Parts parts(k, s);
  auto blocks = parts.blocks(k.device_blocks(kPipelinedBlocks));
  auto at = k.launch({blocks}, {.threads = 128});
  parts.run_on(at.x, blocks);
  const Ref magnitudes = magnitudes_of_shifts(k, s.operand);
  MxSums sums(k, s, magnitudes);
  const Ref through = parts.staging();
  std::optional<MxStep> tiles;
  if (s.has_depth != 0) {
    tiles = parts.tiles(
        [&](DType dtype, Shape shape, const char* name) { return k.shared(dtype, shape, name); });
  }
  parts.each_tile([&](const GroupTile& place) {
    k.fill(sums.all(), 0.0f);
    if (s.has_depth != 0) {
      k.pipelined(0, parts.steps(), t.stages, [&](Value step) {
        parts.load(place, step, *tiles);
        sums.load_scales(parts, place, step);
        sums.decode(*tiles, step, parts.depth_from(step));
        for (int64_t part = 0; part < sums.parts(); ++part) {
          sums.multiply(*tiles, step, 0, part);
          sums.add(0, part);
        }
      });
    }
    parts.write(place, sums.all(), through);
  });
  return k.finish();
}

ir::Kernel by_roles(const Mxfp4Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_mxfp4");
  Mxfp4Parts parts(k, s);
  auto blocks = parts.blocks(k.device_blocks());
  auto at = k.launch({blocks}, {.threads = threads_of_roles(t)});
  parts.run_on(at.x, blocks);
  const Ref magnitudes = magnitudes_of_shifts(k, s.operand);
  auto ring = k.ring({.stages = t.stages});
  const MxStep tiles = parts.tiles(
      [&](DType dtype, Shape shape, const char* name) { return ring.shared(dtype, shape, name); });
  const Ref through = parts.staging();
  auto load = [&] {
    parts.each_tile([&](const GroupTile& place) {
      k.serial(0, parts.steps(),
               [&](Value step) { ring.fill([&] { parts.load(place, step, tiles); }); });
    });
  };
  auto multiply = [&] {
    MxSums sums(k, s, magnitudes);
    // Step number `i` of a round: decodes, and multiplies while the product before is added.
    const auto turn = [&](const Value& step, int64_t i, bool is_first) {
      ring.take([&] {
        sums.decode(tiles, step, parts.depth_from(step), i);
        for (int64_t part = 0; part < sums.parts(); ++part) {
          if (part > 0 && !sums.overlap()) sums.add(i, part - 1);
          sums.multiply(tiles, step, i, part);
          if (part > 0 && sums.overlap()) sums.add(i, part - 1);
        }
      });
      if (!is_first) sums.add(i - 1, sums.parts() - 1);
    };
    parts.each_tile([&](const GroupTile& place) {
      k.fill(sums.all(), 0.0f);
      Value first = dsl::i32(0);
      sums.load_scales(parts, place, first);
      if (overlaps(t) && sums.parts() == 1) {
        auto rounds = k.let("rounds", parts.steps() / kTurns);
        k.serial(0, rounds, [&](Value round) {
          for (int64_t i = 0; i < kTurns; ++i) {
            turn(round * kTurns + i, i, i == 0);
            sums.load_scales(parts, place, round * kTurns + i + 1, i + 1);
          }
          sums.add(kTurns - 1);
        });
        first = rounds * kTurns;
      }
      k.serial(first, parts.steps(), [&](Value step) {
        turn(step, 0, true);
        sums.add(0, sums.parts() - 1);
        sums.load_scales(parts, place, step + 1);
      });
      parts.write(place, sums.all(), through);
    });
  };
  // Addresses of four copies: with 40 registers the role that loads spills.
  const RoleRegisters registers = multipliers(t) > 2   ? RoleRegisters{56, 104}
                                  : multipliers(t) > 1 ? RoleRegisters{56, 224}
                                                       : RoleRegisters{96, 248};
  const int warps = (t.columns + 31) / 32;  // a lane for each scale of a
  k.roles({role_that_loads(load, warps, registers), role_that_multiplies(t, multiply, registers)});
  return k.finish();
}

}  // namespace

ir::Kernel build_mxfp4(const Mxfp4Spec& spec) {
  return spec.tile.by_roles != 0 ? by_roles(spec) : pipelined(spec);
}

}  // namespace tessera::kernels::gemm
