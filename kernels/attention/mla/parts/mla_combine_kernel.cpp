// Combines the parts of a row: O = sum of O_z 2^(m_z - M) with the largest m_z as M, and the sums alike.
//
// A block has one row, a thread four columns of it. The threads look for the maximum first, all of them at all parts; then
// loads of several parts are on their way together. Bound: the bytes of the parts.

#include <limits>
#include <optional>

#include "kernels/attention/mla/parts/mla_lists.h"
#include "kernels/attention/parts/online_softmax.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kVector = 4,
                  kAhead = 8;  // columns of a thread; parts on their way

/// The parts of a row, added up.
class Combined {
 public:
  Combined(dsl::Builder& k, const Ref& partial, const Ref& maxima, const Ref& sums)
      : o(k.local(kF32, {kVector}, "o")),
        sum(k.var(kF32, 0.0f, "sum")),
        top(k.var(kF32, kLowest, "top")),
        k_(k),
        partial_(partial),
        maxima_(maxima),
        sums_(sums) {
    k.unrolled(kVector, [&](Value e) { o(e) = 0.0f; });
  }

  void add(const Value& row, const Value& column, const Value& count) {
    k_.serial(0, count, [&](Value z) {
      Value before = top, next = maxima_(z, row);
      top = max_nan(before, next);
    });
    Value highest = top;
    auto base = k_.let("base", select(highest == kLowest, 0.0f, highest));
    auto factors = k_.local(kF32, {kAhead}, "factors"), sums = k_.local(kF32, {kAhead}, "sums");
    auto columns = k_.local(kF32, {kAhead, kVector}, "columns");
    const auto body = [&](Value first) {
      k_.unrolled(kAhead, [&](Value i) {
        factors(i) = 0.0f,
        sums(i) = 0.0f;  // a part that is not there changes nothing
        k_.unrolled(kVector, [&](Value e) { columns(i, e) = 0.0f; });
        auto z = k_.let("z", first + i);
        k_.if_(z < count, [&] {
          Value of_part = maxima_(z, row);
          factors(i) = exp2_approx(of_part - base);
          sums(i) = sums_(z, row);
          k_.vectorized(kVector, [&](Value e) { columns(i, e) = partial_(z, row, column + e); });
        });
      });
      k_.unrolled(kAhead, [&](Value i) {
        Value factor = factors(i), more = sums(i), all = sum;
        sum = fma(more, factor, all);
        k_.unrolled(kVector, [&](Value e) {
          Value mine = o(e), theirs = columns(i, e);
          o(e) = fma(theirs, factor, mine);
        });
      });
    };
    k_.serial(0, count, body, kAhead);
  }

  const Ref o, sum, top;

 private:
  dsl::Builder& k_;
  const Ref partial_, maxima_, sums_;
};

}  // namespace

ir::Kernel build_mla_combine(const CombineSpec& s) {
  dsl::Builder k("mla_combine");
  const bool has_requests = s.has_requests != 0;
  const DType dtype = s.is_f32 != 0 ? kF32 : DType::bf16;
  std::optional<Value> batch, tokens, heads, part_len;
  std::optional<ListLengths> keys;
  auto rows = k.dim("R");  // its own: B * n * h may wrap for all that the kernel knows
  if (has_requests) {
    batch = k.dim("B"), tokens = k.dim("n"), heads = k.dim("h");
    part_len = k.scalar("part_len", kI32);
    keys = ListLengths{k.scalar("cache_rows", kI32), {}, {}, {}};
    if (s.has_extra != 0) keys->extra_columns = k.scalar("extra_rows", kI32);
  } else {
    heads = k.scalar("num_heads", kI32);
  }
  auto count = k.dim("part_count");
  auto partial = k.input("partial", kF32, {count, rows, kLatentValueWidth}, {.align = 16});
  auto maxima = k.input("partial_max", kF32, {count, rows}, {.align = 4});
  auto sums = k.input("partial_sum", kF32, {count, rows}, {.align = 4});
  std::optional<Ref> sink;
  if (s.has_sink != 0) sink = k.input("attn_sink", kF32, {*heads}, {.align = 4});
  if (s.has_lengths != 0) keys->lengths = k.input("lengths", kI32, {*batch}, {.align = 4});
  if (s.has_extra_lengths != 0) {
    keys->extra_lengths = k.input("extra_length", kI32, {*batch}, {.align = 4});
  }
  auto out = k.output("out", dtype, {rows, kLatentValueWidth}, {.align = 16});
  auto lse = has_requests ? k.output("lse", kF32, {*batch, *heads, *tokens}, {.align = 4})
                          : k.output("lse", kF32, {rows}, {.align = 4});
  auto at = k.launch({rows}, {.threads = static_cast<int>(kLatentValueWidth / kVector)});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  const Value row = at.x, column = k.let("column", k.thread() * kVector);
  auto head = k.let("head", row % *heads);
  const auto combine = [&](const Value& parts_of_row, const Ref& lse_of_row) {
    Combined row_sums(k, partial, maxima, sums);
    row_sums.add(row, column, parts_of_row);
    Value total = row_sums.sum, top = row_sums.top;
    auto is_empty = k.let("is_empty", top == kLowest && total == 0.0f);
    Value divisor = total;
    if (sink) {
      Value of_head = (*sink)(head);
      divisor = with_sink(total, top, of_head);
    }
    auto inverse = k.let("inverse", 1.0f / divisor);
    k.vectorized(kVector, [&](Value e) {
      Value o = row_sums.o(e);
      out(row, column + e) = cast(dtype, select(is_empty, 0.0f, fma(o, inverse, 0.0f)));
    });
    k.if_(column == 0, [&] { lse_of_row = lse_of(total, top, is_empty); });
  };
  if (!has_requests) {
    combine(count, lse(row));
    return k.finish();
  }
  auto of_heads = k.let("of_heads", row / *heads);
  auto token = k.let("token", of_heads % *tokens), request = k.let("request", of_heads / *tokens);
  const DecodeRequest r{keys->places(k, request, false), *tokens, std::nullopt, *part_len,
                        s.is_causal != 0};
  k.if_(r.end_part() > 1, [&] {
    auto parts_of_row = k.let("parts_of_row", (r.end(token) + r.part_keys - 1) / r.part_keys);
    combine(parts_of_row, lse(request, head, token));
  });
  return k.finish();
}

}  // namespace tessera::kernels::attention
