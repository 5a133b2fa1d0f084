#include "runtime/runtime.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <utility>

#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

#ifdef TESSERA_DEPS_DIR
constexpr const char* kDependencies = TESSERA_DEPS_DIR;
#else
constexpr const char* kDependencies = "";
#endif

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

// The launch facts that are not in the text.
std::string launch_facts(const KernelSource& source) {
  std::string facts = fmt::format("threads {} shared {}", source.threads, source.shared_bytes);
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
        {.hint = "call the op once with the same options before the capture begins"});
}

}  // namespace

Runtime::Runtime(Options options, Surroundings surroundings)
    : options_(std::move(options)),
      surroundings_(std::move(surroundings)),
      log_(options_.log),
      disk_(options_, log_, counters_) {
  for (const std::string& warning : options_.warnings) {
    log_.write_once(LogLevel::warn, warning, warning);
  }
}

Runtime& Runtime::instance() {
  static Runtime* runtime = [] {
    Surroundings surroundings;
    surroundings.code_identity = image_identity(reinterpret_cast<const void*>(&Runtime::instance));
    auto made =
        std::make_unique<Runtime>(options_from(process_environment()), std::move(surroundings));
    pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(false); },
                   [] { instance().after_fork(true); });
    return made.release();  // kernels stay loaded until the process ends
  }();
  return *runtime;
}

const Nvrtc& Runtime::nvrtc() {
  std::call_once(nvrtc_once_, [&] {
    try {
      nvrtc_ =
          open_nvrtc(surroundings_.loader, {options_.nvrtc, options_.cuda_homes, kDependencies});
      log_.write(LogLevel::info, "compiler: " + nvrtc_->describe());
    } catch (const Error& error) {
      nvrtc_error_ = error;
    }
  });
  if (nvrtc_error_) throw Error(*nvrtc_error_);
  return *nvrtc_;
}

Target Runtime::target_for(const DeviceInfo& device) {
  if (const auto target = parse_target(options_.arch)) return *target;
  return choose_target(device.major, device.minor, nvrtc().archs, nvrtc().describe());
}

bool Runtime::uses_disk(const KernelRequest& request) const {
  return !request.spec || !surroundings_.code_identity.empty();
}

CacheKey Runtime::key_of(const KernelRequest& request, const std::optional<KernelSource>& source,
                         Target target) {
  KeyBuilder key;
  key.add("op", request.op);
  key.add("target", to_string(target));
  key.add("output", "cubin");
  key.add("options", fmt::format("{}", fmt::join(standard_options(nvrtc(), target), " ")));
  key.add("compiler", nvrtc().identity);
  key.add("code", surroundings_.code_identity);
  if (source) {
    key.add("source", source->text);
    key.add("entry", source->entry);
    key.add("launch", launch_facts(*source));
    for (const std::string& option : source->options) key.add("option", option);
  } else {
    key.add("spec", *request.spec);
  }
  return key.finish();
}

std::shared_ptr<const Image> Runtime::image(const KernelRequest& request, Target target) {
  std::optional<KernelSource> source;
  if (!request.spec) source = request.emit();
  const CacheKey key = key_of(request, source, target);
  Flight flight = Flight::found;
  bool is_new = false;
  const auto make = [&] {
    return find_or_compile(request, std::move(source), target, key, is_new);
  };
  auto image = images_.get(key.hex, make, flight);
  if (flight == Flight::found) ++counters_.memory_hits;
  if (flight == Flight::waited) ++counters_.waits;
  if (flight == Flight::made) dump(key, *image);
  // After the waiters have it: the disk is a by-product.
  if (is_new && uses_disk(request)) disk_.publish(key, *image);
  return image;
}

std::shared_ptr<const Image> Runtime::find_or_compile(const KernelRequest& request,
                                                      std::optional<KernelSource> source,
                                                      Target target, const CacheKey& key,
                                                      bool& is_new) {
  if (uses_disk(request)) {
    if (auto image = disk_.find(request.op, target, key)) {
      ++counters_.disk_hits;
      log_.write(LogLevel::debug, fmt::format("{}: {} from disk", request.op, to_string(target)));
      return std::make_shared<const Image>(std::move(*image));
    }
  }
  ++counters_.misses;
  if (!source) source = request.emit();
  TESSERA_CHECK(source->op == request.op, "a kernel's text was emitted under another op");
  const auto start = std::chrono::steady_clock::now();
  ++counters_.compiles;
  auto image = std::make_shared<const Image>(compile(nvrtc(), *source, target));
  const int64_t elapsed = microseconds_since(start);
  counters_.compile_us += elapsed;
  log_.write(LogLevel::info,
             fmt::format("{}: compiled for {} in {} ms, {} registers", request.op,
                         to_string(target), elapsed / 1000, image->resources.registers));
  is_new = true;
  return image;
}

std::shared_ptr<const LoadedKernel> Runtime::load(const KernelRequest& request, int device,
                                                  StreamHandle stream) {
  const Driver& driver = surroundings_.driver();
  const DeviceInfo info = query_device(driver, device);
  const Target target = target_for(info);
  KernelRequest checked = request;
  checked.emit = [&] {
    KernelSource source = request.emit();
    check_shared_memory(source.op, source.shared_bytes, info);
    return source;
  };
  std::optional<KernelSource> source;
  if (!request.spec) source = checked.emit();
  const std::string key = fmt::format("{} cuda:{}", key_of(request, source, target).hex, device);
  Flight flight = Flight::found;
  const auto make = [&] {
    check_not_capturing(driver, request.op, device, stream);
    return load_or_recompile(checked, info, target);
  };
  return loaded_.get(key, make, flight);
}

std::shared_ptr<const LoadedKernel> Runtime::load_or_recompile(const KernelRequest& request,
                                                               const DeviceInfo& device,
                                                               Target target) {
  const Driver& driver = surroundings_.driver();
  std::string refusal;
  const auto attempt = [&](std::string& why) {
    ++counters_.loads;
    return load_image(driver, image(request, target), device, why);
  };
  auto kernel = attempt(refusal);
  if (!kernel) {
    std::optional<KernelSource> source;
    if (!request.spec) source = request.emit();
    const CacheKey key = key_of(request, source, target);
    disk_.discard(request.op, target, key, refusal);
    images_.forget(key.hex);
    std::string second_refusal;
    kernel = attempt(second_refusal);
    if (!kernel) {
      raise(ErrorKind::load, request.op, "the driver refuses the compiled kernel",
            {.expected = fmt::format("a kernel for cuda:{} ({}), driver of CUDA {}", device.ordinal,
                                     device.name, cuda_version_text(driver.version)),
             .got = fmt::format("{}; compiled again for {} by {}: {}", refusal, to_string(target),
                                nvrtc().describe(), second_refusal),
             .hint = "the driver may be older than NVRTC: update it or name an older libnvrtc with "
                     "TESSERA_NVRTC"});
    }
  }
  return std::make_shared<const LoadedKernel>(std::move(*kernel));
}

void Runtime::dump(const CacheKey& key, const Image& image) {
  if (options_.dump_dir.empty()) return;
  const std::string stem = fmt::format("{}/{}-{}-{}", options_.dump_dir, image.op,
                                       to_string(image.target), key.hex.substr(0, 8));
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

void Runtime::before_fork() {
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
}

}  // namespace tessera::runtime
