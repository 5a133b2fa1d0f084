// Cases of per_token_cast_to_e5m6 and cast_back_e5m6: every code and the values around it, the
// range below 2^-14 where rounding has its own rule, rows of few and of many strings of eight.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/reference/e5m6.h"
#include "tests/reference/numeric.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {
namespace {

OpCase make_case(const std::string& label, HostTensor x, bool round_sf,
                 const std::string& sf_layout = "row_major") {
  OpCase test;
  test.label =
      fmt::format("{} {}{} {}", label, to_string(x.view()), round_sf ? " rounded" : "", sf_layout);
  test.inputs["x"] = std::move(x);
  test.params["round_sf"] = round_sf;
  test.params["sf_layout"] = sf_layout;
  return test;
}

/// Rows that end in 65024, so that their scale is 1.
HostTensor rows_of_scale_one(const std::vector<float>& values) {
  constexpr int64_t kHidden = 520;
  const int64_t num_rows = (std::ssize(values) + kHidden - 2) / (kHidden - 1);
  HostTensor x(DType::f32, {num_rows, kHidden});
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i + 1 < kHidden; ++i) {
      const auto at = static_cast<size_t>((row * (kHidden - 1) + i) % std::ssize(values));
      x.set_bits(row * kHidden + i, reference::bits_of(values[at]));
    }
    x.set_value(row * kHidden + kHidden - 1, 65024);
  }
  return x;
}

/// The value of every code, half a step above it, and one step of f32 to either side of both.
std::vector<float> around_every_code() {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7BF; ++code) {
    const double low = reference::decode(DType::f16, code << 4);
    const double high = reference::decode(DType::f16, (code + 1) << 4);
    for (const double center : {low, (low + high) / 2}) {
      const auto v = static_cast<float>(center);
      for (const float w : {v, std::nextafterf(v, 0.0F), std::nextafterf(v, 1e9F)}) {
        values.push_back(code % 3 == 0 ? -w : w);
      }
    }
  }
  return values;
}

/// Any f32 words below 2^-13, down to the subnormals of f32.
std::vector<float> small_words() {
  Random random(71);
  std::vector<float> values;
  for (int i = 0; i < 8000; ++i) {
    const auto lowest = i % 2 == 0 ? uint64_t{0} : uint64_t{0x34800000};  // 2^-22
    const auto magnitude = lowest + random.next() % (0x39000000 - lowest);
    values.push_back(
        reference::float_of(static_cast<uint32_t>(magnitude | (random.next() << 31 & 0x80000000))));
  }
  return values;
}

HostTensor filled(DType dtype, int64_t rows, int64_t hidden, double value) {
  HostTensor x(dtype, {rows, hidden});
  for (int64_t i = 0; i < x.size(); ++i) x.set_value(i, (i + 1) % hidden == 0 ? 65024 : value);
  return x;
}

HostTensor boundary_rows() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const double rows[][4] = {{0, 0, -0.0, 0},
                            {1, -1, 2, 0.5},
                            {kNan, 1, -2, 0},
                            {kNan, kNan, 0, 0},
                            {kInfinity, 1, -1, 0},
                            {-kInfinity, kNan, 3, 0},
                            {0x1.FFFFFEp127, 1, -1, 0},
                            {static_cast<double>(1e-4F), 1e-9, -1e-9, 0},
                            {1e-5, -1e-12, 0x1p-149, 0},
                            {std::nextafter(65024.0F, 1e9F), -3, 7, 1e-3}};
  HostTensor x(DType::f32, {std::ssize(rows), 8});
  for (int64_t r = 0; r < std::ssize(rows); ++r) {
    for (int64_t i = 0; i < 8; ++i) x.set_value(r * 8 + i, rows[r][i % 4]);
  }
  return x;
}

OpCase back_case(int64_t tokens, int64_t hidden, std::optional<Dims> block,
                 const std::string& layout, const std::string& out_dtype, int64_t apart = 0) {
  OpCase test;
  const Dims given = block.value_or(Dims{1, std::max<int64_t>(hidden, 1)});
  test.label = fmt::format("[{}, {}] in {} blocks, {} + {}, to {}", tokens, hidden,
                           to_string(given), layout, apart, out_dtype);
  test.inputs["x"] = random_tensor(DType::u8, {tokens, hidden / 2 * 3}, Values::bits, 72);
  const int64_t rows = (tokens + given[0] - 1) / given[0];
  const int64_t cols = (hidden + given[1] - 1) / given[1];
  if (layout == "packed_ue8m0") {
    test.inputs["x_sf"] =
        random_tensor(DType::i32, {rows, (cols + 3) / 4}, {1, rows + apart}, Values::bits, 73);
  } else {
    const Dims strides = layout == "row_major" ? Dims{cols + apart, 1} : Dims{1, rows + apart};
    test.inputs["x_sf"] = random_tensor(DType::f32, {rows, cols}, strides, Values::nasty, 74);
  }
  if (block) test.params["x_block_size"] = std::vector<int64_t>{given[0], given[1]};
  test.params["out_dtype"] = out_dtype;
  test.params["x_sf_layout"] = layout;
  return test;
}

/// Every code once, with scale 1.
OpCase every_code(const std::string& out_dtype) {
  OpCase test = back_case(8, 512, std::nullopt, "row_major", out_dtype);
  test.label = "every code, to " + out_dtype;
  HostTensor& x = test.inputs.at("x");
  for (int64_t code = 0; code < 4096; ++code) {
    reference::store_e5m6(x, code / 512, code % 512, static_cast<uint32_t>(code));
  }
  HostTensor& x_sf = test.inputs.at("x_sf");
  for (int64_t i = 0; i < x_sf.size(); ++i) x_sf.set_value(i, 1);
  return test;
}

}  // namespace

std::vector<OpCase> per_token_cast_to_e5m6_cases() {
  std::vector<OpCase> cases;
  for (const bool round_sf : {false, true}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const int64_t hidden : {8, 40, 512, 576, 1032, 2560, 7168}) {
        cases.push_back(
            make_case("normal", random_tensor(dtype, {3, hidden}, Values::normal, 75), round_sf));
      }
      cases.push_back(
          make_case("nasty", random_tensor(dtype, {33, 576}, Values::nasty, 76), round_sf));
      cases.push_back(make_case("bits", random_tensor(dtype, {9, 64}, Values::bits, 77), round_sf));
      cases.push_back(make_case(
          "pitch", random_tensor(dtype, {5, 256}, {512, 1}, Values::normal, 78), round_sf));
      cases.push_back(make_case(
          "odd pitch", random_tensor(dtype, {5, 256}, {259, 1}, Values::normal, 79), round_sf));
      cases.push_back(make_case("empty", HostTensor(dtype, {0, 64}), round_sf));
      cases.push_back(make_case("empty", HostTensor(dtype, {3, 0}), round_sf));
      for (const double value : {0x1p-20, 0x1p-14 * 63 / 64, 0x1p-14}) {
        cases.push_back(make_case("filled", filled(dtype, 2, 576, value), round_sf));
      }
    }
    cases.push_back(make_case("every code", rows_of_scale_one(around_every_code()), round_sf));
    cases.push_back(make_case("small", rows_of_scale_one(small_words()), round_sf));
    cases.push_back(make_case("boundaries", boundary_rows(), round_sf));
    const HostTensor x = random_tensor(DType::bf16, {33, 192}, Values::normal, 80);
    cases.push_back(make_case("layout", x, round_sf, "col_major_tma"));
    if (round_sf) cases.push_back(make_case("layout", x, round_sf, "packed_ue8m0"));
  }
  return cases;
}

std::vector<OpCase> cast_back_e5m6_cases() {
  std::vector<OpCase> cases;
  for (const std::string out : {"bf16", "f32"}) {
    cases.push_back(every_code(out));
    for (const std::string layout : {"row_major", "col_major_tma", "packed_ue8m0"}) {
      cases.push_back(back_case(5, 576, std::nullopt, layout, out, 4));
      for (const Dims& block :
           {Dims{1, 512}, Dims{1, 128}, Dims{32, 32}, Dims{3, 5}, Dims{1, 1}, Dims{7, 1000}}) {
        cases.push_back(back_case(13, 512, block, layout, out));
        cases.push_back(back_case(3, 40, block, layout, out, 3));
      }
      cases.push_back(back_case(0, 64, std::nullopt, layout, out));
    }
    cases.push_back(back_case(130, 1088, Dims{128, 128}, "row_major", out));
    cases.push_back(back_case(1, 8, std::nullopt, "row_major", out));
  }
  return cases;
}

}  // namespace tessera::test
