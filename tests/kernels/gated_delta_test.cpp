// The gated delta rule on the executor: the ops against their references, groupings of tokens and neighbours that change no
// bit, distance from f64, the mistakes that the cases catch, bad calls.

#include "tests/reference/gated_delta.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/ops/linear_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::DeltaMistake;

namespace {

const std::string kDecode = "gated_delta_decode";

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

/// Elements [first, first + count) of a dimension.
HostTensor part_of(const HostTensor& x, int dim, int64_t first, int64_t count) {
  Dims shape = x.shape();
  int64_t inner = 1;
  for (int i = dim + 1; i < shape.rank; ++i) inner *= shape[i];
  const int64_t all = shape[dim];
  shape[dim] = count;
  HostTensor part(x.dtype(), shape);
  for (int64_t i = 0; i < part.size(); ++i) {
    const int64_t row = i / inner;
    part.set_bits(i, x.bits((row / count * all + first + row % count) * inner + i % inner));
  }
  return part;
}

int64_t wrong_bits(const HostTensor& got, const HostTensor& want) {
  int64_t wrong = got.shape() == want.shape() ? 0 : 1;
  for (int64_t i = 0; wrong == 0 && i < got.size(); ++i) wrong += got.bits(i) != want.bits(i);
  return wrong;
}

/// Tokens [first, first + count) of the inputs of a call.
HostTensors tokens_of(HostTensors in, int64_t first, int64_t count) {
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    in[name] = part_of(in.at(name), 1, first, count);
  }
  return in;
}

/// Request b of a call, alone.
HostTensors request_of(HostTensors in, int64_t b) {
  for (const char* name : {"q", "k", "v", "g", "beta", "read_slots", "write_slots"}) {
    in[name] = part_of(in.at(name), 0, b, 1);
  }
  return in;
}

std::vector<double> numbers_of(const HostTensor& x, int64_t row, int64_t width) {
  std::vector<double> values;
  for (int64_t i = 0; i < width; ++i) values.push_back(x.value(row * width + i));
  return values;
}

}  // namespace

TEST_CASE("gated_delta_decode equals its reference on the executor (L07, L08, L10, L16)",
          "[linear]") {
  check_cases(kDecode, gated_delta_decode_cases());
}

TEST_CASE("tokens decode in any grouping to the same bits (L07)", "[linear]") {
  const auto run = op_runner(kDecode, Device::cpu());
  for (const DType pool : {DType::f32, DType::bf16}) {
    const DeltaSize size = {.tokens = 6, .pool = pool};
    const OpCase test =
        with_delta_pool(normal_delta("", size, Gates::mild), size, {2, 0}, {2, 0}, 3);
    const HostTensors want = run(test.inputs, {});
    for (const int64_t group : {1, 2, 3}) {
      CAPTURE(name(pool), group);
      HostTensors in = test.inputs;
      for (int64_t t = 0; t < size.tokens; t += group) {
        HostTensors some = tokens_of(test.inputs, t, group);
        some["pool"] = in.at("pool");
        const HostTensors got = run(some, {});
        CHECK(wrong_bits(got.at("out"), part_of(want.at("out"), 1, t, group)) == 0);
        in["pool"] = got.at("pool");
      }
      CHECK(wrong_bits(in.at("pool"), want.at("pool")) == 0);
    }
  }
}

TEST_CASE("the state after each token is that of a shorter call (L09)", "[linear]") {
  const auto run = op_runner(kDecode, Device::cpu());
  const DeltaSize size = {.requests = 1, .tokens = 3};
  OpCase test = with_delta_pool(normal_delta("", size, Gates::mild), size, {0}, {0}, 4);
  HostTensors each = test.inputs;
  each["write_slots"] = tensor_of(DType::i32, {1, 3}, {1, 2, 3});
  const HostTensors want = run(each, {});
  for (int64_t tokens = 1; tokens <= 3; ++tokens) {
    CAPTURE(tokens);
    const HostTensors got = run(tokens_of(test.inputs, 0, tokens), {});
    CHECK(wrong_bits(part_of(got.at("pool"), 0, 0, 1), part_of(want.at("pool"), 0, tokens, 1)) ==
          0);
  }
}

TEST_CASE("neither other requests, heads nor layouts change bits of a state (L04, L19)",
          "[linear]") {
  const auto run = op_runner(kDecode, Device::cpu());
  const DeltaSize size = {.requests = 3, .tokens = 2, .key_heads = 2, .heads = 4};
  const OpCase test =
      with_delta_pool(normal_delta("", size, Gates::mild), size, {4, 1, 0}, {4, 2, 0}, 5);
  const HostTensors want = run(test.inputs, {});
  for (const auto& [request, slot] : {std::pair(0, 4), std::pair(1, 2)}) {
    CAPTURE(request);
    const HostTensors alone = run(request_of(test.inputs, request), {});
    CHECK(wrong_bits(alone.at("out"), part_of(want.at("out"), 0, request, 1)) == 0);
    CHECK(wrong_bits(part_of(alone.at("pool"), 0, slot, 1), part_of(want.at("pool"), 0, slot, 1)) ==
          0);
  }
  HostTensors slice = test.inputs;  // the second key head and its values
  for (const char* name : {"q", "k"}) slice[name] = part_of(slice.at(name), 2, 1, 1);
  for (const char* name : {"v", "g", "beta"}) slice[name] = part_of(slice.at(name), 2, 2, 2);
  slice["pool"] = part_of(slice.at("pool"), 1, 2, 2);
  CHECK(wrong_bits(run(slice, {}).at("out"), part_of(want.at("out"), 2, 2, 2)) == 0);
  const OpCase moved = strided(test, "pool", {4 * 4096, 4096, 1, 64});
  CHECK(wrong_bits(run(moved.inputs, {}).at("pool"), want.at("pool")) == 0);
}

TEST_CASE("qk_norm has the bits of rows that are normed before (L16)", "[linear]") {
  const auto run = op_runner(kDecode, Device::cpu());
  const DeltaSize size = {.tokens = 2};
  OpCase test = with_delta_pool(normal_delta("", size), size, {2, 0}, {2, 0}, 3);
  const HostTensors got = run(test.inputs, {{"qk_norm", true}});
  for (const char* name : {"q", "k"}) {
    HostTensor& x = test.inputs[name];
    for (int64_t row = 0; row < x.size() / 64; ++row) {
      double squares = 0;
      for (const double value : numbers_of(x, row, 64)) squares += value * value;
      const double r = 1 / std::sqrt(squares + 1e-6);
      for (int64_t i = row * 64; i < (row + 1) * 64; ++i) x.set_value(i, x.value(i) * r);
    }
  }
  const HostTensors want = run(test.inputs, {});
  CHECK(wrong_bits(got.at("pool"), want.at("pool")) == 0);
  CHECK(wrong_bits(got.at("out"), want.at("out")) == 0);
}

TEST_CASE("gated_delta_decode is as near to f64 as promised (L06, L12)", "[linear]") {
  const DeltaSize size = {.requests = 1, .tokens = 16, .heads = 1, .dk = 128, .dv = 64};
  OpCase test = with_delta_pool(normal_delta("", size, Gates::mild), size, {0}, {0}, 1);
  const HostTensors got = op_runner(kDecode, Device::cpu())(test.inputs, {});
  reference::DeltaRecurrence exact(size.dk, size.dv);
  exact.state() = numbers_of(test.inputs.at("pool"), 0, size.dk * size.dv);
  const double scale = 1 / std::sqrt(static_cast<double>(size.dk));
  double largest = 0;  // column of the state so far
  const auto see_columns = [&] {
    for (int64_t c = 0; c < size.dv; ++c) {
      double squares = 0;
      for (int64_t d = 0; d < size.dk; ++d) {
        squares += std::pow(exact.state()[static_cast<size_t>(d * size.dv + c)], 2);
      }
      largest = std::max(largest, std::sqrt(squares));
    }
  };
  see_columns();
  for (int64_t t = 0; t < size.tokens; ++t) {
    const std::vector<double> q = numbers_of(test.inputs.at("q"), t, size.dk);
    const std::vector<double> want = exact.step(
        q, numbers_of(test.inputs.at("k"), t, size.dk), numbers_of(test.inputs.at("v"), t, size.dv),
        test.inputs.at("g").value(t), test.inputs.at("beta").value(t), scale);
    see_columns();
    double squares = 0;
    for (const double value : q) squares += value * value;
    const double unit = scale * std::sqrt(squares) * largest;
    for (int64_t c = 0; c < size.dv; ++c) {
      const double value = want[static_cast<size_t>(c)];
      const double error = std::fabs(got.at("out").value(t * size.dv + c) - value);
      CHECK(error <= 0x1p-8 * std::fabs(value) + 0x1p-18 * unit);
    }
  }
  double errors = 0, norm = 0;
  for (size_t i = 0; i < exact.state().size(); ++i) {
    const double want = exact.state()[i];
    errors += std::pow(got.at("pool").value(static_cast<int64_t>(i)) - want, 2);
    norm += want * want;
  }
  CHECK(std::sqrt(errors) <= 0x1p-20 * std::sqrt(norm));
}

TEST_CASE("a rate of 0 without decay leaves a state as it is (L12)", "[linear]") {
  const DeltaSize size = {.tokens = 3};
  OpCase test = with_delta_pool(normal_delta("", size), size, {2, 0}, {2, 0}, 3);
  for (const char* name : {"g", "beta"}) test.inputs[name].fill_bytes(std::byte{0});
  const HostTensors got = op_runner(kDecode, Device::cpu())(test.inputs, {});
  CHECK(wrong_bits(got.at("pool"), test.inputs.at("pool")) == 0);
}

TEST_CASE("the cases of gated_delta_decode catch mistakes (L48 to L52)", "[linear][mutants]") {
  check_mutants(kDecode, gated_delta_decode_cases(), DeltaMistake::keeps_state,
                [](const HostTensors& in, const Params& params, DeltaMistake mistake) {
                  return reference::gated_delta_decode(in, params, mistake);
                });
}

TEST_CASE("gated_delta_decode explains wrong arguments (L34)", "[linear][errors]") {
  const auto inputs_of = [](const DeltaSize& size) {
    return with_delta_pool(normal_delta("", size), size, {2, 0}, {2, 0}, 3).inputs;
  };
  const auto told = [&](const DeltaSize& size, const Params& params = {}) {
    return outputs_error(kDecode, inputs_of(size), params);
  };
  CHECK(told({}) == "no error");
  CHECK(told({.key_heads = 2, .heads = 3}) ==
        "tessera: gated_delta_decode: the heads of 'v' are no multiple of those of "
        "'k'\n"
        "  expected  hv % h = 0\n"
        "  got       hv = 3 from v dim 2, h = 2 from q dim 2");
  CHECK(told({.dk = 96}) ==
        "tessera: gated_delta_decode: argument 'q': heads of this extent are not supported\n"
        "  expected  dk in {64, 128}\n"
        "  got       dk = 96 from q dim 3");
  CHECK(told({.tokens = 17}) ==
        "tessera: gated_delta_decode: argument 'q': so many tokens are not supported\n"
        "  expected  n <= 16\n"
        "  got       n = 17 from q dim 1");
  for (const auto& [scale, text] :
       {std::pair(0.0, "0"), std::pair(-1.0, "-1"), std::pair(std::nan(""), "nan")}) {
    CHECK(told({}, {{"scale", scale}}) ==
          std::string("tessera: gated_delta_decode: parameter 'scale' has a wrong value\n"
                      "  expected  a finite number above 0, in f32 too\n"
                      "  got       ") +
              text);
  }
  HostTensors in = inputs_of({});
  in["write_slots"] = HostTensor(DType::i32, {2, 3});
  CHECK(outputs_error(kDecode, in, {}) ==
        "tessera: gated_delta_decode: argument 'write_slots' has the wrong shape\n"
        "  expected  [B], or a slot of each of the 1 tokens\n"
        "  got       i32[2, 3]");
  in = inputs_of({});
  in["pool"] = HostTensor(DType::f32, {3, 2, 64, 64}, Dims{16384, 8192, 128, 2});
  CHECK(outputs_error(kDecode, in, {}) ==
        "tessera: gated_delta_decode: argument 'pool' has the wrong strides\n"
        "  expected  1 as one of the last two strides\n"
        "  got       f32[3, 2, 64, 64], strides [16384, 8192, 128, 2] on cpu");
}
