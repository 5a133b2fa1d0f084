// Kernels that begin before the one in front has ended: only the first of an op meets a stranger there.

#include <regex>

#include "kernels/op.h"
#include "tests/support/catch.h"
#include "tests/support/run_kernel.h"
#include "tools/lib/calls/example.h"

namespace tessera::test {
namespace {

/// The tensors that `kernel` reads or writes before it waits for the kernel in front; none if it
/// does not wait.
std::vector<std::string> touched_early(const ir::Kernel& kernel) {
  const std::string text = cuda_text(kernel);
  const size_t body = text.find("{\n", text.find("__global__"));
  REQUIRE(body != std::string::npos);
  const size_t wait = text.find("wait_for_previous_kernel();", body);
  if (wait == std::string::npos) return {};
  const std::string before = text.substr(body, wait - body);
  std::vector<std::string> result;
  for (const auto& tensor : kernel.tensors) {
    // Not the end of a longer name.
    const std::regex element("\\b" + tensor->name + "\\[");
    if (std::regex_search(before, element)) result.push_back(tensor->name);
  }
  return result;
}

}  // namespace

TEST_CASE("the first kernel of an op touches no tensor while another's kernel may still run",
          "[kernels][slow]") {
  size_t early = 0;
  for (const kernels::OpInfo& op : kernels::ops()) {
    std::vector<kernels::BenchCase> cases = op.examples;
    if (op.name == "pre_big_fuse") {  // no projection in front
      cases.push_back(cases.front());
      cases.back().inputs = {{"residual", DType::bf16, {3, 4, 0}},
                             {"fn", DType::f32, {24, 0}},
                             {"scale", DType::f32, {3}},
                             {"base", DType::f32, {24}}};
    }
    for (const kernels::BenchCase& example : cases) {
      CAPTURE(op.name, example.label);
      const std::vector<ir::Kernel> kernels = tools::kernels_of(op, example);
      for (size_t i = 0; i < kernels.size(); ++i) {
        const std::vector<std::string> touched = touched_early(kernels[i]);
        if (i == 0) CHECK(touched == std::vector<std::string>{});
        if (!touched.empty()) ++early;
      }
    }
  }
  CHECK(early > 0);  // the residual of pre_big_fuse
}

}  // namespace tessera::test
