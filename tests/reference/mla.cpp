#include "tests/reference/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "tests/reference/attention_rows.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;
using Mistake = MlaMistake;

constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kStep = 16;  // of one instruction
constexpr int64_t kBlock = 64, kValueWidth = 512;

float max_nan(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(a, b);
}

float score_of(const Number* q, const Number* key, int64_t width) {
  uint32_t sum = 0;
  for (int64_t d = 0; d < width; d += kStep) {
    sum = sum_of({}, number_of(DType::f32, sum), q + d, key + d, kStep);
  }
  return float_of(sum);
}

/// 64 sums, in the order of their tree.
class Classes {
 public:
  explicit Classes(Mistake mistake) : mistake_(mistake) {}

  void add(int64_t block, float f, const std::array<float, kBlock>& p) {
    const size_t own = mistake_ == Mistake::no_parity ? 0 : static_cast<size_t>(block % 2);
    for (auto& row : l_[1 - own]) {
      for (float& l : row) l *= mistake_ == Mistake::forgets_parity ? 1.0F : f;
    }
    for (size_t j = 0; j < p.size(); ++j) {
      float& l = l_[own][j % 8][j / 16];
      l = j % 16 < 8 ? std::fma(l, f, p[j]) : l + p[j];
    }
  }
  float total() const {
    std::array<float, 2> of{};
    for (size_t parity = 0; parity < 2; ++parity) {
      std::array<float, 8> u{};
      for (size_t i = 0; i < 8; ++i) {
        const auto& w = l_[parity][i];
        u[i] = (w[0] + w[1]) + (w[2] + w[3]);
      }
      of[parity] = ((u[0] + u[1]) + (u[2] + u[3])) + ((u[4] + u[5]) + (u[6] + u[7]));
    }
    return of[0] + of[1];
  }

 private:
  Mistake mistake_;
  std::array<std::array<std::array<float, 4>, 8>, 2> l_{};
};

}  // namespace

MlaPart mla_part(const Number* q, int64_t width, std::span<const Number* const> entries, float c,
                 Mistake mistake) {
  MlaPart part{-kInfinity, 0, std::vector<uint32_t>(kValueWidth, 0)};
  Classes sums(mistake);
  float m = -kInfinity;
  for (int64_t block = 0; block * kBlock < std::ssize(entries); ++block) {
    std::array<const Number*, kBlock> keys{};
    std::array<float, kBlock> x{}, p{};
    for (int64_t j = 0; j < kBlock; ++j) {
      const int64_t at = block * kBlock + j;
      const bool is_padding = at >= std::ssize(entries);
      const Number* key = is_padding ? nullptr : entries[static_cast<size_t>(at)];
      keys[static_cast<size_t>(j)] = key;
      float& score = x[static_cast<size_t>(j)];
      score = key != nullptr                                          ? score_of(q, key, width)
              : is_padding && mistake == Mistake::last_block_unmasked ? 0.0F
              : mistake == Mistake::large_negative                    ? -1e30F
                                                                      : -kInfinity;
      if (mistake == Mistake::scaled_scores) score *= c;
      m = mistake == Mistake::drops_nan ? std::fmax(m, score) : max_nan(m, score);
    }
    if (m == -kInfinity) continue;
    const float factor = mistake == Mistake::scaled_scores ? 1.0F : c;
    const float ms = m * factor, f = exp2_of(part.ms - ms);
    std::array<Number, kBlock> rounded{};
    for (size_t j = 0; j < p.size(); ++j) {
      p[j] = x[j] == -kInfinity ? 0.0F : exp2_of(std::fma(x[j], factor, -ms));
      if (std::isnan(x[j]) && mistake == Mistake::drops_nan) p[j] = 0;
      const uint32_t code = encode(DType::bf16, static_cast<double>(p[j]));
      rounded[j] = number_of(DType::bf16, code);
      if (mistake == Mistake::sums_rounded_p) p[j] = static_cast<float>(decode(DType::bf16, code));
    }
    sums.add(block, f, p);
    for (size_t d = 0; d < part.o.size(); ++d) {
      const bool is_kept = mistake == Mistake::forgets_half && d >= part.o.size() / 2;
      uint32_t& o = part.o[d];
      o = bits_of(float_of(o) * (is_kept ? 1.0F : f));
      for (size_t j = 0; j < kBlock; j += kStep) {
        std::array<Number, kStep> values{};  // entries that are not seen are zeros
        for (size_t e = 0; e < kStep; ++e) {
          if (keys[j + e] != nullptr) values[e] = keys[j + e][d];
        }
        o = sum_of({}, number_of(DType::f32, o), &rounded[j], values.data(), kStep);
      }
    }
    part.ms = ms;
  }
  part.l = sums.total();
  return part;
}

MlaRow mla_combined(std::vector<MlaPart> parts, const float* sink, Mistake mistake) {
  if (mistake == Mistake::backwards) std::reverse(parts.begin(), parts.end());
  if (mistake == Mistake::part_twice && parts.size() > 1) parts.push_back(parts.back());
  if (mistake == Mistake::forgets_part && parts.size() > 1) parts.erase(parts.begin());
  float top = -kInfinity;
  for (const MlaPart& part : parts) top = max_nan(top, part.ms);
  if (top == -kInfinity) return {std::vector<float>(kValueWidth, 0), kInfinity};
  float total = 0;
  std::vector<float> o(kValueWidth, 0);
  float before = -kInfinity;
  for (const MlaPart& part : parts) {
    if (mistake == Mistake::folds_parts) {
      const float now = max_nan(before, part.ms);
      if (part.ms == -kInfinity) continue;
      const float a = exp2_of(before - now), b = exp2_of(part.ms - now);
      total = std::fma(part.l, b, total * a);
      for (size_t d = 0; d < o.size(); ++d) o[d] = std::fma(float_of(part.o[d]), b, o[d] * a);
      before = now;
      continue;
    }
    const float f = exp2_of(part.ms - top);
    total = std::fma(part.l, f, total);
    for (size_t d = 0; d < o.size(); ++d) o[d] = std::fma(float_of(part.o[d]), f, o[d]);
  }
  float all = total;
  if (sink != nullptr) all += exp2_of(std::fma(*sink, static_cast<float>(kLog2E), -top));
  const float inverse = 1.0F / all;
  for (float& x : o) {
    x = mistake == Mistake::negative_zero ? x * inverse : std::fma(x, inverse, 0.0F);
  }
  const float of_lse = mistake == Mistake::sink_in_lse ? all : total;
  const auto log = static_cast<float>(std::log2(static_cast<double>(of_lse)));
  const float of_top = mistake == Mistake::adds_maxima ? parts.front().ms : top;
  return {std::move(o), (of_top + log) * static_cast<float>(kLn2)};
}

namespace {

DType out_dtype(const kernels::Params& params) {
  const auto found = params.find("out_dtype");
  const bool is_f32 = found != params.end() && std::get<std::string>(found->second) == "f32";
  return is_f32 ? DType::f32 : DType::bf16;
}

void set_row(HostTensor& out, int64_t row, const MlaRow& result) {
  for (int64_t d = 0; d < kValueWidth; ++d) {
    const auto value = static_cast<double>(result.out[static_cast<size_t>(d)]);
    out.set_bits(row * kValueWidth + d, encode(out.dtype(), value));
  }
}

}  // namespace

HostTensors mla_decode(const HostTensors& in, const kernels::Params& params, Mistake mistake) {
  const HostTensor &q = in.at("q"), &cache = in.at("cache"), &table = in.at("page_table");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], heads = q.shape()[2];
  const int64_t width = q.shape()[3], columns = table.shape()[1];
  const int64_t pages = cache.shape()[0], rows_of_page = cache.shape()[1];
  const int64_t page_size = mistake == Mistake::pages_of_64 ? 64 : rows_of_page;
  const auto causal = params.find("causal"), split = params.find("split_len");
  const bool is_causal = causal != params.end() && std::get<bool>(causal->second);
  const int64_t part_len = split == params.end() ? 4096 : std::get<int64_t>(split->second);
  const auto c = static_cast<float>(std::get<double>(params.at("sm_scale")) * kLog2E);
  const std::vector<Number> queries = numbers_of(q), keys = numbers_of(cache);
  HostTensor out(out_dtype(params), {requests, tokens, heads, kValueWidth});
  HostTensor lse(DType::f32, {requests, heads, tokens});
  const std::vector<Number> zeros(static_cast<size_t>(width));
  for (int64_t b = 0; b < requests; ++b) {
    int64_t length = length_of(in, "lengths", b, columns * rows_of_page);
    if (mistake == Mistake::behind_length) length = std::min(length + 1, columns * rows_of_page);
    std::vector<const Number*> entries;
    for (int64_t j = 0; j < length; ++j) {
      const int64_t column = j / page_size;
      const auto page =
          column < columns ? static_cast<int64_t>(table.value(b * columns + column)) : -1;
      const int64_t row = page * rows_of_page + j % page_size % rows_of_page;
      const bool has_page = page >= 0 && page < pages;
      const Number* const none = mistake == Mistake::missing_page ? zeros.data() : nullptr;
      entries.push_back(has_page ? &keys[static_cast<size_t>(row * width)] : none);
    }
    for (int64_t i = 0; i < tokens; ++i) {
      const int64_t behind = mistake == Mistake::top_left ? length - 1 - i : tokens - 1 - i;
      const int64_t seen = is_causal ? std::clamp<int64_t>(length - behind, 0, length) : length;
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t row = (b * tokens + i) * heads + head;
        std::vector<MlaPart> parts;
        for (int64_t first = 0; first == 0 || first < seen; first += part_len) {
          const auto of_part = std::span(entries).subspan(
              static_cast<size_t>(first), static_cast<size_t>(std::min(part_len, seen - first)));
          parts.push_back(
              mla_part(&queries[static_cast<size_t>(row * width)], width, of_part, c, mistake));
        }
        const MlaRow result = mla_combined(std::move(parts), nullptr, mistake);
        set_row(out, row, result);
        lse.set_value((b * heads + head) * tokens + i, static_cast<double>(result.lse));
      }
    }
  }
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

HostTensors mla_combine(const HostTensors& in, const kernels::Params& params, Mistake mistake) {
  const HostTensor &partial = in.at("partial"), &maxima = in.at("partial_max"),
                   &sums = in.at("partial_sum");
  const int64_t count = partial.shape()[0], rows = partial.shape()[1];
  const int64_t heads = std::get<int64_t>(params.at("num_heads"));
  HostTensor out(out_dtype(params), {rows, kValueWidth}), lse(DType::f32, {rows});
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<MlaPart> parts;
    for (int64_t z = 0; z < count; ++z) {
      const int64_t at = z * rows + row;
      MlaPart part{static_cast<float>(maxima.value(at)), static_cast<float>(sums.value(at)), {}};
      for (int64_t d = 0; d < kValueWidth; ++d) {
        part.o.push_back(static_cast<uint32_t>(partial.bits(at * kValueWidth + d)));
      }
      parts.push_back(std::move(part));
    }
    std::optional<float> sink;
    if (in.contains("attn_sink")) {
      const int64_t head = mistake == Mistake::sink_of_row ? row * heads / rows : row % heads;
      sink = static_cast<float>(in.at("attn_sink").value(head));
    }
    const MlaRow result = mla_combined(std::move(parts), sink ? &*sink : nullptr, mistake);
    set_row(out, row, result);
    lse.set_value(row, static_cast<double>(result.lse));
  }
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

HostTensors sparse_mla_fwd(const HostTensors& in, const kernels::Params& params, Mistake mistake) {
  const HostTensor &q = in.at("q"), &kv = in.at("kv"), &indices = in.at("indices");
  const int64_t tokens = q.shape()[0], heads = q.shape()[1], width = q.shape()[2];
  const int64_t rows = kv.shape()[0], count = indices.shape()[1];
  const auto c = static_cast<float>(std::get<double>(params.at("sm_scale")) * kLog2E);
  const std::vector<Number> queries = numbers_of(q), keys = numbers_of(kv);
  const std::vector<Number> zeros(static_cast<size_t>(width));
  HostTensor out(out_dtype(params), {tokens, heads, kValueWidth});
  HostTensor lse(DType::f32, {tokens, heads}), maxima(DType::f32, {tokens, heads});
  for (int64_t s = 0; s < tokens; ++s) {
    int64_t length = length_of(in, "topk_length", s, count);
    if (mistake == Mistake::behind_length) length = std::min(length + 1, count);
    std::vector<const Number*> entries;
    for (int64_t j = 0; j < length; ++j) {
      const auto row = static_cast<int64_t>(indices.value(s * count + j));
      const Number* entry = mistake == Mistake::missing_page ? zeros.data() : nullptr;
      if (row >= 0 && row < rows) entry = &keys[static_cast<size_t>(row * width)];
      const bool is_again = std::find(entries.begin(), entries.end(), entry) != entries.end();
      entries.push_back(mistake == Mistake::counts_once && is_again ? nullptr : entry);
    }
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = s * heads + head;
      float factor = c;
      bool is_sane = true;
      if (in.contains("q_scale")) {
        const int64_t of = mistake == Mistake::first_scale ? s * heads : at;
        const auto scale = static_cast<float>(in.at("q_scale").value(of));
        is_sane = std::isfinite(scale) && scale > 0;
        factor = c * scale;
      }
      std::optional<float> sink;
      if (in.contains("attn_sink")) sink = static_cast<float>(in.at("attn_sink").value(head));
      const MlaPart part = mla_part(&queries[static_cast<size_t>(at * width)], width, entries,
                                    is_sane ? factor : 1.0F, mistake);
      MlaRow row = mla_combined({part}, sink ? &*sink : nullptr, mistake);
      float highest = part.ms * static_cast<float>(kLn2);
      const float nan = std::numeric_limits<float>::quiet_NaN();
      if (std::isnan(part.l) || !is_sane) highest = nan;
      if (!is_sane) row = {std::vector<float>(kValueWidth, nan), nan};
      set_row(out, at, row);
      lse.set_value(at, static_cast<double>(row.lse));
      maxima.set_value(at, static_cast<double>(highest));
    }
  }
  return {{"out", std::move(out)}, {"max_logits", std::move(maxima)}, {"lse", std::move(lse)}};
}

Runner mla_runner(const std::string& op) {
  if (op == "sparse_mla_decode") {
    return [](const HostTensors& in, const kernels::Params& params) {
      return sparse_mla_decode(in, params);
    };
  }
  if (op == "sparse_mla_fwd") {
    return [](const HostTensors& in, const kernels::Params& params) {
      return sparse_mla_fwd(in, params);
    };
  }
  if (op == "mla_decode") {
    return
        [](const HostTensors& in, const kernels::Params& params) { return mla_decode(in, params); };
  }
  if (op != "mla_combine") return nullptr;
  return
      [](const HostTensors& in, const kernels::Params& params) { return mla_combine(in, params); };
}

}  // namespace tessera::reference
