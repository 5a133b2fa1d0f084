// 08_attention: softmax(q k^T / sqrt(dim)) v in bf16 without the matrix of scores in memory. Heads share keys and
// values in groups; causal or not; lse = log of the sum of the exponentials.
//
// attention() is the short form. attention_by_roles() has the structure of the op attention_fwd, for sm_90: one warp
// loads, in turn a tile of keys and one of values, into one ring; two groups of four warps multiply 64 queries each. The
// scores of the next keys are issued before the values of these are multiplied, so the tensor cores work while p is made.
//
//   example_08_attention                              1 x 200 x 4 x 64 on the CPU, causal and not, checked
//   example_08_attention 4 4096 16 128 cuda:0         batch, length, heads, dim on a GPU, checked and timed
//   example_08_attention 4 4096 16 128 cuda:0 roles   the same by roles
#include <tessera/tools/lib/trial.h>

#include <cstdlib>
#include <exception>
#include <limits>

namespace ts = tessera;
constexpr auto kBf16 = ts::DType::bf16;
constexpr auto kF32 = ts::DType::f32;
constexpr int64_t kShared = 2;               // query heads per head of keys and values
constexpr int64_t kM = 64, kN = 64;          // queries of a block, keys of a step
constexpr int64_t kRows = 128, kKeys = 128;  // the same by roles
constexpr float kLog2E = 0x1.715476p0f, kLowest = -std::numeric_limits<float>::infinity();
using ts::dsl::Axis, ts::dsl::Ref, ts::dsl::Value;

/// Tensors of both kernels: heads of q share those of keys and values.
struct Tensors {
  explicit Tensors(ts::dsl::Builder& k, int64_t dim)
      : batch(k.dim("batch")),
        length(k.dim("length")),
        heads(k.dim("heads")),
        kv_heads(k.dim("kv_heads")),
        q(k.input("q", kBf16, {batch, length, heads, dim})),
        keys(k.input("keys", kBf16, {batch, length, kv_heads, dim})),
        values(k.input("values", kBf16, {batch, length, kv_heads, dim})),
        out(k.output("out", kBf16, {batch, length, heads, dim})),
        lse(k.output("lse", kF32, {batch, heads, length})) {}
  Value batch, length, heads, kv_heads;
  Ref q, keys, values, out, lse;
};

float scale_of(int64_t dim) {
  return kLog2E / std::sqrt(static_cast<float>(dim));
}

ts::ir::Kernel attention(int64_t dim, bool is_causal) {
  ts::dsl::Builder k("attention");
  Tensors t(k, dim);
  auto at = k.launch({ceil_div(t.length, kM), t.heads, t.batch}, {.threads = 128});
  auto row = k.let("row", at.x * kM), kv_head = k.let("kv_head", at.y / kShared);
  auto end = is_causal ? min(t.length, row + kM) : t.length;
  auto q_tile = k.shared(kBf16, {kM, dim}), k_tile = k.shared(kBf16, {kN, dim});
  auto v_tile = k.shared(kBf16, {kN, dim});
  auto s = k.fragment(kF32, {kM, kN}, "s"), o = k.fragment(kF32, {kM, dim}, "o");
  auto top = k.fragment(kF32, {kM, 1}, "top"), sum = k.fragment(kF32, {kM, 1}, "sum");
  k.copy(t.q(at.z, k.all, at.y).tile({row, 0}), q_tile);
  k.fill(o, 0.0f), k.fill(sum, 0.0f), k.fill(top, -1e30f);
  k.pipelined(0, ceil_div(end, kN), {.stages = 3}, [&](Value j) {
    k.copy(t.keys(at.z, k.all, kv_head).tile({j * kN, 0}), k_tile);
    k.copy(t.values(at.z, k.all, kv_head).tile({j * kN, 0}), v_tile);
    k.fill(s, 0.0f), k.gemm(q_tile, k_tile.transposed(), s, {.warp_rows = 4});
    auto column = j * kN + k.index(Axis(1));
    auto is_seen = is_causal ? column <= row + k.index(Axis(0)) : column < t.length;
    k.store(select(is_seen, s * scale_of(dim), kLowest), s);
    auto above = k.evaluate(max(top, k.reduce_max(s)));
    auto shrink = k.evaluate(exp2(top - above)), p = k.evaluate(exp2(s - above));
    k.store(sum * shrink + k.reduce_sum(p), sum), k.store(o * shrink, o), k.store(above, top);
    k.gemm(cast(kBf16, p), v_tile, o, {.warp_rows = 4});
  });
  k.store(o / sum, t.out(at.z, k.all, at.y).tile({row, 0}));
  k.store((top + log2(sum)) / kLog2E, t.lse(at.z, at.y).tile({row}));
  return k.finish();
}

ts::ir::Kernel attention_by_roles(int64_t dim, bool is_causal) {
  const ts::dsl::CopyOptions kByTensor = {.engine = ts::ir::Engine::tensor};
  constexpr auto kWgmma = ts::ir::Instruction::wgmma;
  const ts::dsl::GemmOptions kByGroups = {.warp_rows = 8, .instruction = kWgmma};
  ts::dsl::Builder k("attention_by_roles");
  Tensors t(k, dim);
  auto at = k.launch({ceil_div(t.length, kRows), t.heads, t.batch}, {.threads = 384});
  auto row = k.let("row", at.x * kRows), kv_head = k.let("kv_head", at.y / kShared);
  auto end = is_causal ? min(t.length, row + kRows) : t.length;
  auto blocks = k.let("blocks", ceil_div(end, kKeys));
  auto q_ring = k.ring({.stages = 1}), ring = k.ring({.stages = 4});
  auto q_tile = q_ring.shared(kBf16, {kRows, dim}, "q_tile");
  auto tile = ring.shared(kBf16, {kKeys, dim}, "tile");
  auto load = [&] {
    const auto fill = [&](const Ref& x, const Value& j) {
      ring.fill([&] { k.copy(x(at.z, k.all, kv_head).tile({j * kKeys, 0}), tile, kByTensor); });
    };
    q_ring.fill([&] { k.copy(t.q(at.z, k.all, at.y).tile({row, 0}), q_tile, kByTensor); });
    fill(t.keys, ts::dsl::i32(0));
    k.serial(1, blocks, [&](Value j) { fill(t.keys, j), fill(t.values, j - 1); });
    fill(t.values, blocks - 1);
  };
  auto multiply = [&] {
    auto s = k.fragment(kF32, {kRows, kKeys}, "s"), o = k.fragment(kF32, {kRows, dim}, "o");
    auto top = k.fragment(kF32, {kRows, 1}, "top"), sum = k.fragment(kF32, {kRows, 1}, "sum");
    auto shrink = k.fragment(kF32, {kRows, 1}, "shrink"),
         p = k.fragment(kBf16, {kRows, kKeys}, "p");
    k.fill(o, 0.0f), k.fill(sum, 0.0f), k.fill(top, -1e30f);
    const auto multiply_keys = [&] {
      ring.take([&] { k.fill(s, 0.0f), k.gemm(q_tile, tile.transposed(), s, kByGroups); });
    };
    const auto multiply_values = [&] { ring.take([&] { k.gemm(p, tile, o, kByGroups); }); };
    const auto softmax = [&](const Value& j) {  // from s to p; o is shrunk once products are done
      auto column = j * kKeys + k.index(Axis(1));
      auto is_seen = is_causal ? column <= row + k.index(Axis(0)) : column < t.length;
      k.store(select(is_seen, s * scale_of(dim), kLowest), s);
      auto above = k.evaluate(max(top, k.reduce_max(s)));
      k.store(exp2(top - above), shrink), k.store(exp2(s - above), s), k.store(above, top);
      k.store(sum * shrink + k.reduce_sum(s), sum), k.store(cast(kBf16, s), p);
    };
    q_ring.take([&] {
      multiply_keys(), softmax(ts::dsl::i32(0));
      k.serial(1, blocks, [&](Value j) {
        multiply_keys(), multiply_values(), softmax(j);
        k.store(o * shrink, o);
      });
    });
    multiply_values();
    k.store(o / sum, t.out(at.z, k.all, at.y).tile({row, 0}));
    k.store((top + log2(sum)) / kLog2E, t.lse(at.z, at.y).tile({row}));
  };
  k.roles({{.name = "multiply", .warpgroups = 2, .registers = 240, .body = multiply},
           {.name = "load", .warps = 1, .registers = 24, .body = load}});
  return k.finish();
}

struct Shape {
  int64_t batch, length, heads, dim;
};

/// Both results of one query, in double; `lse` at the end.
std::vector<double> reference(const Shape& n, const std::vector<ts::tools::TrialTensor>& t,
                              int64_t b, int64_t row, int64_t head, bool is_causal) {
  const int64_t kv_heads = n.heads / kShared;
  const auto at = [&](const ts::tools::TrialTensor& x, int64_t l, int64_t h, int64_t heads) {
    return &x.values[static_cast<size_t>(((b * n.length + l) * heads + h) * n.dim)];
  };
  const double* query = at(t[0], row, head, n.heads);
  std::vector<double> scores;
  double top = -1e30, sum = 0;
  for (int64_t l = 0; l < (is_causal ? row + 1 : n.length); ++l) {
    const double* key = at(t[1], l, head / kShared, kv_heads);
    double score = 0;
    for (int64_t d = 0; d < n.dim; ++d) score += query[d] * key[d];
    scores.push_back(score / std::sqrt(static_cast<double>(n.dim)));
    top = std::max(top, scores.back());
  }
  std::vector<double> result(static_cast<size_t>(n.dim + 1));
  for (size_t l = 0; l < scores.size(); ++l) {
    const double p = std::exp(scores[l] - top);
    const double* value = at(t[2], static_cast<int64_t>(l), head / kShared, kv_heads);
    for (int64_t d = 0; d < n.dim; ++d) result[static_cast<size_t>(d)] += p * value[d];
    sum += p;
  }
  for (double& value : result) value /= sum;
  result.back() = std::log(sum) + top;
  return result;
}

bool run(const Shape& n, bool is_causal, const std::string& device, bool by_roles) {
  const int64_t kv_heads = n.heads / kShared;
  std::vector<ts::tools::TrialTensor> t = {{kBf16, {n.batch, n.length, n.heads, n.dim}},
                                           {kBf16, {n.batch, n.length, kv_heads, n.dim}},
                                           {kBf16, {n.batch, n.length, kv_heads, n.dim}},
                                           {kBf16, {n.batch, n.length, n.heads, n.dim}, true},
                                           {kF32, {n.batch, n.heads, n.length}, true}};
  const double products =
      4.0 * static_cast<double>(n.batch * n.heads * n.length * n.length * n.dim);
  ts::tools::run(by_roles ? attention_by_roles(n.dim, is_causal) : attention(n.dim, is_causal), t,
                 device, is_causal ? products / 2 : products);
  const int64_t rows = n.batch * n.length * n.heads;
  const int64_t step = rows > 4096 ? 9973 : 13;
  bool ok = true;
  std::vector<double> want;
  int64_t known = -1;
  const auto row_of = [&](int64_t b, int64_t l, int64_t h) -> const std::vector<double>& {
    const int64_t row = (b * n.length + l) * n.heads + h;
    if (row != known) want = reference(n, t, b, l, h, is_causal);
    known = row;
    return want;
  };
  const std::string name = is_causal ? "causal " : "full ";
  // p and out are rounded to bf16; inputs reach 4
  ok &= compare(name + "out", t[3], 0x1p-5, step * 7, [&](int64_t i, double&) {
    const int64_t row = i / n.dim;
    const auto& of_row = row_of(row / n.heads / n.length, row / n.heads % n.length, row % n.heads);
    return of_row[static_cast<size_t>(i % n.dim)];
  });
  ok &= compare(name + "lse", t[4], 1e-4, step, [&](int64_t i, double& scale) {
    const int64_t row = i / n.length;
    const double lse = row_of(row / n.heads, i % n.length, row % n.heads).back();
    scale = std::max(1.0, std::fabs(lse));
    return lse;
  });
  return ok;
}

int main(int argc, char** argv) try {
  const auto extent = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const Shape n{extent(1, 1), extent(2, 200), extent(3, 4), extent(4, 64)};
  const std::string device = argc > 5 ? argv[5] : "cpu";
  const bool by_roles = argc > 6 && std::string_view(argv[6]) == "roles";
  const bool full = run(n, false, device, by_roles), causal = run(n, true, device, by_roles);
  return full && causal ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
