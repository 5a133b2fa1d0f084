// reduce_fused: the rows of each token's positions, weighted and summed. combine_reduce: the same of rows with any stride,
// from the rows of `base` on.
//
// Shapes   x [positions, hidden], x_sf [positions], topk_weights and token_topk_to_pos
//          [tokens, num_topk], sf [1], out [tokens, hidden]
// Dtypes   x f32|bf16, factors f32, positions i32, out as x or e4m3
// Method   16-byte vectors of columns go straight from the rows into the sums; no shared memory. With
//          many tokens a thread adds slot by slot, up to 4 vectors each: most slots are empty, and
//          other blocks hide the latency. With few tokens each lane of a warp loads position and
//          factor of one slot, then all vectors of 8 slots at once: two memory latencies. Rows are
//          read once, so the bound is bytes / copy bandwidth.
// Maths    acc = fma(x, weight * x_sf, acc) in the order of the slots from +0, then acc * sf
// Tuned    H200: pick_walk. Columns are independent, so few tokens still fill the SMs.

#include "kernels/moe/parts/reduce_kernel.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::moe {

Walk pick_walk(int64_t tokens, int64_t vectors) {
  constexpr int64_t kManyTokens = 1024;  // about 8 blocks for each of 132 SMs
  const bool many = tokens >= kManyTokens;
  const uint8_t slots = many ? 1 : 8;
  for (int runs = many ? 4 : 1; runs > 0; --runs) {
    for (int step = 0; step <= 128; step += 32) {
      const int threads = many ? 256 - step : 128 + step;
      if (vectors % (threads * runs) != 0) continue;
      return {static_cast<uint8_t>(runs), slots, static_cast<int16_t>(threads)};
    }
  }
  const auto threads = static_cast<int16_t>(std::min<int64_t>((vectors + 31) / 32 * 32, 128));
  return {1, slots, threads};
}

ir::Kernel build_reduce(const ReduceSpec& s) {
  using namespace dsl;
  const int64_t runs = s.walk.runs, threads = s.walk.threads, vector = s.vector;
  const int64_t chunks = (s.hidden + threads * runs * vector - 1) / (threads * runs * vector);

  const bool combines = s.form != ReduceForm::reduce;
  const char* const slots_name = combines ? "pos" : "token_topk_to_pos";
  Builder k(combines ? "combine_reduce" : "reduce_fused");
  auto tokens = k.dim("tokens");
  auto out = k.output("out", s.out, {tokens, s.hidden}, {.align = s.align});
  std::vector<Ref> x, slots_of, x_sf, weights, sf, base;  // zero or one element
  const auto rows_of = [&](const char* name) {            // with any stride
    auto stride = k.stride(std::string(name) + "_stride", {.multiple_of = vector});
    return dsl::TensorOptions{.strides = {stride, 1}, .align = vector * bytes(s.in)};
  };
  Value positions;
  if (s.num_topk > 0) {
    positions = k.dim("positions");
    // An access of `vector` elements has at least the alignment of one.
    const dsl::TensorOptions options =
        combines ? rows_of("x") : dsl::TensorOptions{.align = std::max<int>(s.align, bytes(s.in))};
    x.push_back(k.input("x", s.in, {positions, s.hidden}, options));
    slots_of.push_back(k.input(slots_name, DType::i32, {tokens, s.num_topk}, {.align = 4}));
  }
  if (s.has_x_sf) x_sf.push_back(k.input("x_sf", DType::f32, {positions}, {.align = 4}));
  if (s.has_weights) {
    weights.push_back(k.input("topk_weights", DType::f32, {tokens, s.num_topk}, {.align = 4}));
  }
  if (s.has_sf) sf.push_back(k.input("sf", DType::f32, {1}, {.align = 4}));
  std::optional<Ref> num_tokens;
  if (s.has_num_tokens) num_tokens = k.input("num_tokens", DType::i32, {1}, {.align = 4});
  if (s.form == ReduceForm::combine_base) {
    base.push_back(k.input("base", s.in, {tokens, s.hidden}, rows_of("base")));
  }
  auto at = k.launch({tokens * chunks}, {.threads = s.walk.threads});
  auto token = k.let("token", at.x / chunks);
  k.assume(token < tokens);
  auto first_col = k.let("first_col", (at.x % chunks * runs * threads + k.thread()) * vector);
  auto column = [&](const Value& run) { return first_col + run * (threads * vector); };

  std::optional<Value> counts;  // tokens from num_tokens on are 0
  if (num_tokens) counts = k.let("counts", token < (*num_tokens)(0));
  auto acc = k.local(DType::f32, {runs, vector}, "acc");
  const auto begin_at = [&](const std::function<Value(const Value& r, const Value& j)>& value) {
    k.unrolled(runs,
               [&](Value r) { k.vectorized(vector, [&](Value j) { acc(r, j) = value(r, j); }); });
  };
  const auto from_base = [&] {
    begin_at([&](const Value& r, const Value& j) { return f32(base[0](token, column(r) + j)); });
  };
  if (base.empty() || counts) {
    k.unrolled(runs, [&](Value r) { k.unrolled(vector, [&](Value j) { acc(r, j) = 0.0f; }); });
  }
  if (!base.empty() && counts) k.if_(*counts, from_base);
  if (!base.empty() && !counts) from_base();
  // Lane l holds position and factor of the l-th slot of a group.
  const bool by_lanes = s.walk.slots > 1;
  Value mine, factor;
  // The hint costs 4 % with many tokens and saves 4 % with few.
  const auto hint = by_lanes ? CacheHint::evict_first : CacheHint::none;
  auto exists = [&](const Value& row) { return row >= 0 && row < positions; };
  // Reported at the end: an earlier report would delay the loads after it.
  auto fits = k.var(DType::boolean, true, "fits");
  auto require = [&](const Value& row) { fits = Value(fits) && row >= -1 && row < positions; };
  auto position_of = [&](const Value& slot) {
    const Value position = slots_of[0](token, slot);
    return counts ? select(*counts, position, -1) : position;
  };
  auto weight_of = [&](const Value& slot) {
    return weights.empty() ? Value(f32(1.0f)) : Value(weights[0](token, slot));
  };
  auto load_lanes = [&](int64_t first, int64_t slots) {
    auto position = k.var(DType::i32, -1, "own_position");
    auto product = k.var(DType::f32, 1.0f, "own_factor");
    k.if_(k.lane() < slots, [&] {
      position = position_of(first + k.lane());
      require(position);
      product = weight_of(first + k.lane());
    });
    mine = k.let("mine", position);
    for (const Ref& scale : x_sf) k.if_(exists(mine), [&] { product *= scale(mine); });
    factor = k.let("factor", product);
  };
  auto add_slots = [&](const Value& first, int64_t slots) {
    auto rows = k.local(s.in, {slots, runs, vector}, "rows");
    auto factors = k.local(DType::f32, {slots}, "factors");
    auto position = k.local(DType::i32, {slots}, "position");
    // load
    k.unrolled(slots, [&](Value i) {
      position(i) = by_lanes ? k.shuffle(mine, first + i) : position_of(first + i);
      if (!by_lanes) factors(i) = weight_of(first + i);
    });
    k.unrolled(slots, [&](Value i) {
      auto row = k.let("row", position(i));
      if (!by_lanes) require(row);
      k.if_(exists(row), [&] {
        for (const Ref& scale : x_sf) {
          if (!by_lanes) factors(i) *= scale(row);
        }
        k.unrolled(runs, [&](Value r) {
          k.vectorized(vector,
                       [&](Value j) { rows(i, r, j) = x[0].cached(hint)(row, column(r) + j); });
        });
      });
    });
    // sum
    if (by_lanes) k.unrolled(slots, [&](Value i) { factors(i) = k.shuffle(factor, first + i); });
    k.unrolled(slots, [&](Value i) {
      k.if_(exists(position(i)), [&] {
        k.unrolled(runs, [&](Value r) {
          k.unrolled(vector,
                     [&](Value j) { acc(r, j) = fma(f32(rows(i, r, j)), factors(i), acc(r, j)); });
        });
      });
    });
  };
  const int64_t together = by_lanes ? 32 : std::max(s.num_topk, 1);
  for (int64_t group = 0; group < s.num_topk; group += together) {
    const int64_t slots = std::min(s.num_topk - group, together);
    const int64_t whole = slots / s.walk.slots, rest = slots % s.walk.slots;
    if (by_lanes) load_lanes(group, slots);
    if (whole == 1) add_slots(i32(0), s.walk.slots);
    if (whole > 1) {
      k.serial(0, whole, [&](Value i) { add_slots(i * s.walk.slots, s.walk.slots); });
    }
    if (rest > 0) add_slots(i32(whole * s.walk.slots), rest);
  }
  k.report_unless(fits, out_of_range(slots_name));
  // scale and store
  k.unrolled(runs, [&](Value r) {
    k.vectorized(vector, [&](Value j) {
      Value sum = acc(r, j);
      for (const Ref& scale : sf) sum = sum * scale(0);
      out(token, column(r) + j) = cast(s.out, sum);
    });
  });
  return k.finish();
}

}  // namespace tessera::kernels::moe
