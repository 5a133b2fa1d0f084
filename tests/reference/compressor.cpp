#include "tests/reference/compressor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;

/// One row of a plan.
struct Fields {
  int64_t row, last, from_state, older, own, location, page_size;
};

Fields fields_of(const HostTensor& plan, int64_t i) {
  const auto field = [&](int64_t f) { return static_cast<int64_t>(plan.value(i * 8 + f)); };
  return {field(0), field(1), field(2), field(3), field(4), field(5), field(7)};
}

/// A row of kv and score that a slot takes: of x, or of the state.
struct Source {
  const HostTensor* tensor;
  int64_t row;
};
/// The sources of a window, nothing for slots that are absent.
using Window = std::vector<std::optional<Source>>;

bool exists(const Source& source) {
  return source.row >= 0 && source.row < source.tensor->shape()[0];
}

int64_t slots_of(int64_t ratio) {
  return ratio == 4 ? 8 : ratio;
}

/// Nothing if a row of it is missing.
std::optional<Window> window_of(const HostTensors& in, int64_t ratio, const Fields& f,
                                int64_t from_state) {
  const HostTensor &x = in.at("x"), &state = in.at("state");
  const int64_t slots = slots_of(ratio);
  if (!exists({&x, f.row}) || f.last < 0 || from_state < 0 || from_state > slots) {
    return std::nullopt;
  }
  Window window;
  for (int64_t s = 0; s < slots; ++s) {
    const bool is_older = ratio == 4 && s < 4;
    if (is_older && f.last < 4) {
      window.emplace_back();
      continue;
    }
    const int64_t first = is_older ? f.older : f.own;
    const int64_t slot = first < 0 ? -1 : first + (ratio == 4 ? s % 4 : s);
    const Source source =
        s < from_state ? Source{&state, slot} : Source{&x, f.row - (slots - 1 - s)};
    if (!exists(source)) return std::nullopt;
    window.emplace_back(source);
  }
  return window;
}

float element(const Source& source, int64_t column) {
  return static_cast<float>(source.tensor->value(source.row * source.tensor->shape()[1] + column));
}

/// COMPRESS of one channel.
float compressed(const Window& window, const HostTensor& ape, int64_t channel) {
  const int64_t channels = ape.shape()[1];
  const bool overlaps = window.size() == 8;
  std::vector<float> values(window.size()), biased(window.size());
  float peak = -std::numeric_limits<float>::infinity();
  for (size_t s = 0; s < window.size(); ++s) {
    if (!window[s]) continue;
    const int64_t part = overlaps && s >= 4 ? 1 : 0, parts = overlaps ? 2 : 1;
    values[s] = element(*window[s], part * channels + channel);
    const float score = element(*window[s], (parts + part) * channels + channel);
    const auto slot = static_cast<int64_t>(s);
    biased[s] = score + static_cast<float>(ape.value(slot * channels + channel));
    peak = std::fmax(peak, biased[s]);
  }
  std::vector<float> weights, sums;
  for (size_t first = 0; first < window.size(); first += 8) {
    float weight = 0, sum = 0;
    for (size_t s = first; s < first + 8; ++s) {
      if (!window[s]) continue;
      const float e = std::exp(biased[s] - peak);
      weight = weight + e;
      sum = std::fma(values[s], e, sum);
    }
    weights.push_back(weight);
    sums.push_back(sum);
  }
  for (std::vector<float>* parts : {&weights, &sums}) {
    while (parts->size() > 1) {
      std::vector<float> next;
      for (size_t g = 0; g < parts->size(); g += 2) next.push_back((*parts)[g] + (*parts)[g + 1]);
      *parts = next;
    }
  }
  return sums[0] / weights[0];
}

std::vector<float> entry_of(const Window& window, const HostTensor& ape) {
  std::vector<float> entry;
  for (int64_t d = 0; d < ape.shape()[1]; ++d) entry.push_back(compressed(window, ape, d));
  return entry;
}

void copy_row(const HostTensor& x, int64_t row, HostTensor& state, int64_t slot) {
  const int64_t length = x.shape()[1];
  for (int64_t i = 0; i < length; ++i) {
    const uint64_t bits = x.bits(row * length + i);
    if (x.dtype() == state.dtype()) {
      state.set_bits(slot * length + i, bits);
    } else {  // bf16 to f32
      const auto value = static_cast<float>(decode(DType::bf16, static_cast<uint32_t>(bits)));
      state.set_bits(slot * length + i, std::isnan(value) ? nan_code(DType::f32) : bits_of(value));
    }
  }
}

using Entries = std::vector<std::optional<std::vector<float>>>;

Entries prefill_entries(const HostTensors& in, int64_t ratio) {
  Entries entries;
  for (int64_t i = 0; i < in.at("plan").shape()[0]; ++i) {
    const Fields f = fields_of(in.at("plan"), i);
    const auto window = window_of(in, ratio, f, f.from_state);
    entries.emplace_back();
    if (window) entries.back() = entry_of(*window, in.at("ape"));
  }
  return entries;
}

/// Stores the tokens in `state`, then reads the windows.
Entries decode_entries(const HostTensors& in, int64_t ratio, HostTensor& state) {
  const HostTensor &x = in.at("x"), &plan = in.at("plan");
  std::vector<bool> is_stored;
  for (int64_t i = 0; i < plan.shape()[0]; ++i) {
    const Fields f = fields_of(plan, i);
    const int64_t slot = f.own + f.last % ratio;
    is_stored.push_back(exists({&x, f.row}) && f.last >= 0 && f.own >= 0 && exists({&state, slot}));
    if (is_stored.back()) copy_row(x, f.row, state, slot);
  }
  HostTensors after = in;
  after["state"] = state;
  Entries entries;
  for (int64_t i = 0; i < plan.shape()[0]; ++i) {
    const Fields f = fields_of(plan, i);
    entries.emplace_back();
    if (!is_stored[static_cast<size_t>(i)] || f.last % ratio != ratio - 1) continue;
    const auto window = window_of(after, ratio, f, slots_of(ratio));
    if (window) entries.back() = entry_of(*window, in.at("ape"));
  }
  return entries;
}

HostTensor table_of(const Entries& entries, int64_t channels, DType dtype) {
  HostTensor out(dtype, {static_cast<int64_t>(entries.size()), channels});
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto& entry = entries[static_cast<size_t>(i / channels)];
    const float value = entry ? (*entry)[static_cast<size_t>(i % channels)] : 0;
    out.set_bits(i, encode(dtype, value));
  }
  return out;
}

/// The cache once the entries are stored.
HostTensors stored(const HostTensors& in, const CompressorOptions& o, Entries entries) {
  HostTensors out = {{"cache", in.at("cache")}};
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i]) continue;
    const Fields f = fields_of(in.at("plan"), static_cast<int64_t>(i));
    const int64_t position = f.last / o.ratio * o.ratio;
    entries[i] =
        normalized_entry(*entries[i], in.at("norm_weight"), in.at("cos_sin"), position, o.entry);
    if (f.page_size != o.entry.page_size) continue;  // a plan for other pages
    store_entry(*entries[i], out.at("cache"), f.location, o.entry);
  }
  if (o.save_out) out["out"] = table_of(entries, in.at("ape").shape()[1], DType::f32);
  return out;
}

}  // namespace

HostTensor compress_fwd(const HostTensors& in, const CompressorOptions& o) {
  return table_of(prefill_entries(in, o.ratio), in.at("ape").shape()[1], o.out_dtype);
}

HostTensor compress_state_write(const HostTensors& in) {
  HostTensor state = in.at("state");
  const HostTensor &plan = in.at("write_plan"), &x = in.at("x");
  for (int64_t i = 0; i < plan.shape()[0]; ++i) {
    const auto row = static_cast<int64_t>(plan.value(2 * i));
    const auto slot = static_cast<int64_t>(plan.value(2 * i + 1));
    if (exists({&x, row}) && exists({&state, slot})) copy_row(x, row, state, slot);
  }
  return state;
}

HostTensors compress_prefill(const HostTensors& in, const CompressorOptions& o) {
  return {{"out", compress_fwd(in, o)}, {"state", compress_state_write(in)}};
}

HostTensors compress_decode(const HostTensors& in, const CompressorOptions& o) {
  HostTensor state = in.at("state");
  const Entries entries = decode_entries(in, o.ratio, state);
  return {{"out", table_of(entries, in.at("ape").shape()[1], o.out_dtype)},
          {"state", std::move(state)}};
}

HostTensors compress_store(const HostTensors& in, const CompressorOptions& o) {
  return stored(in, o, prefill_entries(in, o.ratio));
}

HostTensors compress_decode_store(const HostTensors& in, const CompressorOptions& o) {
  HostTensor state = in.at("state");
  HostTensors out = stored(in, o, decode_entries(in, o.ratio, state));
  out["state"] = std::move(state);
  return out;
}

}  // namespace tessera::reference
