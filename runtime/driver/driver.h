#pragma once
// Opens libcuda.so.1 at run time.

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "dsl/base/api.h"
#include "runtime/driver/driver_api.h"
#include "runtime/driver/shared_library.h"

namespace tessera::runtime {

/// CUDA 12.4: the oldest driver that we test against (cuLibrary* came with 12.0).
inline constexpr int kMinDriverVersion = 12040;

inline constexpr int kMaxDevices = 64;

struct TESSERA_API Driver {
  cu::Functions call;
  int version = 0;      // 13000 = CUDA 13.0
  int num_devices = 0;  // 0 for a driver without a GPU
  std::string path;
  /// Primary contexts, retained on first use until the process ends (runtime/driver/device.h).
  mutable std::array<std::atomic<cu::Context>, kMaxDevices> primary = {};

  /// Throws a driver error unless `result` is success. The error names `call`, the code, the
  /// driver's text, and an earlier kernel if that one broke the context.
  void check(cu::Result result, std::string_view call, std::string_view op = "") const;
  /// "CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid"
  std::string describe(cu::Result result) const;
};

/// True for errors that every later call on the context repeats: 700 illegal address, 702 timeout,
/// 710 assert, 714-719 hardware faults. The call that reports one need not have caused it.
TESSERA_API bool is_sticky(cu::Result result);

/// Opens and initialises the driver. Throws an unsupported error if the driver is missing, older
/// than kMinDriverVersion or lacks a function.
TESSERA_API std::unique_ptr<const Driver> open_driver(const LibraryLoader& loader);

/// Returns the process's driver, opened on first use and never closed. Throws the same open_driver
/// error on every call.
TESSERA_API const Driver& driver();

/// "12.4" for 12040.
TESSERA_API std::string cuda_version_text(int version);

}  // namespace tessera::runtime
