#include "kernels/views/reshaped.h"

#include <string>

#include "dsl/base/error.h"
#include "tests/support/catch.h"

namespace tessera::kernels {
namespace {

std::byte memory[4096];

TensorView view_of(DType dtype, Dims shape, Dims strides) {
  return {memory, dtype, shape, strides, Device::cpu()};
}

template <class Make>
std::string problem_of(const Make& make) {
  try {
    make();
    return "none";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::internal);
    return error.what();
  }
}

TEST_CASE("another shape keeps the strides of rows that lie apart", "[reshaped]") {
  const TensorView x = view_of(DType::f32, {5, 8}, {11, 1});
  CHECK(reshaped(x, {5, 2, 4}).strides == Dims{11, 4, 1});
  CHECK(reshaped(x, {5, 1, 8}).strides == Dims{11, 8, 1});
  CHECK(reshaped(x, {5, 8}).strides == Dims{11, 1});
  CHECK(reshaped(reshaped(x, {5, 2, 4}), {5, 8}).strides == Dims{11, 1});
  const TensorView column = view_of(DType::f32, {6, 1}, {3, 77});
  CHECK(reshaped(column, {2, 3}).strides == Dims{9, 3});
  CHECK(reshaped(view_of(DType::f32, {2, 3, 4}, {12, 4, 1}), {24}).strides == Dims{1});
  CHECK(reshaped(view_of(DType::f32, {0, 4}, {9, 1}), {2, 0}).shape == Dims{2, 0});
  CHECK(reshaped(TensorView(), {3}).rank() == 0);
}

TEST_CASE("a shape that needs a copy is never made", "[reshaped]") {
  const TensorView x = view_of(DType::f32, {5, 8}, {11, 1});
  CHECK(problem_of([&] { reshaped(x, {40}); }).find("without a copy") != std::string::npos);
  CHECK(problem_of([&] { reshaped(x, {10, 4}); }).find("without a copy") != std::string::npos);
  CHECK(problem_of([&] { reshaped(x, {4, 10}); }).find("without a copy") != std::string::npos);
  CHECK(problem_of([&] { reshaped(x, {5, 9}); }).find("other elements") != std::string::npos);
}

TEST_CASE("rows of bytes become rows of words, as far apart as before", "[reshaped]") {
  const TensorView x = view_of(DType::i8, {3, 16}, {24, 1});
  CHECK(retyped(x, DType::u32).shape == Dims{3, 4});
  CHECK(retyped(x, DType::u32).strides == Dims{6, 1});
  CHECK(retyped(x, DType::e2m1).shape == Dims{3, 32});
  CHECK(retyped(x, DType::e2m1).strides == Dims{48, 1});
  CHECK(retyped(x, DType::e4m3).strides == Dims{24, 1});
  CHECK(problem_of([&] { retyped(view_of(DType::i8, {3, 16}, {18, 1}), DType::u32); }) != "none");
  CHECK(problem_of([&] { retyped(view_of(DType::i8, {3, 16}, {64, 2}), DType::u32); }) != "none");
}

}  // namespace
}  // namespace tessera::kernels
