// The products of attention_bwd by roles, on the tensor cores' instructions of four warps.
//
// One warp loads by tensor copies, two groups of four warps multiply. A block owns 128 keys and loops over tiles of 64
// rows, or owns 128 rows and loops over tiles of 64 keys; each group has half of what the block owns. A group keeps its
// sums, p and ds in registers: p and ds are the left operands of the next products. While one group computes p and ds, the
// tensor cores work on the products of the other. Calls with a cap take the plain form (bwd_kernel.cpp).
//
// Keys      scores k q^T and dP = v dO^T are issued together; p is computed while dP is, p dO runs beside ds.
// Queries   scores and dP as above with rows first; ds k is added to a part, that to grad_q every 128 keys.
//
// Bound     7 products, where one pass with tickets for grad_q has 5. One H200, 4 x 48 heads of 128, 4096 tokens, us (cuDNN,
//           torch's flash in the same call): 11518 (7472, 13442), causal 6403 (4141, 7274): 501 TFLOP/s of 7 products.
//           The plain form takes 45406 and 23907. Interleaved on another day 9905 (cuDNN 7184), causal 5724 (3999).
// Lost      one pass over keys, ds through shared memory to ds^T k, each part of 64 rows of grad_q added by a role of its own
//           with a tensor store when a ticket says so: 13010 in place of 9905, causal 11854 in place of 5724, with the same
//           bits. That product issued beside ds q 13487 and 12158; two parts under way 12255 and 11224. A causal call takes
//           about the time of a full one: the chain of tickets bounds it, at 3.8 us for a tile. Not tried: several roles that
//           add, so that the wait, the addition and the signal of neighbouring tiles overlap.

#include <functional>
#include <optional>

#include "kernels/attention/parts/bwd_products.h"

namespace tessera::kernels::attention {
namespace {

using Side = ProductTensors::Side;

constexpr int64_t kOwn = 128, kPassing = 64;
constexpr int kGroups = 2;
constexpr int64_t kSharedForRing = int64_t{128} << 10;  // bytes
constexpr dsl::GemmOptions kByGroups = {.warp_rows = 4 * kGroups,
                                        .instruction = ir::Instruction::wgmma};

void add_roles(dsl::Builder& k, const BackwardSpec& s, const std::function<void()>& multiply,
               const std::function<void()>& load) {
  // Rows of a tail take the role that loads more registers.
  const bool has_tails = s.is_packed != 0 || s.has_q_lengths != 0 || s.has_k_lengths != 0;
  const int of_load = !has_tails ? 24 : s.width == 64 ? 104 : 56;
  const int of_multiply = !has_tails ? 240 : s.width == 64 ? 200 : 224;
  k.roles({{.name = "multiply", .warpgroups = kGroups, .registers = of_multiply, .body = multiply},
           {.name = "load", .warps = 1, .registers = of_load, .body = load}});
}

int stages_of(const BackwardSpec& s) {
  const int64_t of_stage = kPassing * (s.width + s.value_width) * 2;
  return static_cast<int>(std::min<int64_t>(kSharedForRing / of_stage, 4));
}

}  // namespace

ir::Kernel build_backward_keys_by_roles(const BackwardSpec& s) {
  ProductTensors t("attention_bwd_keys", s, Side::keys, kOwn, kPassing);
  dsl::Builder& k = t.k;
  const bool is_shared = s.has_group != 0;
  std::optional<Value> scale;
  if (!is_shared) scale = k.scalar("scale", kF32);
  const auto output = [&](const char* name, int64_t width) {
    return k.output(name, is_shared ? kF32 : t.dtype(), {t.batch, t.k_rows, t.heads, width},
                    {.align = is_shared ? 16 : 2});
  };
  auto grad_k = output("grad_k", s.width), grad_v = output("grad_v", s.value_width);
  auto at = k.launch({t.tiles() * (t.heads * t.batch)}, {.threads = (kGroups + 1) * 128});
  auto key = t.place(at.x);
  const auto passing = t.rows_that_see(key);
  auto own = k.ring({.stages = 1}), ring = k.ring({.stages = stages_of(s)});
  auto k_tile = own.shared(t.dtype(), {kOwn, s.width}, "k_tile");
  auto v_tile = own.shared(t.dtype(), {kOwn, s.value_width}, "v_tile");
  auto q_tile = ring.shared(t.dtype(), {kPassing, s.width}, "q_tile");
  auto grad_tile = ring.shared(t.dtype(), {kPassing, s.value_width}, "grad_tile");
  auto a_tile = ring.shared(kF32, {kPassing}, "a_tile");
  auto delta_tile = ring.shared(kF32, {kPassing}, "delta_tile");
  const auto load = [&] {
    own.fill([&] { t.copy_keys(key, k_tile, v_tile); });
    k.serial(passing.first, passing.end, [&](Value i) {
      ring.fill([&] {
        t.copy_queries(i * kPassing, q_tile, grad_tile);
        t.copy_rows(i * kPassing, a_tile, delta_tile);
      });
    });
  };
  const auto multiply = [&] {
    auto scores = k.fragment(kF32, {kOwn, kPassing}, "scores");
    auto dp = k.fragment(kF32, {kOwn, kPassing}, "dp");
    auto p = k.fragment(t.dtype(), {kOwn, kPassing}, "p");
    auto ds = k.fragment(t.dtype(), {kOwn, kPassing}, "ds");
    auto dk = k.fragment(kF32, {kOwn, s.width}, "dk");
    auto dv = k.fragment(kF32, {kOwn, s.value_width}, "dv");
    k.fill(dk, 0.0f), k.fill(dv, 0.0f);
    own.take([&] {
      k.serial(passing.first, passing.end, [&](Value i) {
        auto row = i * kPassing;
        ring.take([&] {
          k.fill(scores, 0.0f), k.fill(dp, 0.0f);
          k.gemm(k_tile, q_tile.transposed(), scores, kByGroups);
          k.gemm(v_tile, grad_tile.transposed(), dp, kByGroups);
          k.parallel({kOwn, kPassing}, [&](Value j, Value r) {
            Value score = scores(j, r), a = a_tile(r);
            scores(j, r) = t.p_of(score, a);
          });
          k.if_(t.has_edge(row, key), [&] {
            k.parallel({kOwn, kPassing}, [&](Value j, Value r) {
              Value now = scores(j, r);
              scores(j, r) = select(t.is_seen(row + r, key + j), now, 0.0f);
            });
          });
          k.parallel({kOwn, kPassing},
                     [&](Value j, Value r) { p(j, r) = cast(t.dtype(), scores(j, r)); });
          k.gemm(p, grad_tile, dv, kByGroups);
          k.parallel({kOwn, kPassing}, [&](Value j, Value r) {
            Value now = scores(j, r), of_dp = dp(j, r), delta = delta_tile(r);
            dp(j, r) = now * (of_dp - delta);
          });
          k.if_(t.has_edge(row, key), [&] {
            k.parallel({kOwn, kPassing}, [&](Value j, Value r) {
              Value now = dp(j, r);
              dp(j, r) = select(t.is_seen(row + r, key + j), now, 0.0f);
            });
          });
          k.parallel({kOwn, kPassing},
                     [&](Value j, Value r) { ds(j, r) = cast(t.dtype(), dp(j, r)); });
          k.gemm(ds, q_tile, dk, kByGroups);
        });
      });
    });
    if (scale) {
      k.parallel({kOwn, s.width}, [&](Value j, Value d) {
        Value sum = dk(j, d);
        dk(j, d) = sum * *scale;
      });
    }
    t.copy_out(dk, grad_k, key, s.width);
    t.copy_out(dv, grad_v, key, s.value_width);
  };
  add_roles(k, s, multiply, load);
  return k.finish();
}

ir::Kernel build_backward_queries_by_roles(const BackwardSpec& s) {
  ProductTensors t("attention_bwd_queries", s, Side::queries, kOwn, kPassing);
  dsl::Builder& k = t.k;
  const int64_t tiles_of_part = keys_of_part(s.width) / kPassing;
  auto scale = k.scalar("scale", kF32);
  auto grad_q = k.output("grad_q", t.dtype(), {t.batch, t.q_rows, t.heads, s.width}, {.align = 2});
  auto at = k.launch({t.tiles() * (t.heads * t.batch)}, {.threads = (kGroups + 1) * 128});
  auto row = t.place(at.x);
  const auto passing = t.keys_seen_by(row, tiles_of_part);
  auto own = k.ring({.stages = 1}), ring = k.ring({.stages = stages_of(s)});
  auto q_tile = own.shared(t.dtype(), {kOwn, s.width}, "q_tile");
  auto grad_tile = own.shared(t.dtype(), {kOwn, s.value_width}, "grad_tile");
  auto k_tile = ring.shared(t.dtype(), {kPassing, s.width}, "k_tile");
  auto v_tile = ring.shared(t.dtype(), {kPassing, s.value_width}, "v_tile");
  const auto load = [&] {
    own.fill([&] { t.copy_queries(row, q_tile, grad_tile); });
    k.serial(passing.first, passing.end,
             [&](Value j) { ring.fill([&] { t.copy_keys(j * kPassing, k_tile, v_tile); }); });
  };
  const auto multiply = [&] {
    auto scores = k.fragment(kF32, {kOwn, kPassing}, "scores");
    auto dp = k.fragment(kF32, {kOwn, kPassing}, "dp");
    auto ds = k.fragment(t.dtype(), {kOwn, kPassing}, "ds");
    auto part = k.fragment(kF32, {kOwn, s.width}, "part");
    auto dq = k.fragment(kF32, {kOwn, s.width}, "dq");
    auto a = k.fragment(kF32, {kOwn}, "a"), delta = k.fragment(kF32, {kOwn}, "delta");
    t.copy_rows(row, a, delta);
    k.fill(dq, 0.0f), k.fill(part, 0.0f);
    own.take([&] {
      k.serial(passing.first, passing.end, [&](Value j) {
        auto key = j * kPassing;
        ring.take([&] {
          k.fill(scores, 0.0f), k.fill(dp, 0.0f);
          k.gemm(q_tile, k_tile.transposed(), scores, kByGroups);
          k.gemm(grad_tile, v_tile.transposed(), dp, kByGroups);
          k.parallel({kOwn, kPassing}, [&](Value r, Value c) {
            Value score = scores(r, c), of_row = a(r);
            scores(r, c) = t.p_of(score, of_row);
          });
          k.parallel({kOwn, kPassing}, [&](Value r, Value c) {
            Value p = scores(r, c), of_dp = dp(r, c), of_row = delta(r);
            dp(r, c) = p * (of_dp - of_row);
          });
          k.if_(t.has_edge(row, key), [&] {
            k.parallel({kOwn, kPassing}, [&](Value r, Value c) {
              Value now = dp(r, c);
              dp(r, c) = select(t.is_seen(row + r, key + c), now, 0.0f);
            });
          });
          k.parallel({kOwn, kPassing},
                     [&](Value r, Value c) { ds(r, c) = cast(t.dtype(), dp(r, c)); });
          k.gemm(ds, k_tile, part, kByGroups);
        });
        const auto add = [&] {
          k.parallel({kOwn, s.width}, [&](Value r, Value d) {
            Value sum = dq(r, d), more = part(r, d);
            dq(r, d) = sum + more, part(r, d) = 0.0f;
          });
        };
        if (tiles_of_part == 1) return add();
        k.if_(j % tiles_of_part == tiles_of_part - 1, add);
      });
    });
    k.parallel({kOwn, s.width}, [&](Value r, Value d) {
      Value sum = dq(r, d);
      dq(r, d) = sum * scale;
    });
    t.copy_out(dq, grad_q, row, s.width);
  };
  add_roles(k, s, multiply, load);
  return k.finish();
}

}  // namespace tessera::kernels::attention
