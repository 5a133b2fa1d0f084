#pragma once
// Devices and contexts. The runtime never creates a context: it uses the caller's, else the
// device's primary one.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "dsl/base/api.h"
#include "runtime/driver/driver.h"

namespace tessera::runtime {

struct DeviceInfo {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int num_sms = 0;
  int64_t shared_optin = 0;  // bytes, most shared memory per block (opt-in)
  int64_t l2_bytes = 0;
  int64_t window_bytes = 0;  // largest access policy window for L2
  int64_t memory_bytes = 0;
};

/// Number of usable GPUs; 0 without a driver (why_no_device says why). Never throws.
TESSERA_API int num_devices();
/// Says in one line why num_devices() is 0. Empty if there is a device.
TESSERA_API std::string why_no_device();

/// Returns the facts of a device, read once. Throws an argument error for an ordinal that does not
/// exist.
///
/// Example: int sms = device_info(0).num_sms;
TESSERA_API const DeviceInfo& device_info(int ordinal);
/// Reads them anew, from a given driver.
TESSERA_API DeviceInfo query_device(const Driver& driver, int ordinal);

/// The facts of a driver's devices, each read once.
class TESSERA_LOCAL DeviceInfos {
 public:
  DeviceInfos() = default;
  ~DeviceInfos();
  DeviceInfos(const DeviceInfos&) = delete;
  DeviceInfos& operator=(const DeviceInfos&) = delete;
  /// Takes no lock. Throws as device_info.
  const DeviceInfo& of(const Driver& driver, int ordinal);

 private:
  std::array<std::atomic<const DeviceInfo*>, kMaxDevices> known_ = {};
};

/// Makes a context of the device current on this thread while it lives: the current one if it
/// belongs to the device, else the device's primary context, which it pops again. Costs one driver
/// call if nothing has to change. (Launching first and switching contexts on failure would save that
/// call, but would launch on the wrong device if another device's context is current.)
class TESSERA_API ContextScope {
 public:
  explicit ContextScope(int ordinal) : ContextScope(driver(), ordinal) {}
  ContextScope(const Driver& driver, int ordinal);
  ~ContextScope();
  /// The context of the device that is current now.
  cu::Context current() const { return current_; }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  cu::Context current_ = nullptr;
  bool pushed_ = false;
};

/// True if the primary context of the device is current on this thread. One driver call; false
/// without a driver. Never throws.
bool is_current(int ordinal);

}  // namespace tessera::runtime
