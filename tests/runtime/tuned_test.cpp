// The database of tuned tile sizes (U45): what is read back, merged, published and passed over.

#include "runtime/cache/tuned.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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
