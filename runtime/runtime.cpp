#include "runtime/runtime.h"

#include <fmt/format.h>
#include <pthread.h>

#include <utility>

#include "dsl/base/callbacks.h"
#include "dsl/base/first_use.h"
#include "runtime/build_tree.h"
#include "runtime/code_stamp.h"
#include "runtime/nvrtc/nvrtc_use.h"
#include "runtime/raise.h"
#include "runtime/runtime_state.h"

namespace tessera::runtime {
namespace {

std::atomic<Runtime*> g_replacement = nullptr;

/// The changes that Runtime::configure() asked for, until the process's runtime is made. Guarded by
/// FirstUseLock.
struct Configuration {
  std::vector<std::function<void(Options&)>> changes;
  bool is_in_use = false;
};
FirstUse<Configuration> g_configuration;
FirstUse<Runtime> g_runtime;
Runtime* g_forking = nullptr;  // guarded by FirstUseLock

Configuration& configuration() {
  return g_configuration.get([] { return new Configuration; });
}

Options process_options() {
  Options options = options_from(process_environment());
  configuration().is_in_use = true;
  for (const auto& change : configuration().changes) change(options);
  return options;
}

}  // namespace

Runtime::State::State(Options options, Surroundings surroundings)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      log_(options_.log, options_.log_sink),
      disk_(options_, log_, counters_),
      nvrtc_(surroundings_.loader, {options_.nvrtc, options_.cuda_homes,
                                    dependencies_of_build_tree(), options_.nvrtc_folders}) {
  check_options(options_);
  for (const std::string& warning : options_.warnings) {
    log_.write_once(LogLevel::warn, warning, warning);
  }
  for (const std::string& root : options_.cache_roots) {
    if (options_.log >= LogLevel::info && is_on_network(root)) {
      log_.write(LogLevel::info, fmt::format("cache folder {} is on a network file system", root));
    }
  }
}

Runtime::Runtime(Options options, Surroundings surroundings)
    : state_(std::make_unique<State>(std::move(options), std::move(surroundings))) {}

Runtime::~Runtime() = default;

std::shared_ptr<const Image> Runtime::image(const KernelRequest& request, Target target) {
  const DeferCallbacks defer;  // other threads and processes wait for the image
  return state_->image(request, target);
}

BundleItem Runtime::bundle_item(const KernelRequest& request, Target target) {
  const DeferCallbacks defer;
  return state_->bundle_item(request, target);
}

std::shared_ptr<const LoadedKernel> Runtime::load(const KernelRequest& request, int device,
                                                  StreamHandle stream) {
  const DeferCallbacks defer;
  return state_->load(request, device, stream);
}

Target Runtime::target_for(const DeviceInfo& device) const {
  return state_->target_for(device);
}

Target Runtime::target_on(int device) const {
  return state_->target_for(state_->device_on(device));
}

const DeviceInfo& Runtime::device_on(int device) const {
  return state_->device_on(device);
}

void Runtime::seal() {
  state_->seal();
}

bool Runtime::is_sealed() const {
  return state_->is_sealed();
}

bool Runtime::is_capturing(int device, StreamHandle stream) const {
  return state_->is_capturing(device, stream);
}

const Nvrtc& Runtime::nvrtc() {
  return state_->nvrtc();
}

void Runtime::dump(const KernelSource& source) {
  state_->dump(source);
}
void Runtime::dump_pass(const std::string& file, const std::string& text) {
  state_->dump_pass(file, text);
}

const Options& Runtime::options() const {
  return state_->options();
}

CounterValues Runtime::counters() const {
  return state_->counters();
}

std::vector<RootStatus> Runtime::cache_roots() const {
  return state_->cache_roots();
}

void Runtime::set_log_sink(LogSink sink) {
  state_->log().set_sink(std::move(sink));
}

void Runtime::warn_once(const std::string& subject, const std::string& message) {
  state_->log().write_once(LogLevel::warn, subject, message);
}

void Runtime::before_fork() {
  state_->before_fork();
}

void Runtime::after_fork(bool in_child) {
  state_->after_fork(in_child);
}

Runtime& Runtime::instance() {
  if (Runtime* other = g_replacement.load(std::memory_order_acquire)) return *other;
  return g_runtime.get([] {
    Surroundings surroundings;
    surroundings.code_identity = code_stamp();
    auto made = std::make_unique<Runtime>(process_options(), std::move(surroundings));
    return made.release();  // kernels stay loaded until the process ends
  });
}

void Runtime::configure(std::function<void(Options&)> change) {
  const FirstUseLock lock;
  if (configuration().is_in_use) {
    raise(ErrorKind::argument, "", "the runtime cannot be configured any more",
          {.expected = "Runtime::configure before the first kernel is asked for",
           .got = "a runtime that is in use"});
  }
  configuration().changes.push_back(std::move(change));
}

Runtime* Runtime::replace_instance(Runtime* other) {
  return g_replacement.exchange(other, std::memory_order_acq_rel);
}

const Nvrtc& Runtime::State::nvrtc() {
  if (options_.jit == JitMode::off) {
    raise(ErrorKind::unsupported, "", "compiling is switched off",
          {.expected = "TESSERA_JIT=on, warn or error", .got = "off"});
  }
  const Nvrtc& opened = nvrtc_.open();
  const DeferCallbacks defer;  // callers of call_once wait for the first
  std::call_once(nvrtc_told_,
                 [&] { log_.write(LogLevel::info, "compiler: " + opened.describe()); });
  return opened;
}

Target Runtime::State::target_for(const DeviceInfo& device) const {
  if (const auto target = parse_target(options_.arch)) return *target;
  return targets_that_run_on(device.major, device.minor).front();
}

void Runtime::State::before_fork() {
  nvrtc_.before_fork();
  images_.before_fork();
  loaded_.before_fork();
  log_.before_fork();
}

void Runtime::State::after_fork(bool in_child) {
  log_.after_fork();
  if (in_child) {
    NvrtcUse::forget_other_threads();
    loaded_.after_fork_in_child();
    images_.after_fork_in_child();
  } else {
    loaded_.after_fork_in_parent();
    images_.after_fork_in_parent();
  }
  nvrtc_.after_fork();
}

namespace {

Runtime* instance_if_made() {
  Runtime* const other = g_replacement.load(std::memory_order_acquire);
  return other != nullptr ? other : g_runtime.made();
}

// Locks the runtime's mutexes, then that of first uses: the order of a thread that opens the driver. A
// runtime made in between has its own mutexes.
void before_fork() {
  while (true) {
    Runtime* const current = instance_if_made();
    if (current != nullptr) current->before_fork();
    FirstUseLock::hold();
    if (current == instance_if_made()) {
      g_forking = current;
      return;
    }
    FirstUseLock::release();
    if (current != nullptr) current->after_fork(/*in_child=*/false);
  }
}

void after_fork(bool in_child) {
  Runtime* const current = std::exchange(g_forking, nullptr);
  FirstUseLock::release();
  if (current != nullptr) current->after_fork(in_child);
}

[[maybe_unused]] const bool g_watches_forks = [] {
  FirstUseLock::register_for_fork();
  return pthread_atfork(
             before_fork, [] { after_fork(false); }, [] { after_fork(true); }) == 0;
}();

}  // namespace

}  // namespace tessera::runtime
