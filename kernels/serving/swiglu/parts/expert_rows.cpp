#include "kernels/serving/swiglu/parts/expert_rows.h"

#include <functional>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

using namespace dsl;

Value ExpertRows::owned(const Value& row) const {
  auto first = k_.var(DType::i32, experts_, "first_expert");
  auto chunks = k_.let("chunks", ceil_div(experts_, 32));
  const auto each = [&](const std::function<void(const Value& expert, const Value& end)>& body) {
    k_.serial(0, chunks, [&](Value chunk) {
      auto expert = k_.let("expert", chunk * 32 + k_.lane());
      k_.if_(expert < experts_, [&] { body(expert, k_.let("end", psum_(expert).unchecked())); });
    });
  };
  each([&](const Value& expert, const Value& end) {
    first = select(end > row, min(first, expert), first);
  });
  auto owner = k_.let("owner", k_.warp_min(first));
  auto before = k_.var(DType::i32, 0, "end_before");
  each([&](const Value& expert, const Value& end) {
    before = select(expert < owner, max(before, end), before);
  });
  // The start in 64 bits: an end near 2^31 rounds up beyond it.
  auto end = k_.let("end_before_owner", i64(k_.warp_max(before)));
  auto start = (end + i64(alignment_ - 1)) / i64(alignment_) * i64(alignment_);
  return k_.let("owned", owner < experts_ && i64(row) >= start);
}

void ExpertRows::report(const Value& rows, int threads) const {
  k_.serial(0, (experts_ + (threads - 1)) / threads, [&](Value round) {
    auto expert = k_.let("checked_expert", round * threads + k_.thread());
    k_.if_(expert < experts_, [&] {
      auto end = k_.let("checked_end", psum_(expert).unchecked());
      auto least = k_.var(DType::i32, 0, "least_end");
      k_.if_(expert > 0, [&] { least = psum_(expert - 1).unchecked(); });
      k_.report_unless(end >= least && end <= rows, out_of_range("psum"));
    });
  });
}

void require_expert_rows(const Call& c) {
  if (c.has("psum")) require_ends(c.check(), "psum", c.given("psum"), c["P"]);
}

}  // namespace tessera::kernels::serving
