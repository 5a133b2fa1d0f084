#include "runtime/tensor_map.h"

#include <fmt/format.h>

#include <array>

#include "runtime/driver/device.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr size_t kMostDimensions = 5;
constexpr int64_t kPieceBytes = 16;
constexpr int64_t kMostExtent = int64_t{1} << 32;
constexpr int64_t kMostStride = int64_t{1} << 40;  // bytes

// Values of the driver's enumerations. Copies change no bit; additions depend on it, but not on the sign of integers.
int dtype_code(DType dtype) {
  if (dtype == DType::f16) return 6;
  if (dtype == DType::f32) return 7;
  if (dtype == DType::bf16) return 9;
  const int bytes = bits(dtype) / 8;
  return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 4;
}
int swizzle_code(int span) {
  return span == 0 ? 0 : span == 32 ? 1 : span == 64 ? 2 : 3;
}
constexpr int kNoInterleave = 0, kPromote256Bytes = 3, kZeroOutside = 0;

}  // namespace

TensorMap encode_tensor_map(const LoadedKernel& kernel, const KernelParam& param,
                            const TensorView& view) {
  const std::string& op = kernel.image->op;
  const TensorMapParam& facts = *param.map;
  const auto refuse = [&](std::string what, std::string expected, std::string got) {
    const std::string& tensor = kernel.image->params.at(static_cast<size_t>(facts.tensor)).name;
    raise(ErrorKind::argument, op,
          fmt::format("tensor copies of '{}' are impossible: {}", tensor, what),
          {.argument = tensor, .expected = std::move(expected), .got = std::move(got)});
  };
  const auto encode = kernel.driver->call.tensor_map_encode_tiled;
  if (encode == nullptr) {
    raise(ErrorKind::unsupported, op, "the CUDA driver lacks cuTensorMapEncodeTiled",
          {.expected = "CUDA 12.0 or newer", .got = kernel.driver->path});
  }
  const ContextScope context(*kernel.driver, kernel.device);  // the driver encodes for it
  const size_t rank = facts.box.size();
  const int64_t size = bits(param.dtype) / 8;
  const bool is_empty = view.data == nullptr || view.size() == 0;
  if (rank > kMostDimensions || (!is_empty && static_cast<size_t>(view.shape.rank) != rank)) {
    refuse("its rank", fmt::format("{}", rank), fmt::format("{}", view.shape.rank));
  }
  std::array<unsigned long long, kMostDimensions> extents{}, strides{};  // the innermost first
  std::array<unsigned, kMostDimensions> box{}, steps{};
  for (size_t i = 0; i < rank; ++i) {
    const int d = static_cast<int>(rank - 1 - i);
    const int64_t extent = is_empty ? 1 : view.shape[d];
    // The stride of a dimension of one element is never used, and may be anything.
    const int64_t stride = extent == 1 ? kPieceBytes : view.strides[d] * size;
    if (extent > kMostExtent) {
      refuse(fmt::format("the extent of dimension {}", d), "at most 2^32",
             fmt::format("{}", extent));
    }
    if (i > 0 && (stride < 0 || stride % kPieceBytes != 0 || stride >= kMostStride)) {
      refuse(fmt::format("the stride of dimension {}", d), "a multiple of 16 bytes below 2^40",
             fmt::format("{} bytes", stride));
    }
    extents[i] = static_cast<unsigned long long>(extent);
    if (i > 0) strides[i - 1] = static_cast<unsigned long long>(stride);
    box[i] = static_cast<unsigned>(facts.box[rank - 1 - i]);
    steps[i] = 1;
  }
  // No box contains the element of an empty tensor's map: its address is never read.
  void* const address = is_empty ? reinterpret_cast<void*>(kPieceBytes) : view.data;
  if (reinterpret_cast<uintptr_t>(address) % kPieceBytes != 0) {
    refuse("its address", "a multiple of 16 bytes", fmt::format("{}", address));
  }
  TensorMap map;
  kernel.driver->check(
      encode(&map, dtype_code(param.dtype), static_cast<unsigned>(rank), address, extents.data(),
             strides.data(), box.data(), steps.data(), kNoInterleave, swizzle_code(facts.swizzle),
             kPromote256Bytes, kZeroOutside),
      "cuTensorMapEncodeTiled", op);
  return map;
}

}  // namespace tessera::runtime
