// Cases of moe_forward.

#include <fmt/format.h>

#include "tests/reference/mxfp4.h"
#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

/// The weights: e4m3, or MXFP4 with a scale for each 128 columns or each row, for rows of e4m3, or for rows of bf16.
enum class Experts : uint8_t { e4m3, by_block, by_row, for_bf16 };

struct Layer {
  int64_t tokens = 5, topk = 2, experts = 2, hidden = 128, inner = 128;
  bool is_narrow = false, base = false, at_sums = false, round_sf = false;
  Experts of = Experts::e4m3;
  int64_t group = 128;  // columns of a scale of rows
  int64_t count = -1;   // num_tokens; -1: not given
  double clamp = 0;     // 0: none
  int64_t padding = 0;
};

/// Weights as a layer has them: products of rows of ones have a variance near 1.
HostTensor weights(Dims shape, uint64_t seed) {
  return random_tensor(DType::e4m3, shape, Values::normal, seed);
}

HostTensor scales(int64_t experts, int64_t rows, int64_t columns, uint64_t seed) {
  const Dims shape = {experts, (rows + 127) / 128, (columns + 127) / 128};
  HostTensor tensor = random_tensor(DType::f32, shape, Values::uniform, seed);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.set_value(i, 0.05 + tensor.value(i) / 10);
  return tensor;
}

/// Adds MXFP4 weights [experts, rows, columns], as packed.
void add_packed(OpCase& test, const std::string& name, Experts of, const Dims& shape,
                uint64_t seed) {
  const HostTensor codes =
      random_tensor(DType::i8, {shape[0], shape[1], shape[2] / 2}, Values::bits, seed);
  const HostTensor bytes = tensor_by(DType::u8, {shape[0], shape[1], shape[2] / 32}, [](int64_t i) {
    return static_cast<double>(121 + i * 7 % 4);
  });
  const HostTensors packed =
      reference::mxfp4_prepack(codes, bytes, of == Experts::for_bf16, of == Experts::by_block);
  test.inputs[name] = packed.at("out");
  test.inputs[name + "_shift"] = packed.at("out_shift");
  test.inputs[name + "_sf"] = packed.at("out_sf");
}

OpCase layer(const Layer& l) {
  OpCase test;
  test.label = fmt::format("T={} K={} E={} H={} I={}{}{}{}{} n={} clamp={} {}", l.tokens, l.topk,
                           l.experts, l.hidden, l.inner, l.is_narrow ? " i32" : "",
                           l.base ? " base" : "", l.at_sums ? " at sums" : "",
                           l.round_sf ? " rounded" : "", l.count, l.clamp, l.padding);
  const Dims strides = {l.hidden + l.padding, 1};
  test.inputs["x"] = random_tensor(DType::bf16, {l.tokens, l.hidden}, strides, Values::normal, 71);
  // Every fifth pair has no expert; a token may have one twice.
  test.inputs["topk_idx"] =
      tensor_by(l.is_narrow ? DType::i32 : DType::i64, {l.tokens, l.topk},
                [&](int64_t i) { return i % 5 == 3 ? -1 : i * 7 % (l.experts + 1) % l.experts; });
  test.inputs["topk_weights"] = random_tensor(DType::f32, {l.tokens, l.topk}, Values::normal, 72);
  if (l.of == Experts::e4m3) {
    test.inputs["w13"] = weights({l.experts, 2 * l.inner, l.hidden}, 73);
    test.inputs["w13_sf"] = scales(l.experts, 2 * l.inner, l.hidden, 74);
    test.inputs["w2"] = weights({l.experts, l.hidden, l.inner}, 75);
    test.inputs["w2_sf"] = scales(l.experts, l.hidden, l.inner, 76);
  } else {
    test.label += fmt::format(" MXFP4 {} 1x{}", static_cast<int>(l.of), l.group);
    add_packed(test, "w13", l.of, {l.experts, 2 * l.inner, l.hidden}, 73);
    add_packed(test, "w2", l.of, {l.experts, l.hidden, l.inner}, 75);
    if (l.of == Experts::for_bf16) test.params["activation"] = std::string("bf16");
    test.params["num_per_channels"] = l.group;
  }
  if (l.base) {
    test.inputs["base"] =
        random_tensor(DType::bf16, {l.tokens, l.hidden}, strides, Values::normal, 77);
  }
  if (l.count >= 0) {
    test.inputs["num_tokens"] = tensor_of(DType::i32, {1}, {static_cast<double>(l.count)});
  }
  if (l.at_sums) test.params["weights_at"] = std::string("combine");
  if (l.clamp > 0) test.params["swiglu_clamp_value"] = l.clamp;
  test.params["round_sf"] = l.round_sf;
  // An exponential that differs in its last bit moves a code of the activation by a step now and then.
  test.tolerance = Tolerance{.calc_diff = 1e-4};
  return test;
}

OpCase with_ids(OpCase test, const std::string& label, double id) {
  test.label += " " + label;
  HostTensor& ids = test.inputs["topk_idx"];
  for (int64_t i = 0; i < ids.size(); ++i) ids.set_value(i, id);
  return test;
}

}  // namespace

std::vector<OpCase> moe_forward_cases() {
  std::vector<OpCase> cases;
  for (const bool at_sums : {false, true}) {
    cases.push_back(layer({.experts = 1, .at_sums = at_sums}));
    cases.push_back(
        layer({.experts = 1, .is_narrow = true, .base = true, .at_sums = at_sums, .count = 3}));
    cases.push_back(
        layer({.hidden = 256, .base = true, .at_sums = at_sums, .clamp = 2, .padding = 8}));
    cases.push_back(layer({.inner = 256, .at_sums = at_sums, .round_sf = true, .count = 4}));
  }
  cases.push_back(layer({.tokens = 37, .topk = 3, .experts = 5, .base = true}));
  cases.push_back(layer({.tokens = 1, .topk = 1, .experts = 1}));
  // Columns of scales are further apart than there are rows: a workspace without the gaps has them share memory.
  cases.push_back(layer({.tokens = 1, .topk = 6, .hidden = 4096}));
  cases.push_back(layer({.base = true, .count = 0}));
  cases.push_back(layer({.base = true, .count = 9}));
  cases.push_back(layer({.tokens = 0}));
  cases.push_back(layer({.topk = 0, .base = true}));
  for (const Experts of : {Experts::by_block, Experts::by_row, Experts::for_bf16}) {
    const int64_t group = of == Experts::by_row ? 32 : 128;
    cases.push_back(layer({.tokens = 9,
                           .topk = 3,
                           .experts = 3,
                           .hidden = 160,
                           .inner = 96,
                           .base = true,
                           .of = of,
                           .group = group,
                           .count = 7,
                           .padding = 8}));
    cases.push_back(layer({.tokens = 5,
                           .hidden = 64,
                           .inner = 128,
                           .is_narrow = true,
                           .at_sums = true,
                           .round_sf = true,
                           .of = of,
                           .group = group,
                           .clamp = 2}));
    cases.push_back(layer({.tokens = 0, .of = of}));
    cases.push_back(
        with_ids(layer({.hidden = 32, .inner = 32, .base = true, .of = of}), "no expert", -1));
  }
  for (const bool base : {false, true}) {
    cases.push_back(with_ids(layer({.base = base}), "no expert", -1));
    cases.push_back(with_ids(layer({.tokens = 70, .base = base}), "one takes all", 1));
  }
  OpCase wrong = layer({.base = true});
  wrong.label += " ids that are none";
  const double kWrong[] = {2, -2, 1e9};
  for (int64_t i = 0; i < 3; ++i) wrong.inputs["topk_idx"].set_value(3 * i, kWrong[i]);
  cases.push_back(wrong);
  return cases;
}

}  // namespace tessera::test
