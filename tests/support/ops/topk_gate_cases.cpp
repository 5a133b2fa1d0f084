// Cases of topk_gate: sizes of models, one expert, all experts, ties, infinities and NaN.

#include <fmt/format.h>

#include <limits>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

OpCase make_case(std::string label, HostTensor scores, int64_t num_topk) {
  OpCase test;
  test.label = fmt::format("{} {} top {}", label, to_string(scores.shape()), num_topk);
  test.inputs["scores"] = std::move(scores);
  test.params["num_topk"] = num_topk;
  return test;
}

// Scores drawn from a few values, so that most of the row ties.
HostTensor from_few(Dims shape, const std::vector<double>& values, uint64_t seed) {
  HostTensor scores(DType::f32, shape);
  Random random(seed);
  for (int64_t i = 0; i < scores.size(); ++i) {
    scores.set_value(i, values[static_cast<size_t>(random.below(std::ssize(values)))]);
  }
  return scores;
}

}  // namespace

std::vector<OpCase> topk_gate_cases() {
  std::vector<OpCase> cases;
  const std::pair<int64_t, int64_t> kModels[] = {{72, 6}, {32, 6},  {64, 6},  {96, 6},  {16, 6},
                                                 {36, 6}, {108, 6}, {128, 6}, {144, 6}, {256, 8}};
  for (const auto& [experts, topk] : kModels) {
    const Dims shape{37, experts};
    cases.push_back(make_case("normal", random_tensor(DType::f32, shape, Values::normal, 1), topk));
    cases.push_back(make_case("nasty", random_tensor(DType::f32, shape, Values::nasty, 2), topk));
    cases.push_back(make_case("bits", random_tensor(DType::f32, shape, Values::bits, 3), topk));
    cases.push_back(make_case("ties", from_few(shape, {0.0, -0.0, 0.5, -0.5}, 4), topk));
    cases.push_back(
        make_case("infinities", from_few(shape, {kInfinity, -kInfinity, kNan}, 5), topk));
  }
  const Dims one_row{3, 72};
  cases.push_back(make_case("all equal", from_few(one_row, {1.5}, 6), 6));
  cases.push_back(make_case("zeros of both signs", from_few(one_row, {0.0, -0.0}, 7), 9));
  cases.push_back(make_case("all NaN", from_few(one_row, {kNan}, 8), 6));
  cases.push_back(make_case("all -inf", from_few(one_row, {-kInfinity}, 9), 6));
  cases.push_back(make_case("one NaN in many -inf", from_few(one_row, {-kInfinity, kNan}, 10), 72));
  cases.push_back(make_case("-inf below the largest negative",
                            from_few(one_row, {-kInfinity, -0x1.FFFFFEp127}, 11), 50));
  cases.push_back(
      make_case("subnormals", from_few(one_row, {0x1p-149, -0x1p-149, 0.0, 0x1p-140}, 12), 30));

  const auto normal = [&](Dims shape, int64_t topk) {
    cases.push_back(
        make_case("normal", random_tensor(DType::f32, shape, Values::normal, 13), topk));
  };
  normal({0, 64}, 6);
  normal({1, 1}, 1);
  normal({5, 1}, 1);
  normal({1, 256}, 8);
  normal({4, 2}, 2);
  normal({9, 31}, 31);
  normal({9, 33}, 33);
  normal({7, 64}, 64);
  normal({3, 257}, 12);
  normal({129, 384}, 8);
  return cases;
}

}  // namespace tessera::test
