// The way from a request to a loaded kernel, on a fake driver and a fake NVRTC.

#include "runtime/runtime.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsl/base/error.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::FakeCuda;
using test::ScratchFolder;
namespace fs = std::filesystem;

namespace {

constexpr Target kTarget{9, 0, 'a'};

KernelSource source_of(const std::string& text) {
  KernelSource source;
  source.op = "scale";
  source.entry = "scale_kernel";
  source.text = text;
  source.params = {{"x", true, DType::f32}};
  source.threads = 128;
  return source;
}

/// A runtime of its own, as another process would have it.
struct Process {
  Process(const FakeCuda& fake, const std::string& cache, const std::string& code = "code 1") {
    Options options;
    options.log = LogLevel::warn;
    if (!cache.empty()) options.cache_roots = {cache};
    start(fake, std::move(options), code);
  }
  Process(const FakeCuda& fake, Options options) { start(fake, std::move(options), "code 1"); }

  void start(const FakeCuda& fake, Options options, const std::string& code) {
    driver = open_driver(fake.loader());
    Surroundings surroundings;
    surroundings.loader = fake.loader();
    surroundings.driver = [this]() -> const Driver& { return *driver; };
    surroundings.code_identity = code;
    runtime = std::make_unique<Runtime>(std::move(options), std::move(surroundings));
    runtime->set_log_sink([this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  /// A kernel named by its Spec; counts how often its text was needed.
  KernelRequest with_spec(const std::string& spec) {
    return {"scale", spec, [this, spec] {
              ++num_emits;
              return source_of("text of " + spec);
            }};
  }
  static KernelRequest with_text(const std::string& text) {
    return {"scale", {}, [text] { return source_of(text); }};
  }

  std::unique_ptr<const Driver> driver;
  std::unique_ptr<Runtime> runtime;
  std::vector<std::string> lines;
  std::atomic<int> num_emits = 0;
};

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

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
  CHECK(compiles(with([](KernelSource&) {}), "code 1") == 0);
  CHECK(compiles(with([](KernelSource& s) { s.entry = "other"; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.threads = 64; }), "code 1") == 1);
  CHECK(compiles(with([](KernelSource& s) { s.shared_bytes = 64; }), "code 1") == 1);
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

TEST_CASE("many threads that want one kernel compile it once; other kernels do not wait") {
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
    if (item.is_regular_file()) fs::resize_file(item.path(), item.file_size() - 1);
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
  REQUIRE(process.lines.size() == 2);  // it cannot be searched, it cannot be written
  CHECK(process.lines[1].find("compiled kernels stay in memory") != std::string::npos);
}

TEST_CASE("a loaded kernel is launched with its grid and arguments") {
  FakeCuda fake;
  Process process(fake, "");
  const auto kernel = process.runtime->load(process.with_spec("a"), 0);
  CHECK(process.runtime->load(process.with_spec("a"), 0) == kernel);
  CHECK(fake.state().num_loads == 1);
  CHECK(kernel->registers == 16);
  CHECK(kernel->image->target == kTarget);
  int64_t pointer = 0x1234;
  void* arguments[] = {&pointer};
  launch(*kernel, {3, 2, 1}, arguments, nullptr);
  CHECK(fake.state().num_launches == 1);
  CHECK(fake.state().grid[0] == 3);
  CHECK(fake.state().grid[1] == 2);
  CHECK(fake.state().first_argument == 0x1234);
  CHECK(fake.state().pushed == std::vector<int>{0, 0});  // while loading, while launching
  SECTION("an empty grid is a no-op") {
    launch(*kernel, {0, 1, 1}, arguments, nullptr);
    launch(*kernel, {1, 1, 0}, arguments, nullptr);
    CHECK(fake.state().num_launches == 1);
  }
  SECTION("a grid beyond the limits is refused") {
    CHECK(error_of([&] {
            launch(*kernel, {1, 65536, 1}, arguments, nullptr);
          }) ==
          "tessera: scale: the grid does not fit the device along y\n"
          "  expected  0 to 65535 blocks along y\n"
          "  got       (1, 65536, 1)");
    CHECK(error_of([&] {
            launch(*kernel, {-1, 1, 1}, arguments, nullptr);
          }).find("along x") != std::string::npos);
  }
  SECTION("a failed launch says what was launched") {
    fake.state().launch_result = 701;
    CHECK(error_of([&] {
            launch(*kernel, {3, 2, 1}, arguments, nullptr);
          }) ==
          "tessera: scale: the launch failed: grid (3, 2, 1), 128 threads, 0 bytes of shared "
          "memory, cuda:0\n"
          "  got       CUDA_ERROR_FAKE (701): a fake failure");
  }
  SECTION("a broken context is blamed on an earlier kernel") {
    fake.state().launch_result = 700;
    CHECK(error_of([&] {
            launch(*kernel, {3, 2, 1}, arguments, nullptr);
          }) ==
          "tessera: scale: cannot launch: an earlier kernel on cuda:0 failed\n"
          "  got       CUDA_ERROR_FAKE (700): a fake failure\n"
          "  hint      the context is lost; run the program under compute-sanitizer");
  }
}

TEST_CASE("shared memory: the limit is raised once per kernel, too much is refused unbuilt") {
  FakeCuda fake;
  Process process(fake, "");
  const auto with_shared = [](int64_t bytes) {
    return KernelRequest{"scale", "s" + std::to_string(bytes), [bytes] {
                           KernelSource source = source_of("a");
                           source.shared_bytes = bytes;
                           return source;
                         }};
  };
  process.runtime->load(with_shared(48 * 1024), 0);
  CHECK(fake.state().num_attribute_calls == 0);
  process.runtime->load(with_shared(48 * 1024 + 16), 0);
  CHECK(fake.state().num_attribute_calls == 1);
  const int compiles = fake.state().num_compiles;
  CHECK(error_of([&] { process.runtime->load(with_shared(240 * 1024), 0); }) ==
        "tessera: scale: too much shared memory per block\n"
        "  expected  at most 232448 bytes on cuda:0 (Fake GPU)\n"
        "  got       245760 bytes");
  CHECK(fake.state().num_compiles == compiles);
}

TEST_CASE("a kernel that is not loaded is not loaded during capture") {
  FakeCuda fake;
  Process process(fake, "");
  int stream = 0;
  fake.state().capture_status = 1;
  CHECK(error_of([&] { process.runtime->load(process.with_spec("a"), 0, &stream); }) ==
        "tessera: scale: the kernel is not loaded yet and the stream is being captured\n"
        "  hint      call the op once with the same options before the capture begins");
  CHECK(fake.state().num_compiles == 0);
  fake.state().capture_status = 0;
  process.runtime->load(process.with_spec("a"), 0, &stream);
  fake.state().capture_status = 1;
  process.runtime->load(process.with_spec("a"), 0, &stream);  // loaded: no matter
}

TEST_CASE("an image that the driver refuses is compiled again, once") {
  FakeCuda fake;
  const ScratchFolder scratch;
  { Process(fake, scratch / "cache").runtime->image(Process::with_text("a"), kTarget); }
  Process process(fake, scratch / "cache");
  fake.state().load_result = 200;
  SECTION("and works") {
    fake.state().num_refused_loads = 1;
    process.runtime->load(Process::with_text("a"), 0);
    CHECK(fake.state().num_compiles == 2);
    REQUIRE(process.lines.size() == 1);
    CHECK(process.lines[0] ==
          "scale: the driver refused a cached kernel (CUDA_ERROR_INVALID_IMAGE (200): a fake "
          "failure); compiling again");
  }
  SECTION("and is an error with both texts when refused again") {
    fake.state().num_refused_loads = 2;
    CHECK(error_of([&] { process.runtime->load(Process::with_text("a"), 0); }) ==
          "tessera: scale: the driver refuses the compiled kernel\n"
          "  expected  a kernel for cuda:0 (Fake GPU), driver of CUDA 13.0\n"
          "  got       CUDA_ERROR_INVALID_IMAGE (200): a fake failure; compiled again for sm_90a "
          "by NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13): CUDA_ERROR_INVALID_IMAGE (200): "
          "a fake failure\n"
          "  hint      the driver may be older than NVRTC: update it or name an older libnvrtc "
          "with TESSERA_NVRTC");
    CHECK(fake.state().num_compiles == 2);
  }
  SECTION("but a dead context does not blame the image") {
    fake.state().load_result = 700;
    fake.state().num_refused_loads = 1;
    CHECK(error_of([&] { process.runtime->load(Process::with_text("a"), 0); }) ==
          "tessera: scale: cuLibraryLoadData failed\n"
          "  got       CUDA_ERROR_FAKE (700): a fake failure");
    CHECK(fake.state().num_compiles == 1);
    CHECK(process.lines.empty());
  }
}

TEST_CASE("TESSERA_ARCH picks the target, which must run on the device") {
  FakeCuda fake;
  Options options;
  options.arch = "sm_80";
  Process process(fake, options);
  CHECK(error_of([&] { process.runtime->load(process.with_spec("a"), 0); }) ==
        "tessera: scale: the kernel was compiled for another device\n"
        "  expected  a target for compute capability 9.0 (cuda:0, Fake GPU)\n"
        "  got       sm_80");
  fake.state().major = 8;
  fake.state().minor = 6;
  CHECK(process.runtime->load(process.with_spec("a"), 0)->image->target == Target{8, 0, 0});
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
