// Output files: whole or not at all, also when the process is killed while it writes.

#include "tools/lib/atomic_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdarg>

#include "dsl/base/error.h"
#include "tests/support/catch.h"
#include "tests/tools/temporary_folder.h"

namespace {
bool g_has_unnamed_files = true;
}

// A file system without O_TMPFILE, as NFS is.
extern "C" int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  if (!g_has_unnamed_files && (flags & O_TMPFILE) == O_TMPFILE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  static const auto real =
      reinterpret_cast<int (*)(const char*, int, ...)>(::dlsym(RTLD_NEXT, "open"));
  return real(path, flags, mode);
}

namespace tessera::tools {
namespace {

using tests::read_text;
using tests::TemporaryFolder;
using tests::write_text;

/// With and without O_TMPFILE.
class EachFileSystem {
 public:
  EachFileSystem() { g_has_unnamed_files = GENERATE(true, false); }
  ~EachFileSystem() { g_has_unnamed_files = true; }
  EachFileSystem(const EachFileSystem&) = delete;
  EachFileSystem& operator=(const EachFileSystem&) = delete;
};

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

void write_whole(const std::string& path, const std::string& text, mode_t withheld = 0) {
  AtomicFile file(path, withheld);
  file.write(text);
  file.commit();
}

std::string failure(const std::string& path) {
  try {
    AtomicFile file(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("Ctrl-C, a hangup or kill -9 while an output is written leaves nothing behind",
          "[atomic_file]") {
  const TemporaryFolder folder;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL}) {
    CAPTURE(signal);
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      AtomicFile file(folder.path("out.st"));
      file.write(std::string(1 << 20, 'x'));
      ::raise(signal);
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(folder.num_files() == 0);
  }
}

TEST_CASE("an output that is not committed leaves what was there", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  write_text(folder.path("out"), "old");
  {
    AtomicFile file(folder.path("out"));
    file.write("new");
  }
  CHECK(read_text(folder.path("out")) == "old");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("a replaced output keeps its mode", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  const std::string path = folder.path("private");
  for (const mode_t mode : {0600U, 0640U, 0444U, 0755U}) {
    write_text(path, "old");
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    write_whole(path, "new");
    CHECK(read_text(path) == "new");
    CHECK(mode_of(path) == mode);
    std::filesystem::remove(path);
  }
  const mode_t mask = ::umask(027);
  write_whole(path, "new");
  ::umask(mask);
  CHECK(mode_of(path) == 0640);
  CHECK(folder.num_files() == 1);
}

TEST_CASE("withheld permissions are given to no output, new or replaced", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  const std::string path = folder.path("bundle");
  const mode_t mask = ::umask(0);
  write_whole(path, "new", S_IWGRP | S_IWOTH);
  ::umask(mask);
  CHECK(mode_of(path) == 0644);
  REQUIRE(::chmod(path.c_str(), 0666) == 0);
  write_whole(path, "new", S_IWGRP | S_IWOTH);
  CHECK(mode_of(path) == 0644);
}

TEST_CASE("a replaced output keeps its owner where that is allowed", "[atomic_file]") {
  if (::geteuid() != 0) TESSERA_SKIP("only root may give files away");
  const TemporaryFolder folder;
  const std::string path = folder.path("theirs");
  write_text(path, "old");
  REQUIRE(::chown(path.c_str(), 1234, 5678) == 0);
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  write_whole(path, "new");
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK(info.st_uid == 1234);
  CHECK(info.st_gid == 5678);
  CHECK(mode_of(path) == 0640);
}

TEST_CASE("an output link is followed, dangling or not", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("below"));
  std::filesystem::create_symlink("below/target", folder.path("link"));
  std::filesystem::create_symlink("link", folder.path("link to link"));
  for (const char* text : {"first", "second"}) {
    write_whole(folder.path("link to link"), text);
    CHECK(std::filesystem::is_symlink(folder.path("link to link")));
    CHECK(std::filesystem::is_symlink(folder.path("link")));
    CHECK(read_text(folder.path("below/target")) == text);
  }
  std::filesystem::create_symlink("loop", folder.path("loop"));
  CHECK(failure(folder.path("loop")) == "tessera: cannot create '" + folder.path("loop") +
                                            "'\n  got       Too many levels of symbolic links");
}

TEST_CASE("an output name may be as long as the file system allows", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  for (const size_t length : {242U, 255U}) {
    const std::string path = folder.path(std::string(length, 'n'));
    write_whole(path, "first");
    write_whole(path, "second");
    CHECK(read_text(path) == "second");
  }
  const std::string path = folder.path(std::string(256, 'n'));
  CHECK(failure(path) == "tessera: cannot create '" + path + "'\n  got       File name too long");
}

TEST_CASE("an output that cannot be written is refused before anything is", "[atomic_file]") {
  const EachFileSystem file_system;
  const TemporaryFolder folder;
  for (const char* name : {"no/such/folder", "no/"}) {
    CHECK(failure(folder.path(name)) == "tessera: cannot create '" + folder.path(name) +
                                            "'\n  got       No such file or directory");
  }
  write_text(folder.path("file"), "");
  CHECK(failure(folder.path("file/out")) ==
        "tessera: cannot create '" + folder.path("file/out") + "'\n  got       Not a directory");
  CHECK(folder.num_files() == 1);
}

}  // namespace
}  // namespace tessera::tools
