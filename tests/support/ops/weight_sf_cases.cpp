// Cases of batched_transpose_weight_sf: both blocks, extents that words of four do not divide, every exponent,
// scales that are no powers of two.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

std::vector<OpCase> batched_transpose_weight_sf_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const Dims& shape, int64_t block) {
    OpCase test;
    test.label = fmt::format("{} block {}", to_string(shape), block);
    HostTensor sf(DType::f32, shape);
    // Every exponent, 0 and infinity among them.
    for (int64_t i = 0; i < sf.size(); ++i) {
      sf.set_bits(i, static_cast<uint64_t>(i * 37 % 256) << 23);
    }
    test.inputs["sf"] = std::move(sf);
    test.params["block_size"] = block;
    cases.push_back(std::move(test));
  };
  for (const int64_t block : {32, 128}) {
    for (const Dims& shape : {Dims{4, 4}, Dims{8, 20}, Dims{3, 12, 8}, Dims{2, 3, 4, 4},
                              Dims{0, 4, 4}, Dims{2, 0, 4}, Dims{2, 8, 0}, Dims{40, 4}}) {
      add(shape, block);
    }
  }
  for (const Dims& shape : {Dims{1, 1}, Dims{2, 3, 5}, Dims{7, 2}, Dims{1, 9}}) add(shape, 128);
  OpCase wrong = cases[2];
  wrong.label += " scales that are no powers of two";
  HostTensor& sf = wrong.inputs["sf"];
  sf.set_value(3, 3);
  sf.set_value(5, -1);
  sf.set_bits(9, 0x7FC00000);
  sf.set_bits(11, 1);
  cases.push_back(std::move(wrong));
  return cases;
}

}  // namespace tessera::test
