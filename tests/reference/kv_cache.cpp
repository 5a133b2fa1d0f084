#include "tests/reference/kv_cache.h"

#include <cmath>

#include "tests/reference/lane_sum.h"
#include "tests/reference/numeric.h"
#include "tests/reference/scale.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;

template <class T>
T param(const Params& params, const std::string& name, T fallback) {
  const auto found = params.find(name);
  return found == params.end() ? fallback : std::get<T>(found->second);
}

/// Numbers beyond 2^53 are not needed exactly: they are no slots and no positions.
int64_t integer(const HostTensor& tensor, int64_t i) {
  return static_cast<int64_t>(tensor.bits(i) << (tensor.dtype() == DType::i32 ? 32 : 0)) >>
         (tensor.dtype() == DType::i32 ? 32 : 0);
}

std::vector<float> row_of(const HostTensor& tensor, int64_t row, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < columns; ++i) {
    values.push_back(static_cast<float>(tensor.value(row * columns + i)));
  }
  return values;
}

int64_t channels_of(const HostTensors& in, const EntryOptions& o) {
  const int64_t channels = channels_of_format(o.format);
  return channels > 0 ? channels : in.at("cache").shape()[1];
}

EntryOptions entry_options(const Params& params) {
  EntryOptions o;
  o.format = param<std::string>(params, "format", "bf16");
  o.page_size = param<int64_t>(params, "page_size", 64);
  o.norm_eps = static_cast<float>(param<double>(params, "norm_eps", 1e-6));
  o.hadamard = param<bool>(params, "hadamard", false);
  o.halves = param<std::string>(params, "cos_sin_layout", "pairs") == "halves";
  o.in_rows = param<std::string>(params, "cache_order", "planes") == "rows";
  o.rounds = param<bool>(params, "round_before", true);
  return o;
}

}  // namespace

HostTensor kv_store(const HostTensors& in, const EntryOptions& options) {
  EntryOptions o = options;
  o.rounds = false;
  HostTensor cache = in.at("cache");
  const HostTensor& x = in.at("x");
  for (int64_t t = 0; t < x.shape()[0]; ++t) {
    store_entry(row_of(x, t, x.shape()[1]), cache, integer(in.at("loc"), t), o);
  }
  return cache;
}

HostTensor kv_load(const HostTensors& in, const EntryOptions& o, DType out_dtype) {
  const HostTensor& loc = in.at("loc");
  const int64_t channels = channels_of(in, o);
  HostTensor out(out_dtype, {loc.size(), channels});
  for (int64_t t = 0; t < loc.size(); ++t) {
    const std::vector<float> values = load_entry(in.at("cache"), integer(loc, t), channels, o);
    for (int64_t i = 0; i < channels; ++i) {
      out.set_bits(t * channels + i, encode(out_dtype, values[static_cast<size_t>(i)]));
    }
  }
  return out;
}

HostTensor kv_norm_rope_store(const HostTensors& in, const EntryOptions& o) {
  HostTensor cache = in.at("cache");
  const HostTensor& x = in.at("x");
  for (int64_t t = 0; t < x.shape()[0]; ++t) {
    const int64_t position = integer(in.at("positions"), t);
    if (position == -1) continue;
    const std::vector<float> entry = normalized_entry(
        row_of(x, t, x.shape()[1]), in.at("norm_weight"), in.at("cos_sin"), position, o);
    store_entry(entry, cache, integer(in.at("loc"), t), o);
  }
  return cache;
}

HostTensor q_norm_rope(const HostTensors& in, const EntryOptions& o) {
  const HostTensor& q = in.at("q");
  const int64_t heads = q.shape()[1], channels = q.shape()[2];
  HostTensor out(DType::bf16, q.shape());
  for (int64_t row = 0; row < q.shape()[0] * heads; ++row) {
    const int64_t position = integer(in.at("positions"), row / heads);
    std::vector<float> values = row_of(q, row, channels);
    const float mean = lane_sum(values, values) / static_cast<float>(channels);
    const float inverse = 1.0F / std::sqrt(mean + o.norm_eps);
    for (float& value : values) {
      value = static_cast<float>(decode(DType::bf16, encode(DType::bf16, value * inverse)));
    }
    rotate_pairs(values, channels - 64, in.at("cos_sin"), position, o.halves);
    for (int64_t i = 0; i < channels; ++i) {
      const float value = position == -1 ? 0.0F : values[static_cast<size_t>(i)];
      out.set_bits(row * channels + i, encode(DType::bf16, value));
    }
  }
  return out;
}

HostTensors index_q_store(const HostTensors& in, const IndexQueryOptions& o) {
  constexpr int64_t kChannels = 128;
  const HostTensor &q = in.at("q"), &weight = in.at("weight");
  const int64_t heads = q.shape()[1];
  HostTensor out(DType::e4m3, q.shape()), weights(DType::f32, weight.shape());
  for (int64_t row = 0; row < weight.size(); ++row) {
    const int64_t position = integer(in.at("positions"), row / heads);
    const bool is_padding = position == -1;
    std::vector<float> values = row_of(q, row, kChannels);
    rotate_pairs(values, o.rope_first ? 0 : kChannels - 64, in.at("cos_sin"), position, o.halves);
    if (o.hadamard) hadamard_transform(values);
    float largest = 0;
    for (const float value : values) largest = std::fmax(largest, std::fabs(value));
    const Scale scale = scale_of(largest, DType::e4m3, false);
    for (int64_t i = 0; i < kChannels; ++i) {
      const float value = is_padding ? 0.0F : values[static_cast<size_t>(i)] * scale.inv;
      out.set_bits(row * kChannels + i, encode(DType::e4m3, value));
    }
    const float folded = static_cast<float>(weight.value(row)) * o.weight_scale * scale.sf;
    weights.set_bits(row, encode(DType::f32, is_padding ? 0.0F : folded));
  }
  return {{"out", std::move(out)}, {"weights", std::move(weights)}};
}

Runner kv_cache_runner(const std::string& op) {
  if (op == "kv_store") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"cache", kv_store(in, entry_options(params))}};
    };
  }
  if (op == "kv_load") {
    return [](const HostTensors& in, const Params& params) {
      const bool is_f32 = param<std::string>(params, "out_dtype", "bf16") == "f32";
      return HostTensors{
          {"out", kv_load(in, entry_options(params), is_f32 ? DType::f32 : DType::bf16)}};
    };
  }
  if (op == "kv_norm_rope_store") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"cache", kv_norm_rope_store(in, entry_options(params))}};
    };
  }
  if (op == "q_norm_rope") {
    return [](const HostTensors& in, const Params& params) {
      return HostTensors{{"out", q_norm_rope(in, entry_options(params))}};
    };
  }
  if (op != "index_q_store") return nullptr;
  return [](const HostTensors& in, const Params& params) {
    IndexQueryOptions o;
    o.weight_scale = static_cast<float>(param<double>(params, "weight_scale", 1));
    o.hadamard = param<bool>(params, "hadamard", true);
    o.rope_first = param<bool>(params, "rope_first", false);
    o.halves = param<std::string>(params, "cos_sin_layout", "pairs") == "halves";
    return index_q_store(in, o);
  };
}

}  // namespace tessera::reference
