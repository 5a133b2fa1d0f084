// The runtime's acceptance list, 1 to 5: one compile for many callers, and a store that survives
// races, kills and file systems that fail. On a fake compiler.

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store_later.h"
#include "tests/runtime/failing_files.h"
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

int files_below(const std::string& folder) {
  int count = 0;
  for (const auto& item : fs::recursive_directory_iterator(folder)) {
    count += item.is_regular_file() ? 1 : 0;
  }
  return count;
}

// Entries of a folder; -1 if one of them does not verify.
int good_entries(const std::string& path) {
  const Folder root = open_root(path, Missing::leave);
  int count = 0;
  for (const StoredEntry& entry : list_entries(root)) {
    const FileBytes file = read_file(open_folder_of(root, entry), entry.name);
    std::string reason;
    if (!file.bytes || !decode_entry(*file.bytes, reason)) return -1;
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("many threads that want one kernel compile it once, other kernels meanwhile (R22.1)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  constexpr int kThreads = 32;
  const Runtime* waited_for = nullptr;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.on_compile = [&](const StepEvent& event) {  // the compile lasts until all others wait
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!event.ended && event.spec == "61" && waited_for->counters().waits < kThreads - 1 &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  };
  Process process(fake, options);
  waited_for = process.runtime.get();
  std::vector<std::shared_ptr<const LoadedKernel>> kernels(kThreads);
  std::vector<std::thread> threads;
  for (auto& kernel : kernels) {
    threads.emplace_back([&] { kernel = process.runtime->load(process.with_spec("a"), 0); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& kernel : kernels) CHECK(kernel == kernels[0]);
  CHECK(fake.state().num_compiles == 1);
  CHECK(fake.state().num_loads == 1);
  CHECK(process.runtime->counters().waits == kThreads - 1);

  // Different kernels overlap: in the fake compiler all of them meet.
  threads.clear();
  fake.state().num_to_meet = 4;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back(
        [&, i] { process.runtime->image(process.with_spec("b" + std::to_string(i)), kTarget); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(fake.state().most_at_once == 4);
}

TEST_CASE("processes that fill one folder all succeed and leave whole entries only (R22.2, C03)") {
  FakeCuda fake;
  const int num_processes = rounds(16, 64);
  constexpr int kKeys = 20;
  const int num_rounds = rounds(2, 50);
  for (int round = 0; round < num_rounds; ++round) {
    const ScratchFolder scratch;
    const std::string root = scratch / "cache";
    std::vector<pid_t> children;
    for (int i = 0; i < num_processes; ++i) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        Process process(fake, root);
        for (int key = 0; key < kKeys; ++key) {
          const std::string spec = std::to_string((key + i) % kKeys);
          if (process.runtime->image(process.with_spec(spec), kTarget)->source != "text of " + spec)
            _exit(1);
        }
        _exit(process.lines.empty() ? 0 : 2);
      }
      children.push_back(child);
    }
    int failures = 0;
    for (const pid_t child : children) {
      int status = -1;
      REQUIRE(waitpid(child, &status, 0) == child);
      failures += status == 0 ? 0 : 1;
    }
    CHECK(failures == 0);
    CHECK(good_entries(root) == kKeys);
    CHECK(files_below(root + "/tmp") == 0);
  }
}

TEST_CASE(
    "a writer killed at any point leaves nothing that is read, its file is swept (R22.3, C04)") {
  const ScratchFolder scratch;
  const std::string root = scratch / "cache";
  const auto store = [](const std::string& path, const std::string& name, int count) {
    Options options;
    options.cache_roots = {path};
    Log log;
    Counters counters;
    DiskCache disk(options, log, counters);
    Image image = sample_image();
    image.source.assign(300000, 'x');  // several pages, so that a kill finds it half written
    for (int key = 0; key < count; ++key) {
      disk.publish(sample_key(name + "." + std::to_string(key)), image);
    }
  };
  constexpr int kTimed = 10;
  const auto start = std::chrono::steady_clock::now();
  store(scratch / "timed", "timed", kTimed);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  // Kills at every point of a store and into the next.
  std::uniform_real_distribution<double> delay(0, 1.5 * took.count() / kTimed);

  auto* const has_begun =
      static_cast<std::atomic<int>*>(mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  REQUIRE(has_begun != MAP_FAILED);
  const int kills = rounds(40, 500);
  std::mt19937 random(7);
  for (int i = 0; i < kills; ++i) {
    *has_begun = 0;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      *has_begun = 1;
      store(root, std::to_string(i), std::numeric_limits<int>::max());
    }
    while (*has_begun == 0) std::this_thread::yield();
    usleep(static_cast<useconds_t>(delay(random)));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
  }
  munmap(has_begun, sizeof(std::atomic<int>));
  fs::create_directories(root + "/tmp");
  fs::permissions(root, fs::perms::owner_all);
  fs::permissions(root + "/tmp", fs::perms::owner_all);
  const int whole = good_entries(root);
  const int halves = files_below(root + "/tmp");
  if (long_tests()) WARN(kills << " kills: " << whole << " whole entries, " << halves << " halves");
  CHECK(whole >= 0);
  if (long_tests()) CHECK(halves > 0);  // some were killed in the middle

  // The halves go with the first store of a process once they are an hour old, and stay before; a
  // clock that was wrong saves none of them.
  const std::string young = root + "/tmp/tessera-host-1-" + std::string(32, '0');
  const std::string to_come = root + "/tmp/tessera-host-2-" + std::string(32, '0');
  std::ofstream(young) << "x";
  std::ofstream(to_come) << "x";
  const auto now = fs::file_time_type::clock::now();
  for (const auto& item : fs::directory_iterator(root + "/tmp")) {
    if (item.path() == young) continue;
    fs::last_write_time(item, now + std::chrono::hours(item.path() == to_come ? 2 : -2));
  }
  FakeCuda fake;
  for (int i = 0; i <= (halves + 1) / 64; ++i) {  // one sweeps 64
    Process(fake, root).runtime->image(Process::with_text(std::to_string(i)), kTarget);
  }
  CHECK(fs::exists(young));
  CHECK_FALSE(fs::exists(to_come));
  CHECK(files_below(root + "/tmp") == 1);
}

TEST_CASE("a slow disk holds up no launch (R22.4)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, scratch / "cache");
  int synced = 0;
  int stored_before = -1;
  const FailingFiles files(FileCall::sync, [&] { ++synced; });
  {
    const StoreLater later;
    process.runtime->image(process.with_spec("a"), kTarget);
    process.runtime->image(process.with_spec("b"), kTarget);
    stored_before = synced;
  }
  CHECK(stored_before == 0);
  CHECK(synced == 6);  // the marker and two files, and their folders
  CHECK(good_entries(scratch / "cache") == 2);
}

TEST_CASE("a store that fails costs one warning, the kernel runs (R22.4, C11)") {
  struct Case {
    FileCall call;
    int error;
    const char* part;
  };
  const Case failing =
      GENERATE(Case{FileCall::link, EROFS, ".tsk"}, Case{FileCall::link, EACCES, ".tsk"},
               Case{FileCall::link, ENOSPC, ".tsk"}, Case{FileCall::link, EDQUOT, ".tsk"},
               Case{FileCall::link, ESTALE, ".tsk"}, Case{FileCall::write, ENOSPC, ""},
               Case{FileCall::write, EDQUOT, ""}, Case{FileCall::sync, EDQUOT, ""},
               Case{FileCall::make_folder, EROFS, ""}, Case{FileCall::make_folder, EACCES, ""});
  CAPTURE(static_cast<int>(failing.call), failing.error);
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, scratch / "cache");
  {
    const FailingFiles files(failing.call, failing.error, failing.part);
    CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source == "text of a");
    CHECK(process.runtime->image(process.with_spec("b"), kTarget)->source == "text of b");
    CHECK(files.count() > 0);
  }
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].find("compiled kernels stay in memory") != std::string::npos);
  CHECK(process.lines[0].find(std::strerror(failing.error)) != std::string::npos);
  const bool is_full = failing.error == ENOSPC || failing.error == EDQUOT;
  CHECK((process.lines[0].find("make room there") != std::string::npos) == is_full);
  CHECK(process.runtime->counters().failed_publishes == 2);
  fs::remove(scratch / "cache/CACHEDIR.TAG");
  CHECK(files_below(scratch.path()) == 0);  // no staged file is left
}

TEST_CASE("a lost race is silent, and rename serves where links are not supported (R22.4)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const int error = GENERATE(EEXIST, EPERM, EOPNOTSUPP);
  Process process(fake, scratch / "cache");
  const FailingFiles files(FileCall::link, error, ".tsk");
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source == "text of a");
  CHECK(files.count() == 1);
  CHECK(process.lines.empty());
  CHECK(good_entries(scratch / "cache") == (error == EEXIST ? 0 : 1));
}

TEST_CASE("a stale handle is tried again, then a miss (R22.4)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "cache").runtime->image(Process::with_text("a"), kTarget); }
  Process process(fake, scratch / "cache");
  const char* part = GENERATE(".tsk", "sm_90a");  // the file, a folder on the way to it
  const FailingFiles files(FileCall::open, ESTALE, part);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(files.count() > 1);
  CHECK(fake.state().num_compiles == 2);
  CHECK(process.lines.size() == (part == std::string("sm_90a") ? 1 : 0));  // it cannot be written
}

TEST_CASE("the loser of a race succeeds although it cannot see the winner's entry (R22.5)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "cache").runtime->image(Process::with_text("a"), kTarget); }
  Process loser(fake, scratch / "cache");
  const FailingFiles files(FileCall::open, ENOENT, ".tsk");  // a negative lookup that is cached
  CHECK(loser.runtime->image(Process::with_text("a"), kTarget)->source == "a");
  CHECK(files.count() > 0);
  CHECK(loser.lines.empty());  // the link said EEXIST: success
  CHECK(fake.state().num_compiles == 2);
}

TEST_CASE("processes of one host wait for each other's compile, but not for ever (R22.5)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  fake.state().compile_ms = 300;
  const auto run = [&](int patience_ms) {
    Options options;
    options.cache_roots = {scratch / std::to_string(patience_ms)};
    options.peer_patience_ms = patience_ms;
    Process first(fake, options);
    Process second(fake, options);
    const int before = fake.state().num_compiles;
    std::thread leader([&] { first.runtime->image(Process::with_text("a"), kTarget); });
    while (fake.state().num_compiles == before) std::this_thread::yield();
    second.runtime->image(Process::with_text("a"), kTarget);
    leader.join();
    CHECK(second.runtime->counters().peer_waits == 1);
    return fake.state().num_compiles - before;
  };
  CHECK(run(60000) == 1);
  CHECK(run(50) == 2);
}
