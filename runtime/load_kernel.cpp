// Runtime: loads a compiled kernel on a device.

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "dsl/base/target_facts.h"
#include "runtime/raise.h"
#include "runtime/runtime_state.h"

namespace tessera::runtime {
namespace {

bool is_capturing_on(const Driver& driver, const std::string& op, int device, StreamHandle stream) {
  if (!stream) return false;  // the legacy default stream cannot
  const ContextScope context(driver, device);
  cu::StreamCaptureStatus status = cu::kCaptureNone;
  driver.check(driver.call.stream_is_capturing(static_cast<cu::Stream>(stream), &status),
               "cuStreamIsCapturing", op);
  return status != cu::kCaptureNone;
}

void check_not_capturing(const Driver& driver, const KernelRequest& request, int device,
                         StreamHandle stream) {
  if (!is_capturing_on(driver, request.op, device, stream)) return;
  raise(ErrorKind::capture, request.op,
        "the kernel is not loaded yet and the stream is being captured",
        {.got = "Spec " + spec_text(request),
         .hint = "before the capture begins make the call once, or let jit::prepare() have it"});
}

}  // namespace

bool Runtime::State::is_capturing(int device, StreamHandle stream) const {
  return is_capturing_on(surroundings_.driver(), "", device, stream);
}

// Returns the device's most specific target for which a bundle has the kernel.
Target Runtime::State::bundled_target(const KernelRequest& request, const DeviceInfo& device) {
  for (const Target target : targets_that_run_on(device.major, device.minor)) {
    std::optional<KernelSource> source;
    if (!request.spec) source = request.emit(target);
    if (disk_.in_bundle(key_of(request, source, target).kernel)) return target;
  }
  return target_for(device);
}

std::shared_ptr<const LoadedKernel> Runtime::State::load(const KernelRequest& request, int device,
                                                         StreamHandle stream) {
  const Driver& driver = surroundings_.driver();
  const DeviceInfo info = query_device(driver, device);
  KernelRequest checked = request;
  checked.emit = [&](Target target) {
    KernelSource source = request.emit(target);
    check_shared_memory(source.op, source.shared_bytes, info);
    return source;
  };
  const bool only_bundles = options_.arch.empty() && (options_.jit == JitMode::off || !nvrtc_.id());
  Job job =
      job_for(checked, only_bundles ? bundled_target(checked, info) : target_for(info), &info);
  Flight flight = Flight::found;
  const auto make = [&] {
    check_not_capturing(driver, request, device, stream);
    return load_or_recompile(job, info);
  };
  return get_despite_cancelled_leader(
      loaded_, fmt::format("{} cuda:{}", job.key.kernel.hex, device), request.stop, make, flight);
}

std::shared_ptr<const LoadedKernel> Runtime::State::load_or_recompile(Job& job,
                                                                      const DeviceInfo& device) {
  const Driver& driver = surroundings_.driver();
  const auto attempt = [&](std::string& refusal) {
    auto image = image_of(job);
    ++counters_.loads;
    tell_begin(options_.on_load, job);
    const auto start = std::chrono::steady_clock::now();
    const auto end = [&](bool failed) {
      const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
      counters_.load_us += static_cast<int64_t>(us.count());
      tell_end(options_.on_load, job, failed, static_cast<int64_t>(us.count()));
    };
    try {
      auto loaded = load_image(driver, std::move(image), device, refusal);
      end(!loaded);
      return loaded;
    } catch (const Error&) {
      end(true);
      throw;
    }
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
      raise(
          ErrorKind::load, job.request.op, "the driver refuses the compiled kernel",
          {.expected =
               fmt::format("a kernel for cuda:{} ({}), driver of CUDA {}, Spec {}", device.ordinal,
                           device.name, cuda_version_text(driver.version), spec_text(job.request)),
           .got = options_.jit == JitMode::off ? refusal + "; nothing is compiled (TESSERA_JIT=off)"
                  : job.key.entry.hex.empty()
                      ? refusal + "; there is no NVRTC to compile it again"
                      : fmt::format("{}; compiled again for {} by {}: {}", refusal,
                                    to_string(job.target), nvrtc().describe(), second_refusal),
           .hint = "the driver may be older than NVRTC: update it or name an older libnvrtc with "
                   "TESSERA_NVRTC"});
    }
  }
  // A kernel compiled without the wait would read too soon, so it must not begin early. Nor may a
  // cooperative kernel: the launches of a stream share its barrier counter.
  if (options_.pdl && kernel->image->waits_for_previous &&
      facts_of(kernel->image->target).has_pdl && !kernel->image->cooperative) {
    kernel->begin_early();
  }
  kernel->spec = spec_text(job.request);
  return std::make_shared<const LoadedKernel>(std::move(*kernel));
}

}  // namespace tessera::runtime
