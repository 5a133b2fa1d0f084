#include "tests/reference/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace tessera::reference {

using test::HostTensor;
using test::HostTensors;

AttentionOptions attention_options(const kernels::Params& params, int64_t width) {
  const auto number = [&](const char* name, double fallback) {
    const auto found = params.find(name);
    const bool is_given =
        found != params.end() && !std::holds_alternative<std::monostate>(found->second);
    return is_given ? std::get<double>(found->second) : fallback;
  };
  const auto integer = [&](const char* name, int64_t fallback) {
    const auto found = params.find(name);
    return found == params.end() ? fallback : std::get<int64_t>(found->second);
  };
  const auto causal = params.find("causal");
  return {number("scale", 1 / std::sqrt(static_cast<double>(width))),
          number("softcap", 0),
          causal != params.end() && std::get<bool>(causal->second),
          integer("window_left", -1),
          integer("window_right", -1),
          integer("split_len", 0)};
}

SeenKeys keys_seen(const AttentionOptions& options, const AttentionRequest& r, int64_t i,
                   AttentionMistake mistake) {
  if (i >= r.q_length) return {0, 0};
  const int64_t at = mistake == AttentionMistake::top_left ? i : i + r.k_length - r.q_length;
  const int64_t right = options.is_causal ? 0 : options.right;
  const int64_t left = options.left + (mistake == AttentionMistake::left_edge ? 1 : 0);
  const int64_t begin = options.left < 0 ? 0 : std::max<int64_t>(0, at - left);
  const int64_t edge = at + right + (mistake == AttentionMistake::right_edge ? 2 : 1);
  const int64_t end = right < 0 ? r.k_length : std::min(r.k_length, edge);
  return {begin, std::max(begin, end)};
}

int64_t length_of(const HostTensors& in, const char* name, int64_t request, int64_t all) {
  const auto found = in.find(name);
  if (found == in.end()) return all;
  return std::clamp<int64_t>(static_cast<int64_t>(found->second.value(request)), 0, all);
}

int64_t from_end(const HostTensor& t, int dims) {
  return t.shape()[t.shape().rank - dims];
}

float exp2_of(float x) {
  const auto y = static_cast<float>(std::exp2(static_cast<double>(x)));
  return y < 0x1p-126F ? 0.0F : y;
}

std::vector<AttentionRequest> attention_requests(const HostTensors& in) {
  const Dims &q = in.at("q").shape(), &k = in.at("k").shape();
  std::vector<AttentionRequest> requests;
  if (q.rank == 4) {
    for (int64_t b = 0; b < q[0]; ++b) {
      requests.push_back({b * q[1], b * k[1], length_of(in, "q_lengths", b, q[1]),
                          length_of(in, "k_lengths", b, k[1]), q[1], b * q[2] * q[1], q[1]});
    }
    return requests;
  }
  const HostTensor &cu_q = in.at("cu_q"), &cu_k = in.at("cu_k");
  const int64_t count = cu_q.size() - 1;
  int64_t q_row = 0, k_row = 0;
  for (int64_t b = 0; b <= count; ++b) {
    const bool is_request = b < count;
    const auto end = [&](const HostTensor& cu, int64_t before, int64_t rows) {
      if (!is_request) return rows;
      return std::clamp(static_cast<int64_t>(cu.value(b + 1)), before, rows);
    };
    const int64_t q_end = end(cu_q, q_row, q[0]), k_end = end(cu_k, k_row, k[0]);
    requests.push_back({q_row, k_row, is_request ? q_end - q_row : 0,
                        is_request ? k_end - k_row : 0, q_end - q_row, q_row, q[0]});
    q_row = q_end, k_row = k_end;
  }
  return requests;
}

}  // namespace tessera::reference
