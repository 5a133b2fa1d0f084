// The short convolution and the gated norm on the executor: the ops against their references, cuts that change no bit, the
// mistakes that the cases catch, bad calls.

#include "tests/reference/conv.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/ops/linear_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::ConvMistake;
using reference::GatedNormMistake;

namespace {

void check_cases(const std::string& op, const std::vector<OpCase>& cases) {
  const CaseReport report = run_cases(op, cases, op_runner(op, Device::cpu()));
  for (const std::string& failure : report.failures) FAIL_CHECK(failure);
  CHECK(report.passed == std::ssize(cases));
}

/// Tokens [first, first + count) of a tensor [requests, tokens, channels].
HostTensor tokens_of(const HostTensor& x, int64_t first, int64_t count) {
  const int64_t tokens = x.shape()[1], channels = x.shape()[2];
  HostTensor part(x.dtype(), {x.shape()[0], count, channels});
  for (int64_t i = 0; i < part.size(); ++i) {
    const int64_t row = i / channels, b = row / count, t = first + row % count;
    part.set_bits(i, x.bits((b * tokens + t) * channels + i % channels));
  }
  return part;
}

int64_t wrong_bits(const HostTensor& got, const HostTensor& want) {
  int64_t wrong = got.shape() == want.shape() ? 0 : 1;
  for (int64_t i = 0; wrong == 0 && i < got.size(); ++i) wrong += got.bits(i) != want.bits(i);
  return wrong;
}

/// Inputs of a convolution in bf16 whose initial state is given.
OpCase whole_case(int64_t tokens, int64_t taps) {
  OpCase test = normal_conv("", {2, tokens, 24, taps}, true);
  test.inputs["initial_state"] = random_tensor(DType::bf16, {2, 24, taps - 1}, Values::normal, 7);
  test.params["output_final_state"] = true;
  return test;
}

}  // namespace

TEST_CASE("causal_conv1d_fwd equals its reference on the executor (L30, L31)", "[linear]") {
  check_cases("causal_conv1d_fwd", causal_conv1d_fwd_cases());
}

TEST_CASE("causal_conv1d_update equals its reference on the executor (L30, L31)", "[linear]") {
  check_cases("causal_conv1d_update", causal_conv1d_update_cases());
}

TEST_CASE("rmsnorm_gated_fwd equals its reference on the executor (L33)", "[linear]") {
  check_cases("rmsnorm_gated_fwd", rmsnorm_gated_fwd_cases());
}

TEST_CASE("a convolution cut anywhere has the bits of the whole (L30)", "[linear]") {
  const auto run = op_runner("causal_conv1d_fwd", Device::cpu());
  for (const int64_t taps : {2, 4, 8}) {
    constexpr int64_t kTokens = 69;
    const OpCase test = whole_case(kTokens, taps);
    const HostTensors want = run(test.inputs, test.params);
    for (const int64_t cut :
         {int64_t{0}, int64_t{1}, taps - 1, int64_t{32}, int64_t{40}, kTokens - 1, kTokens}) {
      CAPTURE(taps, cut);
      HostTensors first = test.inputs, second = test.inputs;
      first["x"] = tokens_of(test.inputs.at("x"), 0, cut);
      second["x"] = tokens_of(test.inputs.at("x"), cut, kTokens - cut);
      const HostTensors before = run(first, test.params);
      second["initial_state"] = before.at("final_state");
      const HostTensors after = run(second, test.params);
      CHECK(wrong_bits(before.at("out"), tokens_of(want.at("out"), 0, cut)) == 0);
      CHECK(wrong_bits(after.at("out"), tokens_of(want.at("out"), cut, kTokens - cut)) == 0);
      CHECK(wrong_bits(after.at("final_state"), want.at("final_state")) == 0);
    }
  }
}

TEST_CASE("causal_conv1d_update has the bits of causal_conv1d_fwd (L30)", "[linear]") {
  const auto run = op_runner("causal_conv1d_update", Device::cpu());
  constexpr int64_t kTokens = 10, kTaps = 4;
  const OpCase test = whole_case(kTokens, kTaps);
  const HostTensors want = op_runner("causal_conv1d_fwd", Device::cpu())(test.inputs, test.params);
  const Params params = {{"activation", std::string("silu")}};
  for (const int64_t group : {1, 2, 5, 10}) {
    CAPTURE(group);
    HostTensors in = test.inputs;
    in["pool"] = in.at("initial_state");
    in.erase("initial_state");
    in["read_slots"] = in["write_slots"] = tensor_of(DType::i32, {2}, {0, 1});
    for (int64_t t = 0; t < kTokens; t += group) {
      in["x"] = tokens_of(test.inputs.at("x"), t, group);
      const HostTensors got = run(in, params);
      CHECK(wrong_bits(got.at("out"), tokens_of(want.at("out"), t, group)) == 0);
      in["pool"] = got.at("pool");
    }
    CHECK(wrong_bits(in.at("pool"), want.at("final_state")) == 0);
  }
}

TEST_CASE("the state after each token is that of a shorter call", "[linear]") {
  const auto run = op_runner("causal_conv1d_update", Device::cpu());
  const OpCase test = normal_conv("", {1, 3, 24, 4});
  HostTensors in = test.inputs;
  in["pool"] = random_tensor(DType::bf16, {4, 24, 3}, Values::normal, 8);
  in["read_slots"] = tensor_of(DType::i32, {1}, {0});
  in["write_slots"] = tensor_of(DType::i32, {1, 3}, {1, 2, 3});
  const HostTensors each = run(in, {});
  for (int64_t tokens = 1; tokens <= 3; ++tokens) {
    CAPTURE(tokens);
    HostTensors shorter = in;
    shorter["x"] = tokens_of(test.inputs.at("x"), 0, tokens);
    shorter["write_slots"] = tensor_of(DType::i32, {1}, {0});
    const HostTensors last = run(shorter, {});
    int64_t wrong = 0;
    for (int64_t i = 0; i < 72; ++i) {
      wrong += last.at("pool").bits(i) != each.at("pool").bits(tokens * 72 + i);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("no bias has the bits of a bias of +0 (L31)", "[linear]") {
  const auto run = op_runner("causal_conv1d_fwd", Device::cpu());
  OpCase test = normal_conv("", {1, 40, 24, 4});
  test.inputs["bias"].fill_bytes(std::byte{0});
  const HostTensors want = run(test.inputs, {});
  test.inputs.erase("bias");
  CHECK(wrong_bits(run(test.inputs, {}).at("out"), want.at("out")) == 0);
}

TEST_CASE("the cases of the convolution catch mistakes (L49, L58)", "[linear][mutants]") {
  using enum ConvMistake;
  const std::vector<ConvMistake> of_update = {padded_row_runs, last_token_alone};
  for (const std::string op : {"causal_conv1d_fwd", "causal_conv1d_update"}) {
    const bool is_update = op == "causal_conv1d_update";
    std::vector<ConvMistake> mistakes = {
        none,       newest_first,     state_reversed,   zero_fills, keeps_state,
        wraps_slot, previous_request, silu_before_bias, sigmoid,    one_weight};
    if (is_update) mistakes.insert(mistakes.end(), of_update.begin(), of_update.end());
    std::vector<reference::Runner> mutants;
    for (const ConvMistake mistake : mistakes) {
      mutants.emplace_back([=](const HostTensors& in, const Params& params) {
        return is_update ? reference::causal_conv1d_update(in, params, mistake)
                         : reference::causal_conv1d_fwd(in, params, mistake);
      });
    }
    const std::vector<bool> caught = caught_by(
        op, is_update ? causal_conv1d_update_cases() : causal_conv1d_fwd_cases(), mutants);
    for (size_t i = 0; i < caught.size(); ++i) {
      CAPTURE(op, i);
      CHECK(caught[i] == (mistakes[i] != none));
    }
  }
}

TEST_CASE("the cases of rmsnorm_gated_fwd catch mistakes (L59)", "[linear][mutants]") {
  check_mutants("rmsnorm_gated_fwd", rmsnorm_gated_fwd_cases(), GatedNormMistake::first_weight,
                [](const HostTensors& in, const Params& params, GatedNormMistake mistake) {
                  return reference::rmsnorm_gated_fwd(in, params, mistake);
                });
}

TEST_CASE("causal_conv1d_fwd explains wrong arguments (L34)", "[linear][errors]") {
  const HostTensors in = {{"x", HostTensor(DType::bf16, {2, 5, 16})},
                          {"weight", HostTensor(DType::bf16, {16, 4})}};
  const auto told = [&](const std::string& name, HostTensor tensor, const Params& params = {}) {
    HostTensors inputs = in;
    inputs[name] = std::move(tensor);
    return outputs_error("causal_conv1d_fwd", inputs, params);
  };
  CHECK(outputs_error("causal_conv1d_fwd", in, {}) == "no error");
  CHECK(told("weight", HostTensor(DType::f16, {16, 4})) ==
        "tessera: causal_conv1d_fwd: argument 'weight' has the wrong dtype\n"
        "  expected  f32, or that of x, bf16\n"
        "  got       f16");
  CHECK(told("weight", HostTensor(DType::bf16, {16, 1})) ==
        "tessera: causal_conv1d_fwd: argument 'weight' has too few taps\n"
        "  expected  W >= 2\n"
        "  got       W = 1 from weight dim 1");
  CHECK(told("weight", HostTensor(DType::bf16, {16, 9})) ==
        "tessera: causal_conv1d_fwd: argument 'weight': filters of so many taps are not supported\n"
        "  expected  W <= 8\n"
        "  got       W = 9 from weight dim 1");
  CHECK(told("read_slots", HostTensor(DType::i32, {2})) ==
        "tessera: causal_conv1d_fwd: 'read_slots' needs 'pool'\n"
        "  expected  pool where read_slots\n"
        "  got       no pool, read_slots of i32");
  const HostTensor pool(DType::bf16, {3, 16, 3});
  CHECK(told("pool", pool) == "no error");
  CHECK(
      told("pool", pool, {{"output_final_state", true}}) ==
      "tessera: causal_conv1d_fwd: argument 'output_final_state': states go to 'final_state' or to "
      "'pool'\n"
      "  expected  not output_final_state where pool\n"
      "  got       output_final_state = true, pool of bf16");
  CHECK(told("pool", HostTensor(DType::bf16, {1, 16, 3})) ==
        "tessera: causal_conv1d_fwd: argument 'pool' has fewer slots than requests\n"
        "  expected  N >= B where pool and not (read_slots and write_slots)\n"
        "  got       B = 2 from x dim 0, N = 1 from pool dim 0, pool of bf16, no read_slots, no "
        "write_slots");
  HostTensors both = in;
  both["pool"] = pool;
  both["initial_state"] = HostTensor(DType::bf16, {2, 16, 3});
  CHECK(outputs_error("causal_conv1d_fwd", both, {}) ==
        "tessera: causal_conv1d_fwd: states come from 'initial_state' or "
        "from 'pool'\n"
        "  expected  not initial_state where pool\n"
        "  got       initial_state of bf16, pool of bf16");
}

TEST_CASE("slots that requests share are told (L34)", "[linear][errors]") {
  const auto told = [](const std::vector<double>& read, const std::vector<double>& write,
                       int64_t columns = 0) {
    HostTensors in = {{"x", HostTensor(DType::bf16, {2, 2, 8})},
                      {"weight", HostTensor(DType::bf16, {8, 4})},
                      {"pool", HostTensor(DType::bf16, {4, 8, 3})},
                      {"out", HostTensor(DType::bf16, {2, 2, 8})}};
    in["read_slots"] = tensor_of(DType::i32, {2}, read);
    in["write_slots"] = columns == 0 ? tensor_of(DType::i32, {2}, write)
                                     : tensor_of(DType::i32, {2, columns}, write);
    kernels::Tensors views;
    for (const auto& [name, tensor] : in) views[name] = tensor.view();
    return run_error("causal_conv1d_update", views, {});
  };
  CHECK(told({0, 1}, {2, 2}) ==
        "tessera: causal_conv1d_update: argument 'write_slots': a slot is written twice\n"
        "  expected  slots that differ\n"
        "  got       slot 2 twice");
  CHECK(
      told({0, 1}, {1, 2}) ==
      "tessera: causal_conv1d_update: argument 'write_slots': a slot is written by one request and "
      "read by another\n"
      "  expected  slots that other requests do not read\n"
      "  got       slot 1");
  CHECK(told({1, 1}, {1, 2}).ends_with("got       slot 1"));
  CHECK(told({0, 1}, {2, 3, 2, 1}, 2).ends_with("got       slot 2 twice"));
  CHECK(told({0, 4}, {0, 1}) ==
        "tessera: causal_conv1d_update: argument 'read_slots' has a value out of range\n"
        "  expected  -1 .. 3\n"
        "  got       4 at [1]");
}

TEST_CASE("rmsnorm_gated_fwd explains wrong arguments", "[linear][errors]") {
  const auto told = [](int64_t width, DType gate) {
    return outputs_error("rmsnorm_gated_fwd",
                         {{"x", HostTensor(DType::bf16, {5, width})},
                          {"z", HostTensor(gate, {5, width})},
                          {"weight", HostTensor(DType::f32, {width})}},
                         {});
  };
  CHECK(told(64, DType::bf16) == "no error");
  CHECK(told(12, DType::bf16) ==
        "tessera: rmsnorm_gated_fwd: argument 'x': a row has the wrong number of columns\n"
        "  expected  d % 8 = 0\n"
        "  got       d = 12 from x dim 1");
  CHECK(told(64, DType::f32) ==
        "tessera: rmsnorm_gated_fwd: argument 'z' has the wrong dtype\n"
        "  expected  bf16\n"
        "  got       f32[5, 64] on cpu");
}
