#include "kernels/attention/mla/parts/mla_rows.h"

#include <limits>

#include "kernels/attention/parts/online_softmax.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

Value factor_of_row(MlaTensors& t, const PagedPlace& at, const Value& r) {
  if (!t.q_scale) return t.c;
  auto factor = t.k.var(kF32, 1.0f, "factor_of_row");
  t.k.if_(r < at.count, [&] {
    Value scale = (*t.q_scale)(at.request, at.row + r);
    auto is_sane = t.k.let("is_sane", scale > 0.0f && scale <= kLargest);
    t.k.report_unless(is_sane, out_of_range("q_scale"));
    factor = select(is_sane, t.c * scale, kNan);
  });
  return t.k.let("factor", factor);
}

Value end_of_row(MlaTensors& t, const PagedPlace& at, const DecodeRequest& request,
                 const Value& r) {
  auto seen = t.k.let("seen", request.end((at.row + r) / t.heads));
  return select(r < at.count, seen, 0);
}

MlaRowEnd end_row(MlaTensors& t, const Value& r, const Value& total, const Value& top,
                  const Value& factor) {
  const Value sum = t.q_scale ? t.k.let("sum", select(factor == factor, total, kNan)) : total;
  auto scaled = t.k.let("scaled", top * factor);
  return {r, sum, scaled, t.k.let("is_empty", top == kLowest && sum == 0.0f)};
}

Value factor_of_output(MlaTensors& t, const PagedPlace& at, const MlaRowEnd& row) {
  auto divisor = t.k.var(kF32, row.sum, "divisor");
  if (t.sink) {
    t.k.if_(row.r < at.count, [&] {
      Value sink = (*t.sink)((at.row + row.r) % t.heads);
      divisor = with_sink(row.sum, row.scaled, sink);
    });
  }
  Value all = divisor;
  return select(row.is_empty, -1.0f, 1.0f / all);
}

void write_statistics(MlaTensors& t, const PagedPlace& at, const MlaRowEnd& row) {
  const auto whole = [&] {
    auto of_request = t.k.let("row_of_request", at.row + row.r);
    auto token = t.k.let("token", of_request / t.heads);
    auto head = t.k.let("head", of_request - token * t.heads);
    t.lse(at.request, head, token) = lse_of(row.sum, row.scaled, row.is_empty);
    if (t.max_logits) {
      (*t.max_logits)(at.request, head) = select(row.sum == row.sum, row.scaled * kLn2, kNan);
    }
  };
  t.k.if_(row.r < at.count, [&] {
    if (!t.partial) return whole();
    t.k.if_else(at.is_alone, whole, [&] {
      auto of_call = t.k.let("row_of_call", t.row_of_call(at, row.r));
      (*t.partial_max)(at.part, of_call) = row.scaled;
      (*t.partial_sum)(at.part, of_call) = row.sum;
    });
  });
}

}  // namespace tessera::kernels::attention
