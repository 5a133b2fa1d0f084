#include "runtime/cache/site_key.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cache/folder.h"

namespace tessera::runtime {

std::string read_site_key(const std::string& path, std::string& problem) {
  constexpr size_t kLeast = 16;
  constexpr size_t kMost = 4096;
  const Descriptor fd = open_file(path, CacheTrust::user, problem);
  if (!fd) return "";
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || (info.st_mode & 07) != 0) {
    problem = fmt::format("can be read by others (mode {:04o})", info.st_mode & 07777);
    return "";
  }
  std::string secret(kMost + 1, '\0');
  const ssize_t count = ::read(fd.get(), secret.data(), secret.size());
  secret.resize(count < 0 ? 0 : static_cast<size_t>(count));
  if (secret.size() >= kLeast && secret.size() <= kMost) return secret;
  problem = fmt::format("does not hold {} to {} bytes", kLeast, kMost);
  return "";
}

}  // namespace tessera::runtime
