// Every conversion between element types on the executor, against the results by definition.

#include <cstring>

#include "codegen/cpu/executor.h"
#include "tests/support/catch.h"
#include "tests/support/conversion_cases.h"

namespace tessera {
namespace {

std::vector<std::vector<uint8_t>> run_on_executor(const codegen::Program& program,
                                                  std::vector<uint8_t> x,
                                                  const std::vector<size_t>& sizes) {
  std::vector<std::vector<uint8_t>> outputs;
  for (const size_t size : sizes) outputs.emplace_back(size);
  std::vector<codegen::cpu::Argument> arguments(program.params.size());
  for (size_t i = 0; i < program.params.size(); ++i) {
    const codegen::Array& array = *program.params[i].array;
    void* data = i == 0 ? x.data() : outputs[i - 1].data();
    arguments[i].tensor = TensorView(data, array.dtype, Dims{array.shape[0]->integer});
  }
  codegen::cpu::Executable(program).run(arguments);
  return outputs;
}

TEST_CASE("the executor converts every type to every other by definition", "[codegen][cpu]") {
  for (const DType from : test::all_dtypes()) {
    for (const std::string& wrong : test::wrong_conversions(from, run_on_executor)) {
      FAIL_CHECK(wrong);
    }
  }
}

TEST_CASE("the comparison of conversions notices a wrong bit", "[codegen][cpu]") {
  const auto flip_one = [](const codegen::Program& program, std::vector<uint8_t> x,
                           const std::vector<size_t>& sizes) {
    auto outputs = run_on_executor(program, std::move(x), sizes);
    outputs.front()[8] ^= 1;
    return outputs;
  };
  const std::vector<std::string> wrong = test::wrong_conversions(DType::e4m3, flip_one);
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0] ==
        "as_f32 from e4m3: 1 of 1024 wrong, first 0x2 -> 0x3B800001, expected 0x3B800000");
}

}  // namespace
}  // namespace tessera
