// The CUDA text of a user's own kernel where there is no GPU.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

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
std::vector<std::string> call_with_dump(const std::string& folder, float factor) {
  std::vector<std::string> warnings;
  runtime::Options options;
  options.dump_dir = folder;
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
