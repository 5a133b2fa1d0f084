#pragma once
// Devices and contexts. The runtime never creates a context: it uses the caller's, else the
// device's primary one.

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
  int64_t shared_optin = 0;  // bytes of shared memory that one block may ask for
  int64_t l2_bytes = 0;
  int64_t window_bytes = 0;  // of the largest window with a policy for L2
  int64_t memory_bytes = 0;
};

/// GPUs that can be used; 0 without a driver (why_no_device says why). Never throws.
TESSERA_API int num_devices();
/// Why num_devices() is 0: one line. Empty if there is a device.
TESSERA_API std::string why_no_device();

/// Facts of a device, read once. Throws an argument error for an ordinal that is not there.
///
/// Example: int sms = device_info(0).num_sms;
TESSERA_API const DeviceInfo& device_info(int ordinal);
/// The same, uncached, from a given driver.
TESSERA_API DeviceInfo query_device(const Driver& driver, int ordinal);

/// While it lives, a context of the device is current on this thread: the one that was, if it
/// belongs to the device, else the device's primary context, which is popped again. Costs one
/// driver call when nothing has to change. (Launching first and looking for a context only when that
/// fails would save it, but a thread with another device's context would launch there.)
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

/// True if the primary context of the device is current on this thread; true of no other context. One
/// driver call; false where there is no driver. Never throws.
bool is_current(int ordinal);

}  // namespace tessera::runtime
