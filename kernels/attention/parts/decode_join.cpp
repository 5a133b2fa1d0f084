// Joins the parts of a row that the first kernel of attention_decode has left in memory, from left to right. Requests
// with one part are finished already.
//
// The threads of a row take two columns each. Loads of several parts are on their way together; the fold follows.

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/attention/parts/decode_kernel.h"
#include "kernels/attention/parts/online_softmax.h"
#include "kernels/attention/parts/request_parts.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kVector = 2, kAhead = 16;  // columns of a thread; parts on their way

}  // namespace

ir::Kernel build_join(const JoinSpec& s) {
  dsl::Builder k("attention_decode_join");
  const DType dtype = s.is_f16 != 0 ? DType::f16 : DType::bf16;
  const int64_t width = s.value_width, lanes = width / kVector;
  const int64_t rows_of_block = std::max<int64_t>(128 / lanes, 1);
  auto batch = k.dim("B"), tokens = k.dim("n"), heads = k.dim("h"), count = k.dim("part_count");
  auto cache_rows = k.scalar("cache_rows", kI32), part_blocks = k.scalar("part_blocks", kI32);
  std::optional<Value> left;
  if (s.has_left != 0) left = k.scalar("left", kI32);
  auto rows = batch * tokens * heads;
  auto parts = k.input("parts", kF32, {count, rows, width + 2}, {.align = 8});
  auto lengths = k.input("lengths", kI32, {batch}, {.align = 4});
  std::optional<Ref> sink, v_sf;
  if (s.has_sink != 0) sink = k.input("sink", kF32, {heads}, {.align = 4});
  std::optional<Value> group;
  if (s.has_v_sf != 0) {
    group = k.scalar("group", kI32);
    v_sf = k.input("v_sf", kF32, {k.dim("g")}, {.align = 4});
  }
  auto out = k.output("out", dtype, {batch, tokens, heads, width}, {.align = 4});
  auto lse = k.output("lse", kF32, {batch, heads, tokens}, {.align = 4});
  auto at = k.launch({ceil_div(rows, rows_of_block)},
                     {.threads = static_cast<int>(rows_of_block * lanes)});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  auto row = k.let("row", at.x * rows_of_block + k.thread() / lanes);
  auto column = k.let("column", k.thread() % lanes * kVector);
  auto head = k.let("head", row % heads), token = k.let("token", row / heads % tokens);
  auto request = k.let("request", row / heads / tokens);
  k.if_(row < rows, [&] {
    Value given = lengths(request);
    const DecodeRequest r{k.let("length", min(max(given, 0), cache_rows)), tokens, left,
                          k.let("part_keys", part_blocks * s.keys), s.is_causal != 0};
    k.if_(r.end_part() - r.first_part() > 1, [&] {
      auto first = k.let("first", r.begin(token) / r.part_keys);
      auto end = k.let("last", (r.end(token) + r.part_keys - 1) / r.part_keys);
      auto top = k.var(kF32, kLowest, "top"), sum = k.var(kF32, 0.0f, "sum");
      auto o = k.local(kF32, {kVector}, "o");
      k.unrolled(kVector, [&](Value i) { o(i) = 0.0f; });
      auto tops = k.local(kF32, {kAhead}, "tops"), sums = k.local(kF32, {kAhead}, "sums");
      auto columns = k.local(kF32, {kAhead, kVector}, "columns");
      const auto body = [&](Value z) {
        k.unrolled(kAhead, [&](Value i) {
          tops(i) = kLowest, sums(i) = 0.0f;  // a part that is not there changes nothing
          k.unrolled(kVector, [&](Value e) { columns(i, e) = 0.0f; });
          k.if_(z + i < end, [&] {
            const Ref part = parts(z + i, row);
            sums(i) = part(width), tops(i) = part(width + 1);
            k.vectorized(kVector, [&](Value e) { columns(i, e) = part(column + e); });
          });
        });
        k.unrolled(kAhead, [&](Value i) {
          Value before = top, next = tops(i), all = sum, more = sums(i);
          auto highest = k.let("highest", max_nan(before, next));
          auto base = k.let("base", select(highest == kLowest, 0.0f, highest));
          auto a = k.let("a", exp2_approx(before - base)), b = k.let("b", exp2_approx(next - base));
          sum = fma(more, b, all * a);
          k.unrolled(kVector, [&](Value e) {
            Value mine = o(e), theirs = columns(i, e);
            o(e) = fma(theirs, b, mine * a);
          });
          top = highest;
        });
      };
      k.serial(first, end, body, kAhead);
      Value total = sum, scaled = top;
      auto is_empty = k.let("is_empty", scaled == kLowest && total == 0.0f);
      Value divisor = total;
      if (sink) {
        Value of_head = (*sink)(head);
        divisor = with_sink(total, scaled, of_head);
      }
      Value inverse = 1.0f / divisor;
      if (v_sf) inverse = inverse * (*v_sf)(head / *group);
      inverse = k.let("inverse", inverse);
      k.vectorized(kVector, [&](Value e) {
        Value mine = o(e);
        auto divided = select(is_empty, 0.0f, fma(mine, inverse, 0.0f));
        out(request, token, head, column + e) = cast(dtype, divided);
      });
      k.if_(column == 0, [&] { lse(request, head, token) = lse_of(total, scaled, is_empty); });
    });
  });
  return k.finish();
}

}  // namespace tessera::kernels::attention
