// The report of a process on the copies of Tessera that it has loaded, and where a build tree keeps its libraries.

#include "runtime/build_info.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "dsl/base/version.h"
#include "runtime/build_tree.h"
#include "runtime/code_stamp.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

using namespace tessera;
using namespace tessera::runtime;

TEST_CASE("build_info names this copy and every other one in the process") {
  const BuildInfo alone = build_info();
  CHECK(alone.version == TESSERA_VERSION);
  CHECK(alone.stamp == code_stamp());
  CHECK(alone.path == std::filesystem::read_symlink("/proc/self/exe").string());
  CHECK_FALSE(alone.shared);

  const std::string plugin = test::in_build("libtessera_exit_plugin.so");
  REQUIRE(dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL));
  const BuildInfo both = build_info();
  const auto other = std::find_if(
      both.others.begin(), both.others.end(),
      [&](const LoadedCopy& copy) { return std::filesystem::equivalent(copy.path, plugin); });
  REQUIRE(other != both.others.end());
  CHECK(other->version == TESSERA_VERSION);
  CHECK(other->stamp == code_stamp());
}

TEST_CASE("only a program in a build tree looks beside its sources") {
  const test::ScratchFolder folder;
  std::filesystem::create_directories(folder / "build/tools/deep");
  std::ofstream(folder / "build/CMakeCache.txt")
      << "CMAKE_BUILD_TYPE:STRING=Release\ntessera_SOURCE_DIR:STATIC=/src\n";
  CHECK(dependencies_of_build_tree(folder / "build/program") == "/src/.deps");
  CHECK(dependencies_of_build_tree(folder / "build/tools/tessera") == "/src/.deps");
  CHECK(dependencies_of_build_tree(folder / "build/tools/deep/program") == "");
  CHECK(dependencies_of_build_tree(folder / "installed") == "");
  CHECK(dependencies_of_build_tree() == test::in_source(".deps"));
}
