#include "kernels/gemm/fp8_kernel.h"

#include "kernels/gemm/fp8_parts.h"

namespace tessera::kernels::gemm {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr int kPipelinedThreads = 256;
constexpr int kPipelinedBlocks = 2;  // of a multiprocessor

/// The sums of a tile: of 128 of k, of all before, and the scales of the former.
struct Sums {
  Sums(dsl::Builder& k, const Tile& t)
      : part(k.fragment(DType::f32, {t.rows, t.columns}, "part")),
        all(k.fragment(DType::f32, {t.rows, t.columns}, "sum")),
        scale(k.fragment(DType::f32, {t.rows}, "scale")) {}
  Ref part, all, scale;
};

void multiply(dsl::Builder& k, const Ref& a_tile, const Ref& b_tile, const Sums& sums) {
  k.fill(sums.part, 0.0f);
  k.gemm(a_tile, b_tile.transposed(), sums.part, {.promote = 0});
}

void promote(dsl::Builder& k, const Tile& t, const Sums& sums) {
  k.parallel({t.rows, t.columns}, [&](Value r, Value c) {
    Value part = sums.part(r, c), scale = sums.scale(r), all = sums.all(r, c);
    sums.all(r, c) = fma(part, scale, all);
  });
}

ir::Kernel pipelined(const Fp8Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_fp8");
  Fp8Parts parts(k, s);
  k.launch({min(parts.shared_tiles(), t.blocks * kPipelinedBlocks)},
           {.threads = kPipelinedThreads});
  const Sums sums(k, t);
  auto a_tile = k.shared(DType::e4m3, {t.rows, t.step}, "a_tile");
  auto b_tile = k.shared(DType::e4m3, {t.columns, t.step}, "b_tile");
  const std::optional<Ref> through = parts.staging();
  parts.each_tile([&](const Place& at) {
    k.fill(sums.all, 0.0f);
    if (s.has_depth != 0) {
      k.pipelined(0, parts.steps(), t.stages, [&](Value step) {
        parts.load(at, step, a_tile, b_tile);
        parts.load_scales(at, step, sums.scale);
        multiply(k, a_tile, b_tile, sums);
        promote(k, t, sums);
      });
    }
    parts.write(at, sums.all, through);
  });
  return k.finish();
}

ir::Kernel by_roles(const Fp8Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("gemm_fp8");
  Fp8Parts parts(k, s);
  k.launch({min(parts.shared_tiles(), t.blocks)}, {.threads = kMultipliers + 128});
  auto ring = k.ring({.stages = t.stages});
  auto a_tile = ring.shared(DType::e4m3, {t.rows, t.step}, "a_tile");
  auto b_tile = ring.shared(DType::e4m3, {t.columns, t.step}, "b_tile");
  const std::optional<Ref> through = parts.staging();
  auto load = [&] {
    parts.each_tile([&](const Place& at) {
      k.serial(0, parts.steps(),
               [&](Value step) { ring.fill([&] { parts.load(at, step, a_tile, b_tile); }); });
    });
  };
  auto multiply_tiles = [&] {
    const Sums sums(k, t);
    parts.each_tile([&](const Place& at) {
      k.fill(sums.all, 0.0f);
      k.serial(0, parts.steps(), [&](Value step) {
        parts.load_scales(at, step, sums.scale);  // on their way during the product
        ring.take([&] { multiply(k, a_tile, b_tile, sums); });
        promote(k, t, sums);
      });
      parts.write(at, sums.all, through);
    });
  };
  k.roles({{.name = "load", .warps = 1, .registers = 40, .body = load},
           {.name = "multiply", .warpgroups = 2, .registers = 232, .body = multiply_tiles}});
  return k.finish();
}

}  // namespace

ir::Kernel build_fp8(const Fp8Spec& spec) {
  return spec.tile.by_roles != 0 ? by_roles(spec) : pipelined(spec);
}

}  // namespace tessera::kernels::gemm
