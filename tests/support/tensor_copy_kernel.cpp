#include "tests/support/tensor_copy_kernel.h"

#include <fmt/format.h>

namespace tessera::test {

using dsl::Builder;
using dsl::Value;

std::string Boxes::text() const {
  return fmt::format("{}, {} stages, {} threads, by {}", walk_text(), stages, threads,
                     ir::name(engine));
}

ir::Kernel boxes_kernel(const Boxes& boxes) {
  Builder k("boxes");
  auto x = k.input("x", boxes.dtype, boxes.dims(k, "x"));
  auto y = k.output("y", boxes.dtype, boxes.stack_extents());
  k.launch({1}, {.threads = boxes.threads});
  auto tile = k.shared(boxes.dtype, boxes.tile_shape(), "tile");
  k.pipelined(0, boxes.steps, {.stages = boxes.stages}, [&](Value step) {
    k.copy(x.tile(boxes.place(k, step), boxes.box), tile, {.engine = boxes.engine});
    k.copy(tile, y.tile(boxes.place_in_stack(step), boxes.shape_in_stack()));
  });
  return k.finish();
}

HostTensor boxes_input(const Boxes& boxes) {
  return boxes.tensor([](int64_t i) { return static_cast<double>(i * 7 % 13 - 5); });
}

HostTensor boxes_output(const Boxes& boxes) {
  return boxes.stack([](int64_t) { return 1.0; });
}

double boxes_value(const Boxes& boxes, const HostTensor& x, int64_t i) {
  int64_t place = 0, stride = 1;
  for (size_t d = boxes.box.size(); d-- > 0;) {
    const int64_t step = d == 0 ? i / boxes.box[0] : 0;
    const int64_t index = boxes.first[d] + i % boxes.box[d] + step * boxes.box[0];
    if (index < 0 || index >= boxes.shape[d]) return 0;
    place += index * stride;
    stride *= boxes.shape[d];
    i /= boxes.box[d];
  }
  return x.value(place);
}

std::string StagedProduct::text() const {
  return fmt::format("{} x {} x {}, tiles of {} x {} x {}, {} stages, {} threads, by {}{}", m, n,
                     depth, tile_rows, tile_columns, step, stages, threads, ir::name(engine),
                     is_ragged ? ", ragged" : "");
}

ir::Kernel staged_product(const StagedProduct& p) {
  Builder k("staged_product");
  auto m = k.dim("m", {.multiple_of = p.is_ragged ? 1 : p.tile_rows});
  auto n = k.dim("n", {.multiple_of = p.is_ragged ? 1 : p.tile_columns});
  auto depth = k.dim("depth", {.multiple_of = p.step});
  auto a = k.input("a", DType::bf16, {m, depth}), b = k.input("b", DType::bf16, {n, depth});
  auto c = k.output("c", DType::f32, {m, n});
  auto at =
      k.launch({ceil_div(n, p.tile_columns), ceil_div(m, p.tile_rows)}, {.threads = p.threads});
  auto row = k.let("row", at.y * p.tile_rows), column = k.let("column", at.x * p.tile_columns);
  auto a_tile = k.shared(DType::bf16, {p.tile_rows, p.step}, "a_tile");
  auto b_tile = k.shared(DType::bf16, {p.tile_columns, p.step}, "b_tile");
  auto sum = k.fragment(DType::f32, {p.tile_rows, p.tile_columns}, "sum");
  k.fill(sum, 0.0f);
  k.pipelined(0, depth / p.step, {.stages = p.stages}, [&](Value s) {
    k.copy(a.tile({row, s * p.step}, {p.tile_rows, p.step}), a_tile, {.engine = p.engine});
    k.copy(b.tile({column, s * p.step}, {p.tile_columns, p.step}), b_tile, {.engine = p.engine});
    k.gemm(a_tile, b_tile.transposed(), sum, {.instruction = p.instruction});
  });
  k.copy(sum, c.tile({row, column}, {p.tile_rows, p.tile_columns}));
  return k.finish();
}

ir::Kernel product_by_roles(const StagedProduct& p) {
  Builder k("product_by_roles");
  auto m = k.dim("m", {.multiple_of = p.tile_rows}),
       n = k.dim("n", {.multiple_of = p.tile_columns});
  auto depth = k.dim("depth", {.multiple_of = p.step});
  auto a = k.input("a", DType::bf16, {m, depth}), b = k.input("b", DType::bf16, {n, depth});
  auto c = k.output("c", DType::f32, {m, n});
  auto at = k.launch({n / p.tile_columns, m / p.tile_rows}, {.threads = p.threads + 32});
  auto row = k.let("row", at.y * p.tile_rows), column = k.let("column", at.x * p.tile_columns);
  auto ring = k.ring({.stages = p.stages});
  auto a_tile = ring.shared(DType::bf16, {p.tile_rows, p.step}, "a_tile");
  auto b_tile = ring.shared(DType::bf16, {p.tile_columns, p.step}, "b_tile");
  auto load = [&] {
    k.serial(0, depth / p.step, [&](Value s) {
      ring.fill([&] {
        k.copy(a.tile({row, s * p.step}, {p.tile_rows, p.step}), a_tile, {.engine = p.engine});
        k.copy(b.tile({column, s * p.step}, {p.tile_columns, p.step}), b_tile,
               {.engine = p.engine});
      });
    });
  };
  auto multiply = [&] {
    auto sum = k.fragment(DType::f32, {p.tile_rows, p.tile_columns}, "sum");
    k.fill(sum, 0.0f);
    k.serial(0, depth / p.step, [&](Value) {
      ring.take([&] { k.gemm(a_tile, b_tile.transposed(), sum, {.instruction = p.instruction}); });
    });
    k.copy(sum, c.tile({row, column}, {p.tile_rows, p.tile_columns}));
  };
  k.roles({{.name = "multiply", .warpgroups = p.threads / 128, .body = multiply},
           {.name = "load", .warps = 1, .body = load}});
  return k.finish();
}

}  // namespace tessera::test
