// Cases of conversions between float formats: every pair, sizes that vectors do not divide, any bits,
// ties, both ends of the formats, and round trips through quantised formats.

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

OpCase cast_case(DType in, DType out, const Dims& shape, Values values,
                 kernels::Params params = {}) {
  OpCase test;
  test.label = fmt::format("{} {} to {}{}", to_string(shape), name(in), name(out),
                           params.contains("stochastic") ? " stochastic" : "");
  test.inputs["x"] = random_tensor(in, shape, values, 61);
  test.params = std::move(params);
  test.params["out_dtype"] = std::string(name(out));
  return test;
}

OpCase stochastic_case(DType in, DType out, const Dims& shape, Values values, int64_t seed = 0) {
  return cast_case(in, out, shape, values, {{"stochastic", true}, {"seed", seed}});
}

struct Trip {
  int64_t tokens, hidden;
  DType dtype, format;
  int64_t group;
  bool round = false, e4m3 = false;
  Values values = Values::normal;
};

OpCase trip_case(const Trip& t) {
  OpCase test;
  test.label =
      fmt::format("T={} H={} {} {} g={}{}{}", t.tokens, t.hidden, name(t.dtype), name(t.format),
                  t.group, t.round ? " rounded" : "", t.e4m3 ? " e4m3" : "");
  test.inputs["x"] = random_tensor(t.dtype, {t.tokens, t.hidden}, t.values, 62);
  test.params = {{"format", std::string(name(t.format))},
                 {"num_per_channels", t.group},
                 {"round_sf", t.round},
                 {"e4m3_sf", t.e4m3}};
  return test;
}

OpCase strided_trip(int64_t pitch) {
  OpCase test = trip_case({7, 128, DType::bf16, DType::e4m3, 32});
  const HostTensor old = test.inputs.at("x");
  HostTensor placed(old.dtype(), old.shape(), Dims{pitch, 1});
  for (int64_t i = 0; i < old.size(); ++i) placed.set_bits(i, old.bits(i));
  test.inputs["x"] = std::move(placed);
  test.label += fmt::format(" pitch {}", pitch);
  return test;
}

}  // namespace

std::vector<OpCase> cast_cases() {
  const std::vector<DType> formats = {DType::f32, DType::bf16, DType::f16, DType::e4m3};
  std::vector<OpCase> cases;
  for (const DType in : formats) {
    for (const DType out : formats) {
      cases.push_back(cast_case(in, out, {2051}, Values::bits));
      cases.push_back(cast_case(in, out, {3, 67}, Values::nasty));
      for (const Dims& shape : {Dims{}, Dims{1}, Dims{8}, Dims{0}, Dims{2, 1, 3, 2}}) {
        cases.push_back(cast_case(in, out, shape, Values::normal));
      }
    }
  }
  const std::pair<DType, DType> stochastic[] = {
      {DType::f32, DType::bf16}, {DType::f32, DType::e4m3}, {DType::bf16, DType::e4m3}};
  for (const auto& [in, out] : stochastic) {
    for (const int64_t seed : {int64_t{0}, int64_t{1}, int64_t{4294967295}}) {
      cases.push_back(stochastic_case(in, out, {4100}, Values::normal, seed));
    }
    cases.push_back(stochastic_case(in, out, {2048}, Values::bits, 5));
    cases.push_back(stochastic_case(in, out, {7, 300}, Values::nasty, 6));
    cases.push_back(stochastic_case(in, out, {4}, Values::normal));
    cases.push_back(stochastic_case(in, out, {0}, Values::normal));
    // At the ends, and one value of every exponent.
    OpCase ends = stochastic_case(in, out, {4 * 70}, Values::normal, 9);
    HostTensor& x = ends.inputs["x"];
    const std::vector<double> values = {kInfinity, -kInfinity, kNan,     0,        -0.0,   448,
                                        449,       -464,       3.4e38,   -3.39e38, 0x1p-6, 0x1p-9,
                                        0x1.8p-10, 0x1p-30,    -0x1p-41, 0x1p-44};
    for (int64_t i = 0; i < x.size(); ++i) {
      const double magnitude = std::ldexp(1.3, static_cast<int>(i) - 150);
      x.set_value(i, i < std::ssize(values) ? values[static_cast<size_t>(i)] : magnitude);
    }
    ends.label += " ends";
    cases.push_back(std::move(ends));
  }
  return cases;
}

std::vector<OpCase> per_token_cast_and_cast_back_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const DType format : {DType::e4m3, DType::e2m1}) {
      for (const int64_t group : {16, 32, 64, 128}) {
        cases.push_back(trip_case({5, 384, dtype, format, group}));
        cases.push_back(trip_case({3, 128, dtype, format, group, true}));
        cases.push_back(trip_case({3, 128, dtype, format, group, false, true}));
        cases.push_back(
            trip_case({9, 128, dtype, format, group, group == 32, group == 64, Values::nasty}));
      }
      cases.push_back(trip_case({2, 7168, dtype, format, 128}));
      cases.push_back(trip_case({0, 128, dtype, format, 32}));
      OpCase ends = trip_case({6, 64, dtype, format, 16, false, true});
      HostTensor& x = ends.inputs["x"];
      for (int64_t i = 0; i < x.size(); ++i) {
        const double scales[] = {0, 1e-6, 1, 1e4, 1e20, 1};
        x.set_value(i, x.value(i) * scales[i / 64]);
      }
      x.set_value(5 * 64 + 3, -kInfinity);
      x.set_value(5 * 64 + 20, kNan);
      ends.label += " ends";
      cases.push_back(std::move(ends));
    }
  }
  for (const int64_t pitch : {136, 132, 131}) cases.push_back(strided_trip(pitch));
  return cases;
}

}  // namespace tessera::test
