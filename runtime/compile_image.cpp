// Runtime: the compiler's part of the way to a kernel.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"
#include "runtime/runtime.h"

namespace tessera::runtime {
namespace {

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

}  // namespace

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

}  // namespace tessera::runtime
