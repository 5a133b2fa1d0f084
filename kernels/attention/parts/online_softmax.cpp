#include "kernels/attention/parts/online_softmax.h"

#include <limits>
#include <utility>

namespace tessera::kernels::attention {
namespace {

using dsl::Axis;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

}  // namespace

NextTop::NextTop(const Value& top_before, const Value& scaled_before, const Value& high,
                 const Value& c)
    : top(max(top_before, high)),
      scaled(top * c),
      base(select(top == kLowest, 0.0f, scaled)),  // so that no difference of infinities is taken
      shrink(exp2_approx(scaled_before - base)) {}

Value lse_of(const Value& sum, const Value& scaled, const Value& is_empty) {
  return select(is_empty, -kLowest, (scaled + log2(sum)) * kLn2);
}

Value with_sink(const Value& sum, const Value& scaled, const Value& sink) {
  return sum + exp2_approx(fma(sink, kLog2E, -scaled));
}

RowSoftmax::RowSoftmax(dsl::Builder& k, DType dtype, int64_t rows, int64_t keys, const Value& c,
                       std::optional<dsl::Ref> c_of_rows)
    : scores(k.fragment(kF32, {rows, keys}, "scores")),
      p(k.fragment(dtype, {rows, keys}, "p")),
      top(k.fragment(kF32, {rows}, "top")),
      shrink(k.fragment(kF32, {rows}, "shrink")),
      k_(k),
      rows_(rows),
      keys_(keys),
      scaled_(k.fragment(kF32, {rows}, "scaled")),
      high_(k.fragment(kF32, {rows}, "high")),
      c_(c),
      c_of_rows_(std::move(c_of_rows)),
      sums_(k.fragment(kF32, {rows, 4, 8}, "sums")) {}

void RowSoftmax::start() {
  k_.fill(sums_, 0.0f);
  k_.fill(top, kLowest), k_.fill(scaled_, kLowest);
}

void RowSoftmax::find_high() {
  k_.reduce_max(scores, high_, Axis(1));
}

void RowSoftmax::weigh() {
  k_.parallel({rows_}, [&](Value r) {
    Value high = high_(r),
          before = top(r);  // as arguments, compilers would read them in different orders
    Value scaled = scaled_(r), c = c_of(r);
    const NextTop next(before, scaled, high, c);
    shrink(r) = next.shrink;
    top(r) = next.top, scaled_(r) = next.scaled, high_(r) = -next.base;
  });
  k_.parallel(scores, [&](Value r, Value j) {
    Value score = scores(r, j), c = c_of(r);
    scores(r, j) = exp2_approx(fma(score, c, high_(r)));
  });
  auto eights = scores.reshape({rows_, keys_ / 8, 8});
  for (int64_t w = 0; w < 4; ++w) {
    k_.parallel({rows_, 8}, [&](Value r, Value u) {
      Value sum = sums_(r, w, u);
      for (int64_t j = 2 * w; j < keys_ / 8; j += j % 2 == 0 ? 1 : 7) {
        Value next = eights(r, j, u);
        sum = j == 2 * w ? fma(sum, shrink(r), next) : sum + next;
      }
      sums_(r, w, u) = sum;
    });
  }
  k_.parallel(p, [&](Value r, Value j) { p(r, j) = cast(p.dtype(), scores(r, j)); });
}

void RowSoftmax::follow(const std::function<Value(const Value& r)>& top_of,
                        const std::function<Value(const Value& r)>& shrink_of) {
  k_.parallel({rows_}, [&](Value r) {
    Value now = top_of(r), factor = shrink_of(r), c = c_of(r);
    top(r) = now, scaled_(r) = now * c, shrink(r) = factor;
  });
  k_.parallel(sums_, [&](Value r, Value w, Value u) {
    Value sum = sums_(r, w, u);
    sums_(r, w, u) = sum * shrink(r);
  });
}

void RowSoftmax::rescale(const dsl::Ref& out, const dsl::Ref& by) {
  k_.parallel(out, [&](Value r, Value d) {
    Value before = out(r, d);
    out(r, d) = before * by(r);
  });
}

dsl::Ref RowSoftmax::total() {
  // Classes first, then neighbours at distance 1, 2 and 4.
  auto quarters = k_.fragment(kF32, {rows_, 4}, "quarters");
  auto halves = k_.fragment(kF32, {rows_, 2}, "halves");
  auto total = k_.fragment(kF32, {rows_}, "total");
  auto pairs = sums_.reshape({rows_, 4, 4, 2});
  k_.parallel(quarters, [&](Value r, Value i) {
    const auto of = [&](int64_t odd) {
      return (pairs(r, 0, i, odd) + pairs(r, 1, i, odd)) +
             (pairs(r, 2, i, odd) + pairs(r, 3, i, odd));
    };
    quarters(r, i) = of(0) + of(1);
  });
  k_.reduce_sum(quarters.reshape({rows_, 2, 2}), halves, Axis(2));
  k_.reduce_sum(halves, total, Axis(1));
  return total;
}

OnlineSoftmax::OnlineSoftmax(dsl::Builder& k, DType dtype, int64_t rows, int64_t keys,
                             int64_t value_width, const Value& c)
    : RowSoftmax(k, dtype, rows, keys, c), out(k.fragment(kF32, {rows, value_width}, "o")) {}

void OnlineSoftmax::start() {
  k_.fill(out, 0.0f);
  RowSoftmax::start();
}

void OnlineSoftmax::finish(const Value& count, const std::function<Value(const Row&)>& divisor) {
  const dsl::Ref sum = total();
  auto &inverse = high_, &empty = shrink;
  k_.parallel({rows_}, [&](Value r) {
    Value is_empty = (top(r) == kLowest && sum(r) == 0.0f) || r >= count;
    inverse(r) = 1.0f / divisor({r, sum(r), scaled_(r), is_empty});
    empty(r) = f32(is_empty);
  });
  k_.parallel(out, [&](Value r, Value d) {
    Value before = out(r, d);
    out(r, d) = select(empty(r) == 1.0f, 0.0f, fma(before, inverse(r), 0.0f));
  });
}

}  // namespace tessera::kernels::attention
