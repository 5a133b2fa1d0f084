// From a compiled kernel to its launch, on a fake driver and a fake NVRTC.

#include <fmt/format.h>

#include <string>

#include "runtime/launch.h"
#include "tests/runtime/fake_process.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using namespace tessera::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a loaded kernel is launched with its grid and arguments") {
  FakeCuda fake;
  Process process(fake, "");
  const auto kernel = process.runtime->load(process.with_spec("a"), 0);
  CHECK(process.runtime->load(process.with_spec("a"), 0) == kernel);
  CHECK(fake.state().num_loads == 1);
  CHECK(fake.state().num_functions_loaded == 1);  // not by the first launch
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
          "memory, cuda:0, Spec 61\n"
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

TEST_CASE("a stream of another device is refused before its device runs the kernel") {
  FakeCuda fake;
  fake.state().num_devices = 2;
  Process process(fake, "");
  const auto kernel = process.runtime->load(process.with_spec("a"), 1);
  int64_t pointer = 0x1234;
  void* arguments[] = {&pointer};
  int stream = 0;
  const auto text = [&] {
    return error_of([&] { launch(*kernel, {1, 1, 1}, arguments, &stream); });
  };
  fake.state().device_of_streams = 0;
  CHECK(text() ==
        "tessera: scale: the stream belongs to another device\n"
        "  expected  a stream of cuda:1, like the tensors\n"
        "  got       a stream of cuda:0");
  CHECK(fake.state().num_launches == 0);
  CHECK(fake.state().current_device == -1);
  fake.state().device_of_streams = 1;
  const size_t pushed = fake.state().pushed.size();
  CHECK(text() == "no error");
  CHECK(fake.state().num_launches == 1);
  CHECK(fake.state().pushed.size() == pushed);  // the stream names the context by itself
  // The default streams are of every device; what is no stream the driver's launch refuses.
  fake.state().device_of_streams = 0;
  for (const uintptr_t special : {uintptr_t{0}, uintptr_t{1}, uintptr_t{2}}) {
    launch(*kernel, {1, 1, 1}, arguments, reinterpret_cast<StreamHandle>(special));
  }
  CHECK(fake.state().num_launches == 4);
  fake.state().stream_result = 400;
  fake.state().launch_result = 400;
  CHECK(text().find("hint      does the stream still exist?") != std::string::npos);
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
        "  got       Spec 61\n"
        "  hint      before the capture begins make the call once, or let jit::prepare() have it");
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
    CHECK(
        error_of([&] { process.runtime->load(Process::with_text("a"), 0); }) ==
        "tessera: scale: the driver refuses the compiled kernel\n"
        "  expected  a kernel for cuda:0 (Fake GPU), driver of CUDA 13.0, Spec (the text itself)\n"
        "  got       CUDA_ERROR_INVALID_IMAGE (200): a fake failure; compiled again for sm_90a "
        "by NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13): CUDA_ERROR_INVALID_IMAGE (200): "
        "a fake failure\n"
        "  hint      the driver may be older than NVRTC: update it or name an older libnvrtc "
        "with TESSERA_NVRTC");
    CHECK(fake.state().num_compiles == 2);
  }
  SECTION("but a dead context blames an earlier kernel, not the image nor the op (R17.9)") {
    fake.state().load_result = 700;
    fake.state().num_refused_loads = 1;
    CHECK(error_of([&] { process.runtime->load(Process::with_text("a"), 0); }) ==
          "tessera: scale: cuLibraryLoadData: an earlier kernel failed\n"
          "  got       CUDA_ERROR_FAKE (700): a fake failure\n"
          "  hint      the context is lost; run the program under compute-sanitizer");
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

TEST_CASE("a cluster is launched as one, if the device can hold it (R16.4)") {
  FakeCuda fake;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  const auto with_cluster = [](int cluster) {
    KernelSource source = source_of("a");
    source.cluster = cluster;
    source.waits_for_previous = true;
    return KernelRequest{"scale", {}, [source] { return source; }};
  };
  int64_t pointer = 0;
  void* arguments[] = {&pointer};
  for (const bool warm : {false, true}) {  // from the compiler, from disk
    CAPTURE(warm);
    Process process(fake, options);
    fake.state().attributes.clear();
    const auto eight = process.runtime->load(with_cluster(8), 0);
    CHECK(fake.state().attributes.empty());
    launch(*eight, {16, 2, 1}, arguments, nullptr);
    CHECK(fake.state().cluster == 8);
    CHECK(fake.state().attribute_id == 6);  // and it may begin early, too
    CHECK(error_of([&] {
            launch(*eight, {12, 1, 1}, arguments, nullptr);
          }) ==
          "tessera: scale: the first extent of the grid is no multiple of the cluster\n"
          "  expected  a multiple of 8\n"
          "  got       (12, 1, 1)");
    const auto sixteen = process.runtime->load(with_cluster(16), 0);
    CHECK(fake.state().attributes == std::vector<std::pair<int, int>>{{14, 1}});
    launch(*sixteen, {16, 1, 1}, arguments, nullptr);
    launch(*sixteen, {16, 1, 1}, arguments, nullptr);
    CHECK(fake.state().attributes.size() == 1);  // set once
    CHECK(process.runtime->counters().disk_hits == (warm ? 2 : 0));
  }
  SECTION("too large for the device") {
    fake.state().max_clusters = 0;
    Process process(fake, options);
    const std::string error = error_of([&] { process.runtime->load(with_cluster(16), 0); });
    CHECK(has(error, "CLUSTER_TOO_LARGE"));
    CHECK(has(error, "the device cannot run one cluster of the kernel"));
  }
  SECTION("a driver that cannot say it") {
    fake.state().max_clusters = 0;
    fake.state().missing_function = "cuOccupancyMaxActiveClusters";
    Process process(fake, options);
    CHECK(process.runtime->load(with_cluster(16), 0)->image->cluster == 16);
  }
  SECTION("a device without clusters") {
    fake.state().major = 8;
    Process process(fake, options);
    const std::string error = error_of([&] { process.runtime->load(with_cluster(2), 0); });
    CHECK(has(error, "CLUSTER_TARGET"));
    CHECK(has(error, "expected  sm_90 or newer"));
    CHECK(has(error, "got       sm_80, clusters of 2"));
  }
}

TEST_CASE("a kernel begins early only if it waits itself, can, and may") {
  FakeCuda fake;
  struct Case {
    bool waits;
    int major;
    bool pdl;
    int attribute;
  };
  const Case one = GENERATE(Case{true, 9, true, 6}, Case{false, 9, true, 0}, Case{true, 8, true, 0},
                            Case{true, 9, false, 0});
  fake.state().major = one.major;
  const ScratchFolder scratch;
  Options options;
  options.cache_roots = {scratch / "cache"};
  options.pdl = one.pdl;
  KernelSource source = source_of("a");
  source.waits_for_previous = one.waits;
  for (const bool warm : {false, true}) {
    CAPTURE(one.waits, one.major, one.pdl, warm);
    Process process(fake, options);
    const auto kernel = process.runtime->load({"scale", {}, [&] { return source; }}, 0);
    int64_t pointer = 0;
    void* arguments[] = {&pointer};
    launch(*kernel, {1, 1, 1}, arguments, nullptr);
    CHECK(fake.state().attribute_id == one.attribute);
    CHECK(process.runtime->counters().disk_hits == (warm ? 1 : 0));
  }
}

TEST_CASE("a variable of a kernel is read once") {
  FakeCuda fake;
  Process process(fake, "");
  const auto kernel = process.runtime->load(process.with_spec("a"), 0);
  fake.state().variable = 7;
  CHECK(take_variable(*kernel, "tessera_report", nullptr) == 7);
  CHECK(take_variable(*kernel, "tessera_report", nullptr) == 0);
  fake.state().marks[5] = 9;
  CHECK(take_array(*kernel, "tessera_marks", nullptr).at(5) == 9);
  CHECK(take_array(*kernel, "tessera_marks", nullptr) == std::vector<uint64_t>(32 * 1024));
}

TEST_CASE("memory that a launch streams is evicted first, where that leaves others' in L2") {
  FakeCuda fake;
  Process process(fake, "");
  KernelSource source = source_of("a");
  source.waits_for_previous = true;
  const auto kernel = process.runtime->load({"scale", {}, [&] { return source; }}, 0);
  void* pointer = fake.state().grid;  // any address
  void* arguments[] = {&pointer};
  const auto window_of = [&](Streamed streamed) {
    launch(*kernel, {1, 1, 1}, arguments, nullptr, streamed);
    return fake.state().window;
  };
  constexpr int64_t kL2 = 50 << 20, kWindow = 128 << 20;  // of the fake
  for (const int64_t bytes : {kL2 + 1, kWindow}) {
    const cu::AccessPolicyWindow window = window_of({0, bytes});
    CHECK(window.base == pointer);
    CHECK(window.bytes == static_cast<size_t>(bytes));
    CHECK(window.hit_ratio == 1.0f);
    CHECK(window.hit_property == cu::kStreaming);
    CHECK(window.miss_property == cu::kNormal);
    CHECK(fake.state().num_attributes == 2);  // and it may begin early, too
  }
  for (const Streamed none : {Streamed{}, Streamed{-1, kWindow}, Streamed{0, kL2},
                              Streamed{0, kWindow + 1}, Streamed{0, 0}}) {
    CHECK(window_of(none).base == nullptr);
    CHECK(fake.state().num_attributes == 1);
  }
}

TEST_CASE("a cooperative kernel gets the counter of its stream and fits the device at once") {
  FakeCuda fake;
  Process process(fake, "");
  KernelSource source = source_of("a");
  source.cooperative = true;
  const auto kernel = process.runtime->load({"scale", {}, [&] { return source; }}, 0);
  const int64_t most = kernel->max_blocks;
  CHECK(most > 0);
  int64_t pointer = 0;
  void* arguments[] = {&pointer};
  const auto counter = [&] {
    launch(*kernel, {most, 1, 1}, arguments, nullptr);
    CHECK(fake.state().attribute_id == cu::kCooperative);
    return fake.state().last_argument;
  };
  const auto first = counter();
  CHECK(counter() == first);
  fake.state().stream_id = 2;
  const auto second = counter();
  CHECK(second != first);
  fake.state().capture_status = 1;
  const auto captured = counter();
  CHECK(captured != second);
  CHECK(counter() != captured);  // each launch of a graph has its own
  CHECK(error_of([&] {
          for (int i = 0; i < 1000; ++i) counter();
        }) ==
        "tessera: scale: no counter is left for the barrier of the grid\n"
        "  hint      launch the kernel once outside of the capture");
  fake.state().capture_status = 0;
  CHECK(counter() == second);
  CHECK(error_of([&] {
          launch(*kernel, {most, 2, 1}, arguments, nullptr);
        }) == fmt::format("tessera: scale: the blocks of the grid wait for each other, and do not "
                          "fit on the device at once\n"
                          "  expected  at most {0} blocks on cuda:0\n"
                          "  got       ({0}, 2, 1)\n"
                          "  hint      let each block do more, for example by k.persistent",
                          most));
}
