#include "tests/reference/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tests/reference/attention_bwd.h"
#include "tests/reference/attention_rows.h"
#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;
using Mistake = AttentionMistake;
using Request = AttentionRequest;

constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kStep = 16;  // of one instruction

float max_nan(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<float>::quiet_NaN();
  return std::max(a, b);
}

/// A request's keys in a cache.
struct Cached {
  std::vector<bool> is_missing = {};  // keys whose page does not exist
  std::optional<HostTensor> k_sf = {}, v_sf = {};
};

class Attention {
 public:
  Attention(const HostTensors& in, const kernels::Params& params, Mistake mistake,
            Cached cached = {})
      : mistake_(mistake),
        cached_(std::move(cached)),
        dtype_(in.at("q").dtype()),
        heads_(from_end(in.at("q"), 2)),
        width_(from_end(in.at("q"), 1)),
        value_width_(from_end(in.at("v"), 1)),
        groups_(from_end(in.at("k"), 2)),
        options_(attention_options(params, width_)),
        q_(numbers_of(in.at("q"))),
        k_(numbers_of(in.at("k"))),
        v_(numbers_of(in.at("v"))) {
    if (in.contains("sink")) sink_ = in.at("sink");
    block_ = width_ > 192 ? 64 : 128;
    if (mistake == Mistake::small_blocks) block_ /= 2;
    const double of_base_2 = options_.softcap > 0 ? options_.softcap : options_.scale;
    c_ = static_cast<float>(of_base_2 * kLog2E);
    cap_ = static_cast<float>(options_.scale / options_.softcap);
  }

  void run(const Request& r, HostTensor& out, HostTensor& lse) const {
    for (int64_t head = 0; head < heads_; ++head) {
      for (int64_t i = 0; i < r.rows; ++i) {
        const int64_t row = (r.q_row + i) * heads_ + head;
        lse.set_value(r.lse + head * r.lse_of_head + i,
                      run_row(r, i, head, out, row * value_width_));
      }
    }
  }

 private:
  /// The sums of a row: class (j mod 8, j div 16 mod 4) of key j of a block.
  struct State {
    float m = -kInfinity, ms = -kInfinity;
    std::array<std::array<float, 4>, 8> l{};
    std::vector<uint32_t> o;  // f32
  };
  /// Some blocks of a row, their classes joined.
  struct Part {
    float ms = -kInfinity, l = 0;
    std::vector<uint32_t> o;
    bool is_empty = true;
  };

  float of_head(const std::optional<HostTensor>& scales, int64_t k_head) const {
    return static_cast<float>(scales->value(mistake_ == Mistake::scale_of_head_0 ? 0 : k_head));
  }
  /// The factor of scores: c, or that inside of the cap.
  float factor(int64_t k_head) const {
    const float f = options_.softcap > 0 ? cap_ : c_;
    return cached_.k_sf ? f * of_head(cached_.k_sf, k_head) : f;
  }

  float score(const Request& r, int64_t row, int64_t j, int64_t head) const {
    const int64_t k_head =
        mistake_ == Mistake::exchanged_heads ? head % groups_ : head / (heads_ / groups_);
    const Number* a = &q_[static_cast<size_t>(row / value_width_ * width_)];
    const Number* b = &k_[static_cast<size_t>(((r.k_row + j) * groups_ + k_head) * width_)];
    uint32_t sum = 0;
    for (int64_t d = 0; d < width_; d += kStep) {
      sum = sum_of({}, number_of(DType::f32, sum), a + d, b + d, kStep);
    }
    const float s = float_of(sum);
    if (options_.softcap <= 0) return s;
    const float scaled = s * factor(k_head);
    return static_cast<float>(std::tanh(static_cast<double>(scaled)));
  }

  /// One block of keys, the first of them `first`; x has their scores.
  void visit(const Request& r, int64_t first, int64_t k_head, std::vector<float>& x,
             State& state) const {
    if (mistake_ == Mistake::scaled_scores) {
      for (float& score : x) score *= c_;
    }
    const float c = mistake_ == Mistake::scaled_scores ? 1.0F
                    : options_.softcap > 0             ? c_
                                                       : factor(k_head);
    float m = state.m;
    for (const float score : x) {
      m = mistake_ == Mistake::drops_nan ? std::fmax(m, score) : max_nan(m, score);
    }
    if (m == -kInfinity) return;
    const float ms = m * c, f = exp2_of(state.ms - ms);
    std::vector<Number> rounded;
    std::array<std::array<bool, 4>, 8> has_first{};
    for (size_t j = 0; j < x.size(); ++j) {
      float p = x[j] == -kInfinity ? 0.0F : exp2_of(std::fma(x[j], c, -ms));
      if (std::isnan(x[j]) && mistake_ == Mistake::drops_nan) p = 0;
      const uint32_t code = encode(dtype_, static_cast<double>(p));
      rounded.push_back(number_of(dtype_, code));
      if (mistake_ == Mistake::sums_rounded_p) p = static_cast<float>(decode(dtype_, code));
      const bool one = mistake_ == Mistake::one_class;
      const size_t u = one ? 0 : j % 8, w = one ? 0 : j / 16 % 4;
      float& l = state.l[u][w];
      const float of_sum = mistake_ == Mistake::forgets_sum ? 1.0F : f;
      l = has_first[u][w] ? l + p : std::fma(l, of_sum, p);
      has_first[u][w] = true;
    }
    for (int64_t d = 0; d < value_width_; ++d) {
      const bool is_kept = mistake_ == Mistake::forgets_half && d >= value_width_ / 2;
      uint32_t& o = state.o[static_cast<size_t>(d)];
      o = bits_of(float_of(o) * (is_kept ? 1.0F : f));
      for (int64_t j = 0; j < block_; j += kStep) {
        std::array<Number, kStep> values{};  // rows behind the request are zeros
        for (int64_t e = 0; e < kStep && first + j + e < r.k_length; ++e) {
          const int64_t row = (r.k_row + first + j + e) * groups_ + k_head;
          values[static_cast<size_t>(e)] = v_[static_cast<size_t>(row * value_width_ + d)];
        }
        o = sum_of({}, number_of(DType::f32, o), &rounded[static_cast<size_t>(j)], values.data(),
                   kStep);
      }
    }
    state.m = m, state.ms = ms;
  }

  /// Writes a row of out and returns its lse.
  float run_row(const Request& r, int64_t i, int64_t head, HostTensor& out, int64_t at) const {
    const SeenKeys seen = keys_seen(options_, r, i, mistake_);
    const int64_t k_head =
        mistake_ == Mistake::exchanged_heads ? head % groups_ : head / (heads_ / groups_);
    const auto start = [&] {
      State state;
      state.o.assign(static_cast<size_t>(value_width_), 0);
      return state;
    };
    std::vector<Part> parts;
    State state = start();
    for (int64_t first = seen.begin / block_ * block_; first < seen.end; first += block_) {
      std::vector<float> x;
      for (int64_t j = first; j < first + block_; ++j) {
        const bool is_missing = mistake_ != Mistake::missing_page &&
                                j < std::ssize(cached_.is_missing) &&
                                cached_.is_missing[static_cast<size_t>(j)];
        const bool is_seen = j >= seen.begin && j < seen.end && !is_missing;
        x.push_back(is_seen ? score(r, at, j, head)
                    : j >= r.k_length && mistake_ == Mistake::last_block_unmasked ? 0.0F
                    : mistake_ == Mistake::large_negative                         ? -1e30F
                                                                                  : -kInfinity);
      }
      visit(r, first, k_head, x, state);
      const int64_t next = first + block_;
      if (options_.split_len > 0 && next % options_.split_len == 0 && next < seen.end) {
        parts.push_back(part_of(state));
        state = start();
      }
    }
    parts.push_back(part_of(state));
    return finish(head, k_head, join(parts), out, at);
  }

  Part part_of(const State& state) const {
    std::array<float, 8> of_u{};
    for (size_t u = 0; u < 8; ++u) {
      const auto& l = state.l[u];
      of_u[u] = (l[0] + l[1]) + (l[2] + l[3]);
    }
    const float total =
        ((of_u[0] + of_u[1]) + (of_u[2] + of_u[3])) + ((of_u[4] + of_u[5]) + (of_u[6] + of_u[7]));
    return {state.ms, total, state.o, state.m == -kInfinity};
  }

  Part join(std::vector<Part> parts) const {
    if (parts.size() > 1) {
      if (mistake_ == Mistake::backwards) std::reverse(parts.begin(), parts.end());
      if (mistake_ == Mistake::part_twice) parts.push_back(parts.back());
      if (mistake_ == Mistake::forgets_part) parts.erase(parts.begin());
    }
    Part all = parts.front();
    for (size_t z = 1; z < parts.size(); ++z) {
      const Part& part = parts[z];
      const float top = max_nan(all.ms, part.ms);
      if (part.is_empty || top == -kInfinity) continue;
      const float a = exp2_of(all.ms - top), b = exp2_of(part.ms - top);
      all.l = std::fma(part.l, b, all.l * a);
      for (size_t d = 0; d < all.o.size(); ++d) {
        all.o[d] = bits_of(std::fma(float_of(part.o[d]), b, float_of(all.o[d]) * a));
      }
      all.ms = top, all.is_empty = false;
    }
    return all;
  }

  float finish(int64_t head, int64_t k_head, const Part& row, HostTensor& out, int64_t at) const {
    float total = row.l;
    const float f = factor(k_head);
    if (cached_.k_sf && !(f > 0 && std::isfinite(f))) total = std::nanf("");
    float all = total;
    if (sink_) {
      const auto sink = static_cast<float>(sink_->value(head));
      float of_sink = exp2_of(std::fma(sink, static_cast<float>(kLog2E), -row.ms));
      if (mistake_ == Mistake::v_sf_before_sink) of_sink *= of_head(cached_.v_sf, k_head);
      all += of_sink;
    }
    float inverse = 1.0F / all;
    if (cached_.v_sf) inverse *= of_head(cached_.v_sf, k_head);
    for (int64_t d = 0; d < value_width_; ++d) {
      const float o = float_of(row.o[static_cast<size_t>(d)]);
      const float result =
          mistake_ == Mistake::negative_zero ? o * inverse : std::fma(o, inverse, 0.0F);
      out.set_bits(at + d, encode(dtype_, static_cast<double>(row.is_empty ? 0.0F : result)));
    }
    if (row.is_empty) return kInfinity;
    const float of_lse = mistake_ == Mistake::sink_in_lse ? all : total;
    const auto log = static_cast<float>(std::log2(static_cast<double>(of_lse)));
    return (row.ms + log) * static_cast<float>(kLn2);
  }

  const Mistake mistake_;
  const Cached cached_;
  const DType dtype_;
  const int64_t heads_, width_, value_width_, groups_;
  const AttentionOptions options_;
  const std::vector<Number> q_, k_, v_;
  std::optional<HostTensor> sink_;
  int64_t block_;
  float c_, cap_;
};

}  // namespace

HostTensors attention(const HostTensors& in, const kernels::Params& params, Mistake mistake) {
  const Attention op(in, params, mistake);
  const Dims& q = in.at("q").shape();
  const int64_t value_width = from_end(in.at("v"), 1);
  const bool is_packed = q.rank == 3;
  HostTensor out(in.at("q").dtype(),
                 is_packed ? Dims{q[0], q[1], value_width} : Dims{q[0], q[1], q[2], value_width});
  HostTensor lse(DType::f32, is_packed ? Dims{q[1], q[0]} : Dims{q[0], q[2], q[1]});
  for (const Request& r : attention_requests(in)) op.run(r, out, lse);
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

HostTensors attention_decode(const HostTensors& in, const kernels::Params& given, Mistake mistake) {
  kernels::Params params = given;
  params.try_emplace("causal", true);
  params.try_emplace("split_len", int64_t{1024});
  const HostTensor &q = in.at("q"), &table = in.at("page_table");
  const Dims &rows = q.shape(), &pages = in.at("k_cache").shape();
  const int64_t requests = rows[0], tokens = rows[1], heads = rows[2], columns = table.shape()[1];
  const int64_t page_size = mistake == Mistake::pages_of_64 ? 64 : pages[1];
  const int64_t value_width = in.at("v_cache").shape()[3];
  HostTensor out(q.dtype(), {requests, tokens, heads, value_width});
  HostTensor lse(DType::f32, {requests, heads, tokens});
  for (int64_t b = 0; b < requests; ++b) {
    int64_t length = length_of(in, "lengths", b, columns * pages[1]);
    if (mistake == Mistake::behind_length) length = std::min(length + 1, columns * pages[1]);
    Cached cached;
    if (in.contains("k_sf")) cached.k_sf = in.at("k_sf"), cached.v_sf = in.at("v_sf");
    HostTensors one;
    one["q"] = HostTensor(q.dtype(), {1, tokens, heads, rows[3]});
    const int64_t size = one["q"].size();
    for (int64_t i = 0; i < size; ++i) one["q"].set_bits(i, q.bits(b * size + i));
    for (const auto& [name, from] : {std::pair("k", "k_cache"), std::pair("v", "v_cache")}) {
      const HostTensor& cache = in.at(from);
      const int64_t row = cache.shape()[2] * cache.shape()[3];
      HostTensor dense(q.dtype(), {1, length, cache.shape()[2], cache.shape()[3]});
      cached.is_missing.clear();
      for (int64_t j = 0; j < length; ++j) {
        const int64_t column = j / page_size;
        const auto page =
            column < columns ? static_cast<int64_t>(table.value(b * columns + column)) : -1;
        cached.is_missing.push_back(page < 0 || page >= pages[0]);
        const int64_t at = (page * pages[1] + j % page_size % pages[1]) * row;
        for (int64_t i = 0; i < row; ++i) {
          dense.set_value(j * row + i, cached.is_missing.back() ? 0.0 : cache.value(at + i));
        }
      }
      one[name] = std::move(dense);
    }
    if (in.contains("sink")) one["sink"] = in.at("sink");
    const Attention op(one, params, mistake, cached);
    HostTensor of_one(q.dtype(), {1, tokens, heads, value_width});
    op.run({0, 0, tokens, length, tokens, b * heads * tokens, tokens}, of_one, lse);
    for (int64_t i = 0; i < of_one.size(); ++i) {
      out.set_bits(b * of_one.size() + i, of_one.bits(i));
    }
  }
  return {{"out", std::move(out)}, {"lse", std::move(lse)}};
}

Runner attention_runner(const std::string& op) {
  if (op == "attention_decode") {
    return [](const HostTensors& in, const kernels::Params& params) {
      return attention_decode(in, params);
    };
  }
  if (op == "attention_bwd" || op == "attention_varlen_bwd") {
    return [](const HostTensors& in, const kernels::Params& params) {
      return attention_bwd(in, params);
    };
  }
  if (op != "attention_fwd" && op != "attention_varlen_fwd") return nullptr;
  return [](const HostTensors& in, const kernels::Params& params) { return attention(in, params); };
}

}  // namespace tessera::reference
