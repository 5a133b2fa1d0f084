// Why six shipped kernels were lowered as they are (layouts, widths, guards, barriers), against the
// approved texts in tests/golden/explain. TESSERA_APPROVE=1 rewrites them.

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "codegen/lower.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"
#include "tools/lib/calls/example.h"

namespace tessera {
namespace {

/// A line moves whenever one above it changes; the file says enough.
std::string without_line_numbers(const std::string& text) {
  static const std::regex place(R"((\.(cpp|h)):\d+)");
  return std::regex_replace(text, place, "$1");
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("every automatic choice in six kernels is explained as approved (6.10)",
          "[kernels][explain]") {
  // The first example of an op, and its first kernel.
  const char* const word = GENERATE("per_token_cast", "batched_transpose", "sinkhorn_fwd",
                                    "post_fwd", "top2_sum_gate", "norm_fn_fwd");
  const kernels::OpInfo& op = kernels::find_op(word);
  const std::vector<ir::Kernel> kernels = tools::kernels_of(op, op.examples.front());
  REQUIRE_FALSE(kernels.empty());
  const ir::Kernel& kernel = kernels.front();
  const std::string explained = without_line_numbers(codegen::explain(kernel));
  CAPTURE(kernel.name);
  // Deterministic: the same program, the same choices, after any history.
  CHECK(without_line_numbers(codegen::explain(kernel)) == explained);

  const std::string path = test::in_source("tests/golden/explain/") + kernel.name + ".txt";
  const std::string text = op.name + ", " + op.examples.front().label + "\n\n" + explained;
  if (std::getenv("TESSERA_APPROVE") != nullptr) std::ofstream(path, std::ios::binary) << text;
  CHECK(text == read_file(path));
}

}  // namespace tessera
