#include "tests/support/cluster_product.h"

#include <fmt/format.h>

namespace tessera::test {

using dsl::Builder;
using dsl::Value;

std::string ClusterProduct::text() const {
  return fmt::format(
      "{} x {} x {}, tiles of {} x {} x {}, {} stages, {} threads, clusters of {}, {} blocks, "
      "share {}, "
      "group {}, multicast {}",
      m, n, depth, tile_rows, tile_columns, step, stages, threads, cluster, blocks, share, group,
      ir::name(multicast));
}

ir::Kernel cluster_product(const ClusterProduct& p) {
  Builder k("cluster_product");
  auto m = k.dim("m"), n = k.dim("n"), depth = k.dim("depth", {.multiple_of = p.step});
  auto a = k.input("a", DType::bf16, {m, depth}), b = k.input("b", DType::bf16, {n, depth});
  auto c = k.output("c", DType::f32, {m, n});
  k.launch({p.blocks}, {.threads = p.threads + 32, .cluster = p.cluster});
  auto ring = k.ring({.stages = p.stages});
  auto a_tile = ring.shared(DType::bf16, {p.tile_rows, p.step}, "a_tile");
  auto b_tile = ring.shared(DType::bf16, {p.tile_columns, p.step}, "b_tile");
  const auto each_tile = [&](const std::function<void(Value, Value)>& body) {
    k.persistent({dsl::ceil_div(m, p.tile_rows), dsl::ceil_div(n, p.tile_columns)}, body,
                 {.group = p.group, .share = p.share});
  };
  const dsl::CopyOptions by_tensor = {.engine = ir::Engine::tensor};
  const dsl::CopyOptions shared = {.engine = ir::Engine::tensor, .multicast = p.multicast};
  auto load = [&] {
    each_tile([&](Value i, Value j) {
      auto column = j * p.tile_columns;
      if (p.names_rank) column = column + k.cluster_rank() * 8;
      k.serial(0, depth / p.step, [&](Value s) {
        ring.fill([&] {
          k.copy(a.tile({i * p.tile_rows, s * p.step}, {p.tile_rows, p.step}), a_tile,
                 p.share == 1 ? shared : by_tensor);
          k.copy(b.tile({column, s * p.step}, {p.tile_columns, p.step}), b_tile,
                 p.share == 0 ? shared : by_tensor);
        });
      });
    });
  };
  auto multiply = [&] {
    auto sum = k.fragment(DType::f32, {p.tile_rows, p.tile_columns}, "sum");
    each_tile([&](Value i, Value j) {
      k.fill(sum, 0.0f);
      k.serial(0, depth / p.step,
               [&](Value) { ring.take([&] { k.gemm(a_tile, b_tile.transposed(), sum); }); });
      k.copy(sum, c.tile({i * p.tile_rows, j * p.tile_columns}, {p.tile_rows, p.tile_columns}));
    });
  };
  k.roles({{.name = "multiply", .warpgroups = p.threads / 128, .body = multiply},
           {.name = "load", .warps = 1, .body = load}});
  return k.finish();
}

}  // namespace tessera::test
