// Which folders the cache takes for its own: those that carry its marker, and no other.

#include "runtime/cache/cache_root.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/runtime/child_end.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

const std::string kDigits64(64, 'a');

void put(const std::string& path, const std::string& text, int hours_old = 48) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours_old));
}

std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    if (!item.is_regular_file()) continue;
    std::ifstream text(item.path());
    files[item.path()] = std::string{std::istreambuf_iterator<char>(text), {}};
  }
  return files;
}

std::string text_of(const std::string& path) {
  std::ifstream text(path);
  return {std::istreambuf_iterator<char>(text), {}};
}

Options with_root(const std::string& root) {
  Options options;
  options.cache_roots = {root};
  options.cache_max_bytes = 1;
  options.cache_max_entries = 1;
  return options;
}

}  // namespace

TEST_CASE("a new or empty cache folder gets the marker that backup programs know") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const bool is_there = GENERATE(false, true);
  if (is_there) REQUIRE(mkdir((scratch / "cache").c_str(), 0700) == 0);
  Process process(fake, scratch / "cache");
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(process.lines.empty());
  CHECK(text_of(scratch / "cache/CACHEDIR.TAG")
            .find("Signature: 8a477f597d28d172789f06886806bc55\n# Compiled kernels of Tessera.") ==
        0);
  CHECK(open_cache_root(scratch / "cache", CacheTrust::user).is_marked);
}

TEST_CASE("a cache folder with other files is used in a folder of its own, said once") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string home = scratch / "home";
  std::string file;
  SECTION("a file") {
    file = home + "/notes.txt";
  }
  SECTION("folders with the names of the cache's") {
    file = home + "/source/main.cpp";
  }
  SECTION("the marker of another program") {
    file = home + "/CACHEDIR.TAG";
  }
  put(file, "Signature: 8a477f597d28d172789f06886806bc55\n# Of cargo.\n");
  const auto before = files_below(home);
  Process first(fake, home);
  first.runtime->image(Process::with_text("a"), kTarget);
  first.runtime->image(Process::with_text("b"), kTarget);
  CHECK(first.lines == std::vector<std::string>{
                           "cache folder " + home + " holds other files: kernels are kept in " +
                           home + "/tessera-cache, and nothing else there is touched"});
  CHECK(fs::exists(home + "/tessera-cache/CACHEDIR.TAG"));
  Process second(fake, home);
  second.runtime->image(Process::with_text("a"), kTarget);
  CHECK(second.lines.empty());
  CHECK(second.runtime->counters().disk_hits == 1);
  CHECK(second.runtime->cache_roots()[0].path == home + "/tessera-cache");
  fs::remove_all(home + "/tessera-cache");
  CHECK(files_below(home) == before);
}

TEST_CASE("a cache folder of a version without markers is marked and stays in use") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  fs::remove(root + "/CACHEDIR.TAG");
  REQUIRE(fs::exists(root + "/prune.lock"));
  Process process(fake, root);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(process.runtime->counters().disk_hits == 1);
  CHECK_FALSE(fs::exists(root + "/CACHEDIR.TAG"));  // reading writes nothing
  process.runtime->image(Process::with_text("b"), kTarget);
  CHECK(fs::exists(root + "/CACHEDIR.TAG"));
  CHECK_FALSE(fs::exists(root + "/tessera-cache"));
  CHECK(process.lines.empty());
}

TEST_CASE("a folder tessera-cache that is somebody's is not written") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string home = scratch / "home";
  put(home + "/tessera-cache/thesis.tex", "x");
  const auto before = files_below(home);
  Process process(fake, home);
  CHECK(process.runtime->image(Process::with_text("a"), kTarget)->source == "a");
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].find("cannot write to cache folder " + home +
                              " (is not empty and has no CACHEDIR.TAG of Tessera); ") == 0);
  CHECK(files_below(home) == before);
}

TEST_CASE("folders that are only read need no marker") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "layer").runtime->image(Process::with_text("a"), kTarget); }
  fs::remove(scratch / "layer/CACHEDIR.TAG");
  put(scratch / "layer/README", "baked into the image");
  const auto before = files_below(scratch / "layer");
  Options options = with_root(scratch / "own");
  options.cache_roots.push_back(scratch / "layer");
  Process process(fake, options);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(process.runtime->counters().disk_hits == 1);
  options.cache_roots = {scratch / "layer"};
  options.cache = CacheMode::read_only;
  Process reader(fake, options);
  reader.runtime->image(Process::with_text("a"), kTarget);
  CHECK(reader.runtime->counters().disk_hits == 1);
  CHECK(files_below(scratch / "layer") == before);
}

TEST_CASE("a damaged entry below a folder without the marker is not removed") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  fs::remove(root + "/CACHEDIR.TAG");
  put(root + "/notes.txt", "x");
  std::string entry;
  for (const auto& [path, text] : files_below(root)) {
    if (path.size() > 64 && path.substr(path.size() - 4) == ".tsk") entry = path;
  }
  fs::resize_file(entry, 10);
  Process process(fake, root);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(fs::file_size(entry) == 10);
}

TEST_CASE("files that look like the cache's survive eviction in a cache folder") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  const std::vector<std::string> names = {
      "/source/main.cpp",
      "/source/notes.txt",
      "/source/scale-sm_90a-0123abcd.cu.orig",
      "/source/scale-sm_90a-0123abc.cu",
      "/source/scale-hopper-0123abcd.cu",
      "/source/kernel.cu",
      "/vendor/lib/core/a.c",
      "/videos/2024/jan/party.mp4",
      "/v2/sm_90a/aa/notes.txt",
      "/v2/sm_90a/aa/scale-" + kDigits64 + ".tsk.bak",
      "/v2/sm_90a/aa/scale-abc.tsk",
      "/v2/sm_90a/ab/scale-" + kDigits64 + ".tsk",  // of another folder's
      "/v2/sm_90a/abc/scale-" + kDigits64 + ".tsk",
      "/v2/hopper/aa/scale-" + kDigits64 + ".tsk",
      "/v2x/sm_90a/aa/scale-" + kDigits64 + ".tsk",
      "/v2/sm_90a/aa/my-scale-" + kDigits64 + ".tsk",
      "/v/sm_90a/aa/scale-" + kDigits64 + ".tsk",
      "/tmp/chapter1.tex",
      "/tmp/tessera-host-12-notes"};
  for (const std::string& name : names) put(root + name, "precious");
  const std::string old = root + "/v1/sm_90a/aa/scale-" + kDigits64 + ".tsk";
  const std::string text = root + "/source/scale-sm_90a-0123abcd.cu";
  put(old, "of an older schema");
  put(text, "of a kernel");
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (item.is_directory()) fs::permissions(item.path(), fs::perms::owner_all);
  }
  Process process(fake, with_root(root));
  process.runtime->image(Process::with_text("b"), kTarget);
  CHECK(process.runtime->counters().evictions == 2);
  CHECK_FALSE(fs::exists(old));
  CHECK_FALSE(fs::exists(text));
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(text_of(root + name) == "precious");
  }
}

TEST_CASE("something in an entry's place that is not empty is moved aside and the entry stored") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  std::string entry;
  for (const auto& [path, text] : files_below(root)) {
    if (path.find("/v2/") != std::string::npos) entry = path;
  }
  fs::remove(entry);
  put(entry + "/letter.txt", "precious");
  Process process(fake, root);
  process.runtime->image(Process::with_text("a"), kTarget);
  REQUIRE(process.lines.size() == 1);
  const std::string said = "; it is not empty and was renamed to ";
  const size_t at = process.lines[0].find(said);
  REQUIRE(at != std::string::npos);
  const std::string aside = process.lines[0].substr(at + said.size());
  CHECK(text_of(fs::path(entry).parent_path().string() + "/" + aside + "/letter.txt") ==
        "precious");
  Process next(fake, root);
  next.runtime->image(Process::with_text("a"), kTarget);
  CHECK(next.runtime->counters().disk_hits == 1);
  CHECK(next.lines.empty());
}

TEST_CASE("a full file size limit costs a warning and a compile, not the process") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const bool dumps = GENERATE(false, true);
  const ChildEnd end = in_child([&] {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 2;
    Options options;
    options.cache_roots = {scratch / "cache"};
    if (dumps) options.dump_dir = scratch / "dump";
    if (dumps) options.record = scratch / "record";
    Process process(fake, options);
    process.runtime->image(Process::with_text("a"), kTarget);
    return process.lines.size() == (dumps ? 3 : 1) ? 0 : 1;
  });
  CHECK(end.signal == 0);
  CHECK(end.exit_code == 0);
  for (const auto& [path, text] : files_below(scratch.path())) CHECK(path == scratch / "record");
}
