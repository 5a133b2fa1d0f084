#include "tests/runtime/failing_files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <utility>

namespace tessera::test {
namespace {

struct Failure {
  FileCall call;
  int error;
  std::string part;
  std::function<void()> watch;
  std::atomic<int> count = 0;
};
std::atomic<Failure*> g_failure = nullptr;

// Sets errno and says true if this call is to fail.
bool fails(FileCall call, const char* path) {
  Failure* failure = g_failure;
  if (!failure || failure->call != call) return false;
  if (!failure->part.empty() && !std::strstr(path, failure->part.c_str())) return false;
  ++failure->count;
  if (failure->watch) return failure->watch(), false;
  errno = failure->error;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

FailingFiles::FailingFiles(FileCall call, int error, std::string part) {
  g_failure = new Failure{call, error, std::move(part), {}};
}
FailingFiles::FailingFiles(FileCall call, std::function<void()> watch) {
  g_failure = new Failure{call, 0, "", std::move(watch)};
}
FailingFiles::~FailingFiles() {
  delete g_failure.exchange(nullptr);
}
int FailingFiles::count() const {
  return g_failure.load()->count;
}

}  // namespace tessera::test

using tessera::test::fails;
using tessera::test::FileCall;
using tessera::test::next;

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  const bool writes = (flags & O_CREAT) != 0;
  if (fails(writes ? FileCall::open_for_writing : FileCall::open, path)) return -1;
  static const auto real = next<int (*)(int, const char*, int, ...)>("openat");
  return real(folder, path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (count > 64 && fails(FileCall::write, "")) return -1;
  return real(fd, bytes, count);
}

int fsync(int fd) {
  static const auto real = next<int (*)(int)>("fsync");
  return fails(FileCall::sync, "") ? -1 : real(fd);
}

int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);  // or a number, in the same register
  va_end(rest);
  static const auto real = next<int (*)(int, int, ...)>("fcntl");
  if (command == F_OFD_SETLK && fails(FileCall::lock, "")) return -1;
  return real(fd, command, argument);
}

int linkat(int from, const char* old_name, int to, const char* name, int flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*, int)>("linkat");
  return fails(FileCall::link, name) ? -1 : real(from, old_name, to, name, flags);
}

int renameat(int from, const char* old_name, int to, const char* name) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*)>("renameat");
  return fails(FileCall::rename, name) ? -1 : real(from, old_name, to, name);
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(int, const char*, mode_t)>("mkdirat");
  return fails(FileCall::make_folder, path) ? -1 : real(folder, path, mode);
}

}  // extern "C"
