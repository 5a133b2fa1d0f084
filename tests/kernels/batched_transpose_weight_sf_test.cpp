// batched_transpose_weight_sf on the executor: the reference, per_block_cast's packed scales, the mistakes
// that the cases catch, what bad calls are told.

#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;

namespace {

const std::string kOp = "batched_transpose_weight_sf";

}  // namespace

TEST_CASE("batched_transpose_weight_sf equals its reference on the executor", "[weight_sf]") {
  const kernels::UncheckedValues as_on_a_gpu;
  const auto cases = batched_transpose_weight_sf_cases();
  const CaseReport report = run_cases(kOp, cases, op_runner(kOp, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

TEST_CASE("sf0 has the packed scales that per_token_cast gives the rows of such a weight",
          "[weight_sf]") {
  // A weight whose blocks of 32 x 32 have one magnitude each.
  HostTensor weight(DType::f32, {128, 256}), sf(DType::f32, {4, 8});
  for (int64_t i = 0; i < weight.size(); ++i) {
    const int64_t block = i / 256 / 32 * 8 + i % 256 / 32;
    weight.set_value(i, 448.0 * static_cast<double>(int64_t{1} << block % 20));
    sf.set_value(block, static_cast<double>(int64_t{1} << block % 20));
  }
  const HostTensors cast = op_runner("per_token_cast", Device::cpu())(
      {{"x", weight}}, {{"format", std::string("e4m3")},
                        {"num_per_channels", int64_t{32}},
                        {"round_sf", true},
                        {"sf_layout", std::string("packed_ue8m0")}});
  const HostTensors packed =
      op_runner(kOp, Device::cpu())({{"sf", sf}}, {{"block_size", int64_t{32}}});
  const HostTensor &scales = cast.at("out_sf"), &words = packed.at("sf0");
  REQUIRE(scales.shape() == Dims{128, 2});
  REQUIRE(words.shape() == Dims{2, 128});
  for (int64_t row = 0; row < 128; ++row) {
    for (int64_t word = 0; word < 2; ++word) {
      CHECK(scales.bits(row * 2 + word) == words.bits(word * 128 + row));
    }
  }
}

TEST_CASE("the batched_transpose_weight_sf tests catch every mutant", "[weight_sf][mutants]") {
  const auto cases = batched_transpose_weight_sf_cases();
  const auto caught = [&](const std::function<void(const HostTensors&, HostTensors&)>& mistake) {
    return is_caught(kOp, cases, spoiled(kOp, mistake));
  };
  CHECK_FALSE(caught([](const HostTensors&, HostTensors&) {}));
  for (const char* name : {"sf0", "sf1"}) {
    CHECK(caught([=](const HostTensors&, HostTensors& out) {  // the first exponent on top
      for (int64_t i = 0; i < out[name].size(); ++i) {
        out[name].set_bits(i, __builtin_bswap32(static_cast<uint32_t>(out[name].bits(i))));
      }
    }));
    CHECK(
        caught([=](const HostTensors&, HostTensors& out) {  // +infinity as the largest power of two
          for (int64_t i = 0; i < out[name].size(); ++i) {
            uint64_t bits = out[name].bits(i);
            for (int byte = 0; byte < 32; byte += 8) {
              if ((bits >> byte & 255) == 255) bits -= uint64_t{1} << byte;
            }
            out[name].set_bits(i, bits);
          }
        }));
  }
  CHECK(caught([](const HostTensors&, HostTensors& out) {  // a square weight looks transposed
    if (out["sf0"].shape() == out["sf1"].shape()) std::swap(out["sf0"], out["sf1"]);
  }));
}

TEST_CASE("batched_transpose_weight_sf explains wrong arguments", "[weight_sf][errors]") {
  const auto told = [](const Dims& shape, int64_t block) {
    return outputs_error(kOp, {{"sf", HostTensor(DType::f32, shape)}}, {{"block_size", block}});
  };
  CHECK(told({3, 4, 8}, 32) == "no error");
  CHECK(told({3, 6, 8}, 32) ==
        "tessera: batched_transpose_weight_sf: argument 'sf' has the wrong number of rows\n"
        "  expected  R * block_size % 128 = 0\n"
        "  got       R = 6 from sf dim 1, block_size = 32");
  CHECK(told({3, 4, 8}, 64) ==
        "tessera: batched_transpose_weight_sf: parameter 'block_size' has a wrong value\n"
        "  expected  {32, 128}\n"
        "  got       64");
}
