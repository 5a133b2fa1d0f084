#pragma once
// The state and the steps of a Runtime (find_image.cpp, compile_image.cpp, load_kernel.cpp, keep_texts.cpp).

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/base/error.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/peer_lock.h"
#include "runtime/driver/device.h"
#include "runtime/image.h"
#include "runtime/launch.h"
#include "runtime/live_counters.h"
#include "runtime/log_writer.h"
#include "runtime/nvrtc/lazy_nvrtc.h"
#include "runtime/options.h"
#include "runtime/request.h"
#include "runtime/runtime.h"
#include "runtime/single_flight.h"
#include "runtime/surroundings.h"

namespace tessera::runtime {

class TESSERA_LOCAL Runtime::State {
 public:
  State(Options options, Surroundings surroundings);

  // As in Runtime.
  std::shared_ptr<const Image> image(const KernelRequest& request, Target target);
  BundleItem bundle_item(const KernelRequest& request, Target target);
  std::shared_ptr<const LoadedKernel> load(const KernelRequest& request, int device,
                                           StreamHandle stream);
  Target target_for(const DeviceInfo& device) const;
  const DeviceInfo& device_on(int device) { return devices_.of(surroundings_.driver(), device); }
  void seal() { sealed_ = true; }
  bool is_sealed() const { return sealed_; }
  bool is_capturing(int device, StreamHandle stream) const;
  const Nvrtc& nvrtc();
  void dump(const KernelSource& source);
  void dump_pass(const std::string& file, const std::string& text);
  const Options& options() const { return options_; }
  CounterValues counters() const { return counters_.values(); }
  std::vector<RootStatus> cache_roots() const { return disk_.status(); }
  Log& log() { return log_; }
  void before_fork();
  void after_fork(bool in_child);

 private:
  /// One lookup of a kernel.
  struct Job {
    const KernelRequest& request;
    std::optional<KernelSource> source;
    Target target;
    KernelKey key;
    std::string reason = "in no cache";   // of a compile
    bool is_new = false;                  // compiled just now, to be published
    bool may_be_overridden = true;        // by a text in TESSERA_OVERRIDE_DIR
    std::shared_ptr<PeerLock> lock = {};  // other processes of this host wait while it lives
    const DeviceInfo* device = nullptr;   // the device that the target was chosen for
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
  static std::string write_dump(const std::string& dir, const std::string& name,
                                const std::string& text);
  std::string keep_refused_text(const Job& job);
  void dump(const Job& job, const Image& image);
  void warn_about_dump(const std::string& path, const std::string& variable,
                       const std::string& problem);
  void record(const Job& job, const Image& image);

  // ---- load_kernel.cpp
  std::shared_ptr<const LoadedKernel> load_or_recompile(Job& job, const DeviceInfo& device);
  Target bundled_target(const KernelRequest& request, const DeviceInfo& device);

  const Options options_;
  const Surroundings surroundings_;
  Log log_;
  Counters counters_;
  DiskCache disk_;
  DeviceInfos devices_;
  LazyNvrtc nvrtc_;
  std::once_flag nvrtc_told_;
  std::atomic<bool> sealed_ = false;
  SingleFlight<Image> images_{counters_.memory_hits, counters_.waits};
  SingleFlight<LoadedKernel> loaded_{counters_.memory_hits, counters_.waits};
};

}  // namespace tessera::runtime
