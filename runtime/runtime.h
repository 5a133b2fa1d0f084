#pragma once
// Finds or makes the kernel that a request names, for a target or on a device: in memory, on disk, by the compiler, in
// this order. Arguments and results are declared in options.h, request.h, image.h, launch.h and nvrtc/target.h.

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

  /// Changes the options of the process's runtime, over what the environment says. For the begin of a
  /// program: throws an argument error once the runtime is in use. Warnings about the environment go to
  /// Options::log_sink; set_log_sink() comes too late for them.
  ///
  /// Example: Runtime::configure([](Options& options) { options.jobs = 4; });
  static void configure(std::function<void(Options&)> change);

  /// Puts another runtime in its place and returns the one before: for tests on fake libraries. Null
  /// puts back the process's own.
  static Runtime* replace_instance(Runtime* other);

  /// The compiled kernel, without a GPU. Concurrent calls for one kernel compile once. `emit` runs
  /// only on a miss. Throws the errors of emit, of open_nvrtc and of compile; trouble with the disk
  /// is a warning.
  ///
  /// Example: auto image = Runtime::instance().image({"scale", {}, [&] { return source; }}, {9, 0,
  /// 'a'});
  std::shared_ptr<const Image> image(const KernelRequest& request, Target target);

  /// The same, as a piece of a bundle. A kernel of a recording is indexed by its recorded Spec, and
  /// kept in the cache under its text.
  BundleItem bundle_item(const KernelRequest& request, Target target);

  /// The kernel on a device, ready to launch. Loading during stream capture would break the
  /// capture: if `stream` is capturing and the kernel is not loaded yet, throws a capture error. A
  /// cached image that the driver refuses is compiled again, once.
  std::shared_ptr<const LoadedKernel> load(const KernelRequest& request, int device,
                                           StreamHandle stream = nullptr);

  /// TESSERA_ARCH, else what fits the device best. Whether the compiler knows it is seen when
  /// something has to be compiled: there is no silent downgrade.
  Target target_for(const DeviceInfo& device) const;
  /// The same for a device by its number.
  Target target_on(int device) const;

  /// From now on the program expects to compile nothing more: what JitMode::warn reports and
  /// JitMode::error refuses.
  void seal();

  /// Opens libnvrtc on first use; throws open_nvrtc's error, each time the same.
  const Nvrtc& nvrtc();

  /// Writes the text of a kernel that runs on the CPU to the dump folder, if there is one, under
  /// "<op>-cpu-<8 digits of its digest>.cu". What cannot be written is a warning.
  void dump(const KernelSource& source);

  /// Writes the text of a kernel after a pass of the compiler to the folder for these, if there is one.
  /// What cannot be written is a warning.
  void dump_pass(const std::string& file, const std::string& text);

  /// What it works with, what it did so far, and where it looks for kernels.
  const Options& options() const;
  CounterValues counters() const;
  std::vector<RootStatus> cache_roots() const;
  /// Takes the messages that are still to come.
  void set_log_sink(LogSink sink);
  /// A warning for the user, once per subject.
  void warn_once(const std::string& subject, const std::string& message);

  /// Around fork: a child must not inherit a lock that another thread of its parent holds.
  void before_fork();
  void after_fork(bool in_child);

 private:
  class State;
  const std::unique_ptr<State> state_;
};

}  // namespace tessera::runtime
