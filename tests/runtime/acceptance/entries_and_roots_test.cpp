// The runtime's acceptance list, 6 to 9: damaged entries, folders that cannot be trusted, what is in
// a key, eviction. On a fake compiler.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/lower.h"
#include "dsl/builder.h"
#include "runtime/cache/bundle.h"
#include "runtime/cache/disk_cache.h"
#include "runtime/cache/peer_lock.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/long_tests.h"
#include "tests/runtime/sample_image.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

std::string only_entry(const std::string& root) {
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (item.path().extension() == ".tsk") return item.path().string();
  }
  return "";
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A process meets the damaged entry: it must compile again, say so once, and leave a good entry.
// Returns what is wrong, or "".
std::string heals(const FakeCuda& fake, const std::string& root) {
  Process process(fake, root);
  for (int i = 0; i < 2; ++i) {
    if (process.runtime->image(Process::with_text("a"), kTarget)->source != "a") return "source";
  }
  if (process.runtime->counters().compiles != 1) return "not compiled";
  if (process.lines.size() != 1) return "warned " + std::to_string(process.lines.size()) + " times";
  Process next(fake, root);
  next.runtime->image(Process::with_text("a"), kTarget);
  return next.runtime->counters().disk_hits == 1 && next.lines.empty() ? "" : "not healed";
}

ir::Kernel copy_kernel(const std::string& name, int64_t cols) {
  dsl::Builder k(name);
  auto rows = k.dim("rows");
  auto x = k.input("x", DType::f32, {rows, cols});
  auto y = k.output("y", DType::f32, {rows, cols});
  auto at = k.launch({rows}, {.threads = 64});
  auto tile = k.fragment(DType::f32, {1, cols}, "tile");
  k.copy(x.tile({at.x, 0}, {1, cols}), tile);
  k.copy(tile, y.tile({at.x, 0}, {1, cols}));
  return k.finish();
}

}  // namespace

TEST_CASE(
    "an entry truncated anywhere or with any bit flipped is a miss, said once, healed (R22.6)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  const std::string file = only_entry(root);
  const std::string good = bytes_of(file);
  const auto stride = static_cast<size_t>(rounds(37, 1));
  int damaged = 0;
  std::string first_failure;
  const auto meet = [&](const std::string& bytes, const std::string& what) {
    put(file, bytes);
    ++damaged;
    const std::string problem = heals(fake, root);
    if (!problem.empty() && first_failure.empty()) first_failure = what + ": " + problem;
  };
  for (size_t length = 0; length < good.size(); length += stride) {
    meet(good.substr(0, length), "length " + std::to_string(length));
  }
  const int lengths = damaged;
  const auto bits_apart = static_cast<size_t>(rounds(37 * 8 + 1, 1));
  for (size_t bit = 0; bit < good.size() * 8; bit += bits_apart) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    meet(bytes, "bit " + std::to_string(bit));
  }
  CAPTURE(damaged);
  if (long_tests()) WARN(lengths << " lengths and " << damaged - lengths << " bits damaged");
  CHECK(first_failure == "");
  CHECK(damaged > 50);
}

TEST_CASE("whatever stands in an entry's place is a miss, said once, healed (R22.6, C04)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  { Process(fake, root).runtime->image(Process::with_text("a"), kTarget); }
  const std::string file = only_entry(root);
  SECTION("another kernel's entry") {
    const ScratchFolder other;
    { Process(fake, other / "cache").runtime->image(Process::with_text("b"), kTarget); }
    fs::copy_file(only_entry(other / "cache"), file, fs::copy_options::overwrite_existing);
  }
  SECTION("nothing in it") {
    fs::resize_file(file, 0);
  }
  SECTION("a folder") {
    fs::remove(file);
    fs::create_directory(file);
  }
  SECTION("a pipe") {
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  }
  SECTION("a link") {
    fs::rename(file, scratch / "elsewhere");
    fs::create_symlink(scratch / "elsewhere", file);
  }
  CHECK(heals(fake, root) == "");
}

TEST_CASE("a shared folder is used with group trust only, and stays shared (R22.7)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  REQUIRE(mkdir(root.c_str(), 0700) == 0);
  REQUIRE(chmod(root.c_str(), 0770) == 0);
  Options options;
  options.cache_roots = {root};
  SECTION("without") {
    Process process(fake, options);
    process.runtime->image(Process::with_text("a"), kTarget);
    REQUIRE(process.lines.size() == 1);
    CHECK(process.lines[0] ==
          "cache folder " + root +
              " is not used: it is writable by group or others (mode 0770); chmod go-w it, or "
              "accept a group's with TESSERA_CACHE_TRUST=group");
    CHECK(only_entry(root).empty());
  }
  SECTION("with") {
    options.trust = CacheTrust::group;
    { Process(fake, options).runtime->image(Process::with_text("a"), kTarget); }
    struct stat info = {};
    REQUIRE(stat(only_entry(root).c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0640);
    REQUIRE(stat((root + "/v2").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0770);
    Process second(fake, options);
    second.runtime->image(Process::with_text("a"), kTarget);
    CHECK(second.runtime->counters().disk_hits == 1);
    REQUIRE(chmod(root.c_str(), 0777) == 0);  // everybody is not a group
    Process third(fake, options);
    third.runtime->image(Process::with_text("a"), kTarget);
    CHECK(third.runtime->counters().disk_hits == 0);
    REQUIRE(third.lines.size() == 1);
    CHECK(third.lines[0].find("is writable by others (mode 0777)") != std::string::npos);
  }
}

TEST_CASE("folders that cannot be used leave the program with its memory and one reason (R22.7)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  std::string reason;
  std::string path = root;
  SECTION("a link") {
    REQUIRE(mkdir((scratch / "real").c_str(), 0700) == 0);
    fs::create_directory_symlink(scratch / "real", root);
    reason = "links are not followed";
  }
  SECTION("0777") {
    REQUIRE(mkdir(root.c_str(), 0700) == 0);
    REQUIRE(chmod(root.c_str(), 0777) == 0);
    reason = "mode 0777";
  }
  SECTION("relative") {
    path = "some/folder";
    reason = "is not an absolute path";
  }
  SECTION("too long") {
    path = scratch / std::string(5000, 'x');
    reason = "File name too long";
  }
  SECTION("somebody else's") {
    if (geteuid() != 0) TESSERA_SKIP("only root can give a folder away");
    REQUIRE(mkdir(root.c_str(), 0700) == 0);
    REQUIRE(chown(root.c_str(), 12345, 12345) == 0);
    reason = "belongs to another user (uid 12345)";
  }
  Process process(fake, path);
  CHECK(process.runtime->image(Process::with_text("a"), kTarget)->source == "a");
  CHECK(process.runtime->image(Process::with_text("a"), kTarget)->source == "a");
  CHECK(fake.state().num_compiles == 1);
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].find(reason) != std::string::npos);
}

TEST_CASE("a home that cannot hold a cache means memory only, said once (R22.7)") {
  FakeCuda fake;
  Options options = options_from({{"HOME", "/proc/nobody"}});  // no folder can be made there
  REQUIRE(options.cache_roots == std::vector<std::string>{"/proc/nobody/.cache/tessera"});
  Process process(fake, options);
  for (const char* spec : {"a", "b", "a"}) process.runtime->image(process.with_spec(spec), kTarget);
  CHECK(fake.state().num_compiles == 2);
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].find("cannot write to cache folder /proc/nobody/.cache/tessera (") == 0);
}

TEST_CASE("blanks and quotes are part of a name (R22.7)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string odd = scratch / "it's a \"cache\" $HOME";
  { Process(fake, odd).runtime->image(Process::with_text("a"), kTarget); }
  Process second(fake, odd);
  second.runtime->image(Process::with_text("a"), kTarget);
  CHECK(second.runtime->counters().disk_hits == 1);
}

TEST_CASE("every input of the compile is in the key, the place is not (R22.8, C02)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  int folder = 0;
  // Whether a process that differs by `change` finds what a first one stored.
  const auto hits = [&](const std::function<void(KernelSource&, Options&, Target&)>& change) {
    const std::string root = scratch / std::to_string(folder++);
    Options options;
    options.cache_roots = {root};
    { Process(fake, options).runtime->image(Process::with_text("a"), kTarget); }
    KernelSource source = source_of("a");
    Target target = kTarget;
    change(source, options, target);
    Process process(fake, options);
    process.runtime->image({source.op, {}, [&] { return source; }}, target);
    return process.runtime->counters().disk_hits == 1;
  };
  CHECK(hits([](KernelSource&, Options&, Target&) {}));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.text += " "; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.op = "other"; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.entry = "other"; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.threads = 64; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.shared_bytes = 64; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.cluster = 2; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.options = {"-DX"}; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.waits_for_previous = true; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.params[0].is_pointer = false; }));
  CHECK_FALSE(hits([](KernelSource& s, Options&, Target&) { s.params[0].name = "y"; }));
  CHECK_FALSE(hits([](KernelSource&, Options&, Target& t) { t.letter = 0; }));
  CHECK_FALSE(hits([](KernelSource&, Options& o, Target&) { o.line_info = true; }));
  CHECK_FALSE(hits([&](KernelSource&, Options&, Target&) {
    fake.state().nvrtc_identity = "build-id of a patch release";
  }));
  // Settings that must not matter.
  CHECK(hits([](KernelSource&, Options& o, Target&) { o.log = LogLevel::debug; }));
  CHECK(hits([&](KernelSource&, Options& o, Target&) { o.dump_dir = scratch / "dump"; }));
  CHECK(hits([&](KernelSource&, Options& o, Target&) { o.record = scratch / "record"; }));
  CHECK(hits([&](KernelSource&, Options& o, Target&) {
    fs::rename(o.cache_roots[0], scratch / "moved");
    o.cache_roots = {scratch / "moved"};
  }));
  CHECK(hits([&](KernelSource&, Options&, Target&) { fake.state().driver_version += 10; }));
  CHECK(hits([](KernelSource&, Options& o, Target&) { o.on_compile = [](const StepEvent&) {}; }));
  const fs::path here = fs::current_path();
  CHECK(hits([&](KernelSource&, Options&, Target&) { fs::current_path(scratch.path()); }));
  fs::current_path(here);
}

TEST_CASE(
    "the order of options and the build of the generator are in the key, not the device (R22.8)") {
  FakeCuda fake;
  fake.state().num_devices = 2;
  const ScratchFolder scratch;
  const auto compiles = [&](const std::vector<std::string>& words, const std::string& code,
                            int device) {
    const int before = fake.state().num_compiles;
    KernelSource source = source_of("a");
    source.options = words;
    Process process(fake, scratch / "cache", code);
    process.runtime->load({"scale", {}, [&] { return source; }}, device);
    process.runtime->load(process.with_spec("a"), device);
    return fake.state().num_compiles - before;
  };
  CHECK(compiles({"-DA", "-DB"}, "code 1", 0) == 2);
  CHECK(compiles({"-DA", "-DB"}, "code 1", 0) == 0);
  CHECK(compiles({"-DA", "-DB"}, "code 1", 1) == 0);
  CHECK(compiles({"-DB", "-DA"}, "code 1", 0) == 1);
  CHECK(compiles({"-DADB"}, "code 1", 0) == 1);  // no separator to be mistaken for
  CHECK(compiles({"-DA", "-DB"}, "code 2", 0) == 2);
}

TEST_CASE("a kernel's text does not depend on what was built before it (R22.8, C01)") {
  const auto text = [] {
    return codegen::cuda::emit(codegen::lower(copy_kernel("copy_rows", 96))).text;
  };
  const std::string alone = text();
  for (int64_t cols = 1; cols <= 100; ++cols) {
    codegen::cuda::emit(codegen::lower(copy_kernel("other" + std::to_string(cols), cols)));
  }
  CHECK(text() == alone);
}

TEST_CASE("eviction keeps the newest and the used, under parallel readers (R22.9)") {
  const ScratchFolder scratch;
  const std::string path = scratch / "cache";
  Options options;
  options.cache_roots = {path};
  options.cache_max_entries = 0;
  options.cache_max_bytes = 0;
  Log log;
  Counters counters;
  constexpr int kEntries = 40;
  DiskCache disk(options, log, counters);
  const auto key = [](int i) { return sample_key(std::to_string(i)); };
  const auto file = [&](int i) { return path + "/" + entry_path("scale", kTarget, key(i)); };
  for (int i = 0; i < kEntries; ++i) {
    disk.publish(key(i), sample_image());
    const auto age = std::chrono::hours(2 + kEntries - i);  // the first is the oldest
    fs::last_write_time(file(i), fs::file_time_type::clock::now() - age);
  }
  // An entry of another schema goes first, although it is newer.
  const std::string foreign = path + "/v1/sm_90a/00";
  REQUIRE(mkdir((path + "/v1").c_str(), 0700) == 0);
  REQUIRE(mkdir((path + "/v1/sm_90a").c_str(), 0700) == 0);
  REQUIRE(mkdir(foreign.c_str(), 0700) == 0);
  const std::string old = foreign + "/scale-" + std::string(64, '0') + ".tsk";
  put(old, "x");
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(2));
  // Reading marks the oldest as used.
  REQUIRE(disk.find("scale", kTarget, {sample_key("kernel"), key(0)}).has_value());
  disk.publish(key(kEntries), sample_image());  // the newest: within the hour

  std::atomic<bool> done = false;
  std::atomic<int> damaged = 0;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&] {
      Log quiet(LogLevel::error);
      Counters own;
      Options reading = options;
      reading.cache = CacheMode::read_only;  // marks nothing as used
      DiskCache cache(reading, quiet, own);
      while (!done) {
        for (int i = 0; i < kEntries; ++i) cache.find("scale", kTarget, {sample_key("k"), key(i)});
      }
      damaged += static_cast<int>(own.corrupt_entries);
    });
  }
  const Folder root = open_root(path, Missing::leave);
  const int64_t removed = prune(root, {.bytes = 0, .entries = 10}, std::time(nullptr));
  done = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(damaged == 0);
  CHECK(removed == kEntries + 2 - 10);
  CHECK(list_entries(root).size() == 10);
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(file(0)));         // used
  CHECK(fs::exists(file(kEntries)));  // newest
  CHECK_FALSE(fs::exists(file(1)));
  CHECK(fs::exists(file(kEntries - 1)));
  // Nothing younger than an hour goes, whatever the bound.
  prune(root, {.bytes = 1, .entries = 1}, std::time(nullptr));
  CHECK(fs::exists(file(0)));
  CHECK(fs::exists(file(kEntries)));
  CHECK(list_entries(root).size() == 2);
}

TEST_CASE("an entry whose time lies in the future is the first to be evicted (R22.9)") {
  const ScratchFolder scratch;
  const std::string path = scratch / "cache";
  Options options;
  options.cache_roots = {path};
  Log log;
  Counters counters;
  DiskCache disk(options, log, counters);
  const auto file = [&](const char* key) {
    return path + "/" + entry_path("scale", kTarget, sample_key(key));
  };
  for (const char* key : {"future", "old", "new"}) disk.publish(sample_key(key), sample_image());
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(file("future"), now + std::chrono::hours(24 * 3650));
  fs::last_write_time(file("old"), now - std::chrono::hours(24));
  const Folder root = open_root(path, Missing::leave);
  CHECK(prune(root, {.bytes = 0, .entries = 2}, std::time(nullptr)) == 1);
  CHECK_FALSE(fs::exists(file("future")));
  CHECK(fs::exists(file("old")));
  // One that is read gets the time of now.
  fs::last_write_time(file("old"), now + std::chrono::hours(24 * 3650));
  REQUIRE(disk.find("scale", kTarget, {sample_key("kernel"), sample_key("old")}).has_value());
  CHECK(fs::last_write_time(file("old")) < now + std::chrono::hours(1));
}

TEST_CASE("the texts for profilers count, and are the first to go (R8.1)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.line_info = true;
  Process(fake, options).runtime->image(Process::with_text("a"), kTarget);
  const Folder root = open_root(scratch / "cache", Missing::leave);
  const std::vector<StoredEntry> entries = list_entries(root);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].schema == "source");
  CHECK(entries[0].path() == "source/" + entries[0].name);
  CHECK(entries[0].key().empty());
  CHECK(open_folder_of(root, entries[0]).fd);
  const time_t later = std::time(nullptr) + 7200;
  CHECK(prune(root, {.bytes = 0, .entries = 1}, later) == 1);
  REQUIRE(list_entries(root).size() == 1);
  CHECK(list_entries(root)[0].schema == "v2");
}

TEST_CASE("the lock of a prune is its user's, in a shared folder its group's") {
  const ScratchFolder scratch;
  const CacheTrust trust = GENERATE(CacheTrust::user, CacheTrust::group);
  const Folder root = open_root(scratch / "cache", Missing::create, trust);
  const mode_t before = umask(077);
  CHECK(prune(root, {.bytes = 0, .entries = 1}, std::time(nullptr)) == 0);
  umask(before);
  struct stat info = {};
  REQUIRE(stat((scratch / "cache/prune.lock").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == (trust == CacheTrust::group ? 0660 : 0600));
}

TEST_CASE("a store prunes at most once a minute, and skips while another process does (R22.9)") {
  const ScratchFolder scratch;
  const std::string path = scratch / "cache";
  Options options;
  options.cache_roots = {path};
  options.cache_max_entries = 1;
  Log log;
  Counters counters;
  DiskCache disk(options, log, counters);
  disk.publish(sample_key("a"), sample_image());
  const std::string file = path + "/" + entry_path("scale", kTarget, sample_key("a"));
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(2));
  disk.publish(sample_key("b"), sample_image());  // within the minute
  CHECK(fs::exists(file));
  const Folder root = open_root(path, Missing::leave);
  {
    const Descriptor held(openat(root.fd.get(), "prune.lock", O_RDWR));
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    REQUIRE(fcntl(held.get(), F_OFD_SETLK, &lock) == 0);
    CHECK(prune(root, {.bytes = 0, .entries = 1}, std::time(nullptr)) == -1);
  }
  DiskCache next(options, log, counters);
  next.publish(sample_key("c"), sample_image());
  CHECK_FALSE(fs::exists(file));
  CHECK(counters.values().evictions == 1);
}
