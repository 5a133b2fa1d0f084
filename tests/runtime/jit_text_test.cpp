// The CUDA text of a user's own kernel where there is no GPU.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codegen/lower.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"
#include "kernels/jit/prepare.h"
#include "runtime/options.h"
#include "runtime/runtime.h"
#include "runtime/surroundings.h"
#include "tests/runtime/scratch_folder.h"
#include "tests/support/catch.h"

using namespace tessera;
using runtime::Runtime;
namespace jit = kernels::jit;

namespace {

/// Prepared once per process: every test has a factor of its own.
ir::Kernel times_kernel(float factor) {
  dsl::Builder k("times");
  auto x = k.input("x", DType::f32, {64});
  auto y = k.output("y", DType::f32, {64});
  k.launch({1}, {.threads = 64});
  k.parallel({64}, [&](auto i) { y(i) = x(i) * factor; });
  return k.finish();
}

/// A call on CPU tensors in a process with that dump folder; returns its warnings.
std::vector<std::string> call_with_dump(
    const std::string& folder, float factor,
    std::string runtime::Options::*dir = &runtime::Options::dump_dir) {
  std::vector<std::string> warnings;
  runtime::Options options;
  options.*dir = folder;
  options.log_sink = [&](runtime::LogLevel, std::string_view line) { warnings.emplace_back(line); };
  Runtime process(options, {});
  Runtime::replace_instance(&process);
  alignas(16) float x[64] = {1}, y[64] = {};
  const TensorView tensors[] = {{x, DType::f32, {64}}, {y, DType::f32, {64}}};
  for (int call = 0; call < 2; ++call) jit::run(times_kernel(factor), tensors, {}, nullptr);
  Runtime::replace_instance(nullptr);
  CHECK(y[0] == factor);
  return warnings;
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  return files;
}

}  // namespace

TEST_CASE("jit::cuda_text returns the text that a launch compiles", "[jit]") {
  const std::string text = jit::cuda_text(times_kernel(2));
  CHECK(text.find("tessera_times(const float* __restrict__ x, float* y)") != std::string::npos);
  alignas(16) float x[64] = {}, y[64] = {};
  const TensorView tensors[] = {{x, DType::f32, {64}}, {y, DType::f32, {64}}};
  const auto needed = jit::kernels_needed([&] { jit::run(times_kernel(2), tensors, {}, nullptr); });
  REQUIRE(needed.size() == 1);
  CHECK(needed.front().emit().text == text);
}

TEST_CASE("TESSERA_DUMP_DIR gets the text of CPU calls, once per kernel", "[jit]") {
  const test::ScratchFolder scratch;
  CHECK(call_with_dump(scratch / "new/dump", 3).empty());
  const auto files = files_in(scratch / "new/dump");
  REQUIRE(files.size() == 1);
  CHECK(files.front().filename().string().find("times-cpu-") == 0);
  std::ifstream file(files.front(), std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  CHECK(text == jit::cuda_text(times_kernel(3)));
}

TEST_CASE("a dump folder that cannot be written costs a CPU call a warning", "[jit]") {
  const test::ScratchFolder scratch;
  std::ofstream(scratch / "file") << "in the way";
  const std::vector<std::string> warnings = call_with_dump(scratch / "file", 4);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("(TESSERA_DUMP_DIR)") != std::string::npos);
}

TEST_CASE("TESSERA_DUMP gets the IR of a kernel after each pass, in order", "[jit]") {
  const test::ScratchFolder scratch;
  CHECK(call_with_dump(scratch / "passes", 5, &runtime::Options::pass_dump_dir).empty());
  std::vector<std::filesystem::path> files = files_in(scratch / "passes");
  std::sort(files.begin(), files.end());
  const std::vector<std::string_view> passes = codegen::pass_names();
  REQUIRE(files.size() == passes.size() + 1);
  const std::string stem = files[0].filename().string().substr(0, 14);
  CHECK(files[0].filename().string() == stem + ".00-recorded.txt");
  CHECK(stem.starts_with("times-"));
  for (size_t i = 0; i < files.size(); ++i) {
    std::ifstream file(files[i], std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (i == 0) {
      CHECK(text == ir::to_string(times_kernel(5)));
      continue;
    }
    CAPTURE(files[i].filename().string());
    CHECK(files[i].filename().string() == fmt::format("{}.{:02}-{}.txt", stem, i, passes[i - 1]));
    CHECK(text == codegen::text_after(times_kernel(5), passes[i - 1]));
  }
}

TEST_CASE("TESSERA_DUMP shows a refused kernel up to the pass that refuses it", "[jit]") {
  dsl::Builder k("nested");
  k.launch({1}, {.threads = 32});
  auto tile = k.shared(DType::f32, {32}, "tile");
  k.parallel({2}, [&](auto) { k.parallel({32}, [&](auto i) { tile(i) = 1.0f; }); });
  const ir::Kernel kernel = k.finish();
  std::string last;
  CHECK_THROWS_AS(codegen::for_each_pass(
                      kernel, [&](int, std::string_view pass, const std::string&) { last = pass; }),
                  Error);
  CHECK(last == "check_iterations");
}

TEST_CASE("a folder for passes that cannot be written costs a call a warning", "[jit]") {
  const test::ScratchFolder scratch;
  std::ofstream(scratch / "file") << "in the way";
  const std::vector<std::string> warnings =
      call_with_dump(scratch / "file", 6, &runtime::Options::pass_dump_dir);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("(TESSERA_DUMP)") != std::string::npos);
}
