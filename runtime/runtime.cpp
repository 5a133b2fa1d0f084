#include "runtime/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "runtime/code_stamp.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"
#include "runtime/record.h"

namespace tessera::runtime {
namespace {

#ifdef TESSERA_DEPS_DIR
constexpr const char* kDependencies = TESSERA_DEPS_DIR;
#else
constexpr const char* kDependencies = "";
#endif

std::atomic<Runtime*> g_replacement = nullptr;

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

// The launch facts that are not in the text.
std::string launch_facts(const KernelSource& source) {
  std::string facts = fmt::format("threads {} shared {}{}", source.threads, source.shared_bytes,
                                  source.waits_for_previous ? " waits" : "");
  for (const KernelParam& param : source.params) {
    facts += fmt::format(" {}{} {}", name(param.dtype), param.is_pointer ? "*" : "", param.name);
  }
  return facts;
}

void check_not_capturing(const Driver& driver, const std::string& op, int device,
                         StreamHandle stream) {
  if (!stream) return;
  const ContextScope context(driver, device);
  cu::StreamCaptureStatus status = cu::kCaptureNone;
  driver.check(driver.call.stream_is_capturing(static_cast<cu::Stream>(stream), &status),
               "cuStreamIsCapturing", op);
  if (status == cu::kCaptureNone) return;
  raise(ErrorKind::capture, op, "the kernel is not loaded yet and the stream is being captured",
        {.hint = "before the capture begins make the call once, or let jit::prepare() have it"});
}

void check_spills(const Image& image) {
  if (image.resources.spill_bytes == 0) return;
  raise(ErrorKind::compile, image.op, "the kernel spills registers (TESSERA_CHECK_SPILLS)",
        {.expected = "no spill stores",
         .got = fmt::format("{} bytes per thread for {}, {} registers", image.resources.spill_bytes,
                            to_string(image.target), image.resources.registers)});
}

// A caller who waited for another one's compile, which was then told to stop, tries for itself.
template <class Value, class Make>
std::shared_ptr<const Value> get_despite_cancelled_leader(SingleFlight<Value>& flights,
                                                          const std::string& key,
                                                          const std::stop_token& stop,
                                                          const Make& make, Flight& flight) {
  for (;;) {
    try {
      return flights.get(key, make, flight);
    } catch (const Error& error) {
      const bool led_by_other = flight == Flight::waited && error.code() == kCancelled;
      if (!led_by_other || stop.stop_requested()) throw;
    }
  }
}

std::string shown_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace

Runtime::Runtime(Options options, Surroundings surroundings)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      log_(options_.log),
      disk_(options_, log_, counters_),
      nvrtc_(surroundings_.loader, {options_.nvrtc, options_.cuda_homes, kDependencies}) {
  for (const std::string& warning : options_.warnings) {
    log_.write_once(LogLevel::warn, warning, warning);
  }
  for (const std::string& root : options_.cache_roots) {
    if (options_.log >= LogLevel::info && is_on_network(root)) {
      log_.write(LogLevel::info, fmt::format("cache folder {} is on a network file system", root));
    }
  }
}

Runtime& Runtime::instance() {
  if (Runtime* other = g_replacement.load(std::memory_order_acquire)) return *other;
  static Runtime* runtime = [] {
    Surroundings surroundings;
    surroundings.code_identity = code_stamp();
    auto made =
        std::make_unique<Runtime>(options_from(process_environment()), std::move(surroundings));
    pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(false); },
                   [] { instance().after_fork(true); });
    return made.release();  // kernels stay loaded until the process ends
  }();
  return *runtime;
}

Runtime* Runtime::replace_instance(Runtime* other) {
  return g_replacement.exchange(other, std::memory_order_acq_rel);
}

const Nvrtc& Runtime::nvrtc() {
  if (options_.jit == JitMode::off) {
    raise(ErrorKind::unsupported, "", "compiling is switched off",
          {.expected = "TESSERA_JIT=on, warn or error", .got = "off"});
  }
  const Nvrtc& opened = nvrtc_.open();
  std::call_once(nvrtc_told_,
                 [&] { log_.write(LogLevel::info, "compiler: " + opened.describe()); });
  return opened;
}

Target Runtime::target_for(const DeviceInfo& device) const {
  if (const auto target = parse_target(options_.arch)) return *target;
  return targets_that_run_on(device.major, device.minor).front();
}

bool Runtime::uses_disk(const KernelRequest& request) const {
  return !request.spec || !surroundings_.code_identity.empty() || !request.code.empty();
}

KernelKey Runtime::key_of(const KernelRequest& request, const std::optional<KernelSource>& source,
                          Target target) {
  KeyBuilder builder;
  builder.add("op", request.op);
  builder.add("target", to_string(target));
  builder.add("output", "cubin");
  builder.add("code", request.code.empty() ? surroundings_.code_identity : request.code);
  if (source) {
    builder.add("source", source->text);
    builder.add("entry", source->entry);
    builder.add("launch", launch_facts(*source));
    for (const std::string& option : source->options) builder.add("option", option);
  } else {
    builder.add("spec", *request.spec);
  }
  KernelKey key;
  key.kernel = builder.finish();
  if (options_.jit == JitMode::off) return key;
  const CompileOptions how{.line_info = options_.line_info};
  const NvrtcId compiler = nvrtc_.id();
  builder.add("options",
              fmt::format("{}", fmt::join(standard_options(compiler.version, target, how), " ")));
  builder.add("compiler", compiler.identity);
  key.entry = builder.finish();
  return key;
}

Runtime::Job Runtime::job_for(const KernelRequest& request, Target target,
                              const DeviceInfo* device) {
  std::optional<KernelSource> source;
  if (!request.spec) source = request.emit();
  KernelKey key = key_of(request, source, target);
  Job job{request, std::move(source), target, std::move(key)};
  job.device = device;
  return job;
}

std::shared_ptr<const Image> Runtime::image(const KernelRequest& request, Target target) {
  Job job = job_for(request, target);
  return image_of(job);
}

BundleItem Runtime::bundle_item(const KernelRequest& request, Target target) {
  Job job = job_for(request, target);
  // An image from a bundle keeps the name of the compiler that made it.
  const auto image = image_of(job);
  return {job.key.kernel, disk_.encode(image->key, *image)};
}

std::shared_ptr<const Image> Runtime::image_of(Job& job) {
  Flight flight = Flight::found;
  auto image = get_despite_cancelled_leader(
      images_, job.key.kernel.hex, job.request.stop, [&] { return find_or_compile(job); }, flight);
  if (flight == Flight::found) ++counters_.memory_hits;
  if (flight == Flight::waited) ++counters_.waits;
  if (flight == Flight::made) {
    // After this process's waiters have it: the disk is a by-product.
    if (job.is_new) disk_.publish(job.key.entry, *image);
    job.is_new = false;
    job.lock.reset();
    dump(job, *image);
    record(job, *image);
  }
  if (options_.check_spills) check_spills(*image);
  return image;
}

std::shared_ptr<const Image> Runtime::find_on_disk(const Job& job) {
  if (!uses_disk(job.request)) return nullptr;
  auto image = disk_.find(job.request.op, job.target, job.key);
  if (!image) return nullptr;
  log_.write(LogLevel::debug,
             fmt::format("{}: {} from disk", job.request.op, to_string(job.target)));
  return std::make_shared<const Image>(std::move(*image));
}

std::shared_ptr<const Image> Runtime::find_or_compile(Job& job) {
  if (auto image = find_on_disk(job)) return image;
  ++counters_.misses;
  check_may_compile(job);
  if (opens_another_compiler(job)) {
    if (auto image = find_on_disk(job)) return image;
  }
  if (!uses_disk(job.request) || !disk_.is_writable()) return compile_now(job);
  job.lock = std::make_unique<PeerLock>(job.key.entry.hex,
                                        std::chrono::milliseconds(options_.peer_patience_ms));
  if (job.lock->waited()) {
    ++counters_.peer_waits;
    if (auto image = find_on_disk(job)) return image;
  }
  auto image = compile_now(job);
  job.is_new = true;
  return image;
}

// Opens the compiler. Its files may have promised another than the one that could be opened: the key
// then follows the compiler.
bool Runtime::opens_another_compiler(Job& job) {
  const Nvrtc& opened = nvrtc();
  if (job.device && options_.arch.empty()) {
    choose_target(job.device->major, job.device->minor, opened.archs, opened.describe());
  }
  KernelKey key = key_of(job.request, job.request.spec ? std::nullopt : job.source, job.target);
  if (key.entry == job.key.entry) return false;
  job.key = std::move(key);
  return true;
}

void Runtime::check_may_compile(const Job& job) {
  const bool off = options_.jit == JitMode::off;
  const bool late = sealed_ && (options_.jit == JitMode::error || options_.jit == JitMode::warn);
  if (!off && !late) return;
  const std::string what = fmt::format(
      "{}, Spec {}, key {}", to_string(job.target),
      job.request.spec ? shown_bytes(*job.request.spec) : "(the text itself)", job.key.kernel.hex);
  if (!off && options_.jit == JitMode::warn) {
    log_.write(LogLevel::warn,
               fmt::format("{}: compiled after the program was sealed: {}", job.request.op, what));
    return;
  }
  raise(ErrorKind::unsupported, job.request.op,
        off ? "the kernel is in no bundle, and compiling is switched off (TESSERA_JIT=off)"
            : "the kernel would have to be compiled after the program was sealed "
              "(TESSERA_JIT=error)",
        {.expected = fmt::format("{} with {}", off ? "a bundle" : "a cache", what),
         .got = options_.cache_roots.empty()
                    ? "TESSERA_CACHE_DIR names none"
                    : fmt::format("not in {}", fmt::join(options_.cache_roots, ", ")),
         .hint = fmt::format("tessera compile {} --arch {} --out kernels.tsb makes a bundle of its "
                             "usual forms, --specs FILE one of what TESSERA_RECORD=FILE recorded; "
                             "name it in TESSERA_CACHE_DIR",
                             job.request.op, to_string(job.target))});
}

void Runtime::tell(const Job& job, bool ended, bool failed, double ms) const {
  if (!options_.on_compile) return;
  options_.on_compile(
      {job.request.op, to_string(job.target), job.key.entry.hex, job.reason, ended, failed, ms});
}

std::shared_ptr<const Image> Runtime::compile_now(Job& job) {
  if (!job.source) job.source = job.request.emit();
  TESSERA_CHECK(job.source->op == job.request.op, "a kernel's text was emitted under another op");
  ++counters_.compiles;
  tell(job, false, false, 0);
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<const Image> image;
  try {
    const CompileOptions how{.line_info = options_.line_info, .stop = job.request.stop};
    Image made = compile(nvrtc(), *job.source, job.target, how);
    made.key = job.key.entry;
    image = std::make_shared<const Image>(std::move(made));
  } catch (const Error&) {
    tell(job, true, true, static_cast<double>(microseconds_since(start)) / 1e3);
    throw;
  }
  const int64_t elapsed = microseconds_since(start);
  counters_.compile_us += elapsed;
  tell(job, true, false, static_cast<double>(elapsed) / 1e3);
  log_.write(LogLevel::info,
             fmt::format("{}: compiled for {} in {} ms, {} registers", job.request.op,
                         to_string(job.target), elapsed / 1000, image->resources.registers));
  return image;
}

// The best of a device's targets that a bundle has the kernel for.
Target Runtime::bundled_target(const KernelRequest& request, const DeviceInfo& device) {
  std::optional<KernelSource> source;
  if (!request.spec) source = request.emit();
  for (const Target target : targets_that_run_on(device.major, device.minor)) {
    if (disk_.in_bundle(key_of(request, source, target).kernel)) return target;
  }
  return target_for(device);
}

std::shared_ptr<const LoadedKernel> Runtime::load(const KernelRequest& request, int device,
                                                  StreamHandle stream) {
  const Driver& driver = surroundings_.driver();
  const DeviceInfo info = query_device(driver, device);
  KernelRequest checked = request;
  checked.emit = [&] {
    KernelSource source = request.emit();
    check_shared_memory(source.op, source.shared_bytes, info);
    return source;
  };
  const bool only_bundles = options_.jit == JitMode::off && options_.arch.empty();
  Job job =
      job_for(checked, only_bundles ? bundled_target(checked, info) : target_for(info), &info);
  Flight flight = Flight::found;
  const auto make = [&] {
    check_not_capturing(driver, request.op, device, stream);
    return load_or_recompile(job, info);
  };
  return get_despite_cancelled_leader(
      loaded_, fmt::format("{} cuda:{}", job.key.kernel.hex, device), request.stop, make, flight);
}

std::shared_ptr<const LoadedKernel> Runtime::load_or_recompile(Job& job, const DeviceInfo& device) {
  const Driver& driver = surroundings_.driver();
  const auto attempt = [&](std::string& refusal) {
    auto image = image_of(job);
    ++counters_.loads;
    const auto start = std::chrono::steady_clock::now();
    auto loaded = load_image(driver, std::move(image), device, refusal);
    counters_.load_us += microseconds_since(start);
    return loaded;
  };
  std::string refusal;
  auto kernel = attempt(refusal);
  if (!kernel) {
    disk_.discard(job.request.op, job.target, job.key.entry, refusal);
    images_.forget(job.key.kernel.hex);
    job.reason = "the driver refused the cached kernel";
    std::string second_refusal;
    kernel = attempt(second_refusal);
    if (!kernel) {
      raise(ErrorKind::load, job.request.op, "the driver refuses the compiled kernel",
            {.expected = fmt::format("a kernel for cuda:{} ({}), driver of CUDA {}", device.ordinal,
                                     device.name, cuda_version_text(driver.version)),
             .got = options_.jit == JitMode::off
                        ? refusal + "; nothing is compiled (TESSERA_JIT=off)"
                        : fmt::format("{}; compiled again for {} by {}: {}", refusal,
                                      to_string(job.target), nvrtc().describe(), second_refusal),
             .hint = "the driver may be older than NVRTC: update it or name an older libnvrtc with "
                     "TESSERA_NVRTC"});
    }
  }
  // A kernel that was compiled without the wait must not begin early: it would read too soon.
  kernel->begins_early =
      options_.pdl && kernel->image->waits_for_previous && kernel->image->target.major >= 9;
  return std::make_shared<const LoadedKernel>(std::move(*kernel));
}

void Runtime::dump(const Job& job, const Image& image) {
  if (options_.dump_dir.empty()) return;
  const std::string stem = fmt::format("{}/{}-{}-{}", options_.dump_dir, image.op,
                                       to_string(image.target), job.key.kernel.hex.substr(0, 8));
  std::error_code error;
  std::filesystem::create_directories(options_.dump_dir, error);
  const auto write = [&](const char* suffix, const std::string& text) {
    std::ofstream file(stem + suffix, std::ios::binary);
    file << text;
    return static_cast<bool>(file.flush());
  };
  if (write(".cu", image.source) && write(".log", image.log)) return;
  log_.write_once(LogLevel::warn, "dump",
                  fmt::format("cannot write {}.cu (TESSERA_DUMP_DIR)", stem));
}

void Runtime::record(const Job& job, const Image& image) {
  if (options_.record.empty()) return;
  const std::string& code =
      job.request.code.empty() ? surroundings_.code_identity : job.request.code;
  const std::string problem = append_record(options_.record, {job.request.spec, code, image});
  if (problem.empty()) return;
  log_.write_once(LogLevel::warn, "record",
                  fmt::format("cannot write {} (TESSERA_RECORD): {}", options_.record, problem));
}

void Runtime::before_fork() {
  nvrtc_.before_fork();
  images_.before_fork();
  loaded_.before_fork();
  log_.before_fork();
}

void Runtime::after_fork(bool in_child) {
  log_.after_fork();
  if (in_child) {
    loaded_.after_fork_in_child();
    images_.after_fork_in_child();
  } else {
    loaded_.after_fork_in_parent();
    images_.after_fork_in_parent();
  }
  nvrtc_.after_fork();
}

}  // namespace tessera::runtime
