// The C++ functions of the ops are those of their signatures.

#include "tools/lib/docs/cpp_interface.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "kernels/registry/all_ops.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace tessera::tools {
namespace {

/// The text of a file of the sources, which TESSERA_APPROVE replaces by `made` before.
std::string checked_in(const std::string& name, const std::string& made) {
  const std::string path = test::in_source(name);
  if (std::getenv("TESSERA_APPROVE") != nullptr) std::ofstream(path) << made;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("kernels/ops.h and ops.cpp are what the signatures say", "[interface]") {
  const std::string header = cpp_header(kernels::all_ops());
  CHECK(checked_in("kernels/ops.h", header) == header);
  const std::string source = cpp_source(kernels::all_ops());
  CHECK(checked_in("kernels/ops.cpp", source) == source);
}

constexpr kernels::Op kSample{.name = "sample_op",
                              .family = "sample",
                              .purpose = "shows every kind of member",
                              .signature = R"(
      x         bf16 [T, H]
      bias?     f32 [H]
      -> out    format [T, H]
      param     format {e4m3, e2m1}
      param     how {up, down} = down
      param     num_per_channels int 1..H
      param     eps float = none
      param     sf_layout = row_major
    )",
                              .launches = [](const kernels::Call&, kernels::Launches&) {}};

TEST_CASE("an op's struct has its tensors, then its options with their defaults", "[interface]") {
  const std::string header = cpp_header({&kSample});
  CHECK(header.find("enum class How : uint8_t { up, down };\n") != std::string::npos);
  CHECK(header.find("struct SampleOp {\n"
                    "  TensorView x = {};\n"
                    "  TensorView bias = {};\n"
                    "  TensorView out = {};\n"
                    "  std::optional<DType> format = {};  // must be given\n"
                    "  How how = How::down;\n"
                    "  std::optional<int64_t> num_per_channels = {};  // must be given\n"
                    "  std::optional<double> eps = {};\n"
                    "  SfLayout sf_layout = SfLayout::row_major;\n"
                    "};\n"
                    "TESSERA_API void sample_op(const SampleOp& call, Stream stream);\n") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera::tools
