#include "runtime/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/cache/folder.h"
#include "runtime/cache/manifest.h"
#include "runtime/no_write_signals.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

using nlohmann::json;

// Spec bytes are not text: each is kept as a number.
json numbers_of(const std::string& bytes) {
  json list = json::array();
  for (const char c : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return list;
}

[[noreturn]] void refuse(const std::string& place, const std::string& got) {
  raise(ErrorKind::argument, "", place + " is not a recorded kernel",
        {.expected = "a line written by TESSERA_RECORD", .got = got});
}

std::optional<std::string> spec_of(const json& object) {
  if (!object.contains("spec")) return std::nullopt;
  std::string bytes;
  for (const json& number : object.at("spec")) bytes += static_cast<char>(number.get<uint8_t>());
  return bytes;
}

KernelSource source_of(const json& object) {
  KernelSource source;
  source.op = object.at("op").get<std::string>();
  source.entry = object.at("entry").get<std::string>();
  source.text = object.at("text").get<std::string>();
  source.threads = object.at("threads").get<int>();
  source.shared_bytes = object.at("shared_bytes").get<int64_t>();
  source.cluster = object.at("cluster").get<int>();
  source.waits_for_previous = object.at("waits_for_previous").get<bool>();
  source.cooperative = object.at("cooperative").get<bool>();
  source.options = object.at("options").get<std::vector<std::string>>();
  for (const json& item : object.at("params")) {
    const auto dtype = dtype_from_name(item.at("dtype").get<std::string>());
    if (!dtype) throw std::invalid_argument("a dtype that does not exist");
    source.params.push_back(
        {item.at("name").get<std::string>(), item.at("pointer").get<bool>(), *dtype});
  }
  return source;
}

// Whether a file is empty or its last line whole: a process may have ended in the middle of one.
bool ends_a_line(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);
  char last = '\n';
  return size <= 0 || pread(fd, &last, 1, size - 1) != 1 || last == '\n';
}

// Removes what was just appended, unless another process has appended to it meanwhile.
void take_back(int fd, ssize_t written) {
  const off_t end = lseek(fd, 0, SEEK_CUR);
  struct stat info = {};
  if (end < written || fstat(fd, &info) != 0 || info.st_size != end) return;
  static_cast<void>(ftruncate(fd, end - written));
}

}  // namespace

std::string append_record(const std::string& path, const RecordedKernel& kernel) {
  const Image& image = kernel.image;
  json params = json::array();
  for (const KernelParam& param : image.params) {
    params.push_back({{"name", param.name},
                      {"pointer", param.is_pointer},
                      {"dtype", std::string(name(param.dtype))}});
  }
  json object = {{"op", image.op},
                 {"code", kernel.code},
                 {"entry", image.entry},
                 {"target", to_string(image.target)},
                 {"threads", image.threads},
                 {"shared_bytes", image.shared_bytes},
                 {"cluster", image.cluster},
                 {"options", image.options},
                 {"waits_for_previous", image.waits_for_previous},
                 {"cooperative", image.cooperative},
                 {"params", std::move(params)},
                 {"text", image.source}};
  if (kernel.spec) object["spec"] = numbers_of(*kernel.spec);
  const NoWriteSignals guard;
  // O_NONBLOCK: a pipe in the file's place must not be waited for.
  const Descriptor fd(
      open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd) return errno == ELOOP ? "is a symbolic link" : std::strerror(errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "is not a regular file";
  std::string line = object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  if (!ends_a_line(fd.get())) line.insert(0, "\n");
  const ssize_t written = write(fd.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return "";
  const std::string problem = written < 0 ? std::strerror(errno) : "no room for the line";
  if (written > 0) take_back(fd.get(), written);
  return problem;
}

KernelRequest parse_record(std::string_view line, const std::string& place) {
  try {
    const json object = json::parse(line.begin(), line.end());
    KernelSource source = source_of(object);
    if (!is_identifier(source.op) || !is_identifier(source.entry)) refuse(place, "a bad name");
    KernelRequest request;
    request.op = source.op;
    request.spec = spec_of(object);
    request.code = object.at("code").get<std::string>();
    request.emit = [source = std::move(source)] { return source; };
    return request;
  } catch (const json::exception& error) {
    refuse(place, error.what());
  } catch (const std::invalid_argument& error) {
    refuse(place, error.what());
  }
}

}  // namespace tessera::runtime
