// The disk cache: found again, healed when broken, careful about whom it trusts, never an error.

#include "runtime/cache/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::sample_image;
using test::sample_key;
using test::ScratchFolder;
namespace fs = std::filesystem;

namespace {

constexpr Target kTarget{9, 0, 'a'};

// A cache with its own log and counters.
struct Cache {
  explicit Cache(std::vector<std::string> roots, CacheMode mode = CacheMode::read_write)
      : log(LogLevel::info, [this](LogLevel, std::string_view text) { lines.emplace_back(text); }),
        disk(options(std::move(roots), mode), log, counters) {}

  static Options options(std::vector<std::string> roots, CacheMode mode) {
    Options result;
    result.cache_roots = std::move(roots);
    result.cache = mode;
    return result;
  }
  bool has(const CacheKey& key = sample_key()) {
    return disk.find("scale", kTarget, {sample_key("kernel"), key}).has_value();
  }

  std::vector<std::string> lines;
  Log log;
  Counters counters;
  DiskCache disk;
};

std::string entry_file(const std::string& root) {
  return root + "/" + entry_path("scale", kTarget, sample_key());
}

void store(const std::string& root) {
  Cache cache({root});
  cache.disk.publish(sample_key(), sample_image());
  REQUIRE(cache.lines.empty());
}

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

int files_in(const std::string& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("an entry is found by another cache on the same folder") {
  const ScratchFolder scratch;
  const std::string root = scratch / "a/b/cache";
  store(root);
  Cache other({root});
  CHECK(other.has());
  CHECK_FALSE(other.has(sample_key("another")));
  CHECK(other.lines.empty());
  SECTION("files and folders are private, nothing is left in tmp") {
    CHECK(mode_of(root) == 0700);
    CHECK(mode_of(entry_file(root)) == 0600);
    CHECK(files_in(root + "/tmp") == 0);
  }
  SECTION("the path says schema, target, key and op") {
    const std::string hex = sample_key().hex;
    CHECK(entry_file(root) == root + "/v2/sm_90a/" + hex.substr(0, 2) + "/scale-" + hex + ".tsk");
  }
}

TEST_CASE("a broken entry is a miss with one warning, is removed and can be stored again") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  const std::string file = entry_file(root);
  std::string what;
  SECTION("truncated") {
    fs::resize_file(file, 100);
    what = "truncated";
  }
  SECTION("empty") {
    fs::resize_file(file, 0);
    what = "truncated";
  }
  SECTION("overwritten") {
    std::ofstream(file) << std::string(500, 'x');
    what = "not a cache entry";
  }
  SECTION("a folder in its place") {
    fs::remove(file);
    fs::create_directory(file);
    what = "is not a regular file";
  }
  SECTION("a pipe in its place") {
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    what = "is not a regular file";
  }
  SECTION("a link in its place") {
    fs::rename(file, scratch / "elsewhere");
    fs::create_symlink(scratch / "elsewhere", file);
    what = "is a symbolic link";
  }
  SECTION("writable by others") {
    fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
    what = "is writable by group or others (mode 0602)";
  }
  Cache cache({root});
  CHECK_FALSE(cache.has());
  REQUIRE(cache.lines.size() == 1);
  CHECK(cache.lines[0] ==
        "scale: cache entry " + file + " cannot be used (" + what + "); compiling again");
  CHECK(cache.counters.values().corrupt_entries == 1);
  CHECK_FALSE(fs::exists(fs::symlink_status(file)));
  cache.disk.publish(sample_key(), sample_image());
  CHECK(cache.has());
  CHECK(cache.lines.size() == 1);
}

TEST_CASE("a broken entry of a read-only cache is left alone") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  fs::resize_file(entry_file(root), 10);
  Cache cache({root}, CacheMode::read_only);
  CHECK_FALSE(cache.has());
  CHECK_FALSE(cache.has());
  CHECK(cache.lines.size() == 1);  // told once
  CHECK(fs::exists(entry_file(root)));
}

TEST_CASE("all folders are searched, the first is written") {
  const ScratchFolder scratch;
  store(scratch / "baked");
  Cache cache({scratch / "own", scratch / "baked"});
  CHECK(cache.has());
  CHECK_FALSE(fs::exists(scratch / "own"));  // looking creates nothing
  cache.disk.publish(sample_key("new"), sample_image());
  CHECK(fs::exists(scratch / "own"));
  const auto status = cache.disk.status();
  REQUIRE(status.size() == 2);
  CHECK(status[0].written);
  CHECK(status[0].trusted);
  CHECK_FALSE(status[1].written);
}

TEST_CASE("a read-only cache and a switched-off one write nothing") {
  const ScratchFolder scratch;
  Cache read_only({scratch / "ro"}, CacheMode::read_only);
  read_only.disk.publish(sample_key(), sample_image());
  CHECK_FALSE(fs::exists(scratch / "ro"));
  Cache off({scratch / "off"}, CacheMode::off);
  off.disk.publish(sample_key(), sample_image());
  CHECK_FALSE(off.has());
  CHECK_FALSE(fs::exists(scratch / "off"));
  CHECK(off.lines.empty());
}

TEST_CASE("a folder that others can write is not used") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  std::string problem;
  std::string remedy = "; chmod go-w it, or accept a group's with TESSERA_CACHE_TRUST=group";
  const std::string other_remedy = "; name another with TESSERA_CACHE_DIR";
  SECTION("mode 0777") {
    REQUIRE(chmod(root.c_str(), 0777) == 0);
    problem = "is writable by group or others (mode 0777)";
  }
  SECTION("mode 0770") {
    REQUIRE(chmod(root.c_str(), 0770) == 0);
    problem = "is writable by group or others (mode 0770)";
  }
  SECTION("a folder inside it") {
    REQUIRE(chmod((root + "/v2").c_str(), 0777) == 0);
    problem = "is writable by group or others (mode 0777)";
  }
  SECTION("a link to a good folder") {
    fs::rename(root, scratch / "real");
    fs::create_directory_symlink(scratch / "real", root);
    problem = "is not a directory (links are not followed)";
    remedy = other_remedy;
  }
  SECTION("a file") {
    fs::remove_all(root);
    std::ofstream(root) << "x";
    fs::permissions(root, fs::perms::owner_read);
    problem = "is not a bundle";
    remedy = other_remedy;
  }
  SECTION("another user's") {
    if (geteuid() != 0) TESSERA_SKIP("only root can give a folder away");
    REQUIRE(chown(root.c_str(), 12345, 12345) == 0);
    problem = "belongs to another user (uid 12345)";
    remedy = other_remedy;
  }
  if (problem.empty()) return;
  Cache cache({root});
  CHECK_FALSE(cache.has());
  CHECK_FALSE(cache.has());
  REQUIRE(cache.lines.size() == 1);
  CHECK(cache.lines[0] == "cache folder " + root + " is not used: it " + problem + remedy);
}

TEST_CASE("a relative folder is not used") {
  Cache cache({"some/folder"});
  CHECK_FALSE(cache.has());
  REQUIRE(cache.lines.size() == 1);
  CHECK(cache.lines[0] ==
        "cache folder some/folder is not used: it is not an absolute path; "
        "name another with TESSERA_CACHE_DIR");
}

TEST_CASE("names with blanks and quotes work, very long ones are a warning") {
  const ScratchFolder scratch;
  const std::string odd = scratch / "it's a \"cache\" $HOME";
  store(odd);
  Cache cache({odd + "/"});
  CHECK(cache.has());
  Cache endless({scratch / std::string(5000, 'x')});
  CHECK_FALSE(endless.has());
  CHECK(endless.lines.size() == 1);
}

TEST_CASE("a folder that cannot be written costs one warning") {
  const ScratchFolder scratch;
  std::ofstream(scratch / "file") << "x";
  const std::string root = scratch / "file/cache";
  Cache cache({root});
  cache.disk.publish(sample_key(), sample_image());
  cache.disk.publish(sample_key("second"), sample_image());
  REQUIRE(cache.lines.size() == 1);
  CHECK(cache.lines[0] ==
        "cannot write to cache folder " + root +
            " (is not a directory (links are not followed)); compiled kernels stay in memory, set "
            "TESSERA_CACHE_DIR to a private, writable folder to keep them");
  CHECK(cache.counters.values().failed_publishes == 2);
}

TEST_CASE("storing an entry twice keeps the first file") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  struct stat before = {};
  struct stat after = {};
  REQUIRE(stat(entry_file(root).c_str(), &before) == 0);
  store(root);
  REQUIRE(stat(entry_file(root).c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(files_in(root + "/tmp") == 0);
}

TEST_CASE("files of crashed writers are swept after an hour, other files never") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  const std::string digits(32, '0');
  const std::string old = root + "/tmp/tessera-host-12-" + digits;
  const std::string young = root + "/tmp/tessera-host-13-" + digits;
  const std::vector<std::string> others = {root + "/tmp/chapter1.tex", root + "/tmp/tessera-notes",
                                           root + "/tmp/host-12-" + digits, root + "/tmp/" + digits,
                                           root + "/tmp/tessera-host-12-" + digits + ".tex"};
  const auto two_hours_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const std::string& path : others) std::ofstream(path) << "x";
  for (const std::string& path : {old, young}) std::ofstream(path) << "x";
  for (const std::string& path : others) fs::last_write_time(path, two_hours_ago);
  fs::last_write_time(old, two_hours_ago);
  store(root);
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(young));
  for (const std::string& path : others) CHECK(fs::exists(path));
}

TEST_CASE("what the driver refused is removed") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  store(root);
  Cache cache({root});
  cache.disk.discard("scale", kTarget, sample_key(), "CUDA_ERROR_INVALID_IMAGE");
  CHECK_FALSE(cache.has());
  REQUIRE(cache.lines.size() == 1);
  CHECK(cache.lines[0] ==
        "scale: the driver refused a cached kernel (CUDA_ERROR_INVALID_IMAGE); compiling again");
}

TEST_CASE("threads and processes that store the same entries all succeed") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  constexpr int kKeys = 5;
  const auto store_all = [&] {
    Cache cache({root});
    for (int i = 0; i < kKeys; ++i) {
      const CacheKey key = sample_key(std::to_string(i));
      cache.disk.publish(key, sample_image());
      if (!cache.has(key)) return false;
    }
    return cache.lines.empty();
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(store_all() ? 0 : 1);
    children.push_back(child);
  }
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) threads.emplace_back([&] { failures += store_all() ? 0 : 1; });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(failures == 0);
  CHECK(files_in(root + "/tmp") == 0);
  Cache cache({root});
  for (int i = 0; i < kKeys; ++i) CHECK(cache.has(sample_key(std::to_string(i))));
}
