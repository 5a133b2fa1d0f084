#include "runtime/driver/driver.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "dsl/base/first_use.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr const char* kDriverName = "libcuda.so.1";

// Converts a data pointer from dlsym to a function pointer, as POSIX allows.
template <class Function>
Function as_function(void* address) {
  return reinterpret_cast<Function>(address);
}

int driver_version(const LibraryLoader& loader, void* library) {
  using GetVersion = cu::Result (*)(int*);
  const auto get = as_function<GetVersion>(loader.symbol(library, "cuDriverGetVersion"));
  int version = 0;
  return get && get(&version) == cu::kSuccess ? version : 0;
}

// Asks for each function in the version of our prototype. The plain symbol may be an older
// interface, the driver's newest version a newer one.
void resolve(cu::GetProcAddress get, cu::Functions& functions, const std::string& path) {
  const auto find = [&](const char* symbol, int version, bool optional) {
    void* address = nullptr;
    int status = cu::kSymbolNotFound;
    const cu::Result result = get(symbol, &address, version, 0, &status);
    if (result == cu::kSuccess && address) return address;
    if (optional) return static_cast<void*>(nullptr);
    raise(ErrorKind::unsupported, "", fmt::format("the CUDA driver lacks {}", symbol),
          {.expected = fmt::format("{} of CUDA {}", symbol, cuda_version_text(version)),
           .got = fmt::format("{} without it (code {}, status {})", path, result, status),
           .hint = "reinstall the NVIDIA driver"});
  };
#define TESSERA_RESOLVE(member, symbol, version, parameters) \
  functions.member = as_function<decltype(functions.member)>(find(#symbol, version, false));
  TESSERA_DRIVER_FUNCTIONS(TESSERA_RESOLVE)
#undef TESSERA_RESOLVE
#define TESSERA_RESOLVE(member, symbol, version, parameters) \
  functions.member = as_function<decltype(functions.member)>(find(#symbol, version, true));
  TESSERA_OPTIONAL_DRIVER_FUNCTIONS(TESSERA_RESOLVE)
#undef TESSERA_RESOLVE
}

void initialise(Driver& driver) {
  const cu::Result result = driver.call.init(0);
  if (result == cu::kNoDevice)
    return;  // a driver without a GPU: it can still compile for other machines
  driver.check(result, "cuInit");
  driver.check(driver.call.device_get_count(&driver.num_devices), "cuDeviceGetCount");
}

struct Opened {
  std::unique_ptr<const Driver> driver;
  std::optional<Error> error;
};
FirstUse<const Opened>
    g_opened;  // never destroyed: the driver may unload before static destructors run

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string Driver::describe(cu::Result result) const {
  const char* code = nullptr;
  const char* text = nullptr;
  if (call.get_error_name) static_cast<void>(call.get_error_name(result, &code));
  if (call.get_error_string) static_cast<void>(call.get_error_string(result, &text));
  return fmt::format("{} ({}): {}", code ? code : "unknown CUDA error", result,
                     text ? text : "no description");
}

void Driver::check(cu::Result result, std::string_view function, std::string_view op) const {
  if (result == cu::kSuccess) return;
  if (is_sticky(result)) {
    raise(ErrorKind::driver, op, fmt::format("{}: an earlier kernel failed", function),
          {.got = describe(result),
           .hint = "the context is lost; run the program under compute-sanitizer"});
  }
  raise(ErrorKind::driver, op, fmt::format("{} failed", function), {.got = describe(result)});
}

bool is_sticky(cu::Result result) {
  return result == 700 || result == 702 || result == 710 || (result >= 714 && result <= 719);
}

std::unique_ptr<const Driver> open_driver(const LibraryLoader& loader) {
  std::string reason;
  void* library = loader.open(kDriverName, reason);
  if (!library) {
    raise(ErrorKind::unsupported, "", "no CUDA driver on this machine",
          {.expected = fmt::format("{} of CUDA {} or newer", kDriverName,
                                   cuda_version_text(kMinDriverVersion)),
           .got = reason,
           .hint = "install an NVIDIA driver, or use CPU tensors"});
  }
  auto opened = std::make_unique<Driver>();
  Driver& driver = *opened;
  driver.version = driver_version(loader, library);
  const auto get = as_function<cu::GetProcAddress>(loader.symbol(library, "cuGetProcAddress_v2"));
  driver.path = loader.path_of(library);
  if (driver.version < kMinDriverVersion || !get) {
    raise(ErrorKind::unsupported, "", "the NVIDIA driver is too old",
          {.expected = fmt::format("CUDA {} or newer", cuda_version_text(kMinDriverVersion)),
           .got = fmt::format("CUDA {} ({})", cuda_version_text(driver.version), driver.path),
           .hint = "update the NVIDIA driver, or use CPU tensors"});
  }
  resolve(get, driver.call, driver.path);
  initialise(driver);
  return opened;
}

const Driver& driver() {
  const Opened& opened = g_opened.get([] {
    auto result = std::make_unique<Opened>();
    try {
      result->driver = open_driver(system_loader());
    } catch (const Error& error) {
      result->error = error;
    }
    return result.release();
  });
  if (opened.error) throw Error(*opened.error);
  return *opened.driver;
}

}  // namespace tessera::runtime
