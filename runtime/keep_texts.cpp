// Runtime: the files it leaves for people: texts, logs, and the record of what was compiled.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "runtime/cache/sha256.h"
#include "runtime/record.h"
#include "runtime/runtime.h"

namespace tessera::runtime {

std::string Runtime::file_stem(const Job& job) const {
  return fmt::format("{}-{}-{}", job.request.op, to_string(job.target),
                     job.key.kernel.hex.substr(0, 8));
}

// Where profilers find the text that line information names; empty if nowhere.
std::string Runtime::text_path(const Job& job) const {
  const std::string folder = options_.dump_dir.empty() ? disk_.text_folder() : options_.dump_dir;
  return folder.empty() ? "" : fmt::format("{}/{}.cu", folder, file_stem(job));
}

// Where the text is that the compiler refused, or how to get it.
std::string Runtime::keep_refused_text(const Job& job) const {
  if (options_.dump_dir.empty()) return "TESSERA_DUMP_DIR=FOLDER keeps the whole text";
  const std::string name = file_stem(job) + ".cu";
  return write_dump(name, job.source->text) ? "the whole text is in " + text_path(job) : "";
}

// False if it cannot be written.
bool Runtime::write_dump(const std::string& name, const std::string& text) const {
  std::error_code error;
  std::filesystem::create_directories(options_.dump_dir, error);
  std::ofstream file(fmt::format("{}/{}", options_.dump_dir, name), std::ios::binary);
  file << text;
  return static_cast<bool>(file.flush());
}

void Runtime::dump(const Job& job, const Image& image) {
  if (options_.dump_dir.empty()) {
    if (options_.line_info) disk_.keep_text(file_stem(job) + ".cu", image.source);
    return;
  }
  const std::string stem = file_stem(job);
  if (write_dump(stem + ".cu", image.source) && write_dump(stem + ".log", image.log)) return;
  warn_about_dump(stem + ".cu");
}

void Runtime::dump(const KernelSource& source) {
  if (options_.dump_dir.empty()) return;
  const std::string name =
      fmt::format("{}-cpu-{}.cu", source.op, to_hex(sha256(source.text)).substr(0, 8));
  if (!write_dump(name, source.text)) warn_about_dump(name);
}

void Runtime::warn_about_dump(const std::string& name) {
  log_.write_once(LogLevel::warn, "dump",
                  fmt::format("cannot write {}/{} (TESSERA_DUMP_DIR)", options_.dump_dir, name));
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
