#include "tools/lib/bench/copy_rate.h"

#include <algorithm>

#include "runtime/driver/memory.h"
#include "runtime/launch.h"
#include "runtime/request.h"
#include "runtime/runtime.h"

namespace tessera::tools {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorsPerThread = 4;  // independent 16-byte loads in flight per thread
constexpr int64_t kVector = 16;

KernelSource copy_kernel() {
  KernelSource source;
  source.op = "copy_rate";
  source.entry = "copy_rate";
  source.threads = kThreads;
  source.params = {
      {"to", true, DType::u8}, {"from", true, DType::u8}, {"count", false, DType::i64}};
  source.text = R"(
// Copies `count` vectors of 16 bytes, four per thread.
extern "C" __global__ void __launch_bounds__(256)
copy_rate(uint4* __restrict__ to, const uint4* __restrict__ from, long long count) {
  const long long first = (long long)blockIdx.x * 1024 + threadIdx.x;
  uint4 values[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i * 256 < count) values[i] = from[first + i * 256];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i * 256 < count) to[first + i * 256] = values[i];
  }
}
)";
  return source;
}

}  // namespace

double CopyRate::gbs(int64_t one_side) {
  const int64_t vectors = std::max<int64_t>(1, (one_side + kVector - 1) / kVector);
  const int64_t bytes = vectors * kVector;
  const auto found = known_.find(bytes);
  if (found != known_.end()) return found->second;

  const int device = timer_.device();
  const runtime::DeviceBuffer from(device, bytes), to(device, bytes);
  const runtime::Timing driver =
      timer_.measure([&] { runtime::copy_async(device, to.data(), from.data(), bytes, nullptr); });

  const auto kernel = runtime::Runtime::instance().load({"copy_rate", {}, copy_kernel}, device);
  void* to_pointer = to.data();
  void* from_pointer = from.data();
  int64_t count = vectors;
  void* arguments[] = {&to_pointer, &from_pointer, &count};
  const int64_t per_block = int64_t{kThreads} * kVectorsPerThread;
  const runtime::Grid grid{(vectors + per_block - 1) / per_block, 1, 1};
  const runtime::Timing own =
      timer_.measure([&] { runtime::launch(*kernel, grid, arguments, nullptr); });

  const double us = std::min(driver.us, own.us);
  return known_[bytes] = 2.0 * static_cast<double>(bytes) / us / 1e3;
}

}  // namespace tessera::tools
