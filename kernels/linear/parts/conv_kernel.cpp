// Short causal convolution of each channel: a thread has neighbouring channels of a run of tokens.
//
// Shapes   x, out [batch, tokens, channels], weight [channels, taps], states [slots, channels, taps - 1]
// Dtypes   x, out, states bf16|f16|f32; weight, bias as x or f32
// Method   The thread keeps the last inputs of its channels in registers and reads each input of its run once; inputs
//          before the run it reads again. So a block depends on no other block. The block of a request's first run reads
//          the old state and, once it has, writes the new one, whose inputs are the last of x: a slot may be read and
//          written. The bound is bytes / copy bandwidth: x and out once, 1 + (taps - 1) / 32 times x if the cache keeps none.
// Maths    acc = bias or +0; acc = fma(weight_j, x_(t - taps + 1 + j), acc), j ascending; silu(acc) = acc / (1 + exp(-acc))
//          in f32; out = round. A state holds inputs unrounded, so any cut gives the bits of the whole.

#include "kernels/linear/parts/conv_kernel.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/linear/parts/slots.h"
#include "kernels/views/alignment.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::linear {

using namespace dsl;

namespace {

constexpr int64_t kRun = 32;  // tokens of a thread: at least the taps before its first
constexpr int64_t kWarp = 32, kMaxWarps = 4;

/// A tensor of states.
class States {
 public:
  States(Builder& k, const ConvSpec& s, const std::string& name, bool is_output)
      : k_(k), s_(s), slots_(k.dim(name + "_slots")) {
    const int64_t inputs = s.taps - 1;
    const DimOptions apart{.multiple_of = s.state_width};
    const auto stride = [&](const char* of) { return Arg(k.stride(name + of, apart)); };
    auto row = k.dim(name + "_row", apart);
    std::vector<Arg> shape, strides;
    switch (s.form) {
      case StateForm::packed:
        shape = {slots_, row}, strides = {stride("_slot"), 1};
        break;
      case StateForm::by_channel:
        shape = {slots_, inputs, row}, strides = {stride("_slot"), stride("_input"), 1};
        break;
      case StateForm::any:
        shape = {slots_, inputs, row};
        strides = {stride("_slot"), stride("_input"), stride("_channel")};
        break;
    }
    const TensorOptions options = {.strides = strides,
                                   .align = int64_t{bytes(s.dtype)} * s.state_width};
    states_ = is_output ? k.output(name, s.dtype, shape, options)
                        : k.input(name, s.dtype, shape, options);
  }

  const Value& slots() const { return slots_; }

  /// Loads the inputs of the channels from `channel` on into rows 1 .. taps - 1 of `window` [taps, width].
  void load(const Value& slot, const Value& channel, const Ref& window) const {
    visit(slot, channel, window, [](const Ref& state, const Ref& input) { input = state.read(); });
  }
  void store(const Value& slot, const Value& channel, const Ref& window) const {
    visit(slot, channel, window, [](const Ref& state, const Ref& input) { state = input.read(); });
  }

 private:
  template <class Move>
  void visit(const Value& slot, const Value& channel, const Ref& window, const Move& move) const {
    const int inputs = s_.taps - 1;
    if (s_.form == StateForm::packed) {
      for (int first = 0; first < inputs * s_.width; first += s_.state_width) {
        k_.vectorized(s_.state_width, [&](Value i) {
          auto at = first + i;
          move((*states_)(slot, channel * inputs + at).unchecked(),
               window(1 + at % inputs, at / inputs));
        });
      }
      return;
    }
    for (int j = 0; j < inputs; ++j) {
      for (int first = 0; first < s_.width; first += s_.state_width) {
        k_.vectorized(s_.state_width, [&](Value i) {
          auto at = first + i;
          move((*states_)(slot, j, channel + at).unchecked(), window(1 + j, at));
        });
      }
    }
  }

  Builder& k_;
  const ConvSpec& s_;
  Value slots_;
  std::optional<Ref> states_;
};

/// Filters of the thread's channels.
class Filters {
 public:
  Filters(Builder& k, const ConvSpec& s, const Value& channels) : k_(k), s_(s) {
    const int64_t align = int64_t{bytes(s.weight_dtype)} * s.weight_width;
    weight_ = k.input("weight", s.weight_dtype, {channels * int64_t{s.taps}}, {.align = align});
    if (!s.has_bias) return;
    bias_ = k.input("bias", s.weight_dtype, {channels}, {.align = bytes(s.weight_dtype)});
  }

  void load(const Value& channel) {
    const int count = s_.taps * s_.width;
    taps_ = k_.local(s_.weight_dtype, {count}, "taps");
    for (int first = 0; first < count; first += s_.weight_width) {
      k_.vectorized(s_.weight_width, [&](Value i) {
        (*taps_)(first + i) = (*weight_)(channel * int64_t{s_.taps} + (first + i)).unchecked();
      });
    }
    if (!bias_) return;
    start_ = k_.local(DType::f32, {s_.width}, "start");
    k_.unrolled(s_.width, [&](Value i) { (*start_)(i) = f32((*bias_)(channel + i).unchecked()); });
  }

  /// The output of channel i whose inputs are column i of `window`.
  Value output(const Ref& window, const Value& i) const {
    Value acc = start_ ? Value((*start_)(i)) : f32(0.0f);
    for (int j = 0; j < s_.taps; ++j) {
      acc = fma(f32((*taps_)(i * int64_t{s_.taps} + j)), f32(window(j, i)), acc);
    }
    auto sum = k_.let("sum", acc);
    return s_.has_silu ? silu(sum) : sum;
  }

 private:
  Builder& k_;
  const ConvSpec& s_;
  std::optional<Ref> weight_, bias_, taps_, start_;
};

}  // namespace

ir::Kernel build_conv(const ConvSpec& s) {
  const int64_t threads = s.warps * kWarp, width = s.width, inputs = s.taps - 1;
  Builder k(s.is_update ? "causal_conv1d_update" : "causal_conv1d_fwd");
  const DimOptions apart{.multiple_of = width};
  // Without tokens no tensor may have these extents.
  const auto extent = [&](const char* dim, const char* of_call, const DimOptions& options) {
    return s.has_tokens ? k.dim(dim, options) : k.scalar(of_call, DType::i32);
  };
  auto batch = extent("batch", "B", {}), channels = extent("channels", "C", apart);
  std::optional<Value> tokens;
  std::optional<Ref> x, out;
  std::optional<Filters> filters;
  if (s.has_tokens) {
    tokens = k.dim("tokens");
    const int64_t align = bytes(s.dtype) * width;
    x = k.input(
        "x", s.dtype, {batch, *tokens, channels},
        {.strides = {k.stride("x_request", apart), k.stride("x_token", apart), 1}, .align = align});
    out = k.output("out", s.dtype, {batch, *tokens, channels}, {.align = align});
    filters.emplace(k, s, channels);
  }
  std::optional<States> from, to;
  if (s.reads_state) {
    from.emplace(k, s, s.has_pool ? "pool" : "initial_state", s.has_pool);
  }
  if (s.writes_state && !s.has_pool) to.emplace(k, s, "final_state", true);
  const States* written = to ? &*to : s.writes_state ? &*from : nullptr;
  std::optional<Ref> read_slots, write_slots;
  if (s.has_read_slots) read_slots = k.input("read_slots", DType::i32, {batch}, {.align = 4});
  if (s.has_slot_of_token) {
    write_slots = k.input("write_slots", DType::i32, {batch, *tokens}, {.align = 4});
  } else if (s.has_write_slots) {
    write_slots = k.input("write_slots", DType::i32, {batch}, {.align = 4});
  }
  const Value columns = ceil_div(channels, width * threads);
  const Value runs = tokens ? ceil_div(*tokens, kRun) : i32(1);
  auto at = k.launch({columns * runs * batch}, {.threads = static_cast<int>(threads)});
  k.let_next_kernel_start();
  auto channel = k.let("channel", (at.x % columns * threads + k.thread()) * width);
  auto run = k.let("run", at.x / columns % runs), request = k.let("request", at.x / columns / runs);
  k.wait_for_previous_kernel();
  auto window = k.local(s.dtype, {s.taps, width}, "window");
  const auto clear = [&] {
    k.unrolled(s.taps, [&](Value j) {
      k.unrolled(width, [&](Value i) { window(j, i) = cast(s.dtype, 0.0f); });
    });
  };
  const auto load_input = [&](const Value& token, const Value& row) {
    k.vectorized(width,
                 [&](Value i) { window(row, i) = (*x)(request, token, channel + i).unchecked(); });
  };
  const auto store_row = [&](const Value& token, const Ref& values) {
    k.vectorized(width,
                 [&](Value i) { (*out)(request, token, channel + i).unchecked() = values(i); });
  };
  const auto store_state = [&](const Value& given) {
    auto slot = write_slots ? slot_of(k, given, written->slots(), "write_slots") : given;
    k.if_(slot >= 0, [&] { written->store(slot, channel, window); });
  };
  const auto convolve = [&] {
    auto first = k.let("first", run * kRun);
    const auto step = [&](Value token) {
      for (int64_t j = 0; j < inputs; ++j) {
        k.unrolled(width, [&](Value i) { window(j, i) = window(j + 1, i).read(); });
      }
      load_input(token, i32(inputs));
      auto values = k.local(s.dtype, {width}, "values");
      k.unrolled(width, [&](Value i) { values(i) = cast(s.dtype, filters->output(window, i)); });
      store_row(token, values);
      if (s.has_slot_of_token) store_state((*write_slots)(request, token));
    };
    const Value end = min(first + kRun, *tokens);
    // A few tokens: unrolled, they take registers and time to compile.
    s.is_update ? k.rolled(first, end, step) : k.serial(first, end, step);
  };
  k.if_(channel < channels, [&] {
    if (filters) filters->load(channel);
    clear();
    auto slot = k.var(DType::i32, request, "read_slot");
    if (read_slots) slot = slot_of(k, (*read_slots)(request), from->slots(), "read_slots");
    const auto load_state = [&] {
      if (from) k.if_(Value(slot) >= 0, [&] { from->load(slot, channel, window); });
    };
    if (!s.has_tokens) {
      load_state();
    } else if (s.is_update) {
      k.if_else(
          Value(slot) >= 0,
          [&] {
            from->load(slot, channel, window);
            convolve();
            if (!s.has_slot_of_token) store_state((*write_slots)(request));
          },
          [&] {
            auto zeros = k.local(s.dtype, {width}, "zeros");
            k.unrolled(width, [&](Value i) { zeros(i) = cast(s.dtype, 0.0f); });
            k.rolled(0, *tokens, [&](Value token) { store_row(token, zeros); });
          });
      return;
    } else {
      k.if_else(run == 0, load_state, [&] {
        for (int64_t j = 0; j < inputs; ++j) load_input(run * kRun - (inputs - j), i32(1 + j));
      });
      convolve();
    }
    if (written == nullptr) return;
    k.if_(run == 0, [&] {
      if (s.has_tokens) {
        k.if_(*tokens > kRun, [&] {
          for (int64_t j = 0; j < inputs; ++j) load_input(*tokens - (inputs - j), i32(1 + j));
        });
      }
      store_state(write_slots ? Value((*write_slots)(request)) : request);
    });
  });
  return k.finish();
}

namespace {

/// Looks at a tensor of states [slots, channels, taps - 1] of the call: its form, which all have, and its widest access.
void add_states(ConvSpec& s, const Call& c, const char* name, Args& args) {
  const TensorView& states = c.given(name);
  const int64_t inputs = s.taps - 1, most = 16 / bytes(s.dtype);
  const auto has_step = [&](int dim, int64_t stride) {
    return states.shape[dim] == 1 || states.strides[dim] == stride;
  };
  TensorView rows = states;
  std::swap(rows.shape[1], rows.shape[2]), std::swap(rows.strides[1], rows.strides[2]);
  int64_t of_thread = s.width;
  s.form = has_step(1, 1) ? StateForm::by_channel : StateForm::any;
  if (has_step(2, 1) && has_step(1, inputs)) {
    s.form = StateForm::packed;
    rows = reshaped(states, {states.shape[0], states.shape[1] * inputs});
    of_thread *= inputs;
  }
  args.tensors.push_back({name, rows});
  const int64_t widest = s.form == StateForm::any ? 1 : common_vector(rows, most);
  const int64_t before = s.state_width == 0 ? of_thread : s.state_width;
  s.state_width = static_cast<uint8_t>(std::gcd(std::gcd(widest, of_thread), before));
}

}  // namespace

void require_weight(const Call& c) {
  const DType x = c.given("x").dtype, weight = c.given("weight").dtype;
  c.need(weight == x || weight == DType::f32, "weight", "argument 'weight' has the wrong dtype",
         "f32, or that of x, " + std::string(name(x)), name(weight));
}

void add_conv(const Call& c, Launches& go, bool is_update) {
  const int64_t channels = c["C"], taps = c["W"], tokens = c[is_update ? "n" : "S"];
  const TensorView &x = c.given("x"), &weight = c.given("weight");
  const bool has_final = !is_update && c.flag("output_final_state");
  ConvSpec s{};
  s.is_update = is_update, s.has_tokens = tokens > 0;
  s.dtype = x.dtype, s.weight_dtype = weight.dtype;
  s.taps = static_cast<uint8_t>(taps);
  s.has_bias = c.has("bias"), s.has_silu = c.word("activation") == "silu";
  s.has_pool = c.has("pool");
  s.reads_state = s.has_pool || (!is_update && c.has("initial_state"));
  s.writes_state = s.has_pool || has_final;
  if (c["B"] == 0 || channels == 0 || (!s.has_tokens && !s.writes_state)) return;
  s.has_read_slots = c.has("read_slots"), s.has_write_slots = c.has("write_slots");
  s.has_slot_of_token = s.has_write_slots && c.given("write_slots").rank() == 2;
  const int64_t most = 16 / bytes(s.dtype);
  int64_t width = std::gcd(most, channels);
  Args args;
  if (s.has_tokens) {
    for (const char* name : {"x", "out"}) {
      width = std::gcd(width, common_vector(c.given(name), most));
    }
    args.tensors.push_back({"weight", reshaped(weight, {channels * taps})});
    const TensorView& filters = args.tensors.back().view;
    s.weight_width = static_cast<uint8_t>(
        std::gcd(common_vector(filters, 16 / bytes(s.weight_dtype)), width * taps));
  }
  s.width = static_cast<uint8_t>(width);
  s.warps = static_cast<uint8_t>(std::min(kMaxWarps, (channels / width + kWarp - 1) / kWarp));
  if (s.has_pool) add_states(s, c, "pool", args);
  if (!s.has_pool && s.reads_state) add_states(s, c, "initial_state", args);
  if (has_final) add_states(s, c, "final_state", args);
  go.add(build_conv, s, args);
}

}  // namespace tessera::kernels::linear
