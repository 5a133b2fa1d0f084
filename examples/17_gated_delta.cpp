// 17_gated_delta: the gated delta rule (arXiv 2412.06464) in chunks of 64 tokens, in bf16 with a state in f32:
//
//   S[t] = a[t] S[t-1] (1 - b[t] k[t] k[t]^T) + b[t] v[t] k[t]^T,   out[t] = S[t] q[t]
//
// A token adds u[t] k[t]^T to the decayed state. In a chunk that begins with the state S, with d[t, i] = a[i+1] .. a[t]
// and d[t] = a[first] .. a[t], the rows u solve a triangular system, and all else is products:
//
//   u[t] + b[t] sum over i < t of d[t, i] (k[t] . k[i]) u[i] = b[t] (v[t] - d[t] S k[t])
//   out[t] = d[t] S q[t] + sum over i <= t of d[t, i] (q[t] . k[i]) u[i]
//
// Compiling it takes longer than the other examples: 106 ms of lowering and 1237 of NVRTC at 128 channels on sm_90a,
// since six products and the systems are unrolled. Tried: each system in loops 27 and 764 ms, blocks of rows in a loop 133
// and 735, both 22 and 666, but a loop reads each u from shared memory again; 32 rows at once 237 and 1085.
//
//   example_17_gated_delta                          2 x 150 x 2 heads of 64 and of 128 on the CPU, checked
//   example_17_gated_delta 8 4096 16 128 cuda:0     batch, length, heads, dim on a GPU, checked and timed
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>
#include <random>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16, kF32 = ts::DType::f32;
constexpr int64_t kC = 64, kV = 64;  // tokens of a chunk, columns of a block
constexpr int64_t kRows = 16;        // of the system that are solved at once
constexpr ts::dsl::GemmOptions kDown = {.warp_rows = 4}, kAlong = {.warp_columns = 4};
using ts::dsl::Axis, ts::dsl::Value;

ts::ir::Kernel gated_delta(int64_t dim) {
  ts::dsl::Builder k("gated_delta");
  auto batch = k.dim("batch"), length = k.dim("length"), heads = k.dim("heads");
  auto rows_of = [&](auto name) { return k.input(name, kBf16, {batch, length, heads, dim}); };
  auto q = rows_of("q"), keys = rows_of("keys"), values = rows_of("values");
  auto log2_a = k.input("log2_a", kF32, {batch, heads, length});
  auto b = k.input("b", kF32, {batch, heads, length});
  auto out = k.output("out", kBf16, {batch, length, heads, dim});
  auto state = k.output("state", kF32, {batch, heads, dim, dim});  // S transposed: a row per key
  auto at = k.launch({dim / kV, heads, batch}, {.threads = 128});
  auto column = at.x * kV;
  auto q_tile = k.shared(kBf16, {kC, dim}), k_tile = k.shared(kBf16, {kC, dim});
  auto v_tile = k.shared(kBf16, {kC, kV}), s_tile = k.shared(kBf16, {dim, kV});
  auto d = k.shared(kF32, {kC, 1}), b_tile = k.shared(kF32, {kC, 1});  // d as log2
  auto system = k.shared(kF32, {kC, kC}), u_tile = k.shared(kF32, {kC, kV});
  auto u_half = k.shared(kBf16, {kC, kV});
  auto kk = k.fragment(kF32, {kC, kC}, "kk"), qk = k.fragment(kF32, {kC, kC}, "qk");
  auto p = k.fragment(kBf16, {kC, kC}, "p"), s = k.fragment(kF32, {dim, kV}, "s");
  auto u = k.fragment(kF32, {kC, kV}, "u"), o = k.fragment(kF32, {kC, kV}, "o");
  k.fill(s, 0.0f);
  k.pipelined(0, ceil_div(length, kC), 2, [&](Value chunk) {
    auto row = chunk * kC;
    k.copy(q(at.z, k.all, at.y).tile({row, 0}), q_tile);
    k.copy(keys(at.z, k.all, at.y).tile({row, 0}), k_tile);
    k.copy(values(at.z, k.all, at.y).tile({row, column}), v_tile);
    k.copy(log2_a(at.z, at.y).tile({row}), d), k.scan_sum(d, d, Axis(0));
    k.copy(b(at.z, at.y).tile({row}), b_tile), k.copy(s, s_tile);
    k.fill(kk, 0.0f), k.fill(qk, 0.0f), k.fill(u, 0.0f), k.fill(o, 0.0f);
    k.gemm(k_tile, k_tile.transposed(), kk, kDown), k.gemm(q_tile, k_tile.transposed(), qk, kDown);
    k.parallel({kC, kC}, [&](Value t, Value i) {
      auto decay = exp2(d(t, 0) - d(i, 0));
      system(t, i) = select(i < t, -b_tile(t, 0) * decay * kk(t, i), 0.0f);
      p(t, i) = cast(kBf16, select(i <= t, decay * qk(t, i), 0.0f));
    });
    k.gemm(k_tile, s_tile, u, kAlong), k.gemm(q_tile, s_tile, o, kDown);
    k.store(b_tile * (f32(v_tile) - exp2(d) * u), u);
    for (int64_t r = 0; r < kC; r += kRows) {
      auto rows = u.tile({r, 0}, {kRows, kV}), left = system.tile({r, 0}, {kRows, kC});
      if (r > 0) {
        k.gemm(left.tile({0, 0}, {kRows, r}), u_tile.tile({0, 0}, {r, kV}), rows, kAlong);
      }
      k.copy(rows, u_tile.tile({r, 0}));
      k.parallel({kV}, [&](Value c) {
        std::vector<Value> x(1, u_tile(r, c));
        for (int64_t t = 1; t < kRows; ++t) {
          Value sum = u_tile(r + t, c);
          for (int64_t i = 0; i < t; ++i) sum = fma(left(t, r + i), x[static_cast<size_t>(i)], sum);
          u_tile(r + t, c) = x.emplace_back(k.let("u", sum));
        }
      });
    }
    k.store(o * exp2(d), o), k.copy(u_tile, u_half);
    k.gemm(p, u_half, o, kDown);
    k.copy(o, out(at.z, k.all, at.y).tile({row, column}));
    auto whole = d.tile({kC - 1, 0}, {1, 1});
    k.store(exp2(whole - d) * u_tile, u_half), k.store(s * exp2(whole), s);
    k.gemm(k_tile.transposed(), u_half, s, kDown);
  });
  k.copy(s, state(at.z, at.y).tile({0, column}));
  return k.finish();
}

/// Rounding to bf16 moves a value by at most 2^-8 of it. Queries and keys are unit vectors, so rounding S moves
/// out, and rounding u moves S, by at most about 2^-8 of a column of S. S is rounded for u and for out, u and p for
/// out, u for S, and out itself; what earlier chunks left has decayed to an eighth. Roundings of many elements
/// partly cancel, so two of that size are allowed of the six; the rest is f32 and tf32.
constexpr double kAllowed = 0x1p-7;  // of the longest column of S so far

struct Shape {
  int64_t batch, length, heads, dim;
};

/// Rows of `dim` normal numbers, as unit vectors if `is_unit`.
std::vector<double> random_rows(const Shape& n, bool is_unit, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (int64_t row = 0; row < n.batch * n.length * n.heads; ++row) {
    double squares = 0;
    for (int64_t i = 0; i < n.dim; ++i) squares += std::pow(values.emplace_back(normal(random)), 2);
    for (auto x = values.end() - n.dim; is_unit && x != values.end(); ++x) *x /= std::sqrt(squares);
  }
  return values;
}

/// A number from `low` to `high` for each token of each head.
std::vector<double> random_gates(const Shape& n, double low, double high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values;
  for (int64_t i = 0; i < n.batch * n.heads * n.length; ++i) values.push_back(uniform(random));
  return values;
}

/// A column of out and of S, token by token.
struct Column {
  std::vector<double> out;
  std::vector<double> largest;  // length of the column of S so far
  std::vector<double> state;
};
Column recur(const Shape& n, const std::vector<ts::tools::TrialTensor>& t, int64_t head_of_batch,
             int64_t column) {
  const int64_t b = head_of_batch / n.heads, head = head_of_batch % n.heads;
  Column c{{}, {}, std::vector<double>(static_cast<size_t>(n.dim))};
  double largest = 0;
  for (int64_t l = 0; l < n.length; ++l) {
    const auto row = static_cast<size_t>(((b * n.length + l) * n.heads + head) * n.dim);
    const auto token = static_cast<size_t>(head_of_batch * n.length + l);
    const double *q = &t[0].values[row], *key = &t[1].values[row];
    const double value = t[2].values[row + static_cast<size_t>(column)];
    double seen = 0, out = 0, squares = 0;
    for (size_t i = 0; i < c.state.size(); ++i) {
      c.state[i] *= std::exp2(t[3].values[token]);
      seen += c.state[i] * key[i];
    }
    for (size_t i = 0; i < c.state.size(); ++i) {
      c.state[i] += t[4].values[token] * (value - seen) * key[i];
      out += c.state[i] * q[i];
      squares += c.state[i] * c.state[i];
    }
    largest = std::max(largest, std::sqrt(squares));
    c.out.push_back(out);
    c.largest.push_back(largest);
  }
  return c;
}

/// Runs the kernel and checks every `step`th column of all heads.
bool check(const Shape& n, const std::string& device, int64_t step) {
  const ts::Dims rows = {n.batch, n.length, n.heads, n.dim}, gates = {n.batch, n.heads, n.length};
  std::vector<ts::tools::TrialTensor> t = {{kBf16, rows, false, random_rows(n, true, 1)},
                                           {kBf16, rows, false, random_rows(n, true, 2)},
                                           {kBf16, rows, false, random_rows(n, false, 3)},
                                           {kF32, gates, false, random_gates(n, -0.1, 0, 4)},
                                           {kF32, gates, false, random_gates(n, 0, 1, 5)},
                                           {kBf16, rows, true},
                                           {kF32, {n.batch, n.heads, n.dim, n.dim}, true}};
  const double per_token = 6.0 * static_cast<double>(n.dim * n.dim + kC * n.dim);
  ts::tools::run(gated_delta(n.dim), t, device,
                 per_token * static_cast<double>(n.batch * n.length * n.heads));
  double worst = 0;
  const auto see = [&](double got, double want, double scale) {
    const double error = std::fabs(got - want) / scale;
    if (!std::isnan(worst) && !(error <= worst)) worst = error;  // a NaN stays
  };
  for (int64_t c = 0; c < n.batch * n.heads * n.dim; c += step) {
    const int64_t head = c / n.dim, column = c % n.dim;
    const Column want = recur(n, t, head, column);
    for (int64_t l = 0; l < n.length; ++l) {
      const int64_t row = (head / n.heads * n.length + l) * n.heads + head % n.heads;
      const auto i = static_cast<size_t>(l);
      see(t[5].values[static_cast<size_t>(row * n.dim + column)], want.out[i], want.largest[i]);
    }
    for (int64_t r = 0; r < n.dim; ++r) {
      see(t[6].values[static_cast<size_t>((head * n.dim + r) * n.dim + column)],
          want.state[static_cast<size_t>(r)], want.largest.back());
    }
  }
  fmt::print("dim {}: largest error {:.1e} of a column of S, allowed {:.1e}\n", n.dim, worst,
             kAllowed);
  return worst <= kAllowed;
}

int main(int argc, char** argv) try {
  if (argc == 1)
    return check({2, 150, 2, 64}, "cpu", 1) && check({1, 100, 2, 128}, "cpu", 1) ? 0 : 1;
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const Shape n = {extent(1, 2), extent(2, 150), extent(3, 2), extent(4, 64)};
  const int64_t columns = n.batch * n.heads * n.dim;
  return check(n, argc > 5 ? argv[5] : "cpu", columns * n.length > 1 << 17 ? columns / 61 : 1) ? 0
                                                                                               : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
