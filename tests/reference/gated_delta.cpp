#include "tests/reference/gated_delta.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/reference/attention_rows.h"
#include "tests/reference/delta_chunks.h"
#include "tests/reference/delta_rows.h"
#include "tests/reference/numeric.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;
using Mistake = DeltaMistake;
using Row = std::vector<float>;

float number(const HostTensor& tensor, int64_t element) {
  return static_cast<float>(tensor.value(element));
}

/// The sum of products over dk.
float dot(const Row& x, const Row& y, Mistake mistake) {
  std::array<float, 8> lanes{};
  for (size_t i = 0; i < x.size(); ++i) {
    float& lane = lanes[mistake == Mistake::one_lane ? 0 : i / 4 % 8];
    lane = std::fma(x[i], y[i], lane);
  }
  const auto pair = [&](size_t i) { return lanes[i] + lanes[i + 1]; };
  return (pair(0) + pair(2)) + (pair(4) + pair(6));
}

float decay_of(float g, Mistake mistake) {
  return exp2_of(mistake == Mistake::base_two ? g : log2_decay(g));
}

int64_t slot_at(const HostTensor& slots, int64_t element, int64_t count, Mistake mistake) {
  const bool wraps = mistake == Mistake::wraps_slot && slots.value(element) == -1;
  return wraps ? count - 1 : delta_slot(slots, element, count);
}

/// The rows of one token for a value head.
struct Token {
  Row q, k, v;
  float decay, beta;
};

/// A column of the state, of dk elements.
float step_column(Row& s, const Token& t, float v, float scale, Mistake mistake) {
  Row before = s;
  for (float& value : s) value *= t.decay;
  const float d = dot(mistake == Mistake::undecayed_read ? before : s, t.k, mistake);
  const float u = mistake == Mistake::beta_of_v ? t.beta * v - d : t.beta * (v - d);
  before = s;
  for (size_t i = 0; i < s.size(); ++i) {
    s[i] = std::fma(t.k[i], mistake == Mistake::adds_before_decay ? u * t.decay : u, s[i]);
  }
  const float sum = dot(mistake == Mistake::old_state ? before : s, t.q, mistake);
  return mistake == Mistake::no_scale ? sum : sum * scale;
}

}  // namespace

HostTensors gated_delta_decode(const HostTensors& in, const Params& params, Mistake mistake) {
  const HostTensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v"), &g = in.at("g");
  const HostTensor &beta = in.at("beta"), &pool = in.at("pool"), &slots = in.at("write_slots");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], key_heads = q.shape()[2];
  const int64_t dk = q.shape()[3], heads = v.shape()[2], dv = v.shape()[3];
  const int64_t count = pool.shape()[0];
  const bool has_each = slots.shape().rank == 2;
  const DeltaOptions o = delta_options(params, dk);
  const auto row_of = [&](const HostTensor& x, int64_t row) {
    return normed_row(delta_row(x, row, dk), o, x.dtype(), mistake == Mistake::eps_outside,
                      mistake == Mistake::unrounded_norm);
  };
  HostTensor out(v.dtype(), v.shape()), written = pool;
  out.fill_bytes(std::byte{0});
  for (int64_t b = 0; b < requests; ++b) {
    const int64_t from = slot_at(in.at("read_slots"), b, count, mistake);
    if (from < 0 && mistake != Mistake::padded_row_runs) continue;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t key_head =
          mistake == Mistake::head_modulo ? head % key_heads : head / (heads / key_heads);
      std::vector<Token> of_tokens;
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t token = b * tokens + t, row = token * key_heads + key_head;
        const int64_t gate = token * heads + head;
        of_tokens.push_back({row_of(q, row), row_of(k, row), delta_row(v, gate, dv),
                             decay_of(number(g, gate), mistake), number(beta, gate)});
      }
      for (int64_t c = 0; c < dv; ++c) {
        const auto place = [&](int64_t slot, int64_t d) {
          return ((slot * heads + head) * dk + d) * dv + c;
        };
        Row s;
        for (int64_t d = 0; d < dk; ++d) s.push_back(from < 0 ? 0 : number(pool, place(from, d)));
        for (int64_t t = 0; t < tokens; ++t) {
          const Token& one = of_tokens[static_cast<size_t>(t)];
          const float value = step_column(s, one, one.v[static_cast<size_t>(c)], o.scale, mistake);
          out.set_bits(((b * tokens + t) * heads + head) * dv + c,
                       encode(out.dtype(), static_cast<double>(value)));
          const bool is_last = t + 1 == tokens;
          if (is_last || mistake != Mistake::rounds_once) {
            for (float& element : s) element = rounded_to(pool.dtype(), element);
          }
          if (!is_last && (!has_each || mistake == Mistake::last_token_alone)) continue;
          const int64_t to = slot_at(slots, has_each ? b * tokens + t : b, count, mistake);
          if (to < 0 || mistake == Mistake::keeps_state) continue;
          for (int64_t d = 0; d < dk; ++d) {
            written.set_bits(place(to, d),
                             encode(pool.dtype(), static_cast<double>(s[static_cast<size_t>(d)])));
          }
        }
      }
    }
  }
  HostTensors result;
  result["out"] = std::move(out);
  result["pool"] = std::move(written);
  return result;
}

std::vector<double> DeltaRecurrence::step(const std::vector<double>& q,
                                          const std::vector<double>& k,
                                          const std::vector<double>& v, double g, double beta,
                                          double scale) {
  const double decay = std::exp(g);
  std::vector<double> out;
  for (int64_t c = 0; c < dv_; ++c) {
    const auto at = [&](size_t d) -> double& {
      return state_[d * static_cast<size_t>(dv_) + static_cast<size_t>(c)];
    };
    double seen = 0, sum = 0;
    for (size_t d = 0; d < k.size(); ++d) seen += (at(d) *= decay) * k[d];
    const double u = beta * (v[static_cast<size_t>(c)] - seen);
    for (size_t d = 0; d < k.size(); ++d) sum += (at(d) += u * k[d]) * q[d];
    out.push_back(scale * sum);
  }
  return out;
}

Runner gated_delta_runner(const std::string& op) {
  if (op == "gated_delta_fwd") {
    return [](const HostTensors& in, const Params& params) { return gated_delta_fwd(in, params); };
  }
  if (op == "gated_delta_varlen_fwd") {
    return [](const HostTensors& in, const Params& params) {
      return gated_delta_varlen_fwd(in, params);
    };
  }
  if (op != "gated_delta_decode") return nullptr;
  return [](const HostTensors& in, const Params& params) { return gated_delta_decode(in, params); };
}

}  // namespace tessera::reference
