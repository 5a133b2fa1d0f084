// Tessera as a part of another project, which sets no C++ standard.

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

TEST_CASE("a project that takes Tessera in compiles a kernel by the installed headers' names",
          "[outside][slow]") {
  const TemporaryFolder folder;
  const std::string source = folder.path("own.cpp");
  // The names beside each other, as tools/cmake/README.md has them, defined everything twice.
  write_text(source, std::regex_replace(read_text(test::in_source("examples/05_own_kernels.cpp")),
                                        std::regex("#include \"(.+)\""), "#include <tessera/$1>"));
  write_text(folder.path("CMakeLists.txt"),
             "cmake_minimum_required(VERSION 3.25)\n"
             "project(outside LANGUAGES CXX)\n"
             "set(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
             "add_subdirectory(" +
                 test::in_source("") +
                 " tessera)\n"
                 "add_executable(own " +
                 source +
                 ")\n"
                 "target_link_libraries(own PRIVATE tessera::program)\n");
  const test::ChildResult configured = test::run_program(
      {"sh", "-c",
       "cmake -G Ninja -S " + folder.path("") + " -B " + folder.path("build") +
           " && cmake --build " + folder.path("build") + " --target tessera_headers"},
      {"TESSERA_CACHE=off"});
  CAPTURE(configured.output);
  REQUIRE(configured.exit_code == 0);
  // The user's file alone, by the words that the build would use.
  const auto commands =
      nlohmann::json::parse(read_text(folder.path("build/compile_commands.json")));
  int compiled = 0;
  for (const auto& command : commands) {
    if (command.at("file") != source) continue;
    ++compiled;
    const test::ChildResult result =
        test::run_program({"sh", "-c", command.at("command").get<std::string>() + " -fsyntax-only"},
                          {"TESSERA_CACHE=off"});
    CAPTURE(result.output);
    CHECK(result.exit_code == 0);
  }
  CHECK(compiled == 1);
}

}  // namespace
}  // namespace tessera::tests
