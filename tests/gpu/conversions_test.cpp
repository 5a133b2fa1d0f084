// Every conversion between element types on the GPU, against the results by definition: with the
// instructions of this device, and with the software forms that older targets use (sm_80 PTX runs
// on every later device).

#include <memory>

#include "codegen/cuda/emit.h"
#include "runtime/launch.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/runtime.h"
#include "tests/support/catch.h"
#include "tests/support/conversion_cases.h"
#include "tests/support/device_tensor.h"

namespace tessera {
namespace {

/// The program for device 0, from a cubin for it or from PTX for sm_80.
runtime::LoadedKernel load(const codegen::Program& program, bool as_sm_80) {
  const auto source_for = [&](Target target) {
    codegen::Program of_target = program;
    of_target.target = target;
    return codegen::cuda::emit(of_target);
  };
  const runtime::DeviceInfo& device = runtime::device_info(0);
  const runtime::Nvrtc& nvrtc = runtime::Runtime::instance().nvrtc();
  const runtime::Target target =
      runtime::choose_target(device.major, device.minor, nvrtc.archs, nvrtc.describe());
  auto image =
      std::make_shared<runtime::Image>(runtime::compile(nvrtc, source_for(target), target));
  if (as_sm_80) image->cubin = runtime::compile_to_ptx(nvrtc, source_for({8, 0, 0}), {8, 0, 0});
  std::string refusal;
  const auto kernel = runtime::load_image(runtime::driver(), image, device, refusal);
  INFO(refusal);
  REQUIRE(kernel);
  return *kernel;
}

std::vector<std::vector<uint8_t>> run_on_gpu(const codegen::Program& program,
                                             const std::vector<uint8_t>& x,
                                             const std::vector<size_t>& sizes, bool as_sm_80) {
  const runtime::LoadedKernel kernel = load(program, as_sm_80);
  std::vector<runtime::DeviceBuffer> buffers;
  buffers.emplace_back(0, static_cast<int64_t>(x.size()));
  buffers.front().upload(x.data(), static_cast<int64_t>(x.size()));
  for (const size_t size : sizes) {
    buffers.emplace_back(0, static_cast<int64_t>(size));
    buffers.back().fill(0xA5);
  }
  std::vector<void*> pointers;
  for (const runtime::DeviceBuffer& buffer : buffers) pointers.push_back(buffer.data());
  std::vector<void*> arguments;
  for (void*& pointer : pointers) arguments.push_back(&pointer);
  runtime::launch(kernel, {program.grid[0]->integer, 1, 1}, arguments.data(), nullptr);
  std::vector<std::vector<uint8_t>> outputs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    outputs.emplace_back(sizes[i]);
    buffers[i + 1].download(outputs[i].data(), static_cast<int64_t>(sizes[i]));
  }
  return outputs;
}

void check_all(bool as_sm_80) {
  for (const DType from : test::all_dtypes()) {
    const auto run = [&](const codegen::Program& program, const std::vector<uint8_t>& x,
                         const std::vector<size_t>& sizes) {
      return run_on_gpu(program, x, sizes, as_sm_80);
    };
    for (const std::string& wrong : test::wrong_conversions(from, run)) FAIL_CHECK(wrong);
  }
}

TEST_CASE("the GPU converts every type to every other by definition", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  check_all(false);
}

TEST_CASE("the software forms of conversions give the same bits", "[gpu]") {
  if (const std::string reason = test::why_no_gpu(); !reason.empty()) TESSERA_SKIP(reason);
  check_all(true);
}

}  // namespace
}  // namespace tessera
