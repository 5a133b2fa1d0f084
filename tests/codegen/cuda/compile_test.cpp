// NVRTC accepts the approved texts and the whole prelude for every target, without a warning.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/prelude.h"
#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/conversion_cases.h"
#include "tests/support/elementary_functions.h"
#include "tests/support/nvrtc.h"
#include "tests/support/places.h"
#include "tests/support/program_builder.h"

namespace tessera {
namespace {

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(test::in_source("tests/golden"))) {
    if (entry.path().extension() == ".cu") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Compiles what text_for(Target) makes.
template <class TextFor>
void check_compiles(const test::Nvrtc& nvrtc, const TextFor& text_for) {
  for (const std::string& target : test::kTargets) {
    if (!nvrtc.supports(target)) continue;
    CAPTURE(target);
    const test::Compiled compiled = nvrtc.compile(text_for(parse_target(target).value()), target);
    CHECK(compiled.ok);
    CHECK(compiled.log == "");
  }
}

TEST_CASE("NVRTC compiles every approved text", "[codegen][cuda][nvrtc][slow]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  REQUIRE_FALSE(golden_files().empty());
  for (const auto& path : golden_files()) {
    CAPTURE(path.filename().string());
    CHECK(nvrtc->compile(read_file(path), "sm_90a").log == "");
  }
}

TEST_CASE("NVRTC compiles every elementary function for every target", "[codegen][cuda][nvrtc]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  check_compiles(*nvrtc, [](Target target) {
    return codegen::cuda::emit(codegen::lower(test::elementary_kernel(256), target)).text;
  });
}

TEST_CASE("NVRTC compiles the whole prelude for every target that it lists (R22.12)",
          "[codegen][cuda][nvrtc]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  check_compiles(*nvrtc, codegen::cuda::prelude);
}

TEST_CASE("NVRTC compiles each device function with only what it needs",
          "[codegen][cuda][nvrtc][slow]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  using namespace codegen::cuda;
  for (const auto table :
       {type_snippets(), memory_snippets(), narrowing_snippets(), widening_snippets(),
        arithmetic_snippets(), matrix_snippets(), atomic_snippets()}) {
    for (const Snippet& snippet : table) {
      CAPTURE(std::string(snippet.name));
      for (const char* target : {"sm_80", "sm_90a"}) {
        const std::string text =
            device_functions({std::string(snippet.name)}, parse_target(target).value());
        CHECK(text.find('$') == std::string::npos);
        CHECK(nvrtc->compile(text, target).log == "");
      }
    }
  }
}

TEST_CASE("NVRTC compiles every conversion, in software and by instruction",
          "[codegen][cuda][nvrtc][slow]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  for (const DType from : test::all_dtypes()) {
    codegen::Program program = test::conversion_program(from, test::kConversionTile);
    for (const char* target : {"sm_80", "sm_100a"}) {
      if (!nvrtc->supports(target)) continue;
      CAPTURE(name(from), target);
      program.target = parse_target(target).value();
      CHECK(nvrtc->compile(codegen::cuda::emit(program).text, target).log == "");
    }
  }
}

TEST_CASE("no more blocks are asked for than an SM holds", "[codegen][cuda][nvrtc][slow]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  const int threads = GENERATE(32, 64, 1024);
  test::ProgramBuilder k("many_blocks", threads);
  k.min_blocks(32);
  const test::ArrayRef y = k.output("y", DType::f32, {test::number(1024)});
  k.store(y, test::wide(k.thread()), test::f32(1));
  codegen::Program program = k.finish();
  for (const char* target : {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120"}) {
    if (!nvrtc->supports(target)) continue;
    CAPTURE(threads, target);
    program.target = parse_target(target).value();
    CHECK(nvrtc->compile(codegen::cuda::emit(program).text, target).log == "");
  }
}

TEST_CASE("the compile test notices a text that does not compile", "[codegen][cuda][nvrtc]") {
  std::string reason;
  const auto nvrtc = test::Nvrtc::open(reason);
  if (!nvrtc) TESSERA_SKIP(reason);
  const test::Compiled broken = nvrtc->compile("bf16 x;", "sm_90a");
  CHECK_FALSE(broken.ok);
  CHECK(broken.log.find("identifier \"bf16\" is undefined") != std::string::npos);
}

}  // namespace
}  // namespace tessera
