// Tensor copies on a GPU, bit for bit against the executor.

#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/driver/device.h"
#include "tests/support/catch.h"
#include "tests/support/device_tensor.h"
#include "tests/support/lowered.h"
#include "tests/support/tensor_copy_kernel.h"

namespace tessera {
namespace {

using test::Boxes;
using test::BoxWalk;
using test::DeviceTensor;
using test::HostTensor;
using test::StagedProduct;

void check_boxes(const Boxes& boxes) {
  INFO(boxes.text());
  const HostTensor x = test::boxes_input(boxes);
  HostTensor y = test::boxes_output(boxes);
  DeviceTensor on_x(x, Device::cuda(0)), on_y(y, Device::cuda(0));
  kernels::jit::run(test::boxes_kernel(boxes), std::vector<TensorView>{on_x.view(), on_y.view()},
                    {}, nullptr);
  on_y.download(y);
  int64_t wrong = 0;
  for (int64_t i = 0; i < y.size(); ++i) wrong += y.value(i) != test::boxes_value(boxes, x, i);
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("boxes of a tensor arrive on the GPU, with zeros outside", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  for (const BoxWalk& walk : test::walks_of_dtypes()) check_boxes({walk});
  for (const BoxWalk& walk : test::walks_of_ranks()) check_boxes({walk});
  for (const BoxWalk& walk : test::walks_from_before()) check_boxes({walk});
}

TEST_CASE("products of operands by tensor copies have the executor's bits", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  if (runtime::device_info(0).major != 9) TESSERA_SKIP("the GPU is no sm_90");
  for (const int64_t step : {16, 32, 64, 128}) {
    for (const int stages : {2, 3, 5}) {
      StagedProduct p;
      p.instruction = ir::Instruction::wgmma;
      p.step = step;
      p.depth = 5 * step;
      p.stages = stages;
      INFO(p.text());
      test::call_of(p).check_on_gpu(test::staged_product(p));
      test::call_of(p).check_on_gpu(test::product_by_roles(p));
      if (step == 128 && stages == 5) continue;  // 240 KiB of shared memory with more rows
      p.is_ragged = true;
      p.m = 130;
      p.n = 70;
      p.tile_rows = 128;
      p.threads = 256;
      INFO(p.text());
      test::call_of(p).check_on_gpu(test::staged_product(p));
    }
  }
}

TEST_CASE("a launch plan makes the maps of new addresses", "[gpu][tensor_copy]") {
  const std::string reason = test::why_no_tensor_copies();
  if (!reason.empty()) TESSERA_SKIP(reason);
  const Boxes boxes;
  const HostTensor x = test::boxes_input(boxes);
  HostTensor y = test::boxes_output(boxes), zeros(boxes.dtype, Dims(boxes.shape));
  DeviceTensor on_x(zeros, Device::cuda(0)), on_y(y, Device::cuda(0));
  DeviceTensor other_x(x, Device::cuda(0)), other_y(y, Device::cuda(0));
  const kernels::jit::Function function(test::boxes_kernel(boxes));
  const std::vector<TensorView> views = {on_x.view(), on_y.view()};
  const auto again = kernels::jit::plan(views, [&] { function(views, {}, nullptr); });
  void* const data[] = {other_x.view().data, other_y.view().data};
  again(data, nullptr);
  other_y.download(y);
  for (int64_t i = 0; i < y.size(); ++i) {
    REQUIRE(y.value(i) == test::boxes_value(boxes, x, i));
  }
}

}  // namespace tessera
