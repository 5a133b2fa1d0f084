// The code blocks of the pages are run, compiled or parsed, each in its language.
//
//   ```cpp in: NAME         compiled in tests/pages/NAME.cpp, in place of the line // BLOCK
//   ```cpp in: op           a call of one op, with its tensors declared
//   ```cpp from: FILE       a part of an example, which has a test of its own
//   ```cpp                  a whole program of examples, or includes
//   ```sh                   run in a folder that looks like the repository
//   ```c                    built and called by cli_c_export_test.cpp
//   ```python               run by tests/python/test_pages.py
//   ```cmake, ```json       parsed
//   ```dockerfile           its packages are those of tools/setup.sh
//   ```LANGUAGE no-run: REASON   parsed, if it is sh or python

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/child_process.h"
#include "tests/support/places.h"
#include "tests/tools/markdown.h"
#include "tests/tools/temporary_folder.h"

namespace tessera::tests {
namespace {

namespace fs = std::filesystem;

std::vector<CodeBlock> blocks_of(const std::string& language) {
  std::vector<CodeBlock> found;
  for (const Page& page : pages()) {
    for (const CodeBlock& block : page.blocks) {
      if (block.language == language && !block.words.starts_with("no-run: ")) {
        found.push_back(block);
      }
    }
  }
  return found;
}

/// Takes the includes out of a text: they go to the top of the file.
std::string without_includes(const std::string& text, std::set<std::string>& includes) {
  static const std::regex include("(^|\n)(#include [^\n]*)");
  for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
    // Installed headers lie below tessera/.
    static const std::regex installed("<tessera/([^>]*)>");
    includes.insert(std::regex_replace((*at)[2].str(), installed, "\"$1\""));
  }
  return std::regex_replace(text, include, "$1");
}

/// The tensors of the op that a block calls.
std::string op_context(const std::string& block) {
  static const std::regex call("kernels::(\\w+)\\(");
  std::smatch found;
  REQUIRE(std::regex_search(block, found, call));
  std::string text =
      "namespace ts = tessera;\n[[maybe_unused]] void call(ts::kernels::Stream stream) {\n";
  std::set<std::string> lists;
  for (const kernels::TensorInfo& tensor : kernels::find_op(found[1]).tensors) {
    if (tensor.list) lists.insert(tensor.name);
  }
  static const std::regex tensor("\\.(\\w+) = (\\w+)");
  for (std::sregex_iterator at(block.begin(), block.end(), tensor), end; at != end; ++at) {
    if ((*at)[1] != (*at)[2]) continue;
    text += lists.contains((*at)[1]) ? "const std::span<const ts::TensorView> "
                                     : "const ts::TensorView ";
    text += (*at)[1].str() + "{};\n";
  }
  return text + "// BLOCK\n}\n";
}

std::string compiler() {
  static const std::regex entry("CMAKE_CXX_COMPILER:[A-Z]+=([^\n]+)");
  const std::string cache = read_text(test::in_build("CMakeCache.txt"));
  std::smatch found;
  REQUIRE(std::regex_search(cache, found, entry));
  return found[1];
}

TEST_CASE("C++ blocks of pages compile (U50)", "[pages][slow]") {
  const TemporaryFolder folder;
  std::set<std::string> includes = {"#include \"kernels/ops.h\""};
  std::string body;
  int number = 0;
  for (const CodeBlock& block : blocks_of("cpp")) {
    CAPTURE(block.page, block.line);
    if (block.text.find("int main(") != std::string::npos) {
      bool is_example = false;
      for (const auto& file : fs::directory_iterator(test::in_source("examples"))) {
        is_example |= file.is_regular_file() && read_text(file.path().string()) == block.text;
      }
      CHECK(is_example);
      continue;
    }
    if (block.words.starts_with("from: ")) {
      const std::string file = block.words.substr(6);
      CHECK(file.starts_with("examples/"));
      CHECK(read_text(test::in_source(file)).find(block.text) != std::string::npos);
      continue;
    }
    const std::string text = without_includes(block.text, includes);
    if (block.words.empty()) {
      CHECK(text.find_first_not_of(" \n") == std::string::npos);  // includes alone
      continue;
    }
    REQUIRE(block.words.starts_with("in: "));
    const std::string name = block.words.substr(4);
    std::string context = name == "op" ? op_context(block.text)
                                       : read_text(test::in_source("tests/pages/" + name + ".cpp"));
    context = without_includes(context, includes);
    const size_t at = context.find("// BLOCK");
    REQUIRE(at != std::string::npos);
    body += "namespace block_" + std::to_string(number++) + " {\n" + context.substr(0, at) +
            "\n#line " + std::to_string(block.line) + " \"" + block.page + "\"\n" + text +
            context.substr(at) + "}\n";
  }
  REQUIRE(number > 60);
  std::string source;
  for (const std::string& include : includes) source += include + "\n";
  write_text(folder.path("blocks.cpp"), source + body);
  const test::ChildResult compiled =
      test::run_program({compiler(), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                         "-I", test::in_source("."), folder.path("blocks.cpp")},
                        {});
  CHECK(compiled.output == "");
  CHECK(compiled.exit_code == 0);
}

TEST_CASE("shell blocks of pages run (U50)", "[pages][slow]") {
  for (const CodeBlock& block : blocks_of("sh")) {
    const TemporaryFolder folder;
    for (const auto& entry : fs::directory_iterator(test::in_source("."))) {
      const std::string name = entry.path().filename().string();
      if (name[0] != '.' && !name.starts_with("build")) {
        fs::create_symlink(fs::absolute(entry.path()), folder.path(name));
      }
    }
    fs::create_symlink(test::in_build("."), folder.path("build"));
    const test::ChildResult run = test::run_program(
        {"bash", "-euo", "pipefail", "-c", "cd \"$0\"\n" + block.text, folder.path("")},
        {"TESSERA_CACHE_DIR=" + folder.path("cache")});
    CAPTURE(block.page, block.line, run.output);
    CHECK(run.exit_code == 0);
  }
}

TEST_CASE("shell blocks of pages that are not run parse (U50)", "[pages]") {
  int count = 0;
  for (const Page& page : pages()) {
    for (const CodeBlock& block : page.blocks) {
      if (block.language != "sh" || !block.words.starts_with("no-run: ")) continue;
      ++count;
      const test::ChildResult parsed = test::run_program({"bash", "-n", "-c", block.text}, {});
      CAPTURE(block.page, block.line, parsed.output);
      CHECK(parsed.exit_code == 0);
    }
  }
  CHECK(count > 5);
}

TEST_CASE("the Dockerfile of a page installs what tools/quickstart does", "[pages]") {
  const std::vector<CodeBlock> blocks = blocks_of("dockerfile");
  REQUIRE(blocks.size() == 1);
  static const std::regex list("program_packages=\\(([^)]*)\\)");
  const std::string setup = read_text(test::in_source("tools/setup.sh"));
  std::smatch found;
  REQUIRE(std::regex_search(setup, found, list));
  std::istringstream packages(found[1]);
  for (std::string package; packages >> package;) {
    if (package == "ccache") continue;  // an image is built once
    CAPTURE(package);
    CHECK(blocks[0].text.find(" " + package + " ") != std::string::npos);
  }
}

/// The one file in a folder.
std::string text_of_the_file_in(const std::string& folder) {
  std::string text;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    text = read_text(entry.path().string());
    ++count;
  }
  CHECK(count == 1);
  return text;
}

/// Compares a file of examples/output with what was made now; TESSERA_APPROVE=1 writes it.
void check_output(const std::string& file, const std::string& made) {
  const std::string path = test::in_source("examples/output/" + file);
  if (std::getenv("TESSERA_APPROVE") != nullptr) write_text(path, made);
  CAPTURE(file);
  CHECK(read_text(path) == made);
}

TEST_CASE("the CUDA and the message that README shows are those of its examples", "[pages][slow]") {
  if (!fs::exists(test::in_build("example_19_race"))) TESSERA_SKIP("the examples are not built");
  const TemporaryFolder folder;
  const std::vector<std::string> environment = {"TESSERA_DUMP_DIR=" + folder.path("cuda"),
                                                "TESSERA_CACHE=off"};
  const test::ChildResult norm =
      test::run_program({test::in_build("example_06_rms_norm")}, environment);
  REQUIRE(norm.exit_code == 0);
  check_output("06_rms_norm.cu", text_of_the_file_in(folder.path("cuda")));

  test::ChildResult race = test::run_program({test::in_build("example_19_race")}, environment);
  REQUIRE(race.exit_code == 0);
  const std::string source = fs::absolute(test::in_source("")).string();
  for (size_t at; (at = race.output.find(source)) != std::string::npos;) {
    race.output.erase(at, source.size());
  }
  check_output("19_race.txt", race.output);
}

TEST_CASE("the timeline that dsl/README shows is that of example 03", "[pages][slow]") {
  if (!fs::exists(test::in_build("example_03_gemm"))) TESSERA_SKIP("the examples are not built");
  const TemporaryFolder folder;
  const std::string picture = folder.path("roles.svg");
  const test::ChildResult roles =
      test::run_program({test::in_build("example_03_gemm"), "256", "cpu", "timeline", picture},
                        {"TESSERA_CACHE=off", "TESSERA_CPU_TARGET=sm_90a"});
  CAPTURE(roles.output);
  REQUIRE(roles.exit_code == 0);
  check_output("03_timeline.svg", read_text(picture));
}

TEST_CASE("CMake and JSON blocks of pages are well-formed (U50)", "[pages]") {
  const TemporaryFolder folder;
  for (const CodeBlock& block : blocks_of("cmake")) {
    // A function is parsed and not run.
    write_text(folder.path("block.cmake"),
               "function(block_of_page)\n" + block.text + "endfunction()\n");
    const test::ChildResult parsed =
        test::run_program({"cmake", "-P", folder.path("block.cmake")}, {});
    CAPTURE(block.page, block.line, parsed.output);
    CHECK(parsed.exit_code == 0);
  }
  for (const CodeBlock& block : blocks_of("json")) {
    CAPTURE(block.page, block.line);
    CHECK(nlohmann::json::accept(block.text));
  }
}

TEST_CASE("every code block of a page has a language that a test knows, or none (U50)", "[pages]") {
  static const std::set<std::string> known = {"",       "c",     "cpp",  "sh",
                                              "python", "cmake", "json", "dockerfile"};
  for (const Page& page : pages()) {
    for (const CodeBlock& block : page.blocks) {
      CAPTURE(block.page, block.line, block.language);
      CHECK(known.contains(block.language));
      if (!block.words.starts_with("no-run:")) continue;
      CHECK(block.words.size() > std::string("no-run: ").size());
    }
  }
}

}  // namespace
}  // namespace tessera::tests
