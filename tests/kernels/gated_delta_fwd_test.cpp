// gated_delta_fwd on the executor: the op against its reference, its bits with the sums of the tensor cores, cuts and
// neighbours that change no bit, distance from f64, the mistakes that the cases catch, bad calls.

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/parts/chunk_kernel.h"
#include "tests/reference/delta_chunks.h"
#include "tests/reference/gated_delta.h"
#include "tests/support/ops/linear_cases.h"
#include "tests/support/ops/mutants.h"
#include "tests/support/ops/op_errors.h"
#include "tests/support/ops/products.h"
#include "tests/support/ops/run_op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

using namespace tessera;
using namespace tessera::test;
using kernels::Params;
using reference::ChunkMistake;

namespace {

const std::string kForward = "gated_delta_fwd";
const Params kFinal = {{"output_final_state", true}};

OpCase state_case(const DeltaSize& size, Gates gates) {
  OpCase test = normal_delta("", size, gates);
  test.inputs["initial_state"] =
      random_tensor(DType::f32, {size.requests, size.heads, size.dk, size.dv}, Values::normal, 9);
  return test;
}

/// Tokens [first, first + count) of a tensor [1, tokens, ..].
HostTensor tokens_of(const HostTensor& x, int64_t first, int64_t count) {
  Dims shape = x.shape();
  const int64_t row = shape[1] == 0 ? 0 : x.size() / shape[1];
  shape[1] = count;
  HostTensor part(x.dtype(), shape);
  for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, x.bits(first * row + i));
  return part;
}

HostTensors some_tokens(HostTensors in, int64_t first, int64_t count) {
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    in[name] = tokens_of(in.at(name), first, count);
  }
  return in;
}

int64_t wrong_bits(const HostTensor& got, const HostTensor& want) {
  int64_t wrong = got.shape() == want.shape() ? 0 : 1;
  for (int64_t i = 0; wrong == 0 && i < got.size(); ++i) wrong += got.bits(i) != want.bits(i);
  return wrong;
}

/// A form of the second kernel.
struct ChunkForm {
  const char* target;
  uint8_t stages, groups;
  uint32_t schedule = 0;
};

/// Both kernels with the sums of the tensor cores, of a call with both states.
HostTensors run_kernels(const HostTensors& in, const ChunkForm& form) {
  constexpr int64_t kC = kernels::linear::kChunk;
  const Dims q = in.at("q").shape(), v = in.at("v").shape();
  const DType dtype = in.at("q").dtype();
  const int64_t places = q[0] * ((q[1] + kC - 1) / kC) * v[2];
  HostTensor a(dtype, {places, kC, kC}), p(dtype, {places, kC, kC});
  HostTensor decays(DType::f32, {places, 2 * kC});
  NamedArguments given;
  for (const auto& [name, tensor] : in) given.tensors[name] = tensor.view();
  given.tensors["a"] = a.view(), given.tensors["p"] = p.view();
  given.tensors["decays"] = decays.view();
  given.dims = {{"batch", q[0]},     {"tokens", q[1]}, {"key_tokens", q[1]},
                {"key_heads", q[2]}, {"heads", v[2]},  {"places", places}};
  const auto add = [&](const std::string& name, const Dims& shape) {
    given.dims[name + "_request"] = num_elements(shape) / shape[0];
    given.dims[name + "_token"] = num_elements(shape) / shape[0] / shape[1];
    if (shape.rank > 3) given.dims[name + "_head"] = shape[3];
  };
  add("q", q), add("k", q), add("v", v);
  for (const char* name : {"g", "beta"}) add(name, in.at(name).shape());
  for (const std::string name : {"initial_state", "final_state"}) {
    given.dims[name + "_slots"] = q[0];
    given.dims[name + "_slot"] = v[2] * q[3] * v[3], given.dims[name + "_head"] = q[3] * v[3];
    given.dims[name + "_row"] = v[3], given.dims[name + "_column"] = 1;
  }
  given.numbers["scale"] = 1 / std::sqrt(static_cast<double>(q[3]));
  kernels::linear::PrepareSpec first{};
  first.dtype = dtype, first.beta_dtype = in.at("beta").dtype();
  first.row_width = 8, first.blocks = 4, first.dk = static_cast<int32_t>(q[3]);
  run_with_target_sums(kernels::linear::build_prepare(first), form.target, given);
  kernels::linear::ChunkSpec s{};
  s.dtype = dtype, s.state_dtype = DType::f32;
  s.has_tokens = s.reads_state = s.writes_state = true;
  s.by_roles = form.target == std::string("sm_90a");
  s.row_width = s.out_width = 8, s.stages = form.stages, s.groups = form.groups;
  s.dk = first.dk, s.dv = static_cast<int32_t>(v[3]);
  HostTensor out(dtype, v), state(DType::f32, in.at("initial_state").shape());
  constexpr int64_t kColumns = kernels::linear::kColumns;
  const Dims parts = {v[0], v[1], v[2], v[3] / kColumns, kColumns};
  given.tensors["v"] = {in.at("v").view().data, dtype, parts, Device::cpu()};
  given.tensors["out"] = {out.view().data, dtype, parts, Device::cpu()};
  given.tensors["final_state"] = state.view();
  run_with_target_sums(kernels::linear::build_chunks(s), form.target, given, form.schedule);
  return {{"out", std::move(out)}, {"final_state", std::move(state)}};
}

}  // namespace

TEST_CASE("gated_delta_fwd equals its reference on the executor (L01, L10, L11, L15, L16)",
          "[linear]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products(kForward, gated_delta_fwd_cases());
}

TEST_CASE("gated_delta_fwd has the bits of its definition, whatever target (L02)", "[linear]") {
  for (const DeltaSize& size :
       {DeltaSize{.requests = 1, .tokens = 100, .heads = 2},
        DeltaSize{.requests = 1, .tokens = 70, .heads = 1, .dk = 128, .dv = 128},
        DeltaSize{.requests = 2, .tokens = 64, .heads = 1, .dtype = DType::f16}}) {
    const OpCase test = state_case(size, Gates::exact);
    const HostTensors want = reference::gated_delta_fwd(test.inputs, kFinal);
    for (const ChunkForm& form :
         {ChunkForm{"sm_90", 1, 1}, ChunkForm{"sm_90", 2, 1}, ChunkForm{"sm_90a", 2, 1},
          ChunkForm{"sm_90a", 3, 2, 1}, ChunkForm{"sm_90a", 2, 2, 2}}) {
      if (size.dv < form.groups * kernels::linear::kColumns) continue;
      CAPTURE(test.label, form.target, form.stages, form.groups);
      const HostTensors got = run_kernels(test.inputs, form);
      CHECK(wrong_bits(got.at("out"), want.at("out")) == 0);
      CHECK(wrong_bits(got.at("final_state"), want.at("final_state")) == 0);
    }
  }
}

TEST_CASE("rounding U before the state reads it changes bits (L46)", "[linear]") {
  const OpCase test = state_case({.requests = 1, .tokens = 64, .heads = 1}, Gates::mild);
  const HostTensors want = reference::gated_delta_fwd(test.inputs, kFinal);
  const HostTensors other =
      reference::gated_delta_fwd(test.inputs, kFinal, ChunkMistake::rounds_u_first);
  CHECK(wrong_bits(other.at("final_state"), want.at("final_state")) > 0);
}

TEST_CASE("a request cut at multiples of 64 has the bits of the whole (L05)", "[linear]") {
  const auto run = op_runner(kForward, Device::cpu());
  constexpr int64_t kTokens = 200;
  const OpCase test = state_case({.requests = 1, .tokens = kTokens, .heads = 1}, Gates::mild);
  const HostTensors want = run(test.inputs, kFinal);
  for (const int64_t cut : {0, 64, 128, 192}) {
    CAPTURE(cut);
    const HostTensors before = run(some_tokens(test.inputs, 0, cut), kFinal);
    HostTensors rest = some_tokens(test.inputs, cut, kTokens - cut);
    rest["initial_state"] = before.at("final_state");
    const HostTensors after = run(rest, kFinal);
    CHECK(wrong_bits(before.at("out"), tokens_of(want.at("out"), 0, cut)) == 0);
    CHECK(wrong_bits(after.at("out"), tokens_of(want.at("out"), cut, kTokens - cut)) == 0);
    CHECK(wrong_bits(after.at("final_state"), want.at("final_state")) == 0);
  }
}

TEST_CASE("neither neighbours, padding nor later tokens change bits of a row (L04, L13, L14)",
          "[linear]") {
  const auto run = op_runner(kForward, Device::cpu());
  constexpr int64_t kTokens = 100, kLength = 90;
  OpCase test = state_case({.requests = 1, .tokens = kTokens, .heads = 1}, Gates::mild);
  const HostTensors want = run(test.inputs, kFinal);
  const HostTensors shorter = run(some_tokens(test.inputs, 0, kLength), kFinal);
  CHECK(wrong_bits(shorter.at("out"), tokens_of(want.at("out"), 0, kLength)) == 0);
  HostTensors padded = test.inputs;
  padded["lengths"] = tensor_of(DType::i32, {1}, {kLength});
  for (int64_t i = kLength * 64; i < kTokens * 64; ++i) {
    for (const char* name : {"q", "k", "v"}) padded[name].set_value(i, std::nan(""));
  }
  for (int64_t i = kLength; i < kTokens; ++i) {
    for (const char* name : {"g", "beta"}) padded[name].set_value(i, std::nan(""));
  }
  const HostTensors got = run(padded, kFinal);
  CHECK(wrong_bits(tokens_of(got.at("out"), 0, kLength), shorter.at("out")) == 0);
  CHECK(wrong_bits(got.at("final_state"), shorter.at("final_state")) == 0);
  HostTensors broken = test.inputs;  // a NaN stays in its column of v, and in its chunk and later
  broken["v"].set_value(70 * 64 + 5, std::nan(""));
  const HostTensors with_nan = run(broken, kFinal);
  int64_t wrong = 0;
  for (int64_t i = 0; i < kTokens * 64; ++i) {
    if (i % 64 == 5 && i >= 64 * 64) continue;
    wrong += with_nan.at("out").bits(i) != want.at("out").bits(i);
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(with_nan.at("out").value(70 * 64 + 5)));
  CHECK(std::isnan(with_nan.at("out").value(99 * 64 + 5)));
}

TEST_CASE("gated_delta_fwd is as near to f64 as promised (L01, L03, L06, L11)", "[linear]") {
  const DeltaSize size = {.requests = 1, .tokens = 150, .heads = 1, .dk = 128, .dv = 64};
  for (const double g : {0.0, -0.05, -3.0, -std::numeric_limits<double>::infinity()}) {
    CAPTURE(g);
    OpCase test = state_case(size, Gates::mild);
    test.inputs["g"] = tensor_of(DType::f32, {1, size.tokens, 1}, {g, g / 2, g});
    const HostTensors got = op_runner(kForward, Device::cpu())(test.inputs, kFinal);
    reference::DeltaRecurrence exact(size.dk, size.dv);
    for (size_t i = 0; i < exact.state().size(); ++i) {
      exact.state()[i] = test.inputs.at("initial_state").value(static_cast<int64_t>(i));
    }
    const auto row = [&](const char* name, int64_t t, int64_t width) {
      std::vector<double> values;
      for (int64_t i = 0; i < width; ++i)
        values.push_back(test.inputs.at(name).value(t * width + i));
      return values;
    };
    double errors = 0, norm = 0;
    for (int64_t t = 0; t < size.tokens; ++t) {
      const std::vector<double> want =
          exact.step(row("q", t, size.dk), row("k", t, size.dk), row("v", t, size.dv),
                     test.inputs.at("g").value(t), test.inputs.at("beta").value(t),
                     1 / std::sqrt(static_cast<double>(size.dk)));
      for (int64_t c = 0; c < size.dv; ++c) {
        const double value = want[static_cast<size_t>(c)];
        errors += std::pow(got.at("out").value(t * size.dv + c) - value, 2);
        norm += value * value;
      }
    }
    CHECK(std::sqrt(errors) <= 0x1p-7 * std::sqrt(norm));
    errors = norm = 0;
    for (size_t i = 0; i < exact.state().size(); ++i) {
      const double want = exact.state()[i];
      errors += std::pow(got.at("final_state").value(static_cast<int64_t>(i)) - want, 2);
      norm += want * want;
    }
    CHECK(std::sqrt(errors) <= 0x1p-7 * std::sqrt(norm));
  }
}

TEST_CASE("a rate of 0 without decay leaves the state of a request as it is (L12)", "[linear]") {
  OpCase test = state_case({.requests = 1, .tokens = 70, .heads = 1}, Gates::mild);
  for (const char* name : {"g", "beta"}) test.inputs[name].fill_bytes(std::byte{0});
  const HostTensors got = op_runner(kForward, Device::cpu())(test.inputs, kFinal);
  CHECK(wrong_bits(got.at("final_state"), test.inputs.at("initial_state")) == 0);
}

TEST_CASE("the cases of gated_delta_fwd catch mistakes (L40 to L49, L53, L62)",
          "[linear][mutants]") {
  check_mutants(kForward, gated_delta_fwd_cases(), ChunkMistake::forgets_state,
                [](const HostTensors& in, const Params& params, ChunkMistake mistake) {
                  return reference::gated_delta_fwd(in, params, mistake);
                });
}

TEST_CASE("gated_delta_varlen_fwd equals its reference on the executor (L04)", "[linear]") {
  const kernels::UncheckedValues as_on_a_gpu;
  check_products("gated_delta_varlen_fwd", gated_delta_varlen_fwd_cases());
}

TEST_CASE("packed requests have the bits of each alone (L04, L15)", "[linear]") {
  const auto packed = op_runner("gated_delta_varlen_fwd", Device::cpu());
  const std::vector<int64_t> lengths = {70, 0, 64, 31};
  const DeltaSize size = {.requests = 1, .tokens = 170, .heads = 1};
  const OpCase one = normal_delta("", size, Gates::mild);
  const HostTensors got = packed(packed_delta(one, lengths).inputs, kFinal);
  int64_t first = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    CAPTURE(b);
    const HostTensors want =
        op_runner(kForward, Device::cpu())(some_tokens(one.inputs, first, lengths[b]), kFinal);
    const HostTensor& out = want.at("out");
    int64_t wrong = 0;
    for (int64_t i = 0; i < out.size(); ++i) {
      wrong += out.bits(i) != got.at("out").bits(first * size.dv + i);
    }
    const HostTensor& state = want.at("final_state");
    for (int64_t i = 0; i < state.size(); ++i) {
      wrong +=
          state.bits(i) != got.at("final_state").bits(static_cast<int64_t>(b) * state.size() + i);
    }
    CHECK(wrong == 0);
    first += lengths[b];
  }
  for (int64_t i = first * size.dv; i < got.at("out").size(); ++i) {
    if (got.at("out").bits(i) != 0) FAIL("a row after all requests is not zero");
  }
}

// Other mistakes are those of gated_delta_fwd, whose cases catch them.
TEST_CASE("the cases of gated_delta_varlen_fwd catch requests that are joined (L44, L45)",
          "[linear][mutants]") {
  const auto mutant = [](ChunkMistake mistake) {
    return [mistake](const HostTensors& in, const Params& params) {
      return reference::gated_delta_varlen_fwd(in, params, mistake);
    };
  };
  const std::vector<bool> caught =
      caught_by("gated_delta_varlen_fwd", gated_delta_varlen_fwd_cases(),
                {mutant(ChunkMistake::none), mutant(ChunkMistake::joins_requests)});
  CHECK(caught == std::vector<bool>{false, true});
}

TEST_CASE("gated_delta_varlen_fwd explains bounds that are out of order", "[linear][errors]") {
  HostTensors in = packed_delta(normal_delta("", {.requests = 1, .tokens = 40}), {18, 20}).inputs;
  in.at("cu_seqlens").set_value(1, 39);
  CHECK(outputs_error("gated_delta_varlen_fwd", in, {}) == "no error");
  try {
    op_runner("gated_delta_varlen_fwd", Device::cpu())(in, {});
    FAIL("no error");
  } catch (const std::exception& error) {
    CHECK(error.what() ==
          std::string("tessera: gated_delta_varlen_fwd: argument 'cu_seqlens' has a value out of "
                      "range\n"
                      "  expected  39 .. 40\n"
                      "  got       38 at [2]"));
  }
}

TEST_CASE("gated_delta_fwd explains wrong arguments (L34)", "[linear][errors]") {
  const auto told = [](const DeltaSize& size, const Params& params = {}) {
    return outputs_error(kForward, normal_delta("", size).inputs, params);
  };
  CHECK(told({}) == "no error");
  CHECK(told({.dv = 96}) ==
        "tessera: gated_delta_fwd: argument 'v': heads of this extent are not supported\n"
        "  expected  dv in {64, 128}\n"
        "  got       dv = 96 from v dim 3");
  CHECK(told({}, {{"segment", int64_t{100}}}) ==
        "tessera: gated_delta_fwd: parameter 'segment' is no multiple of 64\n"
        "  expected  segment % 64 = 0\n"
        "  got       segment = 100");
  CHECK(told({}, {{"segment", int64_t{128}}}) ==
        "tessera: gated_delta_fwd: parameter 'segment' is not supported\n"
        "  expected  0\n"
        "  got       128");
  CHECK(told({}, {{"scale", 0.0}}) ==
        "tessera: gated_delta_fwd: parameter 'scale' has a wrong value\n"
        "  expected  a finite number above 0, in f32 too\n"
        "  got       0");
}
