// The text of the sample programs against the approved files in tests/golden. TESSERA_APPROVE=1
// rewrites them.

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "codegen/cuda/emit.h"
#include "tests/codegen/cuda/sample_programs.h"
#include "tests/support/catch.h"
#include "tests/support/places.h"

namespace tessera {
namespace {

std::string golden_path(const codegen::Program& program) {
  return test::in_source("tests/golden/") + program.name + ".cu";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("the sample programs print as approved", "[codegen][cuda]") {
  for (const codegen::Program& program : test::sample_programs()) {
    CAPTURE(program.name);
    const std::string text = codegen::cuda::emit(program).text;
    if (std::getenv("TESSERA_APPROVE") != nullptr) {
      std::ofstream(golden_path(program), std::ios::binary) << text;
    }
    CHECK(text == read_file(golden_path(program)));
  }
}

TEST_CASE("a program prints the same bytes every time", "[codegen][cuda]") {
  // Two builds of one program share no object, so no order of addresses may show.
  CHECK(codegen::cuda::emit(test::cast_rows()).text == codegen::cuda::emit(test::cast_rows()).text);
}

TEST_CASE("the kernel text leaves the device functions out and names them", "[codegen][cuda]") {
  const std::string text = codegen::cuda::emit_kernel_text(test::cast_rows());
  CHECK(text.rfind("// cast_rows: grid (56, (tokens + 15) / 16), 256 threads\n"
                   "// device functions: ",
                   0) == 0);
  CHECK(text.find("f32_to_e4m3x4") != std::string::npos);
  CHECK(text.find("__forceinline__") == std::string::npos);
  const std::string whole = codegen::cuda::emit(test::cast_rows()).text;
  const size_t kernel = text.find("extern \"C\"");
  CHECK(whole.ends_with(text.substr(kernel)));
}

TEST_CASE("a kernel source states the facts of its launch", "[codegen][cuda]") {
  const KernelSource source = codegen::cuda::emit(test::cast_rows());
  CHECK(source.op == "cast_rows");
  CHECK(source.entry == "tessera_cast_rows");
  CHECK(source.threads == 256);
  CHECK(source.shared_bytes == 0);
  CHECK(source.options.empty());
  REQUIRE(source.params.size() == 4);
  CHECK(source.params[0].name == "tokens");
  CHECK_FALSE(source.params[0].is_pointer);
  CHECK(source.params[0].dtype == DType::i32);
  CHECK(source.params[1].name == "x");
  CHECK(source.params[1].is_pointer);
  CHECK(source.params[1].dtype == DType::bf16);
}

}  // namespace
}  // namespace tessera
