#include "kernels/gemm/parts/fp8_kernel.h"

#include "kernels/gemm/parts/fp8_parts.h"
#include "kernels/gemm/parts/roles.h"

namespace tessera::kernels::gemm {
namespace {

using dsl::Ref;
using dsl::Value;
using Shape = std::vector<int64_t>;

constexpr int kPipelinedBlocks = 2;  // of a multiprocessor

constexpr int64_t kTurns = 4;  // of the ring in a round of the loop

/// True if a product runs while the same warps add the one before. Three groups of warps have registers for one part
/// sum; the products of one run beside the additions of the others.
bool overlaps(const Tile& t) {
  return multipliers(t) < 3;
}

RoleRegisters registers_of(const Fp8Spec& s) {
  if (!overlaps(s.tile)) return {32, 160};  // all that four groups of warps can have
  // With less the groups that multiply spill.
  if (s.groups == Groups::by_ids) {
    return multipliers(s.tile) == 1 ? RoleRegisters{40, 248} : RoleRegisters{24, 240};
  }
  if (s.by_engine != 0 && multipliers(s.tile) == 1) {
    return {40, s.groups == Groups::by_rows ? 248 : 240};  // the ids of a group
  }
  if (s.by_engine != 0) return {24, 240};
  return {};
}

/// The sums of a tile: of a step of k, twice where products overlap; of all steps.
class Sums {
 public:
  Sums(dsl::Builder& k, const Tile& t) : k_(k), t_(t), count_(overlaps(t) ? 2 : 1) {
    for (size_t i = 0; i < count_; ++i) {
      parts_.push_back(k.fragment(DType::f32, {t.rows, t.columns}, "part"));
      scales_.push_back(k.fragment(DType::f32, {t.rows}, "scale"));
    }
    all_.emplace(k.fragment(DType::f32, {t.rows, t.columns}, "sum"));
  }

  const Ref& all() const { return *all_; }
  /// Multiplies step number `i`; add(i) ends it.
  void multiply(const StepTiles& tiles, int64_t i = 0) {
    const auto at = static_cast<size_t>(i) % count_;
    const Ref &part = parts_[at], &scale = scales_[at];
    k_.parallel({t_.rows}, [&](Value r) {
      Value of_columns = tiles.b_scale(0), of_row = tiles.a_scales(r);
      scale(r) = of_row * of_columns;
    });
    k_.fill(part, 0.0f);
    k_.gemm(tiles.a, tiles.b.transposed(), part, {.promote = 0});
  }
  void add(int64_t i = 0) {
    const auto at = static_cast<size_t>(i) % count_;
    k_.parallel({t_.rows, t_.columns}, [&](Value r, Value c) {
      Value part = parts_[at](r, c), scale = scales_[at](r), before = all()(r, c);
      all()(r, c) = fma(part, scale, before);
    });
  }

 private:
  dsl::Builder& k_;
  const Tile t_;
  const size_t count_;
  std::vector<Ref> parts_, scales_;
  std::optional<Ref> all_;
};

ir::Kernel pipelined(const Fp8Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_fp8");
  Fp8Parts parts(k, s);
  auto tiles_of_all = parts.tiles_down() * parts.tiles_across();
  auto blocks = min(tiles_of_all, k.device_blocks(kPipelinedBlocks));
  auto at = k.launch({blocks}, {.threads = 256});
  parts.run_on(at.x, blocks);
  Sums sums(k, t);
  const StepTiles tiles = parts.tiles(
      [&](DType dtype, Shape shape, const char* name) { return k.shared(dtype, shape, name); });
  const std::optional<Ref> through = parts.staging();
  parts.each_tile([&](const GroupTile& place) {
    k.fill(sums.all(), 0.0f);
    if (s.has_depth != 0) {
      k.pipelined(0, parts.steps(), t.stages, [&](Value step) {
        parts.load(place, step, tiles);
        sums.multiply(tiles);
        sums.add();
      });
    }
    parts.write(place, sums.all(), through);
  });
  return k.finish();
}

ir::Kernel by_roles(const Fp8Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_fp8");
  Fp8Parts parts(k, s);
  auto blocks = blocks_of_roles(k, t, parts.tiles_down(), parts.tiles_across());
  auto at = k.launch({blocks}, {.threads = threads_of_roles(t), .cluster = t.cluster});
  parts.run_on(at.x, blocks);
  auto ring = k.ring({.stages = t.stages});
  const StepTiles tiles = parts.tiles(
      [&](DType dtype, Shape shape, const char* name) { return ring.shared(dtype, shape, name); });
  const std::optional<Ref> through = parts.staging();
  auto load = [&] {
    parts.each_tile([&](const GroupTile& place) {
      k.serial(0, parts.steps(),
               [&](Value step) { ring.fill([&] { parts.load(place, step, tiles); }); });
    });
  };
  auto multiply = [&] {
    Sums sums(k, t);
    parts.each_tile([&](const GroupTile& place) {
      k.fill(sums.all(), 0.0f);
      Value first = dsl::i32(0);
      if (overlaps(t)) {
        auto rounds = k.let("rounds", parts.steps() / kTurns);
        k.serial(0, rounds, [&](Value) {
          for (int64_t i = 0; i < kTurns; ++i) {
            ring.take([&] { sums.multiply(tiles, i); });
            if (i > 0) sums.add(i - 1);  // beside the product
          }
          sums.add(kTurns - 1);
        });
        first = rounds * kTurns;
      }
      k.serial(first, parts.steps(), [&](Value) {
        ring.take([&] { sums.multiply(tiles); });
        sums.add();
      });
      parts.write(place, sums.all(), through);
    });
  };
  const RoleRegisters registers = registers_of(s);
  k.roles({role_that_loads(load, 4, registers), role_that_multiplies(t, multiply, registers)});
  return k.finish();
}

}  // namespace

ir::Kernel build_fp8(const Fp8Spec& spec) {
  return spec.tile.by_roles != 0 ? by_roles(spec) : pipelined(spec);
}

}  // namespace tessera::kernels::gemm
