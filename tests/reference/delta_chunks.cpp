#include "tests/reference/delta_chunks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/reference/attention_rows.h"
#include "tests/reference/delta_rows.h"
#include "tests/reference/numeric.h"
#include "tests/reference/tensor_core.h"

namespace tessera::reference {
namespace {

using kernels::Params;
using test::HostTensor;
using test::HostTensors;
using Mistake = ChunkMistake;

constexpr int64_t kC = 64, kR = 16;

/// f32 values by row and column.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns)
      : rows_(rows), columns_(columns), values_(static_cast<size_t>(rows * columns)) {}
  float& operator()(int64_t i, int64_t j) { return values_[static_cast<size_t>(i * columns_ + j)]; }
  float operator()(int64_t i, int64_t j) const {
    return values_[static_cast<size_t>(i * columns_ + j)];
  }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

 private:
  int64_t rows_, columns_;
  std::vector<float> values_;
};

/// One side of a product: rows of `depth` elements that were rounded to a format.
struct Operand {
  int64_t depth;
  std::vector<Number> numbers;
};
template <class At>
Operand operand(DType format, int64_t rows, int64_t depth, const At& at) {
  Operand made{depth, {}};
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < depth; ++j) {
      made.numbers.push_back(number_of(format, encode(format, static_cast<double>(at(i, j)))));
    }
  }
  return made;
}

float tf32(float x) {
  const uint32_t bits = bits_of(x);
  const bool is_finite = (bits & 0x7F800000U) != 0x7F800000U;
  return float_of((is_finite ? bits + 0x1000U : bits) & ~0x1FFFU);
}

/// c += a b^T, in steps of an instruction.
void add_product(Matrix& c, const Operand& a, const Operand& b, int64_t step = 16) {
  for (int64_t i = 0; i < c.rows(); ++i) {
    for (int64_t j = 0; j < c.columns(); ++j) {
      uint32_t sum = bits_of(c(i, j));
      for (int64_t d = 0; d < a.depth; d += step) {
        sum =
            sum_of({}, number_of(DType::f32, sum), &a.numbers[static_cast<size_t>(i * a.depth + d)],
                   &b.numbers[static_cast<size_t>(j * b.depth + d)], static_cast<size_t>(step));
      }
      c(i, j) = float_of(sum);
    }
  }
}

/// The inverse of 1 + lower.
Matrix inverse(const Matrix& lower, Mistake mistake) {
  Matrix t(kC, kC);
  for (int64_t i = 0; i < kC; ++i) t(i, i) = 1;
  for (int64_t first = 0; first < kC; first += kR) {
    for (int64_t r = first; r < first + kR; ++r) {
      for (int64_t c = first; c < r; ++c) {
        float acc = 0;
        for (int64_t j = c; j < r; ++j) acc = std::fma(lower(r, j), t(j, c), acc);
        t(r, c) = -acc;
      }
      if (mistake != Mistake::keeps_diagonal) continue;
      for (int64_t c = first; c <= r; ++c) t(r, c) /= 1 + lower(r, r);
    }
  }
  if (mistake == Mistake::no_merge) return t;
  for (int64_t size = kR; size < kC; size *= 2) {
    for (int64_t low = 0; low < kC; low += 2 * size) {
      const int64_t high = low + size;
      const auto rounded = [&](const auto& at) {
        return operand(DType::f32, size, size,
                       [&](int64_t i, int64_t j) { return tf32(at(i, j)); });
      };
      Matrix x(size, size), y(size, size);
      add_product(x, rounded([&](int64_t i, int64_t j) { return lower(high + i, low + j); }),
                  rounded([&](int64_t i, int64_t j) { return t(low + j, low + i); }), 8);
      add_product(y, rounded([&](int64_t i, int64_t j) { return t(high + i, high + j); }),
                  rounded([&](int64_t i, int64_t j) { return x(j, i); }), 8);
      for (int64_t i = 0; i < size; ++i) {
        for (int64_t j = 0; j < size; ++j) {
          t(high + i, low + j) = mistake == Mistake::merge_sign ? y(i, j) : -y(i, j);
        }
      }
    }
  }
  return t;
}

/// A chunk of a value head.
struct Chunk {
  DType dtype;
  Matrix q, k, v;
  std::array<float, kC> x{}, beta{};  // log2 of the decays, and rates
};

/// Rows of out; `s` becomes the next state.
Matrix run_chunk(const Chunk& c, float scale, Matrix& s, Mistake mistake) {
  const int64_t dk = s.rows(), dv = s.columns();
  std::array<float, kC> sums{}, from_start{}, to_end{};
  float sum = 0;
  for (size_t t = 0; t < sums.size(); ++t) sums[t] = sum += c.x[t];
  for (size_t t = 0; t < sums.size(); ++t) {
    from_start[t] = exp2_of(sums[t]), to_end[t] = exp2_of(sums.back() - sums[t]);
  }
  const auto of = [](const std::array<float, kC>& values, int64_t t) {
    return values[static_cast<size_t>(t)];
  };
  const auto rows = [&](const Matrix& m) {
    return operand(c.dtype, m.rows(), m.columns(), [&](int64_t i, int64_t j) { return m(i, j); });
  };
  const auto columns = [&](const Matrix& m) {
    return operand(c.dtype, m.columns(), m.rows(), [&](int64_t i, int64_t j) { return m(j, i); });
  };
  const Operand q = rows(c.q), k = rows(c.k);
  Matrix kk(kC, kC), qk(kC, kC), lower(kC, kC), p(kC, kC), a(kC, kC);
  add_product(kk, k, k), add_product(qk, q, k);
  const auto decay = [&](int64_t t, int64_t i) {
    if (mistake == Mistake::decay_of_column) return exp2_of(of(sums, i));
    return exp2_of(of(sums, t) - of(sums, i));
  };
  for (int64_t t = 0; t < kC; ++t) {
    for (int64_t i = 0; i < kC; ++i) {
      const float d = decay(t, i);
      const float factor = mistake == Mistake::inverse_first ? 1.0F : d;
      const bool is_lower = i < t || (i == t && mistake == Mistake::keeps_diagonal);
      if (is_lower) lower(t, i) = of(c.beta, t) * (kk(t, i) * factor);
      if (i > t && mistake == Mistake::decay_by_product) p(t, i) = qk(t, i) * d * 0.0F;
      if (i > t && mistake != Mistake::not_causal) continue;
      const float scaled = qk(t, i) * d;
      p(t, i) = mistake == Mistake::scales_half ? scaled : scaled * scale;
    }
  }
  const Matrix inverted = inverse(lower, mistake);
  for (int64_t t = 0; t < kC; ++t) {
    for (int64_t i = 0; i <= t; ++i) {
      a(t, i) = inverted(t, i) * of(c.beta, mistake == Mistake::rate_of_row ? t : i);
      if (mistake == Mistake::inverse_first) a(t, i) *= decay(t, i);
    }
  }
  Matrix read = s;
  if (mistake == Mistake::decayed_first) {
    for (int64_t d = 0; d < dk; ++d) {
      for (int64_t j = 0; j < dv; ++j) read(d, j) *= from_start.back();
    }
  }
  const Operand state = columns(read);
  Matrix seen(kC, dv), w(kC, dv), u(kC, dv), uz(kC, dv), o(kC, dv);
  add_product(seen, k, state), add_product(o, q, state);
  for (int64_t t = 0; t < kC; ++t) {
    for (int64_t j = 0; j < dv; ++j) w(t, j) = std::fma(-of(from_start, t), seen(t, j), c.v(t, j));
  }
  add_product(u, rows(a), columns(w));
  for (int64_t t = 0; t < kC; ++t) {
    for (int64_t j = 0; j < dv; ++j) {
      const bool is_rounded = mistake == Mistake::rounds_u_first;
      uz(t, j) = (is_rounded ? rounded_to(c.dtype, u(t, j)) : u(t, j)) * of(to_end, t);
      o(t, j) *= of(from_start, t) * scale;
    }
  }
  add_product(o, rows(p), columns(u));
  for (int64_t d = 0; d < dk; ++d) {
    for (int64_t j = 0; j < dv; ++j) s(d, j) *= from_start.back();
  }
  add_product(s, columns(c.k), columns(uz));
  return o;
}

int64_t slot_at(const HostTensors& in, const char* name, int64_t b, int64_t count,
                Mistake mistake) {
  const auto found = in.find(name);
  if (found == in.end()) return b;
  const bool wraps = mistake == Mistake::wraps_slot && found->second.value(b) == -1;
  return wraps ? count - 1 : delta_slot(found->second, b, count);
}

}  // namespace

HostTensors gated_delta_fwd(const HostTensors& in, const Params& params, Mistake mistake) {
  const HostTensor &q = in.at("q"), &k = in.at("k"), &v = in.at("v"), &g = in.at("g");
  const HostTensor& beta = in.at("beta");
  const int64_t requests = q.shape()[0], tokens = q.shape()[1], key_heads = q.shape()[2];
  const int64_t dk = q.shape()[3], heads = v.shape()[2], dv = v.shape()[3];
  const DeltaOptions options = delta_options(params, dk);
  const auto asked = params.find("output_final_state");
  const bool has_final = asked != params.end() && std::get<bool>(asked->second);
  const auto pool = in.find("pool"), initial = in.find("initial_state");
  const bool has_pool = pool != in.end();
  HostTensors result;
  HostTensor out(v.dtype(), v.shape());
  out.fill_bytes(std::byte{0});
  if (has_final) result["final_state"] = HostTensor(DType::f32, {requests, heads, dk, dv});
  if (has_pool) result["pool"] = pool->second;
  for (int64_t b = 0; b < requests; ++b) {
    int64_t length = tokens;
    if (in.contains("lengths") && mistake != Mistake::padding_counts) {
      length = std::clamp<int64_t>(static_cast<int64_t>(in.at("lengths").value(b)), 0, tokens);
    }
    const int64_t count = has_pool ? pool->second.shape()[0] : requests;
    const int64_t from = has_pool ? slot_at(in, "read_slots", b, count, mistake) : b;
    const int64_t to = has_pool ? slot_at(in, "write_slots", b, count, mistake) : b;
    for (int64_t head = 0; head < heads; ++head) {
      const auto place = [&](int64_t slot, int64_t d, int64_t j) {
        return ((slot * heads + head) * dk + d) * dv + j;
      };
      const int64_t key_head =
          mistake == Mistake::head_modulo ? head % key_heads : head / (heads / key_heads);
      Matrix s(dk, dv);
      const HostTensor* states = has_pool              ? &pool->second
                                 : initial != in.end() ? &initial->second
                                                       : nullptr;
      for (int64_t d = 0; states != nullptr && from >= 0 && d < dk; ++d) {
        for (int64_t j = 0; j < dv; ++j)
          s(d, j) = static_cast<float>(states->value(place(from, d, j)));
      }
      for (int64_t first = 0; first < length; first += kC) {
        Chunk c{q.dtype(), Matrix(kC, dk), Matrix(kC, dk), Matrix(kC, dv), {}, {}};
        const int64_t valid = std::min(kC, length - first);
        for (int64_t t = 0; t < valid; ++t) {
          const int64_t token = b * tokens + first + t, gate = token * heads + head;
          const auto row = [&](const HostTensor& x) {
            return normed_row(delta_row(x, token * key_heads + key_head, dk), options, x.dtype(),
                              mistake == Mistake::eps_outside);
          };
          const std::vector<float> q_row = row(q), k_row = row(k), v_row = delta_row(v, gate, dv);
          for (int64_t d = 0; d < dk; ++d) {
            c.q(t, d) = q_row[static_cast<size_t>(d)], c.k(t, d) = k_row[static_cast<size_t>(d)];
          }
          for (int64_t j = 0; j < dv; ++j) c.v(t, j) = v_row[static_cast<size_t>(j)];
          const auto natural = static_cast<float>(g.value(gate));
          float& x = c.x[static_cast<size_t>(t)];
          x = mistake == Mistake::no_clamp   ? natural * static_cast<float>(1.4426950408889634)
              : mistake == Mistake::base_two ? natural
                                             : log2_decay(natural);
          c.beta[static_cast<size_t>(t)] = static_cast<float>(beta.value(gate));
        }
        if (mistake == Mistake::forgets_state && first > 0) s = Matrix(dk, dv);
        const Matrix o = run_chunk(c, options.scale, s, mistake);
        for (int64_t t = 0; t < valid; ++t) {
          for (int64_t j = 0; j < dv; ++j) {
            out.set_bits(((b * tokens + first + t) * heads + head) * dv + j,
                         encode(out.dtype(), static_cast<double>(o(t, j))));
          }
        }
      }
      if (mistake == Mistake::keeps_state) continue;
      for (int64_t d = 0; d < dk; ++d) {
        for (int64_t j = 0; j < dv; ++j) {
          const auto value = static_cast<double>(s(d, j));
          if (has_final)
            result.at("final_state").set_bits(place(b, d, j), encode(DType::f32, value));
          if (has_pool && to >= 0) {
            HostTensor& written = result.at("pool");
            written.set_bits(place(to, d, j), encode(written.dtype(), value));
          }
        }
      }
    }
  }
  result["out"] = std::move(out);
  return result;
}

namespace {

/// Elements [first, first + count) of the first dimension.
HostTensor rows_between(const HostTensor& x, int64_t first, int64_t count) {
  Dims shape = x.shape();
  const int64_t row = shape[0] == 0 ? 0 : x.size() / shape[0];
  shape[0] = count;
  HostTensor part(x.dtype(), shape);
  for (int64_t i = 0; i < part.size(); ++i) part.set_bits(i, x.bits(first * row + i));
  return part;
}

/// The same as one request.
HostTensor one_request(const HostTensor& x, int64_t first, int64_t count) {
  const HostTensor part = rows_between(x, first, count);
  Dims shape;
  shape.push_back(1);
  for (int i = 0; i < x.shape().rank; ++i) shape.push_back(part.shape()[i]);
  HostTensor request(x.dtype(), shape);
  for (int64_t i = 0; i < part.size(); ++i) request.set_bits(i, part.bits(i));
  return request;
}

void copy_rows(const HostTensor& from, HostTensor& to, int64_t first) {
  const int64_t row = to.shape()[0] == 0 ? 0 : to.size() / to.shape()[0];
  for (int64_t i = 0; i < from.size(); ++i) to.set_bits(first * row + i, from.bits(i));
}

}  // namespace

HostTensors gated_delta_varlen_fwd(const HostTensors& in, const Params& params, Mistake mistake) {
  const HostTensor &v = in.at("v"), &bounds = in.at("cu_seqlens");
  const int64_t tokens = v.shape()[0], requests = bounds.size() - 1;
  HostTensors result;
  result["out"] = HostTensor(v.dtype(), v.shape());
  result.at("out").fill_bytes(std::byte{0});
  const auto asked = params.find("output_final_state");
  if (asked != params.end() && std::get<bool>(asked->second)) {
    const Dims q = in.at("q").shape();
    result["final_state"] = HostTensor(DType::f32, {requests, v.shape()[1], q[2], v.shape()[2]});
  }
  if (in.contains("pool")) result["pool"] = in.at("pool");
  int64_t first = 0;
  for (int64_t b = 0; b < requests; ++b) {
    const auto given = static_cast<int64_t>(bounds.value(b + 1));
    const int64_t end = std::max(first, std::clamp<int64_t>(given, 0, tokens));
    HostTensors alone;
    for (const char* name : {"q", "k", "v", "g", "beta"}) {
      const bool joins = mistake == Mistake::joins_requests;
      alone[name] = one_request(in.at(name), joins ? 0 : first, joins ? end : end - first);
    }
    if (in.contains("initial_state")) {
      alone["initial_state"] = rows_between(in.at("initial_state"), b, 1);
    }
    if (in.contains("pool")) {
      alone["pool"] = result.at("pool");
      for (const char* name : {"read_slots", "write_slots"}) {
        HostTensor slot(DType::i32, {1});
        slot.set_value(0, in.contains(name) ? in.at(name).value(b) : static_cast<double>(b));
        alone[name] = std::move(slot);
      }
    }
    const HostTensors got = gated_delta_fwd(alone, params, mistake);
    const HostTensor& out = got.at("out");
    HostTensor rows(out.dtype(), {end - first, v.shape()[1], v.shape()[2]});
    const int64_t skipped = out.size() - rows.size();
    for (int64_t i = 0; i < rows.size(); ++i) rows.set_bits(i, out.bits(skipped + i));
    copy_rows(rows, result.at("out"), first);
    if (result.contains("final_state")) {
      copy_rows(got.at("final_state"), result.at("final_state"), b);
    }
    if (result.contains("pool")) result["pool"] = got.at("pool");
    first = end;
  }
  return result;
}

}  // namespace tessera::reference
