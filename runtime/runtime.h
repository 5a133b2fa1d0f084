#pragma once
// From "this kernel, this device" to a loaded kernel: memory, disk, compiler, driver, in this
// order.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/counters.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/log.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/options.h"
#include "runtime/single_flight.h"

namespace tessera::runtime {

/// What is wanted.
struct KernelRequest {
  std::string op;
  /// Bytes that decide the text within this op and this build of the program: a warm cache then
  /// needs no emit(). Absent (a user's kernel): the text itself is what identifies the kernel.
  std::optional<std::string> spec;
  std::function<KernelSource()> emit;
};

/// What a Runtime stands on; tests put their own.
struct Surroundings {
  LibraryLoader loader = system_loader();
  std::function<const Driver&()> driver = []() -> const Driver& { return runtime::driver(); };
  /// Identity of the code that generates kernels. Empty: kernels with a spec are not kept on disk.
  std::string code_identity;
};

class Runtime {
 public:
  Runtime(Options options, Surroundings surroundings);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The process's runtime, with the switches of the environment. Made on first use, never
  /// destroyed.
  static Runtime& instance();

  /// The compiled kernel, without a GPU. Concurrent calls for one kernel compile once. `emit` runs
  /// only on a miss. Throws the errors of emit, of open_nvrtc and of compile; trouble with the disk
  /// is a warning.
  ///
  /// Example: auto image = Runtime::instance().image({"scale", {}, [&] { return source; }}, {9, 0,
  /// 'a'});
  std::shared_ptr<const Image> image(const KernelRequest& request, Target target);

  /// The kernel on a device, ready to launch. Loading during stream capture would break the
  /// capture: if `stream` is capturing and the kernel is not loaded yet, throws a capture error. A
  /// cached image that the driver refuses is compiled again, once.
  std::shared_ptr<const LoadedKernel> load(const KernelRequest& request, int device,
                                           StreamHandle stream = nullptr);

  /// TESSERA_ARCH, else what fits the device.
  Target target_for(const DeviceInfo& device);

  /// Opens libnvrtc on first use; throws open_nvrtc's error, each time the same.
  const Nvrtc& nvrtc();

  const Options& options() const { return options_; }
  CounterValues counters() const { return counters_.values(); }
  std::vector<RootStatus> cache_roots() const { return disk_.status(); }
  void set_log_sink(LogSink sink) { log_.set_sink(std::move(sink)); }

  // Around fork, see single_flight.h.
  void before_fork();
  void after_fork(bool in_child);

 private:
  CacheKey key_of(const KernelRequest& request, const std::optional<KernelSource>& source,
                  Target target);
  std::shared_ptr<const Image> find_or_compile(const KernelRequest& request,
                                               std::optional<KernelSource> source, Target target,
                                               const CacheKey& key, bool& is_new);
  std::shared_ptr<const LoadedKernel> load_or_recompile(const KernelRequest& request,
                                                        const DeviceInfo& device, Target target);
  bool uses_disk(const KernelRequest& request) const;
  void dump(const CacheKey& key, const Image& image);

  const Options options_;
  const Surroundings surroundings_;
  Log log_;
  Counters counters_;
  DiskCache disk_;
  std::once_flag nvrtc_once_;
  std::unique_ptr<const Nvrtc> nvrtc_;
  std::optional<Error> nvrtc_error_;
  SingleFlight<Image> images_;
  SingleFlight<LoadedKernel> loaded_;
};

}  // namespace tessera::runtime
