#include "tests/support/ops/linear_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/support/random_tensor.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kBeyond = 2147483647, kBelow = -2147483648.0;

/// A GPU approximates exp, which may move the rounding of an output.
Tolerance of_exp(DType dtype) {
  if (dtype == DType::f32) return {1e-5, 1e-6};
  return {dtype == DType::bf16 ? 0x1p-7 : 0x1p-10, 1e-5};
}

OpCase labelled(OpCase test, const std::string& text) {
  test.label += " " + text;
  return test;
}

OpCase with_states(OpCase test) {
  const HostTensor& x = test.inputs.at("x");
  const int64_t taps = test.inputs.at("weight").shape()[1];
  test.inputs["initial_state"] =
      random_tensor(x.dtype(), {x.shape()[0], x.shape()[2], taps - 1}, Values::normal, 44);
  test.params["output_final_state"] = true;
  return test;
}

OpCase with_pool(OpCase test, int64_t slots) {
  const HostTensor& x = test.inputs.at("x");
  const int64_t taps = test.inputs.at("weight").shape()[1];
  test.inputs["pool"] =
      random_tensor(x.dtype(), {slots, x.shape()[2], taps - 1}, Values::normal, 45);
  return test;
}

OpCase with_slots(OpCase test, const std::vector<double>& read, const std::vector<double>& write) {
  test.inputs["read_slots"] = tensor_of(DType::i32, {std::ssize(read)}, read);
  test.inputs["write_slots"] = tensor_of(DType::i32, {std::ssize(write)}, write);
  return test;
}

/// The pool with neighbouring channels side by side, `gap` elements between its rows.
OpCase by_channel(OpCase test, int64_t gap = 0) {
  const Dims shape = test.inputs.at("pool").shape();
  const int64_t row = shape[1] + gap;
  return strided(std::move(test), "pool", {row * shape[2], 1, row});
}

/// Infinities and NaN of several payloads, zeros of both signs.
OpCase with_special_inputs(OpCase test) {
  HostTensor& x = test.inputs.at("x");
  const int64_t channels = x.shape()[2];
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t c = i % channels, t = i / channels;
    if (c == 0) x.set_value(i, -0.0);
    if (c == 1 && t == 2) x.set_value(i, kInfinity);
    if (c == 2 && t == 1) x.set_value(i, kNan);
    if (c == 3 && t % 3 == 0) x.set_value(i, t % 2 == 0 ? 300 : -300);
  }
  return labelled(std::move(test), "special inputs");
}

}  // namespace

OpCase normal_conv(const std::string& label, const ConvSize& s, bool has_silu) {
  OpCase test;
  test.label =
      fmt::format("{} B={} S={} C={} W={} {} {}{}", label, s.requests, s.tokens, s.channels, s.taps,
                  name(s.dtype), name(s.weight), has_silu ? " silu" : "");
  test.inputs["x"] = random_tensor(s.dtype, {s.requests, s.tokens, s.channels}, Values::normal, 41);
  test.inputs["weight"] = random_tensor(s.weight, {s.channels, s.taps}, Values::normal, 42);
  test.inputs["bias"] = random_tensor(s.weight, {s.channels}, Values::normal, 43);
  if (has_silu) {
    test.params["activation"] = std::string("silu");
    test.tolerances["out"] = of_exp(s.dtype);
  }
  return test;
}

std::vector<OpCase> causal_conv1d_fwd_cases() {
  std::vector<OpCase> cases;
  for (const int64_t taps : {2, 3, 4, 8}) {
    for (const int64_t tokens : {int64_t{1}, taps - 2, taps - 1, taps, taps + 1, int64_t{32}}) {
      cases.push_back(with_states(normal_conv("", {2, tokens, 24, taps}, tokens % 2 == 0)));
    }
    cases.push_back(with_states(normal_conv("", {1, 71, 16, taps})));
  }
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const DType weight : {dtype, DType::f32}) {
      cases.push_back(with_states(normal_conv("", {2, 37, 40, 4, dtype, weight}, true)));
      cases.push_back(with_pool(normal_conv("", {2, 9, 12, 4, dtype, weight}), 2));
    }
  }
  OpCase test = normal_conv("no states", {3, 66, 20, 4});
  cases.push_back(test);
  test.inputs.erase("bias");
  cases.push_back(labelled(test, "no bias"));
  test = with_states(normal_conv("from nothing", {2, 33, 8, 4}));
  test.inputs.erase("initial_state");
  cases.push_back(test);
  test = with_states(normal_conv("to nowhere", {2, 33, 8, 4}));
  test.params.erase("output_final_state");
  cases.push_back(test);
  cases.push_back(with_states(normal_conv("odd channels", {2, 5, 33, 4})));
  cases.push_back(with_states(normal_conv("one channel", {3, 5, 1, 3})));
  cases.push_back(with_states(normal_conv("several blocks", {1, 3, 1100, 4})));
  const OpCase pooled = with_pool(normal_conv("pool", {3, 40, 16, 4}), 6);
  cases.push_back(with_slots(pooled, {5, -1, 0}, {2, 1, -1}));
  cases.push_back(with_slots(pooled, {3, 4, 5}, {3, 4, 5}));
  cases.push_back(
      labelled(with_slots(pooled, {kBeyond, 1, -2}, {0, 6, kBelow}), "slots out of range"));
  test = with_slots(pooled, {0, 1, 2}, {0, 1, 2});
  test.inputs.erase("read_slots");
  cases.push_back(test);
  test = with_slots(pooled, {0, 1, 2}, {0, 1, 2});
  test.inputs.erase("write_slots");
  cases.push_back(test);
  cases.push_back(by_channel(with_slots(pooled, {5, -1, 0}, {2, 1, 0})));
  cases.push_back(by_channel(with_slots(pooled, {5, -1, 0}, {2, 1, 0}), 3));
  cases.push_back(strided(pooled, "pool", {100, 6, 1}));  // gaps between channels
  cases.push_back(strided(pooled, "pool", {50, 3, 1}));   // and between slots alone
  cases.push_back(
      with_slots(with_pool(normal_conv("short", {3, 2, 16, 8}), 4), {3, 2, -1}, {3, 2, 0}));
  cases.push_back(
      with_slots(with_pool(normal_conv("no tokens", {3, 0, 16, 4}), 5), {4, -1, 1}, {0, 2, 1}));
  cases.push_back(by_channel(
      with_slots(with_pool(normal_conv("no tokens", {2, 0, 5, 4}), 5), {4, 1}, {0, -1})));
  cases.push_back(with_states(normal_conv("no tokens", {2, 0, 16, 4})));
  cases.push_back(normal_conv("no tokens and no states", {2, 0, 16, 4}));
  cases.push_back(with_states(normal_conv("no requests", {0, 5, 16, 4})));
  cases.push_back(with_special_inputs(with_states(normal_conv("", {1, 7, 8, 4}))));
  cases.push_back(with_special_inputs(with_states(normal_conv("", {1, 7, 8, 4}, true))));
  cases.push_back(with_special_inputs(
      with_states(normal_conv("", {1, 7, 8, 4, DType::f32, DType::f32}, true))));
  test = with_states(normal_conv("slices", {2, 35, 16, 4}));
  cases.push_back(strided(test, "x", {36 * 48, 48, 1}));
  cases.push_back(strided(test, "x", {36 * 20, 20, 1}));  // accesses of 8 bytes
  cases.push_back(strided(test, "x", {36 * 17, 17, 1}));  // of one element
  return cases;
}

namespace {

OpCase update_case(const std::string& label, const ConvSize& s, int64_t slots,
                   const std::vector<double>& read, const std::vector<double>& write,
                   bool has_silu = false) {
  return with_slots(with_pool(normal_conv(label, s, has_silu), slots), read, write);
}

/// A slot for the state after each token.
OpCase slot_of_token(OpCase test, const std::vector<double>& write) {
  const Dims shape = test.inputs.at(test.inputs.contains("x") ? "x" : "q").shape();
  test.inputs["write_slots"] = tensor_of(DType::i32, {shape[0], shape[1]}, write);
  return labelled(std::move(test), "a slot of each token");
}

}  // namespace

std::vector<OpCase> causal_conv1d_update_cases() {
  std::vector<OpCase> cases;
  for (const int64_t taps : {2, 3, 4, 8}) {
    for (const int64_t tokens : {1, 2, 5, 16}) {
      cases.push_back(
          update_case("", {3, tokens, 24, taps}, 6, {4, -1, 0}, {4, 5, 1}, tokens == 2));
    }
  }
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const DType weight : {dtype, DType::f32}) {
      cases.push_back(update_case("", {2, 1, 40, 4, dtype, weight}, 3, {2, 0}, {2, 0}, true));
      cases.push_back(update_case("", {2, 2, 12, 4, dtype, weight}, 3, {2, 0}, {1, 0}));
    }
  }
  OpCase test = update_case("no bias", {2, 1, 20, 4}, 2, {1, 0}, {1, 0});
  test.inputs.erase("bias");
  cases.push_back(test);
  test = update_case("", {3, 3, 16, 4}, 9, {1, -1, 3}, {0, 0, 0});
  cases.push_back(slot_of_token(test, {0, 1, 2, 5, 6, 7, 4, -1, 8}));
  cases.push_back(by_channel(slot_of_token(test, {0, 2, 1, 5, 6, 7, 3, 4, 8})));
  test = update_case("", {1, 1, 16, 4}, 3, {1}, {0});
  cases.push_back(slot_of_token(test, {2}));
  test =
      update_case("slots out of range", {4, 1, 16, 4}, 3, {3, -2, kBeyond, 1}, {0, 2, 2, kBelow});
  cases.push_back(test);
  test = update_case("a slot that is not written", {2, 1, 16, 4}, 3, {1, 2}, {-1, 3});
  cases.push_back(test);
  cases.push_back(update_case("odd channels", {2, 2, 33, 4}, 3, {1, 2}, {1, 2}));
  cases.push_back(by_channel(update_case("odd channels", {2, 2, 33, 4}, 3, {1, 2}, {1, 2})));
  cases.push_back(update_case("one channel", {3, 2, 1, 3}, 4, {1, 2, 0}, {1, 3, 0}));
  cases.push_back(update_case("several blocks", {2, 1, 1100, 4}, 2, {1, 0}, {1, 0}));
  const OpCase plain = update_case("layouts", {3, 2, 16, 4}, 4, {3, 0, 2}, {3, 0, 2});
  cases.push_back(by_channel(plain));
  cases.push_back(by_channel(plain, 4));
  cases.push_back(by_channel(plain, 3));
  cases.push_back(strided(plain, "pool", {100, 6, 1}));
  cases.push_back(strided(plain, "pool", {56, 3, 1}));
  cases.push_back(strided(plain, "x", {2 * 24, 24, 1}));
  cases.push_back(strided(plain, "x", {2 * 17, 17, 1}));
  cases.push_back(with_special_inputs(update_case("", {1, 5, 8, 4}, 2, {1}, {0})));
  cases.push_back(with_special_inputs(update_case("", {1, 5, 8, 4}, 2, {1}, {0}, true)));
  cases.push_back(update_case("no requests", {0, 2, 8, 4}, 2, {}, {}));
  return cases;
}

namespace {

struct GatedSize {
  Dims tokens;
  int64_t width;
  DType dtype = DType::bf16, weight = DType::f32;
};

OpCase gated_case(const std::string& label, const GatedSize& s,
                  const std::string& activation = "silu") {
  OpCase test;
  test.label = fmt::format("{} T={} d={} {} {} {}", label, to_string(s.tokens), s.width,
                           name(s.dtype), name(s.weight), activation);
  Dims shape = s.tokens;
  shape.push_back(s.width);
  test.inputs["x"] = random_tensor(s.dtype, shape, Values::normal, 46);
  test.inputs["z"] = random_tensor(s.dtype, shape, Values::normal, 47);
  test.inputs["weight"] = random_tensor(s.weight, {s.width}, Values::normal, 48);
  test.params["activation"] = activation;
  test.tolerance = of_exp(s.dtype);
  return test;
}

/// Rows of zeros, of small and of large values, with NaN; gates that leave nothing or all of a row.
OpCase extreme_rows(DType dtype, double eps) {
  OpCase test = gated_case(fmt::format("extreme rows eps={}", eps), {{8}, 64, dtype});
  test.params["eps"] = eps;
  HostTensor &x = test.inputs["x"], &z = test.inputs["z"];
  for (int64_t i = 0; i < 64; ++i) {
    x.set_value(i, 0);
    x.set_value(64 + i, 1e-6);
    x.set_value(2 * 64 + i, i == 7 ? 60000 : 0);
    z.set_value(4 * 64 + i, 100);
    z.set_value(5 * 64 + i, -100);
    z.set_value(6 * 64 + i, i % 2 == 0 ? kInfinity : kNan);
  }
  x.set_value(3 * 64 + 63, kNan);
  x.set_value(7 * 64, -kInfinity);
  return test;
}

}  // namespace

std::vector<OpCase> rmsnorm_gated_fwd_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t width : {8, 64, 128, 256, 264, 1032}) {
      const DType weight = width % 128 == 0 ? DType::bf16 : DType::f32;
      cases.push_back(
          gated_case("", {{9}, width, dtype, weight}, width == 64 ? "sigmoid" : "silu"));
    }
    cases.push_back(gated_case("", {{2, 3}, 128, dtype, DType::f32}, "sigmoid"));
    cases.push_back(extreme_rows(dtype, 1e-6));
    cases.push_back(extreme_rows(dtype, 0));
  }
  cases.push_back(gated_case("", {{2}, 8192}));
  cases.push_back(gated_case("nothing", {{0}, 128}));
  OpCase test = gated_case("eps", {{5}, 128});
  test.params["eps"] = 0.25;
  cases.push_back(test);
  test = gated_case("slices", {{5}, 128});
  cases.push_back(strided(test, "x", {256, 1}));
  cases.push_back(strided(test, "z", {132, 1}));  // accesses of 8 bytes
  cases.push_back(strided(test, "x", {129, 1}));  // of one element
  cases.push_back(strided(gated_case("", {{2, 3}, 64}), "z", {384, 128, 1}));
  return cases;
}

OpCase normal_delta(const std::string& label, const DeltaSize& s, Gates gates) {
  OpCase test;
  test.label = fmt::format("{} B={} n={} h={} hv={} dk={} dv={} {} {} {}{}", label, s.requests,
                           s.tokens, s.key_heads, s.heads, s.dk, s.dv, name(s.dtype), name(s.beta),
                           name(s.pool), gates == Gates::mild ? " mild gates" : "");
  Random random(static_cast<uint64_t>(s.requests * 100 + s.tokens));
  const double length = std::sqrt(static_cast<double>(s.dk));
  const auto unit = [&](int64_t) { return random.normal() / length; };
  test.inputs["q"] = tensor_by(s.dtype, {s.requests, s.tokens, s.key_heads, s.dk}, unit);
  test.inputs["k"] = tensor_by(s.dtype, {s.requests, s.tokens, s.key_heads, s.dk}, unit);
  test.inputs["v"] =
      random_tensor(s.dtype, {s.requests, s.tokens, s.heads, s.dv}, Values::normal, 51);
  const Dims rows = {s.requests, s.tokens, s.heads};
  test.inputs["g"] = tensor_by(DType::f32, rows, [&](int64_t) {
    if (gates == Gates::mild) return -0.1 * random.uniform();
    const int64_t power = random.below(5);
    return power == 0 ? 0 : -std::log(2.0) * static_cast<double>(int64_t{1} << (power - 1));
  });
  test.inputs["beta"] = tensor_by(s.beta, rows, [&](int64_t) { return random.uniform(); });
  return test;
}

OpCase with_delta_pool(OpCase test, const DeltaSize& s, const std::vector<double>& read,
                       const std::vector<double>& write, int64_t slots) {
  test.inputs["pool"] = random_tensor(s.pool, {slots, s.heads, s.dk, s.dv}, Values::normal, 52);
  return with_slots(std::move(test), read, write);
}

namespace {

OpCase decode_case(const std::string& label, const DeltaSize& s, Gates gates = Gates::exact) {
  OpCase test = with_delta_pool(normal_delta(label, s, gates), s, {2, 0}, {2, 1}, 3);
  if (gates == Gates::exact) return test;
  // A GPU's exponentials are 2 ulp off, a rounding of out or of a bf16 state may go the other way.
  const double unit = s.dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  test.tolerances["out"] = Tolerance{unit, 0x1p-12};
  test.tolerances["pool"] =
      s.pool == DType::f32 ? Tolerance{1e-5, 1e-5} : Tolerance{0x1p-6, 0x1p-8};
  return test;
}

/// The pool with dk as the contiguous dimension of a state, `gap` elements between its columns.
OpCase keys_last(OpCase test, int64_t gap = 0) {
  const Dims shape = test.inputs.at("pool").shape();
  const int64_t column = shape[2] + gap, state = column * shape[3];
  return strided(std::move(test), "pool", {shape[1] * state, state, 1, column});
}

/// Gates whose decays are 0 or 1: those that are clamped, that vanish and that are no gates.
OpCase with_special_gates(OpCase test) {
  const std::vector<double> gates = {-kInfinity, -1e30, -128, -88, -1e-30, -0.0, 0};
  const Dims shape = test.inputs.at("g").shape();
  test.inputs["g"] = tensor_of(DType::f32, shape, gates);
  return labelled(std::move(test), "special gates");
}

}  // namespace

std::vector<OpCase> gated_delta_decode_cases() {
  std::vector<OpCase> cases;
  for (const int64_t tokens : {1, 2, 5, 16}) {
    cases.push_back(decode_case("", {.tokens = tokens}));
    cases.push_back(keys_last(decode_case("", {.tokens = tokens, .pool = DType::bf16})));
  }
  for (const auto& [dk, dv] : {std::pair(64, 128), std::pair(128, 64), std::pair(128, 128)}) {
    const DeltaSize size = {.tokens = 2, .heads = 1, .dk = dk, .dv = dv};
    cases.push_back(decode_case("", size));
    cases.push_back(keys_last(decode_case("", size)));
    cases.push_back(decode_case("", size, Gates::mild));
    OpCase normed = decode_case("normed", size);
    normed.params["qk_norm"] = true;
    cases.push_back(normed);
  }
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const DType pool : {DType::f32, DType::bf16}) {
      DeltaSize size = {.tokens = 3, .key_heads = 2, .heads = 4, .dtype = dtype, .pool = pool};
      size.beta = pool == dtype ? DType::bf16 : DType::f32;
      cases.push_back(decode_case("groups", size));
      cases.push_back(decode_case("groups", size, Gates::mild));
      OpCase normed = keys_last(decode_case("normed", size));
      normed.params["qk_norm"] = true;
      normed.params["norm_eps"] = 0.25;
      normed.params["scale"] = 0.3;
      cases.push_back(normed);
    }
  }
  const DeltaSize many = {.requests = 4, .tokens = 2};
  const auto with = [&](const std::string& label, const std::vector<double>& read,
                        const std::vector<double>& write) {
    return with_delta_pool(normal_delta(label, many), many, read, write, 6);
  };
  cases.push_back(with("padding", {5, -1, 0, -1}, {4, 3, 0, 4}));
  cases.push_back(with("slots that are not written", {5, 1, 0, 2}, {-1, 1, -1, 2}));
  cases.push_back(with("slots out of range", {6, -2, kBeyond, 2}, {1, 1, 1, kBelow}));
  OpCase test = with("", {5, -1, 0, 2}, {0});
  test = slot_of_token(test, {5, 4, 1, 3, -1, 0, 3, 2});
  cases.push_back(test);
  cases.push_back(keys_last(test));
  test = with_delta_pool(normal_delta("bf16", {.requests = 4, .tokens = 2, .pool = DType::bf16}),
                         {.requests = 4, .tokens = 2, .pool = DType::bf16}, {5, -1, 0, 2}, {0}, 6);
  cases.push_back(slot_of_token(test, {5, 4, 1, 3, -1, 0, 3, 2}));
  const DeltaSize size = {.tokens = 3};
  cases.push_back(with_special_gates(decode_case("", size)));
  test = with_special_gates(decode_case("a huge state", size));
  test.inputs["g"].set_value(0, -kInfinity);
  for (int64_t i = 0; i < test.inputs["pool"].size(); i += 5)
    test.inputs["pool"].set_value(i, 1e30);
  cases.push_back(test);
  test = decode_case("rates of 0 and 2", size);
  test.inputs["beta"] = tensor_of(DType::f32, test.inputs["beta"].shape(), {0, 1, 2, -1, 0.5});
  cases.push_back(test);
  test = decode_case("rows of zeros", {.tokens = 2});
  test.params["qk_norm"] = true;
  for (int64_t i = 0; i < 64; ++i) {
    test.inputs["q"].set_value(i, 0), test.inputs["k"].set_value(64 + i, 0);
    test.inputs["k"].set_value(128 + i, i % 2 == 0 ? 1e4 : -1e4);
    test.inputs["q"].set_value(192 + i, 1e-20);
  }
  cases.push_back(test);
  test = decode_case("NaN and infinity", size);
  test.inputs["v"].set_value(5, kNan), test.inputs["k"].set_value(64 * 4, kNan);
  test.inputs["v"].set_value(64 * 3, kInfinity), test.inputs["pool"].set_value(70, -kInfinity);
  cases.push_back(test);
  const OpCase plain = decode_case("slices", {.tokens = 2, .key_heads = 2, .heads = 4});
  cases.push_back(strided(plain, "q", {1000, 400, 72, 1}));
  cases.push_back(strided(plain, "k", {1000, 400, 70, 1}));  // accesses of 4 bytes
  cases.push_back(strided(plain, "q", {1001, 401, 65, 1}));  // of one element
  cases.push_back(strided(plain, "v", {1000, 400, 65, 1}));
  cases.push_back(strided(plain, "g", {20, 7, 1}));
  cases.push_back(strided(plain, "beta", {20, 7, 1}));
  cases.push_back(strided(plain, "pool", {70000, 5000, 66, 1}));
  cases.push_back(strided(plain, "pool", {70001, 5001, 65, 1}));
  cases.push_back(keys_last(plain, 2));
  cases.push_back(keys_last(plain, 1));
  cases.push_back(with_delta_pool(normal_delta("no requests", {.requests = 0}), {}, {}, {}, 2));
  return cases;
}

namespace {

/// Sums of the tensor cores, whose last bits the executor does not have, move roundings of out and of what is multiplied.
OpCase chunk_case(const std::string& label, const DeltaSize& s, Gates gates = Gates::mild) {
  OpCase test = normal_delta(label, s, gates);
  test.tolerances["out"] = Tolerance{0x1p-7, 0x1p-9};
  test.tolerances["final_state"] = Tolerance{0x1p-8, 0x1p-8};
  test.tolerances["pool"] = Tolerance{0x1p-7, 0x1p-8};
  return test;
}

OpCase with_delta_states(OpCase test, const DeltaSize& s) {
  test.inputs["initial_state"] =
      random_tensor(DType::f32, {s.requests, s.heads, s.dk, s.dv}, Values::normal, 53);
  test.params["output_final_state"] = true;
  return test;
}

}  // namespace

std::vector<OpCase> gated_delta_fwd_cases() {
  std::vector<OpCase> cases;
  for (const int64_t tokens : {1, 15, 16, 17, 63, 64, 65, 127, 130}) {
    const DeltaSize size = {.requests = 1, .tokens = tokens, .heads = 1};
    const Gates gates = tokens % 2 == 0 ? Gates::exact : Gates::mild;
    cases.push_back(with_delta_states(chunk_case("", size, gates), size));
  }
  for (const auto& [dk, dv] : {std::pair(64, 128), std::pair(128, 64), std::pair(128, 128)}) {
    const DeltaSize size = {.requests = 1, .tokens = 70, .heads = 1, .dk = dk, .dv = dv};
    cases.push_back(with_delta_states(chunk_case("", size), size));
    OpCase normed = chunk_case("normed", size, Gates::exact);
    normed.params["qk_norm"] = true;
    cases.push_back(normed);
  }
  const DeltaSize groups = {.tokens = 20, .key_heads = 2, .heads = 4, .beta = DType::bf16};
  cases.push_back(with_delta_states(chunk_case("groups", groups), groups));
  const DeltaSize half = {.tokens = 66, .dtype = DType::f16};
  OpCase test = with_delta_states(chunk_case("", half), half);
  test.params["scale"] = 0.5, test.params["qk_norm"] = true, test.params["norm_eps"] = 0.25;
  cases.push_back(test);
  const DeltaSize size = {.requests = 3, .tokens = 70, .heads = 1};
  cases.push_back(chunk_case("no states", size));
  test = with_delta_states(chunk_case("to nowhere", size), size);
  test.params.erase("output_final_state");
  cases.push_back(test);
  test = with_delta_states(chunk_case("from nothing", size), size);
  test.inputs.erase("initial_state");
  cases.push_back(test);
  test = with_delta_states(chunk_case("lengths", size), size);
  test.inputs["lengths"] = tensor_of(DType::i32, {3}, {70, 0, 33});
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    HostTensor& x = test.inputs[name];
    const int64_t row = x.size() / (3 * 70);
    for (int64_t i = 70 * row; i < x.size(); ++i) {
      if (i < 140 * row || i >= (140 + 33) * row) x.set_value(i, kNan);
    }
  }
  cases.push_back(test);
  test = chunk_case("lengths out of range", size);
  test.inputs["lengths"] = tensor_of(DType::i32, {3}, {kBeyond, -1, 64});
  cases.push_back(test);
  const auto pooled = [&](const std::string& label, DType pool, const std::vector<double>& read,
                          const std::vector<double>& write) {
    DeltaSize of_pool = size;
    of_pool.tokens = 20, of_pool.pool = pool;
    return with_delta_pool(chunk_case(label, of_pool), of_pool, read, write, 6);
  };
  cases.push_back(pooled("pool", DType::f32, {5, -1, 0}, {2, 1, -1}));
  cases.push_back(pooled("pool", DType::bf16, {5, -1, 3}, {5, 0, 3}));
  cases.push_back(keys_last(pooled("pool", DType::f32, {5, -1, 0}, {5, 1, 0})));
  cases.push_back(pooled("slots out of range", DType::f32, {6, -2, kBeyond}, {0, 6, kBelow}));
  test = pooled("every slot", DType::f32, {0, 1, 2}, {0, 1, 2});
  test.inputs.erase("read_slots");
  cases.push_back(test);
  test.inputs.erase("write_slots");
  cases.push_back(test);
  const DeltaSize one = {.requests = 1, .tokens = 70, .heads = 1};
  cases.push_back(with_special_gates(with_delta_states(chunk_case("", one), one)));
  test = with_special_gates(with_delta_states(chunk_case("a huge state", one), one));
  test.inputs["g"].set_value(0, -kInfinity);
  for (int64_t i = 0; i < 4096; i += 5) test.inputs["initial_state"].set_value(i, 1e30);
  cases.push_back(test);
  test = with_delta_states(chunk_case("decays of e^-100", one), one);
  test.inputs["g"] = tensor_of(DType::f32, test.inputs["g"].shape(), {-50, -0.1, -0.01});
  cases.push_back(test);
  test = with_delta_states(chunk_case("keys of length 11", one), one);  // only decays hold them
  for (int64_t i = 0; i < test.inputs["k"].size(); ++i) {
    test.inputs["k"].set_value(i, test.inputs["k"].value(i) * 11);
  }
  test.inputs["g"] = tensor_of(DType::f32, test.inputs["g"].shape(), {-6});
  cases.push_back(test);
  const DeltaSize sliced = {.requests = 2, .tokens = 18, .key_heads = 2, .heads = 2};
  const OpCase plain = chunk_case("slices", sliced);
  cases.push_back(strided(plain, "q", {9000, 400, 72, 1}));
  cases.push_back(strided(plain, "k", {9000, 400, 70, 1}));  // accesses of 4 bytes
  cases.push_back(strided(plain, "v", {9001, 401, 65, 1}));  // of one element
  cases.push_back(strided(plain, "g", {200, 7, 1}));
  cases.push_back(strided(plain, "beta", {200, 7, 1}));
  DeltaSize none = sliced;
  none.tokens = 0;
  cases.push_back(with_delta_states(chunk_case("no tokens", none), none));
  cases.push_back(with_delta_pool(chunk_case("no tokens", none), none, {2, -1}, {1, 0}, 3));
  cases.push_back(chunk_case("no tokens and no states", none));
  none.requests = 0;
  cases.push_back(with_delta_states(chunk_case("no requests", none), none));
  return cases;
}

OpCase packed_delta(OpCase test, const std::vector<int64_t>& lengths) {
  int64_t end = 0;
  std::vector<double> bounds = {0};
  for (const int64_t length : lengths) bounds.push_back(static_cast<double>(end += length));
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    const HostTensor& given = test.inputs.at(name);
    Dims shape;
    for (int i = 1; i < given.shape().rank; ++i) shape.push_back(given.shape()[i]);
    HostTensor packed(given.dtype(), shape);
    const int64_t row = shape[0] == 0 ? 0 : packed.size() / shape[0];
    for (int64_t i = 0; i < packed.size(); ++i) packed.set_bits(i, given.bits(i));
    for (int64_t i = end * row; i < packed.size(); ++i) packed.set_value(i, kNan);
    test.inputs[name] = std::move(packed);
  }
  test.inputs["cu_seqlens"] = tensor_of(DType::i32, {static_cast<int64_t>(bounds.size())}, bounds);
  return labelled(std::move(test), "packed");
}

std::vector<OpCase> gated_delta_varlen_fwd_cases() {
  std::vector<OpCase> cases;
  const auto packed = [&](const std::string& label, const DeltaSize& size,
                          const std::vector<int64_t>& lengths, Gates gates = Gates::mild) {
    OpCase test = chunk_case(label, size, gates);
    const auto requests = static_cast<int64_t>(lengths.size());
    test.inputs["initial_state"] =
        random_tensor(DType::f32, {requests, size.heads, size.dk, size.dv}, Values::normal, 53);
    test.params["output_final_state"] = true;
    return packed_delta(std::move(test), lengths);
  };
  const DeltaSize size = {.requests = 1, .tokens = 170, .heads = 1};
  cases.push_back(packed("", size, {64, 1, 65, 20}));
  cases.push_back(packed("none among them", size, {0, 90, 0, 17, 0}, Gates::exact));
  cases.push_back(packed("one", {.requests = 1, .tokens = 100, .heads = 1}, {100}));
  const DeltaSize wide = {.requests = 1, .tokens = 80, .heads = 1, .dk = 128, .dv = 128};
  cases.push_back(packed("", wide, {33, 40}));
  OpCase test = packed("normed", wide, {33, 40}, Gates::exact);
  test.params["qk_norm"] = true;
  cases.push_back(test);
  const DeltaSize groups = {.requests = 1,
                            .tokens = 90,
                            .key_heads = 2,
                            .heads = 4,
                            .dtype = DType::f16,
                            .beta = DType::bf16};
  cases.push_back(packed("groups", groups, {20, 70}));
  test = packed("bounds out of order", {.requests = 1, .tokens = 100, .heads = 1}, {20, 20, 20});
  test.inputs["cu_seqlens"] = tensor_of(DType::i32, {4}, {0, 70, 30, 1000});
  cases.push_back(test);
  std::vector<int64_t> many(131);
  many[0] = 3, many[127] = 2, many[128] = 66, many[130] = 1;
  test = packed_delta(chunk_case("many", {.requests = 1, .tokens = 73, .heads = 1}), many);
  cases.push_back(test);
  const DeltaSize of_pool = {.requests = 1, .tokens = 90, .heads = 1, .pool = DType::bf16};
  test = packed_delta(chunk_case("pool", of_pool), {20, 0, 66});
  cases.push_back(with_delta_pool(test, of_pool, {5, -1, 3}, {4, 1, -1}, 6));
  const OpCase plain =
      packed("slices", {.requests = 1, .tokens = 40, .key_heads = 2, .heads = 2}, {18, 20});
  cases.push_back(strided(plain, "q", {400, 72, 1}));
  cases.push_back(strided(plain, "k", {401, 65, 1}));  // of one element
  cases.push_back(strided(plain, "v", {400, 72, 1}));
  cases.push_back(strided(plain, "g", {7, 1}));
  cases.push_back(strided(plain, "beta", {5, 1}));
  DeltaSize none = size;
  none.tokens = 0;
  cases.push_back(packed("no tokens", none, {0, 0}));
  cases.push_back(packed_delta(chunk_case("no requests", {.requests = 1, .tokens = 20}), {}));
  return cases;
}

}  // namespace tessera::test
