#pragma once
// Finds or makes the requested kernel, for a target or on a device: in memory, on disk, by the compiler, in this
// order. Arguments and results are declared in options.h, request.h, image.h, launch.h and nvrtc/target.h.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "runtime/counters.h"
#include "runtime/log.h"

namespace tessera {
struct KernelSource;
struct Target;
}  // namespace tessera

namespace tessera::runtime {

struct BundleItem;
struct DeviceInfo;
struct Image;
struct KernelRequest;
struct LoadedKernel;
struct Nvrtc;
struct Options;
struct RootStatus;
struct Surroundings;
using tessera::Target;
using StreamHandle = void*;

/// Finds, compiles, caches and loads kernels. A process has one, instance(); any thread may use it.
class TESSERA_API Runtime {
 public:
  /// Throws an argument error if options.arch names no target.
  Runtime(Options options, Surroundings surroundings);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The process's runtime, with the switches of the environment. Made on first use, never
  /// destroyed.
  static Runtime& instance();

  /// Changes the options of the process's runtime, on top of the environment. Call it at program start:
  /// it throws an argument error once the runtime is in use. Warnings about the environment go to
  /// Options::log_sink; set_log_sink() comes too late for them.
  ///
  /// Example: Runtime::configure([](Options& options) { options.jobs = 4; });
  static void configure(std::function<void(Options&)> change);

  /// Installs another runtime and returns the previous one: for tests on fake libraries. Null
  /// restores the process's own.
  static Runtime* replace_instance(Runtime* other);

  /// Returns the compiled kernel; needs no GPU. Concurrent calls for one kernel compile once.
  /// `emit` runs only on a miss. Throws the errors of emit, open_nvrtc and compile; disk problems
  /// are warnings.
  ///
  /// Example: auto image = Runtime::instance().image({"scale", {}, [&] { return source; }}, target);
  std::shared_ptr<const Image> image(const KernelRequest& request, Target target);

  /// Returns the kernel as an item of a bundle. The bundle indexes a recorded kernel by its
  /// recorded Spec; the cache stores it under its text.
  BundleItem bundle_item(const KernelRequest& request, Target target);

  /// Returns the kernel on a device, ready to launch. Loading would break a stream capture: throws
  /// a capture error if `stream` is capturing and the kernel is not loaded yet. A cached image that
  /// the driver refuses is recompiled once.
  std::shared_ptr<const LoadedKernel> load(const KernelRequest& request, int device,
                                           StreamHandle stream = nullptr);

  /// Returns TESSERA_ARCH, else the most specific target of the device. Whether the compiler knows
  /// it shows at the first compile: there is no silent downgrade.
  Target target_for(const DeviceInfo& device) const;
  /// Does the same for a device ordinal.
  Target target_on(int device) const;
  /// Returns the facts of a device of this runtime's driver, read once.
  const DeviceInfo& device_on(int device) const;

  /// Declares that the program should compile nothing more: JitMode::warn then reports compiles,
  /// JitMode::error refuses them.
  void seal();
  /// True after seal().
  bool is_sealed() const;
  /// True while `stream`, of that device, records a graph. Throws driver errors.
  bool is_capturing(int device, StreamHandle stream) const;

  /// Opens libnvrtc on first use. Throws the same open_nvrtc error on every call.
  const Nvrtc& nvrtc();

  /// Writes the text of a kernel that runs on the CPU to the dump folder, if there is one, as
  /// "<op>-cpu-<8 digits of its digest>.cu". A failed write is a warning.
  void dump(const KernelSource& source);

  /// Writes the text of a kernel after a compiler pass to the folder for pass dumps, if there is one. A
  /// failed write is a warning.
  void dump_pass(const std::string& file, const std::string& text);

  /// The options in use, the counters, and the cache roots.
  const Options& options() const;
  CounterValues counters() const;
  std::vector<RootStatus> cache_roots() const;
  /// Redirects later messages.
  void set_log_sink(LogSink sink);
  /// Warns the user, once per subject.
  void warn_once(const std::string& subject, const std::string& message);

  /// Around fork: a child must not inherit a lock that another thread of its parent holds.
  void before_fork();
  void after_fork(bool in_child);

 private:
  class State;
  const std::unique_ptr<State> state_;
};

}  // namespace tessera::runtime
