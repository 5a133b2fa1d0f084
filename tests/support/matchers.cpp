#include "tests/support/matchers.h"

namespace tessera::test {

TensorMatcher::TensorMatcher(const HostTensor& want, Compare compare)
    : want_(&want), compare_(std::move(compare)) {}

bool TensorMatcher::match(const HostTensor& got) const {
  const Comparison result = compare_(got.view(), want_->view());
  report_ = result.report;
  return result.ok;
}

std::string TensorMatcher::describe() const {
  return "equals " + to_string(want_->view()) + (report_.empty() ? "" : ": " + report_);
}

TensorMatcher EqualsBits(const HostTensor& want) {
  return {want, compare_bits};
}

TensorMatcher WithinUlp(const HostTensor& want, int64_t ulps) {
  return {want, [=](const TensorView& a, const TensorView& b) { return compare_ulps(a, b, ulps); }};
}

TensorMatcher AllClose(const HostTensor& want, double rtol, double atol) {
  return {want, [=](const TensorView& a, const TensorView& b) {
            return compare_close(a, b, rtol, atol);
          }};
}

TensorMatcher CalcDiff(const HostTensor& want, double limit) {
  return {want,
          [=](const TensorView& a, const TensorView& b) { return compare_calc_diff(a, b, limit); }};
}

}  // namespace tessera::test
