#include "tests/support/tensor_store_kernel.h"

#include <fmt/format.h>

namespace tessera::test {

using dsl::Arg;
using dsl::Builder;
using dsl::Value;

std::string StoredBoxes::text() const {
  return fmt::format("{}, {} threads, {} blocks, by {}{}{}{}", walk_text(), threads, blocks,
                     ir::name(engine), adds ? ", added" : "", by_columns ? ", by columns" : "",
                     is_async ? ", async" : "");
}

ir::Kernel stored_boxes_kernel(const StoredBoxes& boxes) {
  Builder k("stored_boxes");
  auto x = k.input("x", boxes.dtype, boxes.stack_extents());
  auto y = k.output("y", boxes.dtype, boxes.dims(k, "y"));
  k.launch({boxes.blocks}, {.threads = boxes.threads});
  auto tile = k.shared(boxes.dtype, boxes.tile_shape(), "tile");
  k.serial(0, boxes.steps, [&](Value step) {
    const auto target = y.tile(boxes.place(k, step), boxes.box);
    if (boxes.by_columns) {
      k.parallel({boxes.box[1], boxes.box[0]},
                 [&](Value column, Value row) { tile(row, column) = x(step, row, column); });
    } else {
      k.copy(x.tile(boxes.place_in_stack(step), boxes.shape_in_stack()), tile);
    }
    if (boxes.adds) {
      k.copy_add(tile, target, {.engine = boxes.engine});
    } else if (boxes.is_async) {
      k.copy_async(tile, target);
    } else {
      k.copy(tile, target, {.engine = boxes.engine});
    }
  });
  return k.finish();
}

HostTensor stored_boxes_input(const StoredBoxes& boxes) {
  return boxes.stack([](int64_t i) { return static_cast<double>(i * 7 % 13); });
}

HostTensor stored_boxes_output(const StoredBoxes& boxes) {
  return boxes.tensor([](int64_t i) { return static_cast<double>(i % 5 + 1); });
}

double stored_boxes_value(const StoredBoxes& boxes, const HostTensor& x, int64_t i) {
  const auto before = static_cast<double>(i % 5 + 1);
  int64_t place = 0, stride = 1;
  for (size_t d = boxes.box.size(); d-- > 0;) {
    int64_t index = i % boxes.shape[d] - boxes.first[d];
    i /= boxes.shape[d];
    const int64_t extent = d == 0 ? boxes.box[d] * boxes.steps : boxes.box[d];
    if (index < 0 || index >= extent) return before;
    place += index * stride;
    stride *= extent;
  }
  const double stored = x.value(place);
  return boxes.adds ? before + static_cast<double>(boxes.blocks) * stored : stored;
}

namespace {

ir::Kernel added_tile(DType dtype) {
  Builder k("added_tile");
  auto x = k.input("x", dtype, {16, 64});
  auto y = k.output("y", dtype, {16, 64});
  k.launch({1}, {.threads = 64});
  auto tile = k.shared(dtype, {16, 64}, "tile");
  k.copy(x, tile);
  k.copy_add(tile, y);
  return k.finish();
}

double least_of(DType dtype) {
  return dtype == DType::f16 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-133 : 0x1p-149;
}

}  // namespace

SubnormalSums::SubnormalSums(DType dtype)
    : kernel(added_tile(dtype)), x(dtype, {16, 64}), y(dtype, {16, 64}) {
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set_value(i, static_cast<double>(i % 32 - 16) * least_of(dtype));
    y.set_value(i, static_cast<double>(i / 32 - 16) * least_of(dtype));
  }
}
double SubnormalSums::sum(int64_t i) const {
  return static_cast<double>(i % 32 - 16 + i / 32 - 16) * least_of(x.dtype());
}

ir::Kernel product_with_stores(const StagedProduct& p, DType dtype, int64_t blocks) {
  Builder k("product_with_stores");
  auto m = k.dim("m", {.multiple_of = p.tile_rows}),
       n = k.dim("n", {.multiple_of = p.tile_columns});
  auto depth = k.dim("depth", {.multiple_of = p.step});
  auto a = k.input("a", DType::bf16, {m, depth}), b = k.input("b", DType::bf16, {n, depth});
  auto c = k.output("c", dtype, {m, n});
  k.launch({blocks}, {.threads = p.threads + 32});
  auto ring = k.ring({.stages = p.stages});
  auto a_tile = ring.shared(DType::bf16, {p.tile_rows, p.step}, "a_tile");
  auto b_tile = ring.shared(DType::bf16, {p.tile_columns, p.step}, "b_tile");
  auto c_tile = k.shared(dtype, {p.tile_rows, p.tile_columns}, "c_tile");
  const std::vector<Arg> tiles = {m / p.tile_rows, n / p.tile_columns};
  auto load = [&] {
    k.persistent(tiles, [&](Value i, Value j) {
      k.serial(0, depth / p.step, [&](Value s) {
        ring.fill([&] {
          k.copy(a.tile({i * p.tile_rows, s * p.step}, {p.tile_rows, p.step}), a_tile,
                 {.engine = p.engine});
          k.copy(b.tile({j * p.tile_columns, s * p.step}, {p.tile_columns, p.step}), b_tile,
                 {.engine = p.engine});
        });
      });
    });
  };
  auto multiply = [&] {
    auto sum = k.fragment(DType::f32, {p.tile_rows, p.tile_columns}, "sum");
    k.persistent(tiles, [&](Value i, Value j) {
      k.fill(sum, 0.0f);
      k.serial(0, depth / p.step, [&](Value) {
        ring.take(
            [&] { k.gemm(a_tile, b_tile.transposed(), sum, {.instruction = p.instruction}); });
      });
      k.copy(sum, c_tile);
      k.copy_async(c_tile,
                   c.tile({i * p.tile_rows, j * p.tile_columns}, {p.tile_rows, p.tile_columns}));
    });
  };
  k.roles({{.name = "multiply", .warpgroups = p.threads / 128, .body = multiply},
           {.name = "load", .warps = 1, .body = load}});
  return k.finish();
}

}  // namespace tessera::test
