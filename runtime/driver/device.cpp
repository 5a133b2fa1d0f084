#include "runtime/driver/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

void check_ordinal(const Driver& driver, int ordinal) {
  if (ordinal >= 0 && ordinal < std::min(driver.num_devices, kMaxDevices)) return;
  raise(
      ErrorKind::argument, "", "no such CUDA device",
      {.expected = driver.num_devices > 0 ? fmt::format("cuda:0 to cuda:{}", driver.num_devices - 1)
                                          : "a CUDA device (this machine has none)",
       .got = fmt::format("cuda:{}", ordinal)});
}

// Two threads may both retain the context: the driver counts, and we never release.
cu::Context primary_context(const Driver& driver, int ordinal) {
  check_ordinal(driver, ordinal);
  std::atomic<cu::Context>& known = driver.primary.at(static_cast<size_t>(ordinal));
  if (const cu::Context context = known.load(std::memory_order_acquire)) return context;
  cu::Device device = 0;
  cu::Context context = nullptr;
  driver.check(driver.call.device_get(&device, ordinal), "cuDeviceGet");
  driver.check(driver.call.device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  known.store(context, std::memory_order_release);
  return context;
}

}  // namespace

int num_devices() {
  try {
    return driver().num_devices;
  } catch (const Error&) {
    return 0;
  }
}

std::string why_no_device() {
  try {
    return driver().num_devices > 0 ? "" : "the CUDA driver finds no GPU";
  } catch (const Error& error) {
    return error.fields().what + (error.got().empty() ? "" : ": " + error.got());
  }
}

DeviceInfo query_device(const Driver& used, int ordinal) {
  check_ordinal(used, ordinal);
  cu::Device device = 0;
  used.check(used.call.device_get(&device, ordinal), "cuDeviceGet");
  const auto attribute = [&](cu::DeviceAttribute which) {
    int value = 0;
    used.check(used.call.device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  DeviceInfo info;
  info.ordinal = ordinal;
  std::array<char, 256> name{};
  used.check(used.call.device_get_name(name.data(), static_cast<int>(name.size()), device),
             "cuDeviceGetName");
  info.name = name.data();
  info.major = attribute(cu::kComputeCapabilityMajor);
  info.minor = attribute(cu::kComputeCapabilityMinor);
  info.num_sms = attribute(cu::kMultiprocessorCount);
  info.shared_optin = attribute(cu::kMaxSharedPerBlockOptin);
  info.l2_bytes = attribute(cu::kL2CacheSize);
  info.window_bytes = attribute(cu::kMaxAccessPolicyWindow);
  size_t bytes = 0;
  used.check(used.call.device_total_mem(&bytes, device), "cuDeviceTotalMem");
  info.memory_bytes = static_cast<int64_t>(bytes);
  return info;
}

const DeviceInfo& device_info(int ordinal) {
  static auto* const infos = new DeviceInfos;  // never destroyed: calls may come late
  return infos->of(driver(), ordinal);
}

DeviceInfos::~DeviceInfos() {
  for (const std::atomic<const DeviceInfo*>& info : known_) delete info.load();
}

const DeviceInfo& DeviceInfos::of(const Driver& driver, int ordinal) {
  check_ordinal(driver, ordinal);
  std::atomic<const DeviceInfo*>& slot = known_.at(static_cast<size_t>(ordinal));
  if (const DeviceInfo* info = slot.load(std::memory_order_acquire)) return *info;
  auto fresh = std::make_unique<const DeviceInfo>(query_device(driver, ordinal));
  const DeviceInfo* expected = nullptr;
  if (slot.compare_exchange_strong(expected, fresh.get())) return *fresh.release();
  return *expected;
}

ContextScope::ContextScope(const Driver& driver, int ordinal) : driver_(driver) {
  const cu::Context primary = primary_context(driver, ordinal);
  driver.check(driver.call.ctx_get_current(&current_), "cuCtxGetCurrent");
  if (current_ == primary) return;
  if (current_) {
    // NOTE: where the caller made its own context on the same device, that context owns the
    // caller's streams.
    cu::Device device = -1;
    cu::Device wanted = 0;
    driver.check(driver.call.ctx_get_device(&device), "cuCtxGetDevice");
    driver.check(driver.call.device_get(&wanted, ordinal), "cuDeviceGet");
    if (device == wanted) return;
  }
  driver.check(driver.call.ctx_push_current(primary), "cuCtxPushCurrent");
  current_ = primary;
  pushed_ = true;
}

ContextScope::~ContextScope() {
  cu::Context popped = nullptr;
  if (pushed_) static_cast<void>(driver_.call.ctx_pop_current(&popped));
}

bool is_current(int ordinal) {
  if (num_devices() <= ordinal || ordinal < 0) return false;
  const Driver& used = driver();
  const cu::Context primary =
      used.primary[static_cast<size_t>(ordinal)].load(std::memory_order_acquire);
  cu::Context context = nullptr;
  return primary != nullptr && used.call.ctx_get_current(&context) == cu::kSuccess &&
         context == primary;
}

}  // namespace tessera::runtime
