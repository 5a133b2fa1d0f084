// Runtime: the files it leaves for people: texts, logs, and the record of what was compiled.

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

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
  const std::string path = text_path(job);
  std::error_code error;
  std::filesystem::create_directories(options_.dump_dir, error);
  std::ofstream file(path, std::ios::binary);
  file << job.source->text;
  return file.flush() ? "the whole text is in " + path : "";
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
