// The database of tuned tile sizes (U45): what is read back, merged, published and passed over.

#include "runtime/cache/tuned.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/cache/folder.h"
#include "tests/runtime/failing_files.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;

namespace {

TunedEntry entry_of(const std::string& op, int64_t rows, const std::string& date) {
  TunedEntry entry;
  entry.key = {op, 1, {{"bytes", 2}}, {7}, "NVIDIA H200", 132, "sm_90a"};
  entry.choice = {{"rows", rows}, {"threads", 256}};
  entry.us = 12.5;
  entry.standard_us = 14;
  entry.candidates = {{"rows=64 threads=256", 12.5, 0.1, 100, ""},
                      {"rows=32 threads=256", 0, 0, 0, "spills 8 bytes"}};
  entry.method = "CUPTI";
  entry.date = date;
  return entry;
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A folder of tile sizes with one entry.
struct Stored {
  Stored() {
    options.tune_dir = scratch / "tuned";
    options.peer_patience_ms = 20;
    REQUIRE(publish_tuned(options, entry_of("first", 64, "1")).empty());
  }
  const test::ScratchFolder scratch;
  Options options;
  const std::string file = scratch / "tuned/nvidia-h200_132sm.json";
  const std::string lock = scratch / "tuned/tuned.lock";
};

}  // namespace

TEST_CASE("tuned entries are read back as they were written (U45)", "[tuned]") {
  const std::vector<TunedEntry> entries = {entry_of("transpose", 64, "2026-01-01"),
                                           entry_of("post_fwd", 32, "2026-01-01")};
  const TunedFile file = decode_tuned(encode_tuned(entries));
  CHECK(file.problems.empty());
  REQUIRE(file.entries.size() == 2);
  CHECK(file.entries[0].key == entries[0].key);
  CHECK(file.entries[0].choice == entries[0].choice);
  CHECK(file.entries[0].candidates[1].dropped == "spills 8 bytes");
  CHECK(encode_tuned(file.entries) == encode_tuned(entries));
}

TEST_CASE("damaged tuned entries are passed over one by one (U45)", "[tuned]") {
  std::string text = encode_tuned({entry_of("a", 64, "1"), entry_of("b", 32, "1")});
  CHECK(decode_tuned(text.substr(0, text.size() / 2)).entries.empty());
  CHECK(decode_tuned(text.substr(0, text.size() / 2)).problems.size() == 1);
  CHECK(decode_tuned("{}").problems.size() == 1);
  CHECK(decode_tuned("[1]").problems == std::vector<std::string>{"entry 1: it is no object"});
  const size_t at = text.find("\"device\"");
  text.replace(at, 8, "\"devil\"");  // an unknown field, and one that is missing
  const TunedFile file = decode_tuned(text);
  CHECK(file.problems == std::vector<std::string>{"entry 1: it lacks 'device'"});
  REQUIRE(file.entries.size() == 1);
  CHECK(file.entries[0].key.op == "b");
}

TEST_CASE("of two tuned entries with one key the newer wins (U45)", "[tuned]") {
  std::vector<TunedEntry> entries = {entry_of("a", 64, "2026-01-02")};
  merge_tuned(entries, {entry_of("a", 32, "2026-01-01")});
  CHECK(entries.at(0).choice.at("rows") == 64);
  merge_tuned(entries, {entry_of("a", 128, "2026-01-03")});
  CHECK(entries.at(0).choice.at("rows") == 128);
  TunedEntry slice = entry_of("a", 16, "2026-01-04");
  slice.key.num_sms = 16;
  merge_tuned(entries, {slice});
  CHECK(entries.size() == 2);
  CHECK(tuned_file_name("NVIDIA H200", 132) == "nvidia-h200_132sm.json");
  CHECK(tuned_file_name("NVIDIA H200 MIG 1g.18gb", 16) == "nvidia-h200-mig-1g-18gb_16sm.json");
}

TEST_CASE("eight processes publish tuned entries at once and lose none (U45)", "[tuned]") {
  const test::ScratchFolder scratch;
  Options options;
  options.tune_dir = scratch.path() + "/tuned";
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child) {
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      bool ok = true;
      for (int i = 0; i < 5; ++i) {
        ok &=
            publish_tuned(options, entry_of("op" + std::to_string(child * 5 + i), 64, "1")).empty();
      }
      _exit(ok ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK(status == 0);
  }
  const TunedFile file = read_tuned(options, "NVIDIA H200", 132);
  CHECK(file.problems.empty());
  CHECK(file.entries.size() == 40);
  CHECK(read_tuned(options, "NVIDIA H200", 16).entries.empty());
}

TEST_CASE("a folder of tuned entries that others may write is not used (U45)", "[tuned]") {
  const test::ScratchFolder scratch;
  Options options;
  options.tune_dir = scratch.path() + "/tuned";
  REQUIRE(publish_tuned(options, entry_of("a", 64, "1")).empty());
  chmod(options.tune_dir.c_str(), 0777);
  const TunedFile file = read_tuned(options, "NVIDIA H200", 132);
  CHECK(file.entries.empty());
  CHECK(file.problems ==
        std::vector<std::string>{"its folder is writable by group or others (mode 0777)"});
}

TEST_CASE("without TESSERA_TUNE_DIR tuned entries lie in the cache folder (U45)", "[tuned]") {
  const test::ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch.path() + "/cache"};
  CHECK(read_tuned(options, "NVIDIA H200", 132).problems.empty());
  CHECK(!std::filesystem::exists(options.cache_roots[0]));  // reading makes nothing
  REQUIRE(publish_tuned(options, entry_of("a", 64, "1")).empty());
  CHECK(std::filesystem::exists(options.cache_roots[0] + "/CACHEDIR.TAG"));
  CHECK(read_tuned(options, "NVIDIA H200", 132).entries.size() == 1);
  CHECK(tuned_folder(options) == options.cache_roots[0] + "/tuned");
  options.cache_roots.clear();
  CHECK(!publish_tuned(options, entry_of("a", 64, "1")).empty());
}

TEST_CASE("under every umask the next process reads the tile sizes that were stored", "[tuned]") {
  for (const mode_t mask : {mode_t{0}, mode_t{002}, mode_t{077}, mode_t{0777}}) {
    const mode_t before = umask(0);
    test::ScratchFolder scratch;
    Options options;
    options.tune_dir = scratch / "tuned";
    REQUIRE(mkdir(options.tune_dir.c_str(), 0700) == 0);
    umask(mask);
    std::vector<std::string> problems;
    for (const char* op : {"a", "b", "c"}) {
      problems.push_back(publish_tuned(options, entry_of(op, 64, "1")));
    }
    umask(before);
    CAPTURE(mask);
    CHECK(problems == std::vector<std::string>(3));
    CHECK(read_tuned(options, "NVIDIA H200", 132).entries.size() == 3);
    struct stat info = {};
    REQUIRE(stat((options.tune_dir + "/nvidia-h200_132sm.json").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == ((0644 & ~mask) | 0600));
  }
}

TEST_CASE("a file of tile sizes that cannot be read is never replaced", "[tuned]") {
  const auto refused = [](const Stored& stored) {
    const std::string before = text_of(stored.file);
    const std::string problem = publish_tuned(stored.options, entry_of("second", 32, "1"));
    CHECK(text_of(stored.file) == before);
    const std::string start = stored.file + " stays as it is, because not all of it can be read: ";
    CHECK(problem.substr(0, start.size()) == start);
    return problem.substr(std::min(start.size(), problem.size()));
  };
  SECTION("others may write it") {
    const Stored stored;
    chmod(stored.file.c_str(), 0664);
    CHECK(refused(stored) == "it is writable by group or others (mode 0664)");
  }
  SECTION("it is cut off") {
    const Stored stored;
    REQUIRE(truncate(stored.file.c_str(), 100) == 0);
    CHECK(refused(stored) == "it is no JSON list of entries");
  }
  SECTION("an entry has other fields") {
    const Stored stored;
    std::ofstream(stored.file) << "[{\"operation\": \"first\"}]";
    CHECK(refused(stored) == "entry 1: it lacks 'op'");
  }
  SECTION("an entry has a field of a later version") {
    const Stored stored;
    std::string text = text_of(stored.file);
    text.insert(text.find("\"op\""), "\"power\": 700, ");
    std::ofstream(stored.file) << text;
    CHECK(refused(stored) == "entry 1: it has an unknown field 'power'");
  }
  SECTION("it is too large") {
    const Stored stored;
    REQUIRE(truncate(stored.file.c_str(), kMostTunedBytes + 1) == 0);
    CHECK(refused(stored) == "it is too large (16777217 bytes, at most 16777216)");
  }
  SECTION("it is a symbolic link") {
    const Stored stored;
    std::filesystem::rename(stored.file, stored.file + ".real");
    std::filesystem::create_symlink(stored.file + ".real", stored.file);
    CHECK(refused(stored) == "it is a symbolic link");
  }
  for (const auto& [error, text] : {std::pair(ESTALE, "it cannot be opened: Stale file handle"),
                                    std::pair(EIO, "it cannot be opened: Input/output error")}) {
    const Stored stored;
    const test::FailingFiles failing(test::FileCall::open, error, "nvidia-h200");
    CHECK(refused(stored) == text);
  }
}

TEST_CASE("tile sizes that do not fit on the disk leave the stored ones", "[tuned]") {
  const Stored stored;
  for (const test::FileCall call : {test::FileCall::open_for_writing, test::FileCall::write,
                                    test::FileCall::sync, test::FileCall::rename}) {
    const test::FailingFiles full(call, ENOSPC);
    CHECK(publish_tuned(stored.options, entry_of("second", 32, "1")) ==
          stored.file + " cannot be written: No space left on device");
  }
  CHECK(read_tuned(stored.options, "NVIDIA H200", 132).entries.size() == 1);
  std::vector<TunedEntry> many(1, entry_of("large", 64, "1"));
  many[0].method.assign(size_t{kMostTunedBytes}, 'x');
  CHECK(publish_tuned(stored.options, many[0]).find("and more than 16777216 are not read") !=
        std::string::npos);
  CHECK(read_tuned(stored.options, "NVIDIA H200", 132).entries.size() == 1);
}

TEST_CASE("a user who may only read the folder of tile sizes does not block it", "[tuned]") {
  const Stored stored;
  const Descriptor folder(open(stored.options.tune_dir.c_str(), O_RDONLY));
  REQUIRE(flock(folder.get(), LOCK_EX) == 0);
  CHECK(publish_tuned(stored.options, entry_of("second", 32, "1")).empty());
  CHECK_FALSE(std::filesystem::exists(stored.lock));  // gone with its holder
}

TEST_CASE("a lock that another process keeps is an error that names it", "[tuned]") {
  const Stored stored;
  const Descriptor held(open(stored.lock.c_str(), O_RDWR | O_CREAT, 0600));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  REQUIRE(fcntl(held.get(), F_OFD_SETLK, &lock) == 0);
  CHECK(publish_tuned(stored.options, entry_of("second", 32, "1")) ==
        stored.lock + " is locked by another process, for more than 0.02 s");
  CHECK(read_tuned(stored.options, "NVIDIA H200", 132).entries.size() == 1);
}

TEST_CASE("measured tile sizes are stored where the file system has no locks", "[tuned]") {
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL}) {
    const Stored stored;
    const test::FailingFiles failing(test::FileCall::lock, error);
    CHECK(publish_tuned(stored.options, entry_of("second", 32, "1")).empty());
    CHECK(failing.count() == 1);
    CHECK(read_tuned(stored.options, "NVIDIA H200", 132).entries.size() == 2);
  }
}

TEST_CASE("all tile sizes are found in the folder that they are stored in", "[tuned]") {
  const test::ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "home"};
  std::filesystem::create_directory(options.cache_roots[0]);
  std::ofstream(options.cache_roots[0] + "/letter.txt") << "not Tessera's";
  CHECK(read_all_tuned(options).problems.empty());
  REQUIRE(publish_tuned(options, entry_of("a", 64, "1")).empty());
  CHECK(tuned_folder(options) == scratch / "home/tessera-cache/tuned");
  CHECK(read_all_tuned(options).entries.size() == 1);
  const std::string other = tuned_folder(options) + "/nvidia-b200_148sm.json";
  std::ofstream(other) << "[";
  chmod(other.c_str(), 0644);
  const TunedFile all = read_all_tuned(options);
  CHECK(all.entries.size() == 1);
  CHECK(all.problems == std::vector<std::string>{other + ": it is no JSON list of entries"});
}
