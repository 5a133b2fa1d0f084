// Runtime: compiles an image, or refuses to.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "runtime/cache/folder.h"
#include "runtime/check_source.h"
#include "runtime/nvrtc/compile.h"
#include "runtime/raise.h"
#include "runtime/runtime_state.h"

namespace tessera::runtime {
namespace {

int64_t microseconds_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::microseconds>(elapsed).count();
}

}  // namespace

// Returns the text of the override file at `path` for this kernel. The folder and the file are trusted
// as the cache is: their writer decides what runs on the GPU.
std::optional<std::string> Runtime::State::overriding_text(const Job& job,
                                                           const std::string& path) {
  const auto refuse = [&](const std::string& what, const std::string& problem) {
    raise(ErrorKind::argument, job.request.op, "the text of TESSERA_OVERRIDE_DIR cannot be used",
          {.expected = fmt::format("a folder and a file that only this user can write, at most {} "
                                   "bytes, no links",
                                   kMaxTextBytes),
           .got = fmt::format("{} {}", what, problem),
           .hint = problem.find("writable") == std::string::npos ? "" : "chmod go-w it"});
  };
  const std::string& given = options_.override_dir;
  const Folder folder = open_root(std::filesystem::absolute(given), Missing::leave, options_.trust);
  if (folder.missing) {
    log_.write_once(LogLevel::warn, "override " + given,
                    fmt::format("there is no folder {} (TESSERA_OVERRIDE_DIR)", given));
    return std::nullopt;
  }
  if (!folder.fd) refuse(given, folder.problem);
  FileBytes file = read_file(folder, file_stem(job) + ".cu", kMaxTextBytes);
  if (file.missing) return std::nullopt;
  if (!file.bytes) refuse(path, file.problem);
  return std::move(file.bytes);
}

// Compiles the override file of this kernel. Null if there is none.
std::shared_ptr<const Image> Runtime::State::compile_override(Job& job) {
  if (options_.override_dir.empty() || options_.jit == JitMode::off || !job.may_be_overridden) {
    return nullptr;
  }
  const std::string path = fmt::format("{}/{}.cu", options_.override_dir, file_stem(job));
  std::optional<std::string> text = overriding_text(job, path);
  if (!text) return nullptr;
  if (!job.source) job.source = job.request.emit(job.target);
  if (text->find(job.source->entry) == std::string::npos) {
    raise(ErrorKind::argument, job.request.op,
          "the text of TESSERA_OVERRIDE_DIR does not define the kernel",
          {.expected = fmt::format("an extern \"C\" function {} in {}", job.source->entry, path),
           .got = text->empty() ? "an empty file" : "a text without that name"});
  }
  job.source->text = *std::move(text);
  job.source->origins.clear();  // the user wrote this text
  log_.write_once(LogLevel::warn, path,
                  fmt::format("{}: compiled from {} (TESSERA_OVERRIDE_DIR)", job.request.op, path));
  job.reason = "overridden by " + path;
  return compile_now(job);
}

void Runtime::State::check_may_compile(const Job& job) {
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

void Runtime::State::tell_begin(const Listener& listener, const Job& job) const {
  if (!listener) return;
  listener({job.request.op, spec_text(job.request), to_string(job.target), job.key.entry.hex,
            job.reason});
}

void Runtime::State::tell_end(const Listener& listener, const Job& job, bool failed,
                              int64_t us) const {
  if (!listener) return;
  listener({job.request.op, spec_text(job.request), to_string(job.target), job.key.entry.hex,
            job.reason, true, failed, static_cast<double>(us) / 1e3});
}

std::shared_ptr<const Image> Runtime::State::compile_now(Job& job) {
  if (!job.source) job.source = job.request.emit(job.target);
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
    if (!fields.got.empty()) {
      // The 'got' field of an argument error stays on one line.
      const char* before = fields.kind == ErrorKind::argument ? ", spec " : "\nSpec: ";
      fields.got += before + spec_text(job.request);
    }
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
