#pragma once
// Every conversion between element types: the inputs worth trying, the results by definition, and
// one program per source type that converts to all others. Shared by the tests of the executor and
// of the GPU.

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/thread_ir.h"
#include "dsl/base/dtype.h"

namespace tessera::test {

/// The element types, in the order of the enum.
std::vector<DType> all_dtypes();

/// All bit patterns of types up to 16 bits. Of wider ones: the neighbourhood of every power of two,
/// of every value and every tie of the small floats (some of those of f16 and bf16), infinities,
/// NaNs, and random bits.
std::vector<uint64_t> conversion_inputs(DType from);

/// The bits of Op::cast by definition. To floats: nearest even, once; overflow and NaN as
/// reference::encode. Floats to integers: toward zero, saturated, NaN gives 0. Integers to
/// integers: the low bits. To bool: x != 0.
///
/// Example: converted(DType::f32, DType::e4m3, 0x7F800000) is 0x7E.
uint64_t converted(DType from, DType to, uint64_t bits);

/// How many elements a block of the program converts.
inline constexpr int64_t kConversionTile = 1024;

/// x -> one output per other type and form: cast of single elements ("as_e4m3") and Convert
/// statements of eight
/// ("pairs_e4m3"). Parameters: x, then for each type but `from` those two. `count` is a multiple of
/// kConversionTile.
codegen::Program conversion_program(DType from, int64_t count);

/// Elements packed as in memory: little-endian, two e2m1 per byte.
std::vector<uint8_t> packed(DType dtype, const std::vector<uint64_t>& elements);
std::vector<uint64_t> unpacked(DType dtype, const std::vector<uint8_t>& memory, int64_t count);

/// Converts `inputs` with `run`, which gets x's bytes and the sizes of the outputs and gives back
/// their bytes, and compares with converted(). Returns one line per wrong output, naming its first
/// wrong element; none if all is right.
template <class Run>  // std::vector<std::vector<uint8_t>>(const codegen::Program&, x bytes, output
// sizes)
std::vector<std::string> wrong_conversions(DType from, const Run& run);

/// The comparison of wrong_conversions().
std::string first_difference(DType from, DType to, const std::string& form,
                             const std::vector<uint64_t>& inputs,
                             const std::vector<uint64_t>& outputs);

template <class Run>
std::vector<std::string> wrong_conversions(DType from, const Run& run) {
  std::vector<uint64_t> inputs = conversion_inputs(from);
  while (inputs.size() % kConversionTile != 0) inputs.push_back(inputs.front());
  const auto count = static_cast<int64_t>(inputs.size());
  const codegen::Program program = conversion_program(from, count);
  std::vector<size_t> sizes;
  for (const codegen::Param& param : program.params) {
    sizes.push_back(static_cast<size_t>(count * bits(param.array->dtype) / 8));
  }
  sizes.erase(sizes.begin());
  const std::vector<std::vector<uint8_t>> outputs = run(program, packed(from, inputs), sizes);
  std::vector<std::string> wrong;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const codegen::Param& param = program.params[i + 1];
    const DType to = param.array->dtype;
    const std::string line =
        first_difference(from, to, param.name, inputs, unpacked(to, outputs[i], count));
    if (!line.empty()) wrong.push_back(line);
  }
  return wrong;
}

}  // namespace tessera::test
