#include "tests/reference/conv.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;
using Mistake = ConvMistake;

const HostTensor* given(const HostTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

std::string activation_of(const Params& params, const std::string& standard) {
  const auto found = params.find("activation");
  return found == params.end() ? standard : std::get<std::string>(found->second);
}

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

void set(HostTensor& tensor, int64_t element, float value) {
  tensor.set_bits(element, encode(tensor.dtype(), static_cast<double>(value)));
}

float sigmoid(float x) {
  return 1.0F / (1.0F + static_cast<float>(std::exp(-static_cast<double>(x))));
}

float silu(float x) {
  return x / (1.0F + static_cast<float>(std::exp(-static_cast<double>(x))));
}

/// The inputs of one channel as bits, the state's first.
using Inputs = std::vector<uint64_t>;

/// The elements [W - 1] of a channel in a tensor of states.
Inputs state_of(const HostTensor* states, int64_t slot, int64_t channel, int64_t taps,
                bool is_reversed) {
  Inputs inputs(static_cast<size_t>(taps - 1), 0);
  if (states == nullptr || slot < 0) return inputs;
  const int64_t channels = states->shape()[1];
  for (int64_t j = 0; j < taps - 1; ++j) {
    const int64_t from = is_reversed ? taps - 2 - j : j;
    inputs[static_cast<size_t>(j)] = states->bits((slot * channels + channel) * (taps - 1) + from);
  }
  return inputs;
}

void set_state(HostTensor& states, int64_t slot, int64_t channel, const Inputs& last,
               bool is_reversed) {
  const int64_t channels = states.shape()[1], count = std::ssize(last);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t from = is_reversed ? count - 1 - j : j;
    states.set_bits((slot * channels + channel) * count + j, last[static_cast<size_t>(from)]);
  }
}

/// The last W - 1 inputs up to token `token`.
Inputs last_inputs(const Inputs& inputs, int64_t token, int64_t taps, Mistake mistake) {
  const int64_t tokens = token + 1;
  Inputs last(inputs.begin() + tokens, inputs.begin() + tokens + taps - 1);
  if (mistake == Mistake::zero_fills) {
    for (int64_t j = 0; j < taps - 1 - tokens; ++j) last[static_cast<size_t>(j)] = 0;
  }
  return last;
}

/// A call: its filters.
class Filters {
 public:
  Filters(const HostTensors& in, const Params& params, Mistake mistake)
      : x_(in.at("x")),
        weight_(in.at("weight")),
        bias_(given(in, "bias")),
        has_silu_(activation_of(params, "none") == "silu"),
        mistake_(mistake) {}

  int64_t taps() const { return weight_.shape()[1]; }
  int64_t requests() const { return x_.shape()[0]; }
  int64_t tokens() const { return x_.shape()[1]; }
  int64_t channels() const { return x_.shape()[2]; }

  /// The state, then the tokens of the request.
  Inputs inputs_of(int64_t request, int64_t channel, Inputs state) const {
    if (mistake_ == Mistake::previous_request && request > 0) {
      for (int64_t j = 0; j < taps() - 1; ++j) {
        const int64_t token = request * tokens() - (taps() - 1) + j;
        if (token >= 0) state[static_cast<size_t>(j)] = x_.bits(token * channels() + channel);
      }
    }
    for (int64_t t = 0; t < tokens(); ++t) {
      state.push_back(x_.bits((request * tokens() + t) * channels() + channel));
    }
    return state;
  }
  /// Token `token` of the output.
  float output(const Inputs& inputs, int64_t token, int64_t channel) const {
    const bool is_late = mistake_ == Mistake::silu_before_bias;
    const float bias = bias_ == nullptr ? 0.0F : number(*bias_, channel);
    float acc = is_late ? 0.0F : bias;
    for (int64_t j = 0; j < taps(); ++j) {
      const int64_t tap = mistake_ == Mistake::newest_first ? taps() - 1 - j : j;
      const int64_t filter = mistake_ == Mistake::one_weight ? 0 : channel;
      const auto bits = static_cast<uint32_t>(inputs[static_cast<size_t>(token + j)]);
      acc = std::fma(number(weight_, filter * taps() + tap),
                     static_cast<float>(decode(x_.dtype(), bits)), acc);
    }
    if (has_silu_) acc = mistake_ == Mistake::sigmoid ? sigmoid(acc) : silu(acc);
    return is_late ? acc + bias : acc;
  }

 private:
  const HostTensor &x_, &weight_;
  const HostTensor* bias_;
  const bool has_silu_;
  const Mistake mistake_;
};

/// A slot of the pool, -1 for one that does not exist.
int64_t slot_at(const HostTensor* slots, int64_t element, int64_t count, Mistake mistake) {
  if (slots == nullptr) return element;
  const auto slot = static_cast<int64_t>(slots->value(element));
  if (mistake == Mistake::wraps_slot && slot == -1) return count - 1;
  return slot >= 0 && slot < count ? slot : -1;
}

}  // namespace

HostTensors causal_conv1d_fwd(const HostTensors& in, const Params& params, Mistake mistake) {
  const Filters filters(in, params, mistake);
  const HostTensor& x = in.at("x");
  const HostTensor *pool = given(in, "pool"), *initial = given(in, "initial_state");
  const bool is_reversed = mistake == Mistake::state_reversed;
  const int64_t taps = filters.taps(), tokens = filters.tokens(), channels = filters.channels();
  HostTensors result;
  HostTensor out(x.dtype(), x.shape());
  const auto asked = params.find("output_final_state");
  const bool has_final = asked != params.end() && std::get<bool>(asked->second);
  if (has_final) {
    result["final_state"] = HostTensor(x.dtype(), {filters.requests(), channels, taps - 1});
  }
  if (pool != nullptr) result["pool"] = *pool;
  for (int64_t b = 0; b < filters.requests(); ++b) {
    const int64_t count = pool == nullptr ? 0 : pool->shape()[0];
    const int64_t from = pool == nullptr ? b : slot_at(given(in, "read_slots"), b, count, mistake);
    const int64_t to = pool == nullptr ? -1 : slot_at(given(in, "write_slots"), b, count, mistake);
    for (int64_t c = 0; c < channels; ++c) {
      const HostTensor* states = pool == nullptr ? initial : pool;
      const Inputs inputs = filters.inputs_of(b, c, state_of(states, from, c, taps, is_reversed));
      for (int64_t t = 0; t < tokens; ++t) {
        set(out, (b * tokens + t) * channels + c, filters.output(inputs, t, c));
      }
      if (mistake == Mistake::keeps_state) continue;
      const Inputs last = last_inputs(inputs, tokens - 1, taps, mistake);
      if (has_final) set_state(result.at("final_state"), b, c, last, is_reversed);
      if (to >= 0) set_state(result.at("pool"), to, c, last, is_reversed);
    }
  }
  result["out"] = std::move(out);
  return result;
}

HostTensors causal_conv1d_update(const HostTensors& in, const Params& params, Mistake mistake) {
  const Filters filters(in, params, mistake);
  const HostTensor &x = in.at("x"), &pool = in.at("pool"), &write_slots = in.at("write_slots");
  const bool is_reversed = mistake == Mistake::state_reversed;
  const int64_t taps = filters.taps(), tokens = filters.tokens(), channels = filters.channels();
  const int64_t count = pool.shape()[0];
  const bool has_each = write_slots.shape().rank == 2;
  HostTensor out(x.dtype(), x.shape()), written = pool;
  out.fill_bytes(std::byte{0});
  for (int64_t b = 0; b < filters.requests(); ++b) {
    const int64_t from = slot_at(&in.at("read_slots"), b, count, mistake);
    if (from < 0 && mistake != Mistake::padded_row_runs) continue;
    for (int64_t c = 0; c < channels; ++c) {
      const Inputs inputs = filters.inputs_of(b, c, state_of(&pool, from, c, taps, is_reversed));
      for (int64_t t = 0; t < tokens; ++t) {
        set(out, (b * tokens + t) * channels + c, filters.output(inputs, t, c));
        if (t + 1 < tokens && (!has_each || mistake == Mistake::last_token_alone)) continue;
        const int64_t place = has_each ? b * tokens + t : b;
        const int64_t to = slot_at(&write_slots, place, count, mistake);
        if (to < 0 || mistake == Mistake::keeps_state) continue;
        set_state(written, to, c, last_inputs(inputs, t, taps, mistake), is_reversed);
      }
    }
  }
  HostTensors result;
  result["out"] = std::move(out);
  result["pool"] = std::move(written);
  return result;
}

HostTensors rmsnorm_gated_fwd(const HostTensors& in, const Params& params,
                              GatedNormMistake mistake) {
  const HostTensor &x = in.at("x"), &z = in.at("z"), &weight = in.at("weight");
  const int64_t width = weight.size(), rows = width == 0 ? 0 : x.size() / width;
  const auto found = params.find("eps");
  const auto eps =
      static_cast<float>(found == params.end() ? 1e-6 : std::get<double>(found->second));
  const bool is_other = mistake == GatedNormMistake::other_gate;
  const bool has_sigmoid = (activation_of(params, "silu") == "sigmoid") != is_other;
  HostTensor out(x.dtype(), x.shape());
  for (int64_t row = 0; row < rows; ++row) {
    const auto gate = [&](int64_t i) {
      const float by = number(mistake == GatedNormMistake::gate_of_x ? x : z, row * width + i);
      return has_sigmoid ? sigmoid(by) : silu(by);
    };
    std::vector<float> values;
    for (int64_t i = 0; i < width; ++i) {
      const float value = number(x, row * width + i);
      values.push_back(mistake == GatedNormMistake::gate_first ? value * gate(i) : value);
    }
    const float sum = lane_sum(values, values);
    const float mean =
        mistake == GatedNormMistake::sum_for_mean ? sum : sum / static_cast<float>(width);
    const float r = mistake == GatedNormMistake::eps_outside ? 1.0F / (std::sqrt(mean) + eps)
                                                             : 1.0F / std::sqrt(mean + eps);
    for (int64_t i = 0; i < width; ++i) {
      const float w = number(weight, mistake == GatedNormMistake::first_weight ? 0 : i);
      const float scaled = values[static_cast<size_t>(i)] * r;
      const float normed = scaled * w;
      set(out, row * width + i,
          mistake == GatedNormMistake::gate_first ? normed : normed * gate(i));
    }
  }
  return {{"out", std::move(out)}};
}

Runner linear_runner(const std::string& op) {
  if (op == "causal_conv1d_fwd") {
    return [](const HostTensors& in, const Params& p) { return causal_conv1d_fwd(in, p); };
  }
  if (op == "causal_conv1d_update") {
    return [](const HostTensors& in, const Params& p) { return causal_conv1d_update(in, p); };
  }
  if (op == "rmsnorm_gated_fwd") {
    return [](const HostTensors& in, const Params& p) { return rmsnorm_gated_fwd(in, p); };
  }
  return nullptr;
}

}  // namespace tessera::reference
