#include "codegen/cpu/machine/grid_races.h"

#include <fmt/format.h>

#include <algorithm>

#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

std::vector<GridShadow::Tensor> tensors(const Program& program, const Bytecode& bytecode,
                                        const Launch& launch) {
  std::vector<GridShadow::Tensor> all(program.params.size());
  for (const Storage& storage : bytecode.arrays) {
    if (storage.array->space != ArraySpace::global || storage.base) continue;
    const auto param = static_cast<size_t>(storage.param);
    all[param] = {.data = launch.memory[param].data,
                  .bytes = launch.memory[param].bytes,
                  .element_bytes = std::max(1, bits(storage.array->dtype) / 8),
                  .ways = storage.ways};
  }
  return all;
}

}  // namespace

GridRaces::GridRaces(const Program& program, const Bytecode& bytecode,
                     std::span<const Argument> arguments, const Launch& launch,
                     const std::array<int64_t, 3>& grid)
    : program_(program),
      code_(bytecode),
      arguments_(arguments),
      grid_(grid),
      order_(bytecode.orders_blocks ? std::optional<BlockOrder>(std::in_place) : std::nullopt),
      shadow_(tensors(program, bytecode, launch), program.cluster, order()) {}

void GridRaces::meet() {
  const std::optional<GridConflict> found = shadow_.find();
  if (!found) return shadow_.clear();
  const auto touch = [&](const GridConflict::Touch& t) {
    return fmt::format("{} by block {}", name(t.way), block_name(t.block));
  };
  const auto loc = [&](const GridConflict::Touch& t) {
    return code_.locs[static_cast<size_t>(t.statement)];
  };
  throw Error({.kind = ErrorKind::trap,
               .op = program_.name,
               .what = fmt::format("race on {}: {} and {} with no barrier of the grid{} between",
                                   element_name(*found), touch(found->one), touch(found->other),
                                   order_ ? " or order by acq_rel atomics" : ""),
               .argument = program_.params[static_cast<size_t>(found->param)].name,
               .code = "RACE",
               .loc = loc(found->one),
               .related = loc(found->other)});
}

std::string GridRaces::block_name(int64_t block) const {
  return fmt::format("({}, {}, {})", block % grid_[0], block / grid_[0] % grid_[1],
                     block / grid_[0] / grid_[1]);
}

/// "y[3, 17]", or "byte 40 of y" if no index of the tensor reaches it.
std::string GridRaces::element_name(const GridConflict& conflict) const {
  const TensorView& tensor = arguments_[static_cast<size_t>(conflict.param)].tensor;
  const std::string& array = program_.params[static_cast<size_t>(conflict.param)].name;
  int64_t rest = conflict.byte * 8 / bits(tensor.dtype);
  const bool is_whole = conflict.byte * 8 % bits(tensor.dtype) == 0;
  std::vector<int> axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (tensor.shape[axis] > 1 && tensor.strides[axis] > 0) axes.push_back(axis);
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return tensor.strides[a] > tensor.strides[b]; });
  Dims index = tensor.shape;
  std::fill_n(index.values.begin(), index.rank, 0);
  for (const int axis : axes) {
    index[axis] = std::min(rest / tensor.strides[axis], tensor.shape[axis] - 1);
    rest -= index[axis] * tensor.strides[axis];
  }
  return is_whole && rest == 0 ? array + to_string(index)
                               : fmt::format("byte {} of {}", conflict.byte, array);
}

}  // namespace tessera::codegen::cpu
