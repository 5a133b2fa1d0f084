#pragma once
// Tensors of other frameworks by the DLPack interface. Needs its layout, not its library.

#include <cstdint>
#include <string_view>

#include "dsl/base/api.h"
#include "dsl/base/tensor_view.h"

namespace tessera::runtime {

/// DLTensor of dlpack.h, member for member: a pointer to a DLTensor may be cast to a pointer to
/// this.
struct DlTensor {
  void* data;
  int32_t device_type;  // 1 CPU, 2 CUDA, 3 page-locked host memory
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null = row-major
  uint64_t byte_offset;
};

/// DLPACK_FLAG_BITMASK_READ_ONLY of DLManagedTensorVersioned::flags.
inline constexpr uint64_t kDlReadOnly = 1;

/// Whether the call writes to the tensor. Read-only memory is refused then.
enum class Access { read, write };

/// Returns the tensor as a view. `argument` is its name in messages, `flags` are those of the
/// managed tensor. Copies nothing and waits for nothing: the producer must have ordered its work
/// before the stream of the call. Packed e2m1 (4 bits, 2 lanes) becomes i8 of the same shape, one
/// byte per pair.
///
/// Errors: argument, if the type, device, rank or a stride is none that a view has, data are missing,
///         or a tensor to be written is read-only.
/// Example: per_token_cast(view_of(x, "x"), view_of(out, "out", Access::write), ..., stream);
TESSERA_API TensorView view_of(const DlTensor& tensor, std::string_view argument,
                               Access access = Access::read, uint64_t flags = 0);

}  // namespace tessera::runtime
