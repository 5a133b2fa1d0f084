// Runtime: finds a compiled kernel in memory, on disk or through another process, else compiles it.
//
// The order of image_of(), for one kernel and target:
//
//   memory      images_, by the kernel's key. Of several threads that ask at once one does the rest, the others wait for it;
//               if it is cancelled, a waiting one takes over
//   override    a file that the user put in place of the text (TESSERA_OVERRIDE_DIR)
//   disk        bundles by the kernel's key, the cache by the entry's key
//   peer        a lock by the entry's key: a process that already compiles it is waited for, with a limit, and the disk is asked
//               again
//   compile     by NVRTC, unless TESSERA_JIT forbids it; the image is written to the disk after the waiting threads have it,
//               and the lock is kept until then
//
// Two keys, each a digest of named inputs. The kernel's key says what is wanted: op, target, code, and the Spec, or the text
// where the caller hands one in. It is what a bundle is searched by, so that no compiler is needed to find a kernel there. The
// entry's key adds the compiler and its options: two compilers never share an entry on disk.
//
// Naming the compiler does not open it: its identity comes from its files (nvrtc_.id()). If the library that is then opened
// is another one, the entry's key follows it, and the disk is asked once more before the compile (opens_another_compiler).
//
// A request with a Spec and no `code` of its own is an op of the library: it is found by its Spec, and its text is made only
// to compile it. All other requests make their text first, for the key holds it.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <utility>

#include "dsl/base/callbacks.h"
#include "runtime/cache/manifest.h"
#include "runtime/check_source.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"
#include "runtime/runtime_state.h"
#include "runtime/store_later.h"

namespace tessera::runtime {
namespace {

// The launch facts that the text does not contain.
std::string launch_facts(const KernelSource& source) {
  std::string facts = fmt::format(
      "threads {} shared {} cluster {}{}{}", source.threads, source.shared_bytes, source.cluster,
      source.waits_for_previous ? " waits" : "", source.cooperative ? " cooperative" : "");
  for (const KernelParam& param : source.params) {
    facts += fmt::format(" {}{} {}", name(param.dtype), param.is_pointer ? "*" : "", param.name);
    if (!param.map) continue;
    facts += fmt::format(" map {} {} {}", param.map->tensor, fmt::join(param.map->box, "x"),
                         param.map->swizzle);
  }
  return facts;
}

void check_spills(const Image& image) {
  if (image.resources.spill_bytes == 0) return;
  raise(ErrorKind::compile, image.op, "the kernel spills registers (TESSERA_CHECK_SPILLS)",
        {.expected = "no spill stores",
         .got = fmt::format("{} bytes per thread for {}, {} registers", image.resources.spill_bytes,
                            to_string(image.target), image.resources.registers)});
}

}  // namespace

std::string spec_text(const KernelRequest& request) {
  if (!request.spec) return "(the text itself)";
  std::string text;
  for (const char c : *request.spec) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The text of a recording comes from outside. It is found by its own digest, so that it never
// replaces this program's text for the same Spec.
bool Runtime::State::is_found_by_spec(const KernelRequest& request) {
  return request.spec && request.code.empty();
}

bool Runtime::State::uses_disk(const KernelRequest& request) const {
  return !request.spec || !surroundings_.code_identity.empty() || !request.code.empty();
}

KernelKey Runtime::State::key_of(const KernelRequest& request,
                                 const std::optional<KernelSource>& source, Target target) {
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
  const std::optional<NvrtcId> compiler = nvrtc_.id();
  if (!compiler) return key;  // only a bundle can have it
  const CompileOptions how{.line_info = options_.line_info};
  builder.add("options",
              fmt::format("{}", fmt::join(standard_options(compiler->version, target, how), " ")));
  builder.add("compiler", compiler->identity);
  if (!disk_.site().empty()) builder.add("site", disk_.site());
  key.entry = builder.finish();
  return key;
}

Runtime::State::Job Runtime::State::job_for(const KernelRequest& request, Target target,
                                            const DeviceInfo* device) {
  if (!is_identifier(request.op)) {  // the name becomes part of file names
    raise(ErrorKind::argument, request.op, "a kernel has a name that cannot be used",
          {.expected = "letters, digits and _, at most 64, no digit first", .got = request.op});
  }
  std::optional<KernelSource> source;
  if (!is_found_by_spec(request)) {
    source = request.emit(target);
    check_source(*source);
  }
  KernelKey key = key_of(request, source, target);
  Job job{request, std::move(source), target, std::move(key)};
  job.device = device;
  return job;
}

std::shared_ptr<const Image> Runtime::State::image(const KernelRequest& request, Target target) {
  Job job = job_for(request, target);
  return image_of(job);
}

BundleItem Runtime::State::bundle_item(const KernelRequest& request, Target target) {
  const auto item = [&](const CacheKey& kernel, const CacheKey& entry, const Image& image) {
    std::string bytes = disk_.encode(entry, image);
    if (const std::string problem = disk_.problem_of(bytes); !problem.empty()) {
      raise(ErrorKind::argument, request.op, "the kernel cannot be kept in a bundle",
            {.expected = "facts that fit a manifest", .got = problem});
    }
    return BundleItem{kernel, std::move(bytes)};
  };
  if (is_found_by_spec(request) || !request.spec) {
    Job job = job_for(request, target);
    job.may_be_overridden = false;
    // An image from a bundle keeps the name of its compiler.
    const auto image = image_of(job);
    return item(job.key.kernel, image->key, *image);
  }
  // A recorded kernel of an op: bundles are searched by Spec, and an open bundle may hold this
  // Spec.
  const KernelKey by_spec = key_of(request, std::nullopt, target);
  if (disk_.in_bundle(by_spec.kernel)) {
    if (const auto image = disk_.find(request.op, target, by_spec)) {
      return item(by_spec.kernel, image->key, *image);
    }
  }
  Job job = job_for(request, target);
  job.may_be_overridden = false;
  const auto image = image_of(job);
  // The key is computed again: the compile may have opened an NVRTC.
  return item(by_spec.kernel, key_of(request, std::nullopt, target).entry, *image);
}

std::shared_ptr<const Image> Runtime::State::image_of(Job& job) {
  Flight flight = Flight::found;
  auto image = get_despite_cancelled_leader(
      images_, job.key.kernel.hex, job.request.stop, [&] { return find_or_compile(job); }, flight);
  if (flight == Flight::made) {
    store(job, image);
    dump(job, *image);
    record(job, *image);
  }
  if (options_.check_spills) check_spills(*image);
  return image;
}

// Runs after this process's waiters have the image: the disk is a by-product. Other processes wait
// for the lock.
void Runtime::State::store(Job& job, std::shared_ptr<const Image> image) {
  auto lock = std::move(job.lock);
  if (!std::exchange(job.is_new, false)) return;
  StoreLater::run(
      [this, key = job.key.entry, image = std::move(image), lock = std::move(lock)]() mutable {
        const DeferCallbacks defer;
        disk_.publish(key, *image);
        lock.reset();
      });
}

std::shared_ptr<const Image> Runtime::State::find_on_disk(const Job& job) {
  if (!uses_disk(job.request)) return nullptr;
  auto image = disk_.find(job.request.op, job.target, job.key);
  if (!image) return nullptr;
  log_.write(LogLevel::debug,
             fmt::format("{}: {} from disk", job.request.op, to_string(job.target)));
  return std::make_shared<const Image>(std::move(*image));
}

std::shared_ptr<const Image> Runtime::State::find_or_compile(Job& job) {
  if (auto image = compile_override(job)) return image;
  if (auto image = find_on_disk(job)) return image;
  ++counters_.misses;
  check_may_compile(job);
  if (opens_another_compiler(job)) {
    if (auto image = find_on_disk(job)) return image;
  }
  if (!uses_disk(job.request) || !disk_.is_writable()) return compile_now(job);
  job.lock = std::make_shared<PeerLock>(job.key.entry.hex,
                                        std::chrono::milliseconds(options_.peer_patience_ms));
  if (job.lock->waited()) {
    ++counters_.peer_waits;
    if (auto image = find_on_disk(job)) return image;
  }
  auto image = compile_now(job);
  job.is_new = true;
  return image;
}

// Opens the compiler. Its files may have named another compiler than the one that could be opened.
// The key then follows the opened compiler.
bool Runtime::State::opens_another_compiler(Job& job) {
  const Nvrtc& opened = nvrtc();
  if (job.device && options_.arch.empty()) {
    choose_target(job.device->major, job.device->minor, opened.archs, opened.describe());
  }
  KernelKey key =
      key_of(job.request, is_found_by_spec(job.request) ? std::nullopt : job.source, job.target);
  if (key.entry == job.key.entry) return false;
  job.key = std::move(key);
  return true;
}

}  // namespace tessera::runtime
