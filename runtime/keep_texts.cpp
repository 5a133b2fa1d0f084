// Runtime: writes texts, logs and the record of compiles for people to read.

#include <fmt/format.h>

#include "runtime/cache/folder.h"
#include "runtime/cache/sha256.h"
#include "runtime/record.h"
#include "runtime/runtime_state.h"

namespace tessera::runtime {

std::string Runtime::State::file_stem(const Job& job) const {
  return fmt::format("{}-{}-{}", job.request.op, to_string(job.target),
                     job.key.kernel.hex.substr(0, 8));
}

// The path where profilers find the text that the line information names; "" if there is none.
std::string Runtime::State::text_path(const Job& job) {
  const std::string folder = options_.dump_dir.empty() ? disk_.text_folder() : options_.dump_dir;
  return folder.empty() ? "" : fmt::format("{}/{}.cu", folder, file_stem(job));
}

// Writes a file of the dump folder. Replaces any file of that name, without following or waiting for
// it: others may be able to write to the folder, and names are predictable. Returns an error text.
std::string Runtime::State::write_dump(const std::string& dir, const std::string& name,
                                       const std::string& text) {
  const Folder folder = open_output_folder(dir);
  return folder.fd ? replace_file(folder, name, text) : folder.problem;
}

// Says where the refused text is, or how to get it.
std::string Runtime::State::keep_refused_text(const Job& job) {
  if (options_.dump_dir.empty()) return "TESSERA_DUMP_DIR=FOLDER keeps the whole text";
  const std::string path = text_path(job);
  const std::string problem =
      write_dump(options_.dump_dir, file_stem(job) + ".cu", job.source->text);
  return problem.empty() ? "the whole text is in " + path
                         : fmt::format("cannot write {} (TESSERA_DUMP_DIR): {}", path, problem);
}

void Runtime::State::dump(const Job& job, const Image& image) {
  const std::string stem = file_stem(job);
  if (options_.dump_dir.empty()) {
    if (options_.line_info) disk_.keep_text(stem + ".cu", image.source);
    return;
  }
  std::string problem = write_dump(options_.dump_dir, stem + ".cu", image.source);
  if (problem.empty()) problem = write_dump(options_.dump_dir, stem + ".log", image.log);
  if (!problem.empty()) warn_about_dump(text_path(job), "TESSERA_DUMP_DIR", problem);
}

void Runtime::State::dump(const KernelSource& source) {
  if (options_.dump_dir.empty()) return;
  const std::string name =
      fmt::format("{}-cpu-{}.cu", source.op, to_hex(sha256(source.text)).substr(0, 8));
  const std::string problem = write_dump(options_.dump_dir, name, source.text);
  if (!problem.empty()) {
    warn_about_dump(fmt::format("{}/{}", options_.dump_dir, name), "TESSERA_DUMP_DIR", problem);
  }
}

void Runtime::State::dump_pass(const std::string& file, const std::string& text) {
  if (options_.pass_dump_dir.empty()) return;
  const std::string problem = write_dump(options_.pass_dump_dir, file, text);
  if (!problem.empty()) {
    warn_about_dump(fmt::format("{}/{}", options_.pass_dump_dir, file), "TESSERA_DUMP", problem);
  }
}

void Runtime::State::warn_about_dump(const std::string& path, const std::string& variable,
                                     const std::string& problem) {
  log_.write_once(LogLevel::warn, variable,
                  fmt::format("cannot write {} ({}): {}", path, variable, problem));
}

void Runtime::State::record(const Job& job, const Image& image) {
  if (options_.record.empty()) return;
  const std::string& code =
      job.request.code.empty() ? surroundings_.code_identity : job.request.code;
  const std::string problem = append_record(options_.record, {job.request.spec, code, image});
  if (problem.empty()) return;
  log_.write_once(LogLevel::warn, "record",
                  fmt::format("cannot write {} (TESSERA_RECORD): {}", options_.record, problem));
}

}  // namespace tessera::runtime
