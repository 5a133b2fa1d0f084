#pragma once
// The comparisons of compare.h for CHECK_THAT, and how Catch2 prints a tensor.

#include <functional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/host_tensor.h"

namespace tessera::test {

#if CATCH_VERSION_MAJOR >= 3
using TensorMatcherBase = Catch::Matchers::MatcherBase<HostTensor>;
#else
using TensorMatcherBase = Catch::MatcherBase<HostTensor>;
#endif

class TensorMatcher : public TensorMatcherBase {
 public:
  using Compare = std::function<Comparison(const TensorView& got)>;
  /// `wanted` says in a failure what the tensor should have done: "equals f32[3]".
  TensorMatcher(std::string wanted, Compare compare);
  bool match(const HostTensor& got) const override;
  std::string describe() const override;

 private:
  std::string wanted_;
  Compare compare_;
  mutable std::string report_;
};

/// All elements, by their row-major number, have exactly these values.
///
/// Example: CHECK_THAT(out, HasValues([](int64_t i) { return 2 * i; }));
template <class Fn>
TensorMatcher HasValues(const Fn& want) {
  return {"has the values", [want](const TensorView& got) {
            return compare_values(got, [&](int64_t i) { return static_cast<double>(want(i)); });
          }};
}

// These hold a pointer to `want`: use them inside one CHECK_THAT.

/// Example: CHECK_THAT(out, EqualsBits(want));
TensorMatcher EqualsBits(const HostTensor& want);
TensorMatcher WithinUlp(const HostTensor& want, int64_t ulps);
TensorMatcher AllClose(const HostTensor& want, double rtol, double atol);
TensorMatcher CalcDiff(const HostTensor& want, double limit);

}  // namespace tessera::test

namespace Catch {
template <>
struct StringMaker<tessera::test::HostTensor> {
  static std::string convert(const tessera::test::HostTensor& tensor) {
    return tessera::to_string(tensor.view());
  }
};
}  // namespace Catch
