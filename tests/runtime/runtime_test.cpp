// From a request to a compiled kernel: memory, disk, compiler. On a fake driver and a fake NVRTC.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/fake_process.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;
namespace fs = std::filesystem;

TEST_CASE("a kernel is compiled once and then found in memory, and by other processes on disk") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process first(fake, scratch / "cache");
  const auto image = first.runtime->image(first.with_spec("a"), kTarget);
  CHECK(image->source == "text of a");
  CHECK(first.runtime->image(first.with_spec("a"), kTarget) == image);
  CHECK(first.num_emits == 1);
  CHECK(fake.state().num_compiles == 1);
  CounterValues counters = first.runtime->counters();
  CHECK(counters.misses == 1);
  CHECK(counters.compiles == 1);
  CHECK(counters.memory_hits == 1);

  Process second(fake, scratch / "cache");
  CHECK(second.runtime->image(second.with_spec("a"), kTarget)->cubin == image->cubin);
  CHECK(second.num_emits == 0);  // a warm cache needs no text
  CHECK(fake.state().num_compiles == 1);
  CHECK(second.runtime->counters().disk_hits == 1);
}

TEST_CASE("what must change the key changes it") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const auto compiles = [&](const std::function<void(Process&)>& ask, const std::string& code) {
    const int before = fake.state().num_compiles;
    Process process(fake, scratch / "cache", code);
    ask(process);
    return fake.state().num_compiles - before;
  };
  const auto spec = [](const std::string& bytes, Target target) {
    return [=](Process& p) { p.runtime->image(p.with_spec(bytes), target); };
  };
  const auto text = [](const std::string& words) {
    return [=](Process& p) { p.runtime->image(Process::with_text(words), kTarget); };
  };
  REQUIRE(compiles(spec("a", kTarget), "code 1") == 1);
  REQUIRE(compiles(spec("a", kTarget), "code 1") == 0);
  CHECK(compiles(spec("b", kTarget), "code 1") == 1);
  CHECK(compiles(spec("a", {9, 0, 0}), "code 1") == 1);
  CHECK(compiles(spec("a", {8, 0, 0}), "code 1") == 1);
  CHECK(compiles(spec("a", kTarget), "code 2") == 1);
  CHECK(compiles(text("a"), "code 1") == 1);
  CHECK(compiles(text("a"), "code 1") == 0);
  CHECK(compiles(text("a "), "code 1") == 1);
  const auto with = [](const std::function<void(KernelSource&)>& change) {
    return [=](Process& p) {
      KernelSource source = source_of("a");
      change(source);
      p.runtime->image({"scale", {}, [=] { return source; }}, kTarget);
    };
  };
  // The text may depend on the target.
  std::vector<std::string> made_for;
  const auto by_target = [&](Process& p) {
    const auto emit = [&](Target target) {
      made_for.push_back(to_string(target));
      return source_of("text for " + made_for.back());
    };
    p.runtime->image({"scale", {}, emit}, kTarget);
    p.runtime->image({"scale", {}, emit}, {9, 0, 0});
  };
  CHECK(compiles(by_target, "code 1") == 2);
  CHECK(made_for == std::vector<std::string>{"sm_90a", "sm_90"});
  CHECK(compiles(with([](KernelSource&) {}), "code 1") == 0);
  CHECK(compiles(with([](KernelSource& s) { s.entry = "other"; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.threads = 64; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.shared_bytes = 64; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.cluster = 2; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.options = {"-DX"}; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.params[0].dtype = DType::f16; }), "code 1") == 1);
  fake.state().nvrtc_identity = "build-id cc";  // a patch release of the same version
  CHECK(compiles(spec("a", kTarget), "code 1") == 1);
}

TEST_CASE("what must not change the key does not: path of libnvrtc, folder of the cache") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process first(fake, scratch / "cache");
  first.runtime->image(first.with_spec("a"), kTarget);
  fs::rename(scratch / "cache", scratch / "moved");
  fake.state().nvrtc_files = {"/usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.13"};
  fake.state().builtins_files = {
      "/usr/local/cuda/targets/x86_64-linux/lib/libnvrtc-builtins.so.13.0"};
  Process second(fake, scratch / "moved");
  second.runtime->image(second.with_spec("a"), kTarget);
  CHECK(fake.state().num_compiles == 1);
}

TEST_CASE(
    "the key follows the compiler that could be opened, not the one that its files promised") {
  FakeCuda fake;
  const ScratchFolder scratch;
  fake.state().identity_of_file = "build-id of what cannot be opened";
  Process first(fake, scratch / "cache");
  const auto image = first.runtime->image(first.with_spec("a"), kTarget);
  CHECK(image->key.fields.back().value == "NVRTC 13.0, build-id aa, builtins build-id bb");
  first.runtime->image(first.with_spec("b"), kTarget);
  Process second(fake, scratch / "cache");
  second.runtime->image(second.with_spec("a"), kTarget);
  CHECK(second.runtime->counters().disk_hits == 1);
  CHECK(fake.state().num_compiles == 2);
  fake.state().identity_of_file.reset();
  Process third(fake, scratch / "cache");
  third.runtime->image(third.with_spec("a"), kTarget);
  third.runtime->image(third.with_spec("b"), kTarget);
  CHECK(third.runtime->counters().disk_hits == 2);
}

TEST_CASE("a device that the compiler does not know is an error when something must be compiled") {
  FakeCuda fake;
  const ScratchFolder scratch;
  fake.state().major = 11;
  fake.state().minor = 0;
  Process process(fake, scratch / "cache");
  CHECK(
      error_of([&] { process.runtime->load(process.with_spec("a"), 0); }) ==
      "tessera: NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13) cannot compile for this device\n"
      "  expected  one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120\n"
      "  got       sm_110a (compute capability 11.0)\n"
      "  hint      install an NVRTC that knows this device, or name one with TESSERA_NVRTC");
  CHECK(fake.state().num_compiles == 0);
}

TEST_CASE("code without an identity keeps kernels with a Spec off the disk, texts not") {
  FakeCuda fake;
  const ScratchFolder scratch;
  for (int round = 0; round < 2; ++round) {
    Process process(fake, scratch / "cache", "");
    process.runtime->image(process.with_spec("a"), kTarget);
    process.runtime->image(Process::with_text("b"), kTarget);
  }
  CHECK(fake.state().num_compiles == 3);
}

TEST_CASE("many threads that want one kernel compile it once, other kernels do not wait") {
  FakeCuda fake;
  fake.state().compile_ms = 50;
  Process process(fake, "");
  std::vector<std::shared_ptr<const Image>> images(16);
  std::vector<std::thread> threads;
  for (auto& image : images) {
    threads.emplace_back([&] { image = process.runtime->image(process.with_spec("a"), kTarget); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& image : images) CHECK(image == images[0]);
  CHECK(fake.state().num_compiles == 1);
  const CounterValues counters = process.runtime->counters();
  CHECK(counters.waits + counters.memory_hits == 15);
  CHECK(counters.misses == 1);
}

TEST_CASE("a failed compile reaches everyone who waits and is tried again") {
  FakeCuda fake;
  fake.state().compile_ms = 20;
  fake.state().compile_result = 6;
  fake.state().compile_log = "scale.cu(1): error: no such thing\n";
  Process process(fake, "");
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const std::string text =
          error_of([&] { process.runtime->image(process.with_spec("a"), kTarget); });
      failures += text.find("error: no such thing") != std::string::npos ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 4);
  fake.state().compile_result = 0;
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->op == "scale");
}

TEST_CASE("a corrupt entry is compiled again, said once and healed") {
  FakeCuda fake;
  const ScratchFolder scratch;
  const std::string cache = scratch / "cache";
  { Process(fake, cache).runtime->image(Process::with_text("a"), kTarget); }
  for (const auto& item : fs::recursive_directory_iterator(cache)) {
    if (item.path().extension() == ".tsk") fs::resize_file(item.path(), item.file_size() - 1);
  }
  Process second(fake, cache);
  CHECK(second.runtime->image(Process::with_text("a"), kTarget)->source == "a");
  CHECK(fake.state().num_compiles == 2);
  REQUIRE(second.lines.size() == 1);
  CHECK(second.lines[0].find("cannot be used (truncated); compiling again") != std::string::npos);
  Process third(fake, cache);
  third.runtime->image(Process::with_text("a"), kTarget);
  CHECK(third.runtime->counters().disk_hits == 1);
}

TEST_CASE("an unwritable cache works from memory with one warning") {
  FakeCuda fake;
  const ScratchFolder scratch;
  std::ofstream(scratch / "file") << "x";
  Process process(fake, scratch / "file/cache");
  process.runtime->image(process.with_spec("a"), kTarget);
  process.runtime->image(process.with_spec("b"), kTarget);
  process.runtime->image(process.with_spec("a"), kTarget);
  CHECK(fake.state().num_compiles == 2);
  REQUIRE(process.lines.size() == 1);
  CHECK(process.lines[0].find("cache folder " + scratch / "file/cache" +
                              " is not used: it is not a directory") == 0);
}

TEST_CASE("kernels are dumped where asked, from a warm cache too") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "cache").runtime->image(Process::with_text("a"), kTarget); }
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.dump_dir = scratch / "dump";
  Process process(fake, options);
  process.runtime->image(Process::with_text("a"), kTarget);
  CHECK(process.runtime->counters().disk_hits == 1);
  std::vector<std::string> names;
  for (const auto& item : fs::directory_iterator(scratch / "dump")) {
    names.push_back(item.path().filename().string());
  }
  REQUIRE(names.size() == 2);
  CHECK(names[0].substr(0, 12) == "scale-sm_90a");
}

TEST_CASE("a text of the override folder is compiled in place of a kernel's and kept nowhere") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.dump_dir = scratch / "dump";
  std::string stem;
  {
    Process process(fake, options);
    process.runtime->image(process.with_spec("a"), kTarget);
    for (const auto& item : fs::directory_iterator(scratch / "dump")) stem = item.path().stem();
  }
  options.dump_dir.clear();
  options.override_dir = scratch / "mine";
  REQUIRE(fs::create_directory(scratch / "mine"));
  const std::string file = scratch / ("mine/" + stem + ".cu");
  std::ofstream(file) << "edited text of scale_kernel";
  Process process(fake, options);
  CHECK(process.runtime->image(process.with_spec("a"), kTarget)->source ==
        "edited text of scale_kernel");
  CHECK(process.runtime->image(process.with_spec("b"), kTarget)->source == "text of b");
  CHECK(process.lines ==
        std::vector<std::string>{"scale: compiled from " + file + " (TESSERA_OVERRIDE_DIR)"});
  Process maker(fake, options);  // no bundle holds an edited kernel
  const BundleItem item = maker.runtime->bundle_item(maker.with_spec("a"), kTarget);
  CHECK(item.bytes.find("text of a") != std::string::npos);
  options.override_dir.clear();
  Process other(fake, options);
  CHECK(other.runtime->image(other.with_spec("a"), kTarget)->source == "text of a");
  CHECK(other.runtime->counters().disk_hits == 1);
}

TEST_CASE("line information names a text that is there") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.line_info = true;
  const bool is_dumped = GENERATE(false, true);
  if (is_dumped) options.dump_dir = scratch / "dump";
  for (int process = 0; process < 2; ++process) {  // compiled, from the cache
    const std::string folder = scratch / (is_dumped ? "dump" : "cache/source");
    if (process == 1) fs::remove_all(folder);
    Process(fake, options).runtime->image(Process::with_text("the text"), kTarget);
    std::vector<std::string> texts;
    for (const auto& item : fs::directory_iterator(folder)) {
      if (item.path().extension() == ".cu") texts.push_back(item.path());
    }
    REQUIRE(texts.size() == 1);
    std::ifstream text(texts[0]);
    CHECK(std::string{std::istreambuf_iterator<char>(text), {}} == "the text");
    CHECK(fake.state().file == texts[0]);
  }
  CHECK(fake.state().num_compiles == 1);
}

TEST_CASE("compiles and loads are told when they begin and when they have ended") {
  FakeCuda fake;
  std::vector<std::string> told;
  const auto listener = [&](const std::string& what) {
    return [&told, what](const StepEvent& event) {
      told.push_back(what + " " + event.op + " " + event.spec + " " + event.target + " " +
                     event.reason + (event.ended ? " ended" : "") +
                     (event.failed ? " failed" : ""));
      CHECK(event.key.size() == 64);
      CHECK((event.ended || event.ms == 0));
    };
  };
  Options options;
  options.on_compile = listener("compile");
  options.on_load = listener("load");
  Process process(fake, options);
  process.runtime->load(process.with_spec("a"), 0);
  fake.state().compile_result = 6;
  error_of([&] { process.runtime->load(process.with_spec("b"), 0); });
  CHECK(told == std::vector<std::string>{
                    "compile scale 61 sm_90a in no cache",
                    "compile scale 61 sm_90a in no cache ended", "load scale 61 sm_90a in no cache",
                    "load scale 61 sm_90a in no cache ended", "compile scale 62 sm_90a in no cache",
                    "compile scale 62 sm_90a in no cache ended failed"});
}

TEST_CASE("a name that is a path reaches no folder") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Process process(fake, scratch / "cache");
  CHECK(error_of([&] {
          process.runtime->image({"../../x", "a", [] { return source_of("a"); }}, kTarget);
        }) ==
        "tessera: ../../x: a kernel has a name that cannot be used\n"
        "  expected  letters, digits and _, at most 64, no digit first\n"
        "  got       ../../x");
  KernelSource source = source_of("a");
  source.params[0].name = "x y";
  CHECK(error_of([&] {
          process.runtime->image({"scale", {}, [&] { return source; }}, kTarget);
        }).find("got       x y") != std::string::npos);
}

TEST_CASE("a text that the compiler refuses can be had, with the Spec it was made from") {
  FakeCuda fake;
  fake.state().compile_result = 6;
  fake.state().compile_log = "scale.cu(1): error: no such thing\n";
  const ScratchFolder scratch;
  Options options;
  const bool is_dumped = GENERATE(false, true);
  if (is_dumped) options.dump_dir = scratch / "dump";
  Process process(fake, options);
  const std::string text =
      error_of([&] { process.runtime->image(process.with_spec("a"), kTarget); });
  CHECK(text.find("\noptions: --gpu-architecture=sm_90a ") != std::string::npos);
  CHECK(text.find("\nSpec: 61\n  hint      ") != std::string::npos);
  if (!is_dumped) {
    CHECK(text.find("hint      TESSERA_DUMP_DIR=FOLDER keeps the whole text") != std::string::npos);
    return;
  }
  const std::string words = "hint      the whole text is in ";
  REQUIRE(text.find(words) != std::string::npos);
  std::ifstream file(text.substr(text.find(words) + words.size()));
  CHECK(std::string{std::istreambuf_iterator<char>(file), {}} == "text of a");
}

// Run by the next one alone in a process.
TEST_CASE("ends during a compile", "[.]") {
  auto* fake = new FakeCuda;
  fake->state().compile_ms = 60000;
  auto* process = new Process(*fake, "");
  std::thread([=] { process->runtime->image(process->with_spec("a"), kTarget); }).detach();
  while (fake->state().num_compiles == 0) std::this_thread::yield();
  std::exit(0);
}

TEST_CASE("a process that ends does not wait for a compile") {
  const auto start = std::chrono::steady_clock::now();
  const ChildResult child =
      run_program({test::in_build("test_runtime"), "ends during a compile"}, {});
  CAPTURE(child.output);
  CHECK(child.exit_code == 0);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

// Run by the next one alone in a process: the process's own runtime is made once.
TEST_CASE("configured by code", "[.]") {
  Runtime::configure([](Options& options) { options.jobs = 3; });
  CHECK(Runtime::instance().options().jobs == 3);
  CHECK_FALSE(Runtime::instance().options().pdl);
  CHECK(error_of([] { Runtime::configure([](Options&) {}); }) ==
        "tessera: the runtime cannot be configured any more\n"
        "  expected  Runtime::configure before the first kernel is asked for\n"
        "  got       a runtime that is in use");
}

TEST_CASE("code wins over the environment") {
  const ChildResult child = run_program({test::in_build("test_runtime"), "configured by code"},
                                        {"TESSERA_JOBS=5", "TESSERA_PDL=0"});
  CAPTURE(child.output);
  CHECK(child.exit_code == 0);
  CHECK(child.output.find("1 test case") != std::string::npos);
}

// Run by the next one alone in a process.
TEST_CASE("a sink from the begin on", "[.]") {
  std::vector<std::string> lines;
  Runtime::configure([&](Options& options) {
    options.log_sink = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
  });
  Runtime::instance();
  CHECK(lines == std::vector<std::string>{
                     "unknown switch TESSERA_JIBS is ignored; did you mean 'TESSERA_JOBS'?",
                     "TESSERA_PDL: expected 0 or 1, got 'no'; using 0"});
}

TEST_CASE("warnings about the environment reach a sink and not stderr") {
  const ChildResult child =
      run_program({test::in_build("test_runtime"), "a sink from the begin on"},
                  {"TESSERA_JIBS=5", "TESSERA_PDL=no"});
  CAPTURE(child.output);
  CHECK(child.exit_code == 0);
  CHECK(child.output.find("tessera: warn") == std::string::npos);
}

TEST_CASE("a target in the options that names none is an error, not the device's") {
  FakeCuda fake;
  Options options;
  options.arch = "sm90";
  CHECK(error_of([&] { Process(fake, options); }) ==
        "tessera: option 'arch' has a wrong value\n"
        "  expected  sm_80, sm_89, sm_90a, ...\n"
        "  got       sm90");
}

TEST_CASE("a target for the CPU that no kernel is made for is an error") {
  for (const char* target : {"", "hopper", "sm_75", "sm_89a"}) {
    Options options;
    options.cpu_target = target;
    CHECK(error_of([&] { check_options(options); }) ==
          std::string("tessera: option 'cpu_target' has a wrong value\n"
                      "  expected  a target such as sm_80 or sm_90a\n"
                      "  got       ") +
              (*target == 0 ? "nothing" : target));
  }
}

TEST_CASE("bounds in the options that are none are errors") {
  const auto refused = [](auto Options::*bound, int value) {
    Options options;
    options.*bound = value;
    return error_of([&] { check_options(options); });
  };
  CHECK(refused(&Options::jobs, 257) ==
        "tessera: option 'jobs' has a wrong value\n"
        "  expected  0 to 256\n"
        "  got       257");
  CHECK(refused(&Options::cache_max_bytes, -1) ==
        "tessera: option 'cache_max_bytes' has a wrong value\n"
        "  expected  0 or more\n"
        "  got       -1");
  CHECK(refused(&Options::cache_max_entries, -1).find("'cache_max_entries'") != std::string::npos);
  CHECK(refused(&Options::peer_patience_ms, -1).find("'peer_patience_ms'") != std::string::npos);
  CHECK(refused(&Options::jobs, 0) == "no error");
}

namespace {

/// True if `action` ends within 10 seconds, in a process of its own.
bool ends(const std::function<void()>& action) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    action();
    _exit(0);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

TEST_CASE("a sink may ask for the kernel that its message is about") {
  CHECK(ends([] {
    FakeCuda fake;
    Options options;
    options.log = LogLevel::debug;
    Process process(fake, options);
    int num_calls = 0;
    process.runtime->set_log_sink([&](LogLevel, std::string_view) {
      ++num_calls;
      process.runtime->image(process.with_spec("a"), kTarget);
      process.runtime->warn_once("subject", "from the sink");
    });
    process.runtime->image(process.with_spec("a"), kTarget);
    if (num_calls < 3 || fake.state().num_compiles != 1) _exit(1);  // compiler, compiled, warning
  }));
}

TEST_CASE("a sink may wait for a lock whose holder waits for the same kernel") {
  CHECK(ends([] {
    FakeCuda fake;
    Options options;
    options.log = LogLevel::info;
    Process process(fake, options);
    std::mutex of_user;
    process.runtime->set_log_sink(
        [&](LogLevel, std::string_view) { const std::lock_guard lock(of_user); });
    fake.state().compile_ms = 50;
    const auto ask = [&] { process.runtime->image(process.with_spec("a"), kTarget); };
    std::unique_lock lock(of_user);
    std::thread compiling(ask);
    while (fake.state().num_compiles < 1) std::this_thread::yield();
    ask();
    lock.unlock();
    compiling.join();
  }));
}

// Run by the next one alone in a process.
TEST_CASE("a sink that waits for another first call", "[.]") {
  std::mutex of_user;
  std::atomic<bool> is_in_sink = false;
  Runtime::configure([&](Options& options) {
    options.log_sink = [&](LogLevel, std::string_view) {
      is_in_sink = true;
      const std::lock_guard lock(of_user);
    };
  });
  alarm(10);
  std::unique_lock lock(of_user);
  std::thread first_call([] { Runtime::instance(); });
  while (!is_in_sink) std::this_thread::yield();
  Runtime::instance();
  lock.unlock();
  first_call.join();
}

TEST_CASE("first calls of two threads end although one waits in a sink for the other") {
  const ChildResult child =
      run_program({test::in_build("test_runtime"), "a sink that waits for another first call"},
                  {"TESSERA_JIBS=5"});
  CAPTURE(child.output);
  CHECK(child.exit_code == 0);
}

TEST_CASE("a child of fork has the kernels and no unfinished business") {
  FakeCuda fake;
  Process process(fake, "");
  process.runtime->image(process.with_spec("a"), kTarget);
  fake.state().compile_ms = 200;
  std::thread compiling([&] { process.runtime->image(process.with_spec("b"), kTarget); });
  while (fake.state().num_compiles < 2) std::this_thread::yield();
  process.runtime->before_fork();
  const pid_t child = fork();
  if (child == 0) {
    process.runtime->after_fork(true);
    alarm(20);  // a child that waits for the parent's thread would wait for ever
    process.runtime->image(process.with_spec("a"), kTarget);
    process.runtime->image(process.with_spec("b"), kTarget);
    _exit(process.runtime->counters().compiles == 3 ? 0 : 1);
  }
  process.runtime->after_fork(false);
  compiling.join();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
