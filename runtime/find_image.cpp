// Runtime: the way to a compiled kernel. Memory, disk, other processes, compiler.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/cache/manifest.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"
#include "runtime/record.h"
#include "runtime/runtime.h"

namespace tessera::runtime {
namespace {

thread_local StoreLater* store_later = nullptr;

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

// The launch facts that are not in the text.
std::string launch_facts(const KernelSource& source) {
  std::string facts = fmt::format(
      "threads {} shared {} cluster {}{}{}", source.threads, source.shared_bytes, source.cluster,
      source.waits_for_previous ? " waits" : "", source.cooperative ? " cooperative" : "");
  for (const KernelParam& param : source.params) {
    facts += fmt::format(" {}{} {}", name(param.dtype), param.is_pointer ? "*" : "", param.name);
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

StoreLater::StoreLater() : outer_(std::exchange(store_later, this)) {}

StoreLater::~StoreLater() {
  store_later = outer_;
  for (const auto& store : stores_) {
    try {
      store();
    } catch (const std::exception&) {
      // Out of memory: the kernel is in use already, another process will keep it.
    }
  }
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
  if (!is_identifier(request.op)) {  // it names files
    raise(ErrorKind::argument, request.op, "a kernel has a name that cannot be used",
          {.expected = "letters, digits and _, at most 64, no digit first", .got = request.op});
  }
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
  job.may_be_overridden = false;
  // An image from a bundle keeps the name of the compiler that made it.
  const auto image = image_of(job);
  return {job.key.kernel, disk_.encode(image->key, *image)};
}

std::shared_ptr<const Image> Runtime::image_of(Job& job) {
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

// After this process's waiters have it: the disk is a by-product. Other processes wait for the lock.
void Runtime::store(Job& job, std::shared_ptr<const Image> image) {
  auto lock = std::move(job.lock);
  if (!std::exchange(job.is_new, false)) return;
  auto publish = [this, key = job.key.entry, image = std::move(image), lock = std::move(lock)] {
    disk_.publish(key, *image);
  };
  if (store_later) {
    store_later->stores_.push_back(std::move(publish));
  } else {
    publish();
  }
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

// The text that stands in the override folder under this kernel's name, compiled. Nothing without one.
std::shared_ptr<const Image> Runtime::compile_override(Job& job) {
  if (options_.override_dir.empty() || options_.jit == JitMode::off || !job.may_be_overridden) {
    return nullptr;
  }
  const std::string path = fmt::format("{}/{}.cu", options_.override_dir, file_stem(job));
  std::ifstream file(path, std::ios::binary);
  if (!file) return nullptr;
  if (!job.source) job.source = job.request.emit();
  job.source->text.assign(std::istreambuf_iterator<char>(file), {});
  job.source->origins.clear();  // the author of this text is the user
  log_.write_once(LogLevel::warn, path,
                  fmt::format("{}: compiled from {} (TESSERA_OVERRIDE_DIR)", job.request.op, path));
  job.reason = "overridden by " + path;
  return compile_now(job);
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
  const std::string what = fmt::format("{}, Spec {}, key {}", to_string(job.target),
                                       spec_text(job.request), job.key.kernel.hex);
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

void Runtime::tell_begin(const Listener& listener, const Job& job) const {
  if (!listener) return;
  listener({job.request.op, spec_text(job.request), to_string(job.target), job.key.entry.hex,
            job.reason});
}

void Runtime::tell_end(const Listener& listener, const Job& job, bool failed, int64_t us) const {
  if (!listener) return;
  listener({job.request.op, spec_text(job.request), to_string(job.target), job.key.entry.hex,
            job.reason, true, failed, static_cast<double>(us) / 1e3});
}

std::shared_ptr<const Image> Runtime::compile_now(Job& job) {
  if (!job.source) job.source = job.request.emit();
  TESSERA_CHECK(job.source->op == job.request.op, "a kernel's text was emitted under another op");
  ++counters_.compiles;
  tell_begin(options_.on_compile, job);
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<const Image> image;
  try {
    CompileOptions how{.line_info = options_.line_info, .file = {}, .stop = job.request.stop};
    if (options_.line_info) how.file = text_path(job);
    Image made = compile(nvrtc(), *job.source, job.target, how);
    made.key = job.key.entry;
    image = std::make_shared<const Image>(std::move(made));
  } catch (const Error& error) {
    tell_end(options_.on_compile, job, true, microseconds_since(start));
    ErrorFields fields = error.fields();
    if (!fields.got.empty()) fields.got += "\nSpec: " + spec_text(job.request);
    if (fields.kind == ErrorKind::compile && !fields.got.empty() && fields.hint.empty()) {
      fields.hint = keep_refused_text(job);
    }
    throw Error(std::move(fields));
  }
  const int64_t elapsed = microseconds_since(start);
  counters_.compile_us += elapsed;
  tell_end(options_.on_compile, job, false, elapsed);
  log_.write(LogLevel::info,
             fmt::format("{}: compiled for {} in {} ms, {} registers", job.request.op,
                         to_string(job.target), elapsed / 1000, image->resources.registers));
  return image;
}

// Where the text is that the compiler refused, or how to get it.
std::string Runtime::keep_refused_text(const Job& job) const {
  if (options_.dump_dir.empty()) return "TESSERA_DUMP_DIR=FOLDER keeps the whole text";
  const std::string path = text_path(job);
  std::error_code error;
  std::filesystem::create_directories(options_.dump_dir, error);
  std::ofstream file(path, std::ios::binary);
  file << job.source->text;
  return file.flush() ? "the whole text is in " + path : "";
}

std::string Runtime::file_stem(const Job& job) const {
  return fmt::format("{}-{}-{}", job.request.op, to_string(job.target),
                     job.key.kernel.hex.substr(0, 8));
}

// Where profilers find the text that line information names; empty if nowhere.
std::string Runtime::text_path(const Job& job) const {
  const std::string folder = options_.dump_dir.empty() ? disk_.text_folder() : options_.dump_dir;
  return folder.empty() ? "" : fmt::format("{}/{}.cu", folder, file_stem(job));
}

void Runtime::dump(const Job& job, const Image& image) {
  if (options_.dump_dir.empty()) {
    if (options_.line_info) disk_.keep_text(file_stem(job) + ".cu", image.source);
    return;
  }
  const std::string stem = options_.dump_dir + "/" + file_stem(job);
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

}  // namespace tessera::runtime
