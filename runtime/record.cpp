#include "runtime/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/cache/folder.h"
#include "runtime/cache/kernel_json.h"
#include "runtime/check_source.h"
#include "runtime/no_write_signals.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

// Spec bytes are not text: each is written as a number.
json numbers_of(const std::string& bytes) {
  json list = json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return list;
}

std::optional<std::string> spec_of(JsonReader& reader) {
  if (!reader.has("spec")) return std::nullopt;
  std::string bytes;
  const json* list = reader.list("spec");
  for (size_t i = 0; list && i < list->size(); ++i) {
    const json& item = list->at(i);
    const bool is_byte = item.is_number_unsigned() && item.get<uint64_t>() <= 255;
    if (!is_byte) return reader.fail("bytes from 0 to 255 in 'spec'", &item), std::nullopt;
    bytes += static_cast<char>(item.get<uint8_t>());
  }
  return bytes;
}

[[noreturn]] void refuse(const std::string& place, const std::string& expected,
                         const std::string& got) {
  raise(ErrorKind::argument, "", place + " is not a recorded kernel",
        {.expected = expected, .got = got});
}

// True if the file is empty or its last line is complete. A process may have ended within a line.
bool ends_a_line(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);
  char last = '\n';
  return size <= 0 || pread(fd, &last, 1, size - 1) != 1 || last == '\n';
}

// Removes the bytes just appended, unless another process has appended since.
void take_back(int fd, ssize_t written) {
  const off_t end = lseek(fd, 0, SEEK_CUR);
  struct stat info = {};
  if (end < written || fstat(fd, &info) != 0 || info.st_size != end) return;
  [[maybe_unused]] const int failed = ftruncate(fd, end - written);  // else part of a line stays
}

}  // namespace

std::string append_record(const std::string& path, const RecordedKernel& kernel) {
  json object = encode_facts(facts_of(kernel.image));
  object["code"] = kernel.code;
  object["target"] = to_string(kernel.image.target);
  object["text"] = kernel.image.source;
  if (kernel.spec) object["spec"] = numbers_of(*kernel.spec);
  std::string line = object.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  // A text that is not UTF-8 would be read back as a different kernel.
  if (json::parse(line)["text"] != object["text"]) return "the CUDA text is not UTF-8";
  const NoWriteSignals guard;
  // O_NONBLOCK: opening a pipe in the file's place must not block.
  const Descriptor fd(
      open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd) return errno == ELOOP ? "is a symbolic link" : std::strerror(errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "is not a regular file";
  if (!ends_a_line(fd.get())) line.insert(0, "\n");
  const ssize_t written = write(fd.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return "";
  const std::string problem = written < 0 ? std::strerror(errno) : "no room for the line";
  if (written > 0) take_back(fd.get(), written);
  return problem;
}

KernelRequest parse_record(std::string_view line, const std::string& place) {
  const auto object = parse_json(line);
  if (!object) refuse(place, "a line written by TESSERA_RECORD", "no JSON, or too deep");
  JsonReader reader(*object);
  KernelSource source = decode_facts(reader);
  source.text = reader.text("text");
  KernelRequest request;
  request.op = source.op;
  request.spec = spec_of(reader);
  request.code = reader.text("code");
  if (!reader.ok()) refuse(place, reader.expected(), reader.got());
  try {
    check_source(source);
  } catch (const Error& error) {
    refuse(place, error.expected(), error.got());
  }
  request.emit = [source = std::move(source)] { return source; };
  return request;
}

}  // namespace tessera::runtime
