// Cases of the ops that do one half of per_token_cast: scales alone, or codes for given scales.

#include <limits>

#include "tests/reference/per_token_cast.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

std::vector<OpCase> plain_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : per_token_cast_cases()) {
    if (!test.inputs.contains("x_sf")) cases.push_back(std::move(test));
  }
  return cases;
}

/// Zeros of both signs, infinities, NaN, subnormals and negative scales in rows that lie apart.
OpCase hostile_scales(const std::string& format) {
  const std::vector<double> values = {0.0,
                                      -0.0,
                                      std::numeric_limits<double>::infinity(),
                                      std::numeric_limits<double>::quiet_NaN(),
                                      0x1p-149,
                                      0x1p-127,
                                      -1.5,
                                      3.0,
                                      0x1.FFFFFEp127};
  OpCase test;
  test.label = "hostile scales to " + format;
  test.params = {{"format", format}, {"num_per_channels", int64_t{32}}};
  test.inputs["x"] = random_tensor(DType::f32, {11, 160}, Values::nasty, 51);
  HostTensor sf(DType::f32, {11, 5}, {9, 1});
  for (int64_t i = 0; i < sf.size(); ++i) {
    sf.set_value(i, values[static_cast<size_t>(i) % values.size()]);
  }
  test.inputs["sf"] = std::move(sf);
  return test;
}

}  // namespace

std::vector<OpCase> per_token_cast_with_sf_only_cases() {
  return plain_cases();
}

std::vector<OpCase> per_token_cast_with_precomputed_sf_cases() {
  std::vector<OpCase> cases;
  for (OpCase& test : plain_cases()) {
    if (std::get<std::string>(test.params.at("sf_layout")) != "row_major") continue;
    HostTensors whole = reference::runner("per_token_cast")(test.inputs, test.params);
    test.inputs["sf"] = std::move(whole.at("out_sf"));
    test.params.erase("sf_layout");
    test.params.erase("round_sf");
    cases.push_back(std::move(test));
  }
  cases.push_back(hostile_scales("e4m3"));
  cases.push_back(hostile_scales("e2m1"));
  return cases;
}

}  // namespace tessera::test
