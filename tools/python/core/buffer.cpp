#include "tools/python/core/buffer.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "runtime/driver/device.h"
#include "runtime/driver/memory.h"
#include "tools/python/core/dlpack_abi.h"
#include "tools/python/core/errors.h"
#include "tools/python/core/interpreter_lock.h"

namespace tessera::python {
namespace {

constexpr size_t kAlignment = 256;

struct Memory {
  std::unique_ptr<void, decltype(&std::free)> host{nullptr, &std::free};
  std::optional<runtime::DeviceBuffer> on_device;

  Memory(Device device, int64_t bytes, bool zeros) {
    if (device.is_cuda()) {
      on_device.emplace(device.ordinal, bytes);
      if (zeros) on_device->fill(0);
      return;
    }
    const size_t size = (static_cast<size_t>(bytes) / kAlignment + 1) * kAlignment;
    host.reset(std::aligned_alloc(kAlignment, size));
    if (!host) throw std::bad_alloc();
    if (zeros) std::memset(host.get(), 0, size);
  }
  void* data() const { return on_device ? on_device->data() : host.get(); }
};

struct DlType {
  uint8_t code, bits;
};

DlType dl_type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {4, 16};
    case DType::e4m3:
      return {10, 8};
    case DType::e5m2:
      return {12, 8};
    case DType::boolean:
      return {6, 8};
    default:
      break;
  }
  const uint8_t code = is_float(dtype) ? 2 : is_signed(dtype) ? 0 : 1;
  return {code, static_cast<uint8_t>(bits(dtype))};
}

class Buffer {
 public:
  Buffer(const kernels::OutputInfo& output, Device device)
      : memory_(std::make_shared<const Memory>(
            device, output.storage_elements * bytes(output.dtype), output.starts_at_zero)),
        dtype_(output.dtype),
        device_(device),
        shape_(output.shape),
        strides_(output.strides) {}

  nb::object device() const {
    return nb::make_tuple(device_.is_cuda() ? kDlCuda : kDlCpu, device_.ordinal);
  }

  /// Whoever takes it may use it in any stream: the call that wrote it is waited for. `max_version` says
  /// whether the taker knows the managed tensors of DLPack 1.
  nb::object dlpack(const nb::kwargs& options) const {
    if (device_.is_cuda()) {
      const WithoutInterpreterLock released;
      runtime::synchronize(device_.ordinal);
    }
    const bool is_versioned = options.contains("max_version") && !options["max_version"].is_none();
    if (is_versioned) return lend<DlManagedVersioned>("dltensor_versioned");
    return lend<DlManaged>("dltensor");
  }

 private:
  /// A managed tensor and what it points to.
  template <class Managed>
  struct Lent {
    Managed managed;
    std::shared_ptr<const Memory> memory;
    Dims shape, strides;
  };

  template <class Managed>
  nb::object lend(const char* name) const {
    auto* const lent = new Lent<Managed>{{}, memory_, shape_, strides_};
    if constexpr (std::is_same_v<Managed, DlManagedVersioned>) lent->managed.version = {1, 0};
    lent->managed.manager_context = lent;
    lent->managed.deleter = [](Managed* managed) {
      delete static_cast<Lent<Managed>*>(managed->manager_context);
    };
    const DlType type = dl_type_of(dtype_);
    lent->managed.tensor = {memory_->data(),
                            device_.is_cuda() ? kDlCuda : kDlCpu,
                            device_.ordinal,
                            shape_.rank,
                            type.code,
                            type.bits,
                            1,
                            lent->shape.values.data(),
                            lent->strides.values.data(),
                            0};
    PyObject* const capsule = PyCapsule_New(&lent->managed, name, [](PyObject* unused) {
      const char* const still = PyCapsule_GetName(unused);
      if (std::string_view(still).starts_with("used_")) return;  // somebody took it
      auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(unused, still));
      managed->deleter(managed);
    });
    if (capsule == nullptr) delete lent;
    return owned(capsule);
  }

  std::shared_ptr<const Memory> memory_;
  DType dtype_;
  Device device_;
  Dims shape_, strides_;
};

}  // namespace

void add_buffer(nb::module_& module) {
  nb::class_<Buffer>(module, "Buffer", "Memory that another library takes over by DLPack.")
      .def("__dlpack__", &Buffer::dlpack)
      .def("__dlpack_device__", &Buffer::device);
}

nb::object make_buffer(const kernels::OutputInfo& output, Device device) {
  return nb::cast(Buffer(output, device));
}

}  // namespace tessera::python
