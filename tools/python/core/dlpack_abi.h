#pragma once
// The structs of DLPack 1.3 that Python objects hand over, member for member.

#include <cstdint>

#include "runtime/dlpack.h"

namespace tessera::python {

inline constexpr uint32_t kDlMajor = 1;  // structs of another major version look different

struct DlVersion {
  uint32_t major, minor;
};

/// The contents of a capsule "dltensor_versioned".
struct DlManagedVersioned {
  DlVersion version;
  void* manager_context;
  void (*deleter)(DlManagedVersioned*);
  uint64_t flags;
  runtime::DlTensor tensor;
};

/// The contents of a capsule "dltensor" of older exporters.
struct DlManaged {
  runtime::DlTensor tensor;
  void* manager_context;
  void (*deleter)(DlManaged*);
};

/// The contents of the capsule `__dlpack_c_exchange_api__` of a tensor type: tensors without a Python call.
/// Functions return 0, or -1 with a Python error set.
struct DlExchange {
  DlVersion version;
  const DlExchange* older;
  void* allocate;
  int (*managed_from_object)(void* object, DlManagedVersioned** out);
  int (*object_from_managed)(DlManagedVersioned* tensor, void** out);
  /// Borrows: the tensor lives as long as the object. May be null.
  int (*tensor_from_object)(void* object, runtime::DlTensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

inline constexpr int32_t kDlCpu = 1, kDlCuda = 2;  // device types
inline constexpr uint8_t kDlFloat = 2;             // a type code, of f16, f32 and f64

}  // namespace tessera::python
