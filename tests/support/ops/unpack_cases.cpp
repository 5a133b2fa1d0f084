// Cases of unpack_from_e2m1fn_x2: every byte, any rank, lengths of no whole vector.

#include <fmt/format.h>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {

std::vector<OpCase> unpack_from_e2m1fn_x2_cases() {
  std::vector<OpCase> cases;
  for (const std::string out : {"f32", "bf16", "f16"}) {
    for (const DType dtype : {DType::i8, DType::u8}) {
      const auto add = [&](const std::string& label, HostTensor x) {
        OpCase test;
        test.label = fmt::format("{} {} to {}", label, to_string(x.view()), out);
        test.inputs["x"] = std::move(x);
        test.params["out_dtype"] = out;
        cases.push_back(std::move(test));
      };
      HostTensor every(dtype, {256});
      for (int64_t i = 0; i < every.size(); ++i) every.set_bits(i, static_cast<uint64_t>(i));
      add("every byte", std::move(every));
      for (const Dims& shape : {Dims{1}, Dims{0}, Dims{3, 7}, Dims{5, 1000}, Dims{0, 4}, Dims{4, 0},
                                Dims{2, 3, 33}, Dims{2, 1, 3, 40}, Dims{129, 64}}) {
        add("bits", random_tensor(dtype, shape, Values::bits, 83));
      }
    }
  }
  return cases;
}

}  // namespace tessera::test
