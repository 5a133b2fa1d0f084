// Tensor maps: what the driver is asked for, and what is refused.

#include "runtime/tensor_map.h"

#include "dsl/base/error.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/sample_image.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"

using namespace tessera;
using namespace tessera::runtime;
using test::error_of;
using test::FakeCuda;

namespace {

/// A kernel whose last parameter is a map of x in boxes of 64 x 32, swizzle 64.
struct Sample {
  FakeCuda fake;
  std::unique_ptr<const Driver> driver = open_driver(fake.loader());
  LoadedKernel kernel;

  Sample() {
    kernel.image = std::make_shared<const Image>(test::sample_image());
    kernel.driver = driver.get();
  }
  TensorMap encode(const TensorView& view) const {
    return encode_tensor_map(kernel, kernel.image->params.back(), view);
  }
  const std::string& asked() { return fake.state().tensor_map; }
};

TensorView view_at(uintptr_t address, Dims shape, Dims strides) {
  return TensorView(reinterpret_cast<void*>(address), DType::bf16, shape, strides, Device::cuda(0));
}
TensorView view_at(uintptr_t address, const Dims& shape) {
  return view_at(address, shape, row_major_strides(shape));
}

}  // namespace

TEST_CASE("a tensor map has the extents and strides of the call, the innermost first") {
  Sample sample;
  const TensorMap map = sample.encode(view_at(4096, {100, 40}, {48, 1}));
  CHECK(map.words[0] == 0x5A5A5A5A5A5A5A5A);
  CHECK(map.words[15] == 0x5A5A5A5A5A5A5A5A);
  CHECK(reinterpret_cast<uintptr_t>(&map) % 64 == 0);
  CHECK(sample.asked() == "dtype 9, at 4096, 40 by 32 x 1, 100 by 64 x 1 every 96, 0 2 0");
}

TEST_CASE("a tensor map knows floats, of which the engine adds, and the size of other elements") {
  for (const auto& [dtype, code] :
       {std::pair(DType::f16, 6), std::pair(DType::bf16, 9), std::pair(DType::f32, 7),
        std::pair(DType::i32, 2), std::pair(DType::u32, 2), std::pair(DType::u64, 4),
        std::pair(DType::i64, 4), std::pair(DType::e4m3, 0)}) {
    Sample sample;
    Image image = *sample.kernel.image;
    image.params.back().dtype = dtype;
    sample.kernel.image = std::make_shared<const Image>(image);
    sample.encode(view_at(4096, {100, 40}, {48, 1}));
    CHECK(sample.asked().rfind("dtype " + std::to_string(code) + ",", 0) == 0);
  }
}

TEST_CASE("the stride of a dimension of one element may be anything") {
  Sample sample;
  sample.encode(view_at(4096, {1, 40}, {-7, 1}));
  CHECK(sample.asked() == "dtype 9, at 4096, 40 by 32 x 1, 1 by 64 x 1 every 16, 0 2 0");
}

TEST_CASE("a tensor without elements has a map of one, at no address of anybody's") {
  Sample sample;
  for (const TensorView& empty : {view_at(0, {0, 40}), view_at(4096, {100, 0}), TensorView()}) {
    sample.encode(empty);
    CHECK(sample.asked() == "dtype 9, at 16, 1 by 32 x 1, 1 by 64 x 1 every 16, 0 2 0");
  }
}

TEST_CASE("a map that the kernel completes is that of a tensor without elements") {
  Sample sample;
  Image image = *sample.kernel.image;
  image.params.back().map->tensor = TensorMapParam::kNoTensor;
  sample.kernel.image = std::make_shared<const Image>(image);
  sample.encode(TensorView());
  CHECK(sample.asked() == "dtype 9, at 16, 1 by 32 x 1, 1 by 64 x 1 every 16, 0 2 0");
}

TEST_CASE("a tensor that no map can have is an argument error that names it") {
  Sample sample;
  const auto refused = [&](const TensorView& view, const std::string& words) {
    const std::string text = error_of([&] { sample.encode(view); });
    INFO(text);
    CHECK(text.find("scale") != std::string::npos);
    CHECK(text.find("tensor copies of 'x' are impossible") != std::string::npos);
    CHECK(text.find(words) != std::string::npos);
  };
  refused(view_at(4104, {100, 40}), "its address");
  refused(view_at(4096, {100, 40}, {44, 1}), "the stride of dimension 0");
  refused(view_at(4096, {100, 40}, {int64_t{1} << 40, 1}), "the stride of dimension 0");
  refused(view_at(4096, {(int64_t{1} << 32) + 1, 40}), "the extent of dimension 0");
  refused(view_at(4096, {2, 100, 40}), "its rank");
}

TEST_CASE("a driver without tensor maps, or that refuses one, is an error") {
  Sample sample;
  sample.fake.state().tensor_map_result = 1;
  CHECK(error_of([&] {
          sample.encode(view_at(4096, {100, 40}));
        }).find("cuTensorMapEncodeTiled failed") != std::string::npos);
  FakeCuda& fake = sample.fake;
  fake.state().missing_function = "cuTensorMapEncodeTiled";
  sample.driver = open_driver(fake.loader());
  sample.kernel.driver = sample.driver.get();
  CHECK(error_of([&] {
          sample.encode(view_at(4096, {100, 40}));
        }).find("the CUDA driver lacks cuTensorMapEncodeTiled") != std::string::npos);
}
