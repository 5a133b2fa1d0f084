// per_block_cast_lossless on the executor: the reference, a worked example, the accesses of the
// generated code, mistakes that the cases must catch, and what bad calls are told.

#include <algorithm>
#include <cmath>

#include "kernels/op.h"
#include "tests/reference/numeric.h"
#include "tests/reference/per_block_cast.h"
#include "tests/support/catch.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/run_kernel.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

Params block_params(std::vector<int64_t> x_block, std::vector<int64_t> out_block) {
  return {{"x_block_size", std::move(x_block)}, {"out_block_size", std::move(out_block)}};
}

}  // namespace

TEST_CASE("per_block_cast_lossless equals its reference on the executor", "[lossless][slow]") {
  const auto cases = per_block_cast_lossless_cases();
  const CaseReport report = run_cases("per_block_cast_lossless", cases,
                                      op_runner("per_block_cast_lossless", Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("per_block_cast_lossless keeps every value that its scales give", "[lossless]") {
  // Codes of every kind under scales 2^0 and 2^11 of one block: the ends of the range.
  HostTensor x(DType::i8, {1, 32});
  for (int64_t i = 0; i < x.size(); ++i) x.set_bits(i, static_cast<uint64_t>(i * 17 % 256));
  const HostTensor x_sf = tensor_of(DType::f32, {1, 2}, {1, 2048});
  const HostTensors made =
      run_op(kernels::find_op("per_block_cast_lossless"), {{"x", x}, {"x_sf", x_sf}},
             block_params({1, 32}, {1, 64}), Device::cpu());
  const HostTensor &out = made.at("out"), &out_sf = made.at("out_sf");
  REQUIRE(out_sf.size() == 1);
  CHECK(out_sf.value(0) == 32.0);  // 2^(11 - 6)
  for (int64_t i = 0; i < 64; ++i) {
    CAPTURE(i);
    const auto code = static_cast<double>(reference::element_of(x, 0, i));
    CHECK(out.value(i) * out_sf.value(0) == code * x_sf.value(i / 32));
    CHECK(std::signbit(out.value(i)) == std::signbit(code));
  }
}

TEST_CASE("per_block_cast_lossless reads 8-byte and writes 16-byte vectors", "[lossless]") {
  const kernels::OpInfo& op = kernels::find_op("per_block_cast_lossless");
  const HostTensor x(DType::i8, {128, 256}), x_sf(DType::f32, {128, 16});
  const HostTensor out(DType::e4m3, {128, 512});
  const auto text = [&](std::vector<int64_t> out_block, const HostTensor& out_sf) {
    const auto built = op.kernels(
        {{"x", x.view()}, {"x_sf", x_sf.view()}, {"out", out.view()}, {"out_sf", out_sf.view()}},
        kernels::check_params(op, block_params({1, 32}, std::move(out_block))));
    REQUIRE(built.size() == 1);
    return cuda_text(built.front());
  };
  const std::string rows = text({1, 128}, HostTensor(DType::f32, {128, 4}));
  CHECK(count(rows, "load_or_zero<2>(") == 1);
  CHECK(count(rows, "store<4>(&out[") == 1);
  CHECK(count(rows, "__syncthreads") == 0);
  const std::string squares = text({128, 128}, HostTensor(DType::f32, {1, 4}));
  CHECK(count(squares, "load_or_zero<2>(") == 1);
  CHECK(count(squares, "store<4>(&out[") == 1);
  CHECK(count(squares, "__syncthreads") == 1);
}

namespace {

enum class Mutant {
  none,
  no_headroom,
  smaller_headroom,
  negative_exponent,
  no_least_shift,
  first_row_only,
  first_block_only,
  beyond_the_tensor,
  loses_minus_zero,
  keeps_mantissa,
  zero_blocks_do_not_count,
};

struct Mutated {
  const HostTensor &x, &x_sf;
  reference::SfLayout layout;
  Dims in, block;
  Mutant mutant;

  float scale_at(int64_t t, int64_t h) const {
    return reference::load_scale(x_sf, layout, t / in[0], h / in[1]);
  }
  int exponent_at(int64_t t, int64_t h) const {
    return static_cast<int>(reference::bits_of(scale_at(t, h)) >> 23 & 255);
  }
  bool is_zero_block(int64_t t, int64_t h) const {
    for (int64_t r = t; r < std::min(t + in[0], x.shape()[0]); ++r) {
      for (int64_t c = h; c < std::min(h + in[1], reference::hidden_of(x)); ++c) {
        if (reference::element_of(x, r, c) != 0) return false;
      }
    }
    return true;
  }
  int largest(int64_t row, int64_t col) const {
    int64_t end_row = std::min(row + block[0], x.shape()[0]);
    int64_t end_col = std::min(col + block[1], reference::hidden_of(x));
    if (mutant == Mutant::first_row_only) end_row = std::min(end_row, row + in[0]);
    if (mutant == Mutant::first_block_only) end_col = std::min(end_col, col + in[1]);
    if (mutant == Mutant::beyond_the_tensor && end_row < row + block[0]) return 200;
    int found = 0;
    for (int64_t t = row; t < end_row; t += in[0]) {
      for (int64_t h = col; h < end_col; h += in[1]) {
        if (mutant == Mutant::zero_blocks_do_not_count && is_zero_block(t, h)) continue;
        found = std::max(found, exponent_at(t, h));
      }
    }
    return found;
  }
  int out_exponent(int64_t row, int64_t col) const {
    const int headroom = mutant == Mutant::no_headroom        ? 0
                         : mutant == Mutant::smaller_headroom ? 5
                                                              : 6;
    const int exponent = largest(row, col) - headroom;
    return mutant == Mutant::negative_exponent ? exponent & 255 : std::max(exponent, 0);
  }
  uint32_t code(int64_t t, int64_t h, int exponent) const {
    auto value = static_cast<double>(reference::element_of(x, t, h));
    int shift = exponent_at(t, h) - exponent;
    if (mutant != Mutant::no_least_shift) shift = std::max(shift, -5);
    if (mutant == Mutant::keeps_mantissa && std::isfinite(scale_at(t, h))) {
      int ignored = 0;
      const double mantissa = std::frexp(static_cast<double>(scale_at(t, h)), &ignored);
      if (mantissa != 0) value *= 2 * mantissa;
    }
    if (mutant == Mutant::loses_minus_zero && value == 0) value = 0;
    return reference::encode(DType::e4m3, std::ldexp(value, shift));
  }
};

HostTensors mutated(const HostTensors& inputs, const Params& params, Mutant mutant) {
  const auto block = [&](const char* name) {
    const auto& sizes = std::get<std::vector<int64_t>>(params.at(name));
    return Dims{sizes[0], sizes[1]};
  };
  const auto layout = [&](const char* name) {
    return reference::sf_layout_of(std::get<std::string>(params.at(name)));
  };
  const Mutated m{inputs.at("x"),        inputs.at("x_sf"),       layout("x_sf_layout"),
                  block("x_block_size"), block("out_block_size"), mutant};
  const int64_t tokens = m.x.shape()[0], hidden = reference::hidden_of(m.x);
  const int64_t rows = (tokens + m.block[0] - 1) / m.block[0];
  const int64_t cols = (hidden + m.block[1] - 1) / m.block[1];
  HostTensor out = reference::make_codes(DType::e4m3, tokens, hidden);
  HostTensor out_sf = reference::make_scales(layout("sf_layout"), rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols * m.block[0], col = i % cols * m.block[1];
    const int exponent = m.out_exponent(row, col);
    const float sf = reference::float_of(static_cast<uint32_t>(exponent) << 23);
    reference::store_scale(out_sf, layout("sf_layout"), i / cols, i % cols,
                           {sf, 0, static_cast<uint8_t>(exponent)});
    for (int64_t t = row; t < std::min(row + m.block[0], tokens); ++t) {
      for (int64_t h = col; h < std::min(col + m.block[1], hidden); ++h) {
        reference::store_code(out, t, h, m.code(t, h, exponent));
      }
    }
  }
  return {{"out", out}, {"out_sf", out_sf}};
}

}  // namespace

TEST_CASE("the per_block_cast_lossless tests catch every mutant", "[lossless][mutants][slow]") {
  check_mutants("per_block_cast_lossless", per_block_cast_lossless_cases(),
                Mutant::zero_blocks_do_not_count, mutated);
}

TEST_CASE("per_block_cast_lossless explains wrong arguments", "[lossless][errors]") {
  const auto told = [](const HostTensor& x, const HostTensor& x_sf, const Params& params) {
    return outputs_error("per_block_cast_lossless", {{"x", x}, {"x_sf", x_sf}}, params);
  };
  const HostTensor x(DType::i8, {4, 64}), x_sf(DType::f32, {4, 4});
  const Params params = block_params({1, 32}, {1, 128});
  CHECK(told(x, x_sf, params) == "no error");
  CHECK(told(HostTensor(DType::e4m3, {4, 64}), x_sf, params) ==
        "tessera: per_block_cast_lossless: argument 'x' has the wrong dtype\n"
        "  expected  i8\n"
        "  got       e4m3[4, 64] on cpu");
  CHECK(told(HostTensor(DType::i8, {4, 40}), HostTensor(DType::f32, {4, 3}), params) ==
        "tessera: per_block_cast_lossless: argument 'x' has the wrong shape\n"
        "  expected  H % 32 = 0\n"
        "  got       H = 80 = two e2m1 codes per byte of x");
  CHECK(told(x, HostTensor(DType::f32, {4, 3}), params) ==
        "tessera: per_block_cast_lossless: argument 'x_sf' has the wrong shape\n"
        "  expected  f32[4, 4]   (rows of x_sf = 4 = ceil(T / 1); columns of x_sf = 4 = ceil(H / "
        "32))\n"
        "  got       f32[4, 3] on cpu");
  CHECK(told(x, x_sf, block_params({1, 32}, {1, 48})) ==
        "tessera: per_block_cast_lossless: 'out_block_size' is no multiple of 'x_block_size'\n"
        "  expected  out_br % br = 0 and out_bc % bc = 0\n"
        "  got       out_br = 1, br = 1, out_bc = 48, bc = 32");
  CHECK(told(x, HostTensor(DType::f32, {4, 6}), block_params({1, 24}, {1, 48})) ==
        "tessera: per_block_cast_lossless: the columns of 'x_block_size' are no power of two\n"
        "  expected  1, 2, 4, 8, ...\n"
        "  got       24");
  CHECK(told(x, x_sf, block_params({1, 32}, {1, 96})) ==
        "tessera: per_block_cast_lossless: the columns of 'out_block_size' are no power of two\n"
        "  expected  1, 2, 4, 8, ...\n"
        "  got       96");
}
