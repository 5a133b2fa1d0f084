#include "tests/support/box_walk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/tensor_of.h"

namespace tessera::test {

using dsl::Arg;

namespace {

constexpr auto kType = DType::bf16;
constexpr DType kDtypes[] = {DType::bf16, DType::f16, DType::f32, DType::e4m3, DType::e5m2,
                             DType::i8,   DType::u8,  DType::i32, DType::i64};

std::vector<int64_t> with_front(int64_t extent, const std::vector<int64_t>& others) {
  std::vector<int64_t> shape = {extent};
  shape.insert(shape.end(), others.begin(), others.end());
  return shape;
}

}  // namespace

std::string BoxWalk::walk_text() const {
  return fmt::format("{} [{}], boxes [{}] from [{}], {} steps", name(dtype), fmt::join(shape, ", "),
                     fmt::join(box, ", "), fmt::join(first, ", "), steps);
}

std::vector<Arg> BoxWalk::dims(dsl::Builder& k, const std::string& name) const {
  const int64_t per_piece = 128 / bits(dtype);
  std::vector<Arg> extents;
  for (size_t d = 0; d < shape.size(); ++d) {
    extents.emplace_back(
        k.dim(name + std::to_string(d), {.multiple_of = d + 1 == shape.size() ? per_piece : 1}));
  }
  return extents;
}

std::vector<Arg> BoxWalk::stack_extents() const {
  std::vector<Arg> extents = {steps};
  extents.insert(extents.end(), box.begin(), box.end());
  return extents;
}
std::vector<int64_t> BoxWalk::shape_in_stack() const {
  return with_front(1, box);
}
std::vector<int64_t> BoxWalk::tile_shape() const {
  std::vector<int64_t> extents = box;
  if (extents.size() == 5) extents.erase(extents.begin());
  return extents;
}

std::vector<Arg> BoxWalk::place(dsl::Builder& k, const dsl::Value& step) const {
  std::vector<Arg> indices = {k.let("first", step * box[0] + first[0])};
  indices.insert(indices.end(), first.begin() + 1, first.end());
  return indices;
}
std::vector<Arg> BoxWalk::place_in_stack(const dsl::Value& step) const {
  std::vector<Arg> indices = {step};
  indices.resize(box.size() + 1, 0);
  return indices;
}

HostTensor BoxWalk::stack(double (*value)(int64_t)) const {
  return tensor_by(dtype, Dims(with_front(steps, box)), value);
}
HostTensor BoxWalk::tensor(double (*value)(int64_t)) const {
  return tensor_by(dtype, Dims(shape), value);
}

std::vector<BoxWalk> walks_of_dtypes() {
  std::vector<BoxWalk> walks;
  for (const DType dtype : kDtypes) {
    const int64_t piece = 128 / bits(dtype);
    for (const std::vector<int64_t>& first :
         {std::vector<int64_t>{0, 0}, {13, 4 * piece}, {-8, piece}, {0, -2 * piece}, {100, 0}}) {
      walks.push_back({dtype, {20, 5 * piece}, {8, 2 * piece}, first});
    }
  }
  return walks;
}

std::vector<BoxWalk> walks_of_ranks() {
  return {{kType, {200}, {64}, {0}, 4},
          {kType, {20, 64}, {8, 32}, {0, 0}},
          {kType, {9, 5, 24}, {4, 4, 16}, {-4, 2, 8}},
          {kType, {5, 3, 4, 16}, {2, 2, 4, 8}, {0, 2, 1, 8}},
          {kType, {5, 3, 2, 4, 16}, {1, 2, 2, 2, 8}, {0, 2, 1, 0, 8}}};
}

std::vector<BoxWalk> walks_from_before() {
  std::vector<BoxWalk> walks = {{kType, {9, 5, 24}, {4, 4, 16}, {-1, 2, 8}},
                                {kType, {5, 3, 4, 16}, {2, 2, 4, 8}, {0, -1, 1, 8}},
                                {kType, {5, 3, 2, 4, 16}, {1, 2, 2, 2, 8}, {0, -1, 1, 0, 8}}};
  for (const DType dtype : kDtypes) {
    const int64_t piece = 128 / bits(dtype);
    for (const std::vector<int64_t>& first : {std::vector<int64_t>{-3, 4 * piece}, {0, -piece}}) {
      walks.push_back({dtype, {20, 5 * piece}, {8, 2 * piece}, first});
    }
  }
  return walks;
}

std::vector<BoxWalk> walks_of_nothing() {
  return {{kType, {0, 64}, {8, 32}, {-8, 0}}, {kType, {20, 0}, {8, 32}, {-8, 0}}};
}

}  // namespace tessera::test
