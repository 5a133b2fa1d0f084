#include "runtime/dlpack.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

struct TypeRow {
  uint8_t code, bits;
  uint16_t lanes;
  DType dtype;
};

constexpr std::array<TypeRow, 16> kTypes = {{{0, 8, 1, DType::i8},
                                             {0, 16, 1, DType::i16},
                                             {0, 32, 1, DType::i32},
                                             {0, 64, 1, DType::i64},
                                             {1, 8, 1, DType::u8},
                                             {1, 16, 1, DType::u16},
                                             {1, 32, 1, DType::u32},
                                             {1, 64, 1, DType::u64},
                                             {2, 16, 1, DType::f16},
                                             {2, 32, 1, DType::f32},
                                             {2, 64, 1, DType::f64},
                                             {4, 16, 1, DType::bf16},
                                             {6, 8, 1, DType::boolean},
                                             {10, 8, 1, DType::e4m3},
                                             {12, 8, 1, DType::e5m2},
                                             {17, 4, 2, DType::i8}}};  // a pair of e2m1

[[noreturn]] void refuse(std::string_view argument, std::string_view what, std::string expected,
                         std::string got, std::string code) {
  raise(ErrorKind::argument, "", fmt::format("argument '{}' {}", argument, what),
        {.argument = std::string(argument),
         .expected = std::move(expected),
         .got = std::move(got),
         .code = std::move(code)});
}

std::optional<Device> device_of(const DlTensor& tensor) {
  constexpr int32_t kCpu = 1, kCuda = 2, kPageLocked = 3;
  if (tensor.device_type == kCpu || tensor.device_type == kPageLocked) return Device::cpu();
  if (tensor.device_type == kCuda && tensor.device_id >= 0) return Device::cuda(tensor.device_id);
  return std::nullopt;
}

DType dtype_of(const DlTensor& tensor, std::string_view argument) {
  for (const TypeRow& row : kTypes) {
    if (row.code == tensor.type_code && row.bits == tensor.type_bits &&
        row.lanes == tensor.type_lanes) {
      return row.dtype;
    }
  }
  refuse(argument, "has an element type that is not known",
         "an integer, f16, f32, f64, bf16, bool, e4m3, e5m2, or e2m1 in pairs",
         fmt::format("DLPack code {}, {} bits, {} lanes", tensor.type_code, tensor.type_bits,
                     tensor.type_lanes),
         "DTYPE");
}

}  // namespace

TensorView view_of(const DlTensor& tensor, std::string_view argument, Access access,
                   uint64_t flags) {
  TensorView view;
  view.dtype = dtype_of(tensor, argument);
  const auto device = device_of(tensor);
  if (!device) {
    refuse(argument, "is on a device of another kind", "DLPack device 1 (CPU), 2 (CUDA) or 3",
           fmt::format("device type {}, id {}", tensor.device_type, tensor.device_id), "DEVICE");
  }
  view.device = *device;
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank || (tensor.ndim > 0 && !tensor.shape)) {
    refuse(argument, "has a rank that is not supported",
           fmt::format("0 to {} dimensions", kMaxRank), fmt::format("{}", tensor.ndim), "SHAPE");
  }
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) {
      refuse(argument, "has a negative extent", "0 or more",
             fmt::format("{} in dimension {}", tensor.shape[i], i), "SHAPE");
    }
    view.shape.push_back(tensor.shape[i]);
  }
  view.strides = row_major_strides(view.shape);
  for (int32_t i = 0; tensor.strides && i < tensor.ndim; ++i) {
    if (tensor.strides[i] < 0) {
      refuse(argument, "has a negative stride", "0 or more",
             fmt::format("{} in dimension {}", tensor.strides[i], i), "STRIDES");
    }
    view.strides[i] = tensor.strides[i];
  }
  constexpr int64_t kMostBytes = int64_t{1} << 62;
  if (std::max(view.size(), view.span_bytes()) > kMostBytes) {
    refuse(argument, "is too large", "at most 2^62 bytes", to_string(view), "SHAPE");
  }
  if (!tensor.data && view.size() > 0) {
    refuse(argument, "has no data", "a data pointer", fmt::format("null for {}", to_string(view)),
           "DATA");
  }
  if (access == Access::write && (flags & kDlReadOnly) != 0) {
    refuse(argument, "is read-only", "memory that may be written", to_string(view), "READ_ONLY");
  }
  view.read_only = (flags & kDlReadOnly) != 0;
  if (tensor.data) view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  return view;
}

}  // namespace tessera::runtime
