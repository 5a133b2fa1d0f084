#include "tests/support/matchers.h"

namespace tessera::test {
namespace {

template <class Compare>
TensorMatcher equals(const HostTensor& want, const Compare& compare) {
  return {"equals " + to_string(want.view()),
          [=, &want](const TensorView& got) { return compare(got, want.view()); }};
}

}  // namespace

TensorMatcher::TensorMatcher(std::string wanted, Compare compare)
    : wanted_(std::move(wanted)), compare_(std::move(compare)) {}

bool TensorMatcher::match(const HostTensor& got) const {
  const Comparison result = compare_(got.view());
  report_ = result.report;
  return result.ok;
}

std::string TensorMatcher::describe() const {
  return wanted_ + (report_.empty() ? "" : ": " + report_);
}

TensorMatcher EqualsBits(const HostTensor& want) {
  return equals(want, compare_bits);
}

TensorMatcher WithinUlp(const HostTensor& want, int64_t ulps) {
  return equals(want,
                [=](const TensorView& a, const TensorView& b) { return compare_ulps(a, b, ulps); });
}

TensorMatcher AllClose(const HostTensor& want, double rtol, double atol) {
  return equals(want, [=](const TensorView& a, const TensorView& b) {
    return compare_close(a, b, rtol, atol);
  });
}

TensorMatcher CalcDiff(const HostTensor& want, double limit) {
  return equals(want, [=](const TensorView& a, const TensorView& b) {
    return compare_calc_diff(a, b, limit);
  });
}

}  // namespace tessera::test
