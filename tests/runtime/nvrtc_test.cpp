// Where libnvrtc is looked for, and what is said when it is not there.

#include "runtime/nvrtc/nvrtc.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dsl/base/error.h"
#include "tests/runtime/fake_cuda.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

using namespace tessera;
using namespace tessera::runtime;
using test::FakeCuda;
using test::FakeState;

namespace {

std::string error_of(const FakeCuda& fake, const NvrtcSearch& search) {
  try {
    open_nvrtc(fake.loader(), search);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("NVRTC is searched in a fixed order") {
  FakeCuda fake;
  const NvrtcSearch search = {"", {"/opt/cuda"}, "/src/.deps"};
  auto& files = fake.state().nvrtc_files;
  files = {"/opt/cuda/lib64/libnvrtc.so.12", "/src/.deps/nvidia/cu13/lib/libnvrtc.so.13",
           "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.13"};
  SECTION("the named file, and nothing else") {
    files.insert("/my/libnvrtc.so");
    CHECK(open_nvrtc(fake.loader(), {"/my/libnvrtc.so", {"/opt/cuda"}, ""})->path ==
          "/my/libnvrtc.so");
    CHECK(fake.state().opened.front() == "/my/libnvrtc.so");
  }
  SECTION("one that the process has mapped") {
    fake.state().mapped = "libnvrtc.so.12";
    CHECK(open_nvrtc(fake.loader(), search)->path == "/mapped/libnvrtc.so.12");
  }
  SECTION("then the places, one after the other") {
    const std::vector<std::string> order = {
        "/opt/cuda/lib64/libnvrtc.so.12", "/src/.deps/nvidia/cu13/lib/libnvrtc.so.13",
        "/usr/local/cuda/lib64/libnvrtc.so.13", "libnvrtc.so.13"};
    for (const std::string& path : order) {
      CHECK(open_nvrtc(fake.loader(), search)->path == path);
      files.erase(path);
    }
  }
}

TEST_CASE("NVRTC takes its builtins from its own folder") {
  FakeCuda fake;
  const auto nvrtc = open_nvrtc(fake.loader(), {});
  CHECK(nvrtc->builtins == "the builtins");
  CHECK(nvrtc->wanted_builtins == "libnvrtc-builtins.so.13.0");
  CHECK(fake.state().opened.back() == "/usr/local/cuda/lib64/libnvrtc-builtins.so.13.0");
  CHECK(nvrtc->identity == "NVRTC 13.0, build-id aa, builtins build-id bb");
  CHECK(nvrtc->archs == std::vector<int>{75, 80, 86, 89, 90, 100, 120});
}

TEST_CASE("a missing NVRTC names every place that was tried") {
  FakeCuda fake;
  fake.state().nvrtc_files.clear();
  CHECK(error_of(fake, {"", {"/opt/cuda"}, "/src/.deps"}) ==
        "tessera: cannot compile CUDA: no usable libnvrtc\n"
        "  expected  NVRTC 12.3 or newer\n"
        "  got       /opt/cuda/lib64/libnvrtc.so.13: not found\n"
        "            /opt/cuda/lib64/libnvrtc.so.12: not found\n"
        "            /opt/cuda/targets/x86_64-linux/lib/libnvrtc.so.13: not found\n"
        "            /opt/cuda/targets/x86_64-linux/lib/libnvrtc.so.12: not found\n"
        "            /src/.deps/nvidia/cu13/lib/libnvrtc.so.13: not found\n"
        "            /src/.deps/nvidia/cu13/lib/libnvrtc.so.12: not found\n"
        "            /src/.deps/nvidia/cuda_nvrtc/lib/libnvrtc.so.13: not found\n"
        "            /src/.deps/nvidia/cuda_nvrtc/lib/libnvrtc.so.12: not found\n"
        "            /usr/local/cuda/lib64/libnvrtc.so.13: not found\n"
        "            /usr/local/cuda/lib64/libnvrtc.so.12: not found\n"
        "            /usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.13: not found\n"
        "            /usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so.12: not found\n"
        "            libnvrtc.so.13: not found\n"
        "            libnvrtc.so.12: not found\n"
        "  hint      install the CUDA toolkit (in Python: pip install 'tessera-kernels[cuda13]') "
        "or name the "
        "file with TESSERA_NVRTC");
}

TEST_CASE("a named NVRTC that is not there is an error, not a search") {
  FakeCuda fake;
  CHECK(error_of(fake, {"/my/libnvrtc.so", {}, ""}) ==
        "tessera: cannot compile CUDA: no usable libnvrtc\n"
        "  expected  NVRTC 12.3 or newer\n"
        "  got       /my/libnvrtc.so: not found\n"
        "  hint      TESSERA_NVRTC names this file and no other is tried");
}

TEST_CASE("an NVRTC that is too old is passed over with its version") {
  FakeCuda fake;
  fake.state().nvrtc_version = 11080;
  const std::string text = error_of(fake, {});
  CHECK(
      text.find("/usr/local/cuda/lib64/libnvrtc.so.13: is version 11.8, needed is 12.3 or newer") !=
      std::string::npos);
}

TEST_CASE("NVRTC is named from its files as it names itself when it is open") {
  FakeCuda fake;
  const NvrtcSearch search = {"", {"/opt/cuda"}, "/src/.deps"};
  FakeState& state = fake.state();
  const auto told = [&] {
    state.opened.clear();
    const auto id = identify_nvrtc(fake.loader(), search);
    CHECK(state.opened.empty());
    return id;
  };
  CHECK(told() == open_nvrtc(fake.loader(), search)->id());
  SECTION("a library that comes earlier in the search") {
    state.nvrtc_files.insert("/opt/cuda/lib64/libnvrtc.so.12");
    state.builtins_files.insert("/opt/cuda/lib64/libnvrtc-builtins.so.12.8");
    CHECK(told()->identity == "NVRTC 12.8, build-id aa, builtins build-id bb");
    CHECK(told()->version == 12080);
    CHECK(
        identify_nvrtc(fake.loader(), {"/usr/local/cuda/lib64/libnvrtc.so.13", {}, ""})->version ==
        13000);
  }
  SECTION("one that the process has mapped is opened") {
    state.mapped = "libnvrtc.so.12";
    CHECK_FALSE(told());
  }
  SECTION("one without a build id is opened") {
    state.identity_of_file = "";
    CHECK_FALSE(told());
  }
  SECTION("one without builtins is opened") {
    state.builtins_files.clear();
    CHECK_FALSE(told());
  }
  SECTION("one with builtins of several versions is opened") {
    state.builtins_files.insert("/usr/local/cuda/lib64/libnvrtc-builtins.so.13.1");
    CHECK_FALSE(told());
  }
  SECTION("one that only the loader knows is opened") {
    state.nvrtc_files = {"libnvrtc.so.13"};
    CHECK_FALSE(told());
  }
}

TEST_CASE("the real NVRTC is named from its files as it names itself when it is open") {
  const LibraryLoader& loader = system_loader();
  const NvrtcSearch search = {"", {}, test::in_source(".deps")};
  LibraryLoader files = loader;  // another test may have opened it
  files.open_mapped = [](const std::string&) -> void* { return nullptr; };
  const auto told = identify_nvrtc(files, search);
  if (!told) TESSERA_SKIP("no NVRTC in a folder");
  CHECK(*told == open_nvrtc(files, search)->id());
}
