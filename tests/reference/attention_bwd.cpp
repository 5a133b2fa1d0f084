#include "tests/reference/attention_bwd.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/reference/attention_rows.h"
#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using test::HostTensor;
using test::HostTensors;
using Mistake = BackwardMistake;

constexpr float kLog2E = 1.4426950408889634F, kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kStep = 16;  // of one instruction

/// The mistakes about masks are those of the forward pass.
AttentionMistake of_mask(Mistake mistake) {
  if (mistake == Mistake::top_left) return AttentionMistake::top_left;
  if (mistake == Mistake::left_edge) return AttentionMistake::left_edge;
  if (mistake == Mistake::right_edge) return AttentionMistake::right_edge;
  return AttentionMistake::none;
}

/// p and ds of one head of a request, [rows, keys], as factors of the tensor cores.
struct Head {
  std::vector<Number> p, ds;
  std::vector<float> psink, delta;
};

class Backward {
 public:
  Backward(const HostTensors& in, const kernels::Params& params, Mistake mistake)
      : in_(in),
        mistake_(mistake),
        dtype_(in.at("q").dtype()),
        heads_(from_end(in.at("q"), 2)),
        width_(from_end(in.at("q"), 1)),
        value_width_(from_end(in.at("v"), 1)),
        groups_(from_end(in.at("k"), 2)),
        options_(attention_options(params, width_)),
        q_(numbers_of(in.at("q"))),
        k_(numbers_of(in.at("k"))),
        v_(numbers_of(in.at("v"))),
        grad_out_(numbers_of(in.at("grad_out"))) {
    const double of_base_2 = options_.softcap > 0 ? options_.softcap : options_.scale;
    c_ = static_cast<float>(of_base_2 * 1.4426950408889634);
    scale_ = static_cast<float>(options_.scale);
    for (const char* name : {"q", "k", "v"}) {
      HostTensor grad(dtype_, in.at(name).shape());
      for (int64_t i = 0; i < grad.size(); ++i) grad.set_bits(i, 0);
      grads_[std::string("grad_") + name] = std::move(grad);
    }
    sink_sums_.assign(static_cast<size_t>(heads_), 0);
  }

  HostTensors run() {
    for (const AttentionRequest& r : attention_requests(in_)) {
      for (int64_t group = 0; group < groups_; ++group) run_group(r, group);
    }
    if (in_.contains("sink")) {
      HostTensor grad(DType::f32, {heads_});
      for (int64_t head = 0; head < heads_; ++head) {
        const bool adds = in_.contains("grad_sink") && mistake_ != Mistake::overwrites_sink;
        const float before = adds ? static_cast<float>(in_.at("grad_sink").value(head)) : 0.0F;
        grad.set_bits(head, bits_of(before - sink_sums_[static_cast<size_t>(head)]));
      }
      grads_["grad_sink"] = std::move(grad);
    }
    return std::move(grads_);
  }

 private:
  /// The heads that share one of keys and values.
  void run_group(const AttentionRequest& r, int64_t group) {
    const int64_t count = heads_ / groups_;
    std::vector<Head> heads;
    std::vector<int64_t> order;
    for (int64_t a = 0; a < count; ++a) {
      const bool exchanged = mistake_ == Mistake::exchanged_heads;
      order.push_back(exchanged ? group + a * groups_ : group * count + a);
      heads.push_back(run_head(r, order.back(), group));
      add_sink(order.back(), heads.back());
      write_grad_q(r, order.back(), group, heads.back());
    }
    if (mistake_ == Mistake::heads_backwards) {
      std::reverse(heads.begin(), heads.end()), std::reverse(order.begin(), order.end());
    }
    const int64_t added = mistake_ == Mistake::first_head_alone ? 1 : count;
    const auto sum_of_heads = [&](int64_t j, int64_t d, bool is_key) {
      float all = 0;
      for (int64_t a = 0; a < added; ++a) {
        const float one = over_rows(r, heads[static_cast<size_t>(a)], order[static_cast<size_t>(a)],
                                    j, d, is_key);
        all = a == 0 ? one : all + one;
      }
      return all;
    };
    for (int64_t j = 0; j < r.k_length; ++j) {
      const int64_t row = (r.k_row + j) * groups_ + group;
      const bool is_scaled =
          mistake_ != Mistake::unscaled_grad_k && mistake_ != Mistake::scales_early;
      for (int64_t d = 0; d < width_; ++d) {
        const float sum = sum_of_heads(j, d, true);
        set("grad_k", row * width_ + d, is_scaled ? sum * scale_ : sum);
      }
      for (int64_t d = 0; d < value_width_; ++d) {
        set("grad_v", row * value_width_ + d, sum_of_heads(j, d, false));
      }
    }
  }
  void set(const char* name, int64_t at, float value) {
    grads_.at(name).set_bits(at, encode(dtype_, static_cast<double>(value)));
  }

  int64_t q_row(const AttentionRequest& r, int64_t i, int64_t head) const {
    return (r.q_row + i) * heads_ + head;
  }
  static float chain(const Number* a, const Number* b, int64_t count) {
    uint32_t sum = 0;
    for (int64_t d = 0; d < count; d += kStep) {
      sum = sum_of({}, number_of(DType::f32, sum), a + d, b + d, kStep);
    }
    return float_of(sum);
  }

  /// Lanes of 4 columns, then neighbours at distance 1, 2, .. 16 of 32 lanes, then the groups of 32.
  float delta_of(int64_t row) const {
    const HostTensor &grad = in_.at("grad_out"), &out = in_.at("out");
    std::array<float, 512> lanes{};
    for (int64_t d = 0; d < value_width_; ++d) {
      float& lane = lanes[static_cast<size_t>(d / 4 % 512)];
      const int64_t at = row * value_width_ + d;
      lane = std::fma(static_cast<float>(grad.value(at)), static_cast<float>(out.value(at)), lane);
    }
    float all = 0;
    for (size_t group = 0; group < 16; ++group) {
      for (size_t width = 16; width > 0; width /= 2) {
        for (size_t i = 0; i < width; ++i) {
          lanes[group * 32 + i] = lanes[group * 32 + 2 * i] + lanes[group * 32 + 2 * i + 1];
        }
      }
      all = group == 0 ? lanes[0] : all + lanes[group * 32];
    }
    return all;
  }

  Head run_head(const AttentionRequest& r, int64_t head, int64_t group) const {
    Head made;
    const bool pads = mistake_ == Mistake::padded_rows;
    const int64_t rows = pads ? r.rows : r.q_length;
    const auto cells = static_cast<size_t>(r.q_length * r.k_length);
    made.p.assign(cells, number_of(dtype_, 0)), made.ds = made.p;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = q_row(r, i, head);
      const float delta = delta_of(row);
      const int64_t of_lse = r.lse + head * r.lse_of_head + i;
      const auto lse = static_cast<float>(in_.at("lse").value(of_lse));
      float a = lse * kLog2E, psink = 0, shifted = delta;
      if (in_.contains("grad_lse") && mistake_ != Mistake::forgets_grad_lse) {
        shifted = delta - static_cast<float>(in_.at("grad_lse").value(of_lse));
      }
      if (in_.contains("sink")) {
        const float b = static_cast<float>(in_.at("sink").value(head)) * kLog2E;
        if (a == kInfinity || b == kInfinity) {
          a = kInfinity;
        } else {
          const float top = std::max(a, b);
          const float sum = exp2_of(a - top) + exp2_of(b - top);
          const float all = top + static_cast<float>(std::log2(static_cast<double>(sum)));
          if (mistake_ != Mistake::no_sink_in_p) a = std::isnan(b) ? b : all;
          psink = exp2_of(b - a);
        }
      }
      made.psink.push_back(psink), made.delta.push_back(delta);
      if (i >= r.q_length) continue;
      const SeenKeys seen = keys_seen(options_, r, i, of_mask(mistake_));
      for (int64_t j = seen.begin; j < seen.end; ++j) {
        const auto cell = static_cast<size_t>(i * r.k_length + j);
        const int64_t key = (r.k_row + j) * groups_ + group;
        float x = chain(&q_[static_cast<size_t>(row * width_)],
                        &k_[static_cast<size_t>(key * width_)], width_);
        if (options_.softcap > 0) {
          const float scaled = x * static_cast<float>(options_.scale / options_.softcap);
          x = static_cast<float>(std::tanh(static_cast<double>(scaled)));
        }
        const float p = exp2_of(std::fma(x, c_, -a));
        const float dp = chain(&grad_out_[static_cast<size_t>(row * value_width_)],
                               &v_[static_cast<size_t>(key * value_width_)], value_width_);
        float ds = p * (mistake_ == Mistake::forgets_delta ? dp : dp - shifted);
        if (options_.softcap > 0 && mistake_ != Mistake::forgets_cap) ds *= std::fma(-x, x, 1.0F);
        if (mistake_ == Mistake::scales_early) ds *= scale_;
        made.p[cell] = rounded(p), made.ds[cell] = rounded(ds);
        if (mistake_ == Mistake::unrounded) made.ds[cell] = number_of(DType::f32, bits_of(ds));
      }
    }
    return made;
  }
  Number rounded(float value) const {
    return number_of(dtype_, encode(dtype_, static_cast<double>(value)));
  }

  void add_sink(int64_t head, const Head& of) {
    float& all = sink_sums_[static_cast<size_t>(head)];
    const auto rows = static_cast<int64_t>(of.psink.size());
    for (int64_t first = 0; first < rows; first += 128) {
      float run = 0;
      for (int64_t i = first; i < std::min(rows, first + 128); ++i) {
        run = std::fma(of.psink[static_cast<size_t>(i)], of.delta[static_cast<size_t>(i)], run);
      }
      all += run;
    }
  }

  /// Column d of grad_k or grad_v of key j, from one head.
  float over_rows(const AttentionRequest& r, const Head& of, int64_t head, int64_t j, int64_t d,
                  bool is_key) const {
    const std::vector<Number>&left = is_key ? of.ds : of.p, &right = is_key ? q_ : grad_out_;
    const int64_t width = is_key ? width_ : value_width_;
    uint32_t sum = 0;
    for (int64_t first = 0; first < r.q_length; first += kStep) {
      std::array<Number, kStep> a{}, b{};
      for (int64_t i = first; i < std::min(r.q_length, first + kStep); ++i) {
        a[static_cast<size_t>(i - first)] = left[static_cast<size_t>(i * r.k_length + j)];
        b[static_cast<size_t>(i - first)] =
            right[static_cast<size_t>(q_row(r, i, head) * width + d)];
      }
      sum = sum_of({}, number_of(DType::f32, sum), a.data(), b.data(), kStep);
    }
    return float_of(sum);
  }

  void write_grad_q(const AttentionRequest& r, int64_t head, int64_t group, const Head& of) {
    const int64_t whole = width_ > 128 ? 64 : 128;
    const int64_t block = mistake_ == Mistake::small_blocks ? whole / 2 : whole;
    for (int64_t i = 0; i < r.q_length; ++i) {
      for (int64_t d = 0; d < width_; ++d) {
        float all = 0;
        for (int64_t first = 0; first < r.k_length; first += block) {
          uint32_t part = 0;
          for (int64_t begin = first; begin < std::min(r.k_length, first + block); begin += kStep) {
            std::array<Number, kStep> a{}, b{};
            for (int64_t j = begin; j < std::min(r.k_length, begin + kStep); ++j) {
              const int64_t key = (r.k_row + j) * groups_ + group;
              a[static_cast<size_t>(j - begin)] = of.ds[static_cast<size_t>(i * r.k_length + j)];
              b[static_cast<size_t>(j - begin)] = k_[static_cast<size_t>(key * width_ + d)];
            }
            part = sum_of({}, number_of(DType::f32, part), a.data(), b.data(), kStep);
          }
          all += float_of(part);
        }
        const bool is_scaled = mistake_ != Mistake::scales_early;
        set("grad_q", q_row(r, i, head) * width_ + d, is_scaled ? all * scale_ : all);
      }
    }
  }

  const HostTensors& in_;
  const Mistake mistake_;
  const DType dtype_;
  const int64_t heads_, width_, value_width_, groups_;
  const AttentionOptions options_;
  const std::vector<Number> q_, k_, v_, grad_out_;
  float c_ = 0, scale_ = 0;
  HostTensors grads_;
  std::vector<float> sink_sums_;
};

}  // namespace

HostTensors attention_bwd(const HostTensors& in, const kernels::Params& params, Mistake mistake) {
  return Backward(in, params, mistake).run();
}

}  // namespace tessera::reference
