#pragma once
// From "this kernel, this device" to a loaded kernel: memory, disk, compiler, driver, in this order
// (find_image.cpp, compile_image.cpp, load_kernel.cpp).

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/peer_lock.h"
#include "runtime/counters.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/log.h"
#include "runtime/nvrtc/lazy_nvrtc.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/single_flight.h"

namespace tessera::runtime {

/// What a Runtime stands on; tests put their own.
struct Surroundings {
  LibraryLoader loader = system_loader();
  std::function<const Driver&()> driver = []() -> const Driver& { return runtime::driver(); };
  /// Identity of the code that generates kernels. Empty: kernels with a spec are not kept on disk.
  std::string code_identity;
};

class Runtime {
 public:
  /// Throws an argument error if options.arch names no target.
  Runtime(Options options, Surroundings surroundings);
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
  Target target_on(int device) const {
    return target_for(query_device(surroundings_.driver(), device));
  }

  /// From now on the program expects to compile nothing more: what JitMode::warn reports and
  /// JitMode::error refuses.
  void seal() { sealed_ = true; }

  /// Opens libnvrtc on first use; throws open_nvrtc's error, each time the same.
  const Nvrtc& nvrtc();

  /// Writes the text of a kernel that runs on the CPU to the dump folder, if there is one, under
  /// "<op>-cpu-<8 digits of its digest>.cu". What cannot be written is a warning.
  void dump(const KernelSource& source);

  const Options& options() const { return options_; }
  CounterValues counters() const { return counters_.values(); }
  std::vector<RootStatus> cache_roots() const { return disk_.status(); }
  void set_log_sink(LogSink sink) { log_.set_sink(std::move(sink)); }
  /// A warning for the user, once per subject.
  void warn_once(const std::string& subject, const std::string& message) {
    log_.write_once(LogLevel::warn, subject, message);
  }

  // Around fork, see single_flight.h.
  void before_fork();
  void after_fork(bool in_child);

 private:
  /// One search for a kernel.
  struct Job {
    const KernelRequest& request;
    std::optional<KernelSource> source;
    Target target;
    KernelKey key;
    std::string reason = "in no cache";   // why it would be compiled
    bool is_new = false;                  // compiled just now, to be published
    bool may_be_overridden = true;        // by a text of TESSERA_OVERRIDE_DIR
    std::shared_ptr<PeerLock> lock = {};  // other processes of the host wait while it lives
    const DeviceInfo* device = nullptr;   // whose target it is
  };

  // ---- find_image.cpp
  Job job_for(const KernelRequest& request, Target target, const DeviceInfo* device = nullptr);
  KernelKey key_of(const KernelRequest& request, const std::optional<KernelSource>& source,
                   Target target);
  static bool is_found_by_spec(const KernelRequest& request);
  bool uses_disk(const KernelRequest& request) const;
  std::shared_ptr<const Image> image_of(Job& job);
  std::shared_ptr<const Image> find_or_compile(Job& job);
  std::shared_ptr<const Image> find_on_disk(const Job& job);
  bool opens_another_compiler(Job& job);
  void store(Job& job, std::shared_ptr<const Image> image);

  // ---- compile_image.cpp
  void check_may_compile(const Job& job);
  std::optional<std::string> overriding_text(const Job& job, const std::string& path);
  std::shared_ptr<const Image> compile_override(Job& job);
  std::shared_ptr<const Image> compile_now(Job& job);
  using Listener = std::function<void(const StepEvent&)>;
  void tell_begin(const Listener& listener, const Job& job) const;
  void tell_end(const Listener& listener, const Job& job, bool failed, int64_t us) const;

  // ---- keep_texts.cpp
  std::string file_stem(const Job& job) const;
  std::string text_path(const Job& job);
  std::string write_dump(const std::string& name, const std::string& text) const;
  std::string keep_refused_text(const Job& job);
  void dump(const Job& job, const Image& image);
  void warn_about_dump(const std::string& name, const std::string& problem);
  void record(const Job& job, const Image& image);

  // ---- load_kernel.cpp
  std::shared_ptr<const LoadedKernel> load_or_recompile(Job& job, const DeviceInfo& device);
  Target bundled_target(const KernelRequest& request, const DeviceInfo& device);

  const Options options_;
  const Surroundings surroundings_;
  Log log_;
  Counters counters_;
  DiskCache disk_;
  LazyNvrtc nvrtc_;
  std::once_flag nvrtc_told_;
  std::atomic<bool> sealed_ = false;
  SingleFlight<Image> images_{counters_.memory_hits, counters_.waits};
  SingleFlight<LoadedKernel> loaded_{counters_.memory_hits, counters_.waits};
};

/// While one lives, what its thread compiles goes to disk when it ends and not before the kernel is
/// handed out: no launch waits for a slow disk.
class StoreLater {
 public:
  StoreLater();
  ~StoreLater();
  StoreLater(const StoreLater&) = delete;
  StoreLater& operator=(const StoreLater&) = delete;

 private:
  friend class Runtime;
  StoreLater* const outer_;
  std::vector<std::function<void()>> stores_;
};

}  // namespace tessera::runtime
