// Tensor stores on a GPU, bit for bit against the executor.

#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/lowered.h"
#include "tests/support/matchers.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_store_kernel.h"

namespace tessera {
namespace {

using dsl::Builder;
using dsl::Value;
using test::BoxWalk;
using test::DeviceTensor;
using test::HostTensor;
using test::StagedProduct;
using test::StoredBoxes;

void check_boxes(const StoredBoxes& boxes) {
  INFO(boxes.text());
  const HostTensor x = test::stored_boxes_input(boxes);
  HostTensor y = test::stored_boxes_output(boxes);
  DeviceTensor on_x(x, Device::cuda(0)), on_y(y, Device::cuda(0));
  kernels::jit::run(test::stored_boxes_kernel(boxes),
                    std::vector<TensorView>{on_x.view(), on_y.view()}, {}, nullptr);
  on_y.download(y);
  int64_t wrong = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    wrong += y.value(i) != test::stored_boxes_value(boxes, x, i);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("tiles are stored on the GPU, and what is outside is dropped", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const BoxWalk& walk : test::walks_of_dtypes()) check_boxes({walk});
  for (const BoxWalk& walk : test::walks_of_ranks()) check_boxes({walk});
  StoredBoxes boxes;
  boxes.is_async = true;
  check_boxes(boxes);
}

TEST_CASE("tiles with a swizzle are stored on the GPU", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const int64_t columns : {16, 32, 64, 128, 192}) {
    StoredBoxes boxes;
    boxes.by_columns = true;
    boxes.shape = {20, 200};
    boxes.box = {8, columns};
    boxes.first = {1, 8};
    check_boxes(boxes);
  }
}

TEST_CASE("tiles are added on the GPU as by atomics", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const DType dtype :
       {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32, DType::u64}) {
    const int64_t piece = 128 / bits(dtype);
    for (const int64_t blocks : {1, 3}) {
      StoredBoxes boxes;
      boxes.dtype = dtype;
      boxes.shape = {20, 5 * piece};
      boxes.box = {8, 2 * piece};
      boxes.first = {-8, 4 * piece};
      boxes.adds = true;
      boxes.blocks = blocks;
      check_boxes(boxes);
    }
  }
}

TEST_CASE("a tensor store adds subnormal numbers on the GPU", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name(dtype));
    test::SubnormalSums sums(dtype);
    DeviceTensor x(sums.x, Device::cuda(0)), y(sums.y, Device::cuda(0));
    kernels::jit::run(sums.kernel, std::vector<TensorView>{x.view(), y.view()}, {}, nullptr);
    y.download(sums.y);
    CHECK_THAT(sums.y, test::HasValues([&](int64_t i) { return sums.sum(i); }));
  }
}

TEST_CASE("roles store their products with the executor's bits", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  if (runtime::device_info(0).major != 9) TESSERA_SKIP("the GPU is no sm_90");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t blocks : {1, 2, 5}) {
      StagedProduct p;
      p.instruction = ir::Instruction::wgmma;
      p.m = 384;
      p.n = 192;
      p.depth = 96;
      INFO(p.text());
      const ir::Kernel kernel = test::product_with_stores(p, dtype, blocks);
      test::call_of(p, dtype).check_on_gpu(kernel);
    }
  }
}

TEST_CASE("a tile that is overwritten at once was stored before", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  Builder k("overwritten");
  auto y = k.output("y", DType::i32, {64, 64, 64});
  auto at = k.launch({8}, {.threads = 128});
  auto tile = k.shared(DType::i32, {64, 64}, "tile");
  k.serial(0, 8, [&](Value step) {
    const Value place = k.let("place", at.x * 8 + step);
    k.fill(tile, place);
    k.copy(tile, y.tile({place, 0, 0}, {1, 64, 64}), {.engine = ir::Engine::tensor});
    k.fill(tile, -1);
  });
  HostTensor out(DType::i32, {64, 64, 64});
  DeviceTensor on_out(out, Device::cuda(0));
  kernels::jit::run(k.finish(), std::vector<TensorView>{on_out.view()}, {}, nullptr);
  on_out.download(out);
  int64_t wrong = 0;
  for (int64_t i = 0; i < out.size(); ++i) wrong += out.value(i) != static_cast<double>(i / 4096);
  CHECK(wrong == 0);
}

TEST_CASE("a launch plan makes the maps of new outputs", "[gpu][tensor_store]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  const StoredBoxes boxes;
  const HostTensor x = test::stored_boxes_input(boxes);
  HostTensor y = test::stored_boxes_output(boxes);
  DeviceTensor on_x(x, Device::cuda(0)), on_y(y, Device::cuda(0)), other_y(y, Device::cuda(0));
  const kernels::jit::Function function(test::stored_boxes_kernel(boxes));
  const std::vector<TensorView> views = {on_x.view(), on_y.view()};
  const auto again = kernels::jit::plan(views, [&] { function(views, {}, nullptr); });
  void* const data[] = {on_x.view().data, other_y.view().data};
  again(data, nullptr);
  other_y.download(y);
  for (int64_t i = 0; i < y.size(); ++i) {
    REQUIRE(y.value(i) == test::stored_boxes_value(boxes, x, i));
  }
}

}  // namespace tessera
