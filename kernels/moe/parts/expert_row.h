#pragma once
// A row with one value per expert, in the registers of a warp.

#include <functional>
#include <limits>

#include "dsl/builder.h"
#include "kernels/moe/parts/router_kernel.h"

namespace tessera::kernels::moe {

/// The values of one lane: slot 4 i + j is expert 128 i + 4 lane + j.
class ExpertRow {
 public:
  ExpertRow(dsl::Builder& k, const RouterSpec& s)
      : k_(k), s_(s), slots_((s.experts + 127) / 128 * 4) {}

  int64_t slots() const { return slots_; }
  dsl::Value expert(const dsl::Value& slot) const {
    return slot / 4 * 128 + k_.lane() * 4 + slot % 4;
  }
  /// Loads a row of `experts` floats; 0 beyond the last expert.
  dsl::Ref load(const char* name, const std::function<dsl::Ref(const dsl::Value&)>& at) const {
    using namespace dsl;
    auto values = k_.local(DType::f32, {slots_}, name);
    k_.unrolled(slots_ / s_.vector, [&](Value part) {
      auto first = k_.let("first", expert(part * s_.vector));
      k_.unrolled(s_.vector, [&](Value j) { values(part * s_.vector + j) = 0.0f; });
      k_.if_(first < s_.experts, [&] {
        k_.vectorized(s_.vector, [&](Value j) { values(part * s_.vector + j) = at(first + j); });
      });
    });
    return values;
  }
  template <class Fn>
  void each(const Fn& fn) const {
    k_.unrolled(slots_, [&](dsl::Value slot) { fn(slot, expert(slot)); });
  }
  /// Maximum and sum of the softmax exp(x - maximum) / sum of a row.
  struct Softmax {
    dsl::Value maximum, sum;
  };
  Softmax softmax(const dsl::Ref& x) const {
    using namespace dsl;
    auto most = k_.var(DType::f32, -std::numeric_limits<float>::infinity(), "most");
    each([&](const Value& slot, const Value& expert) {
      most = select(expert < s_.experts, max(most, x(slot)), most);
    });
    auto maximum = k_.let("maximum", k_.warp_max(most));
    auto part = k_.var(DType::f32, 0.0f, "part");
    each([&](const Value& slot, const Value& expert) {
      part = select(expert < s_.experts, part + exp(x(slot) - maximum), part);
    });
    return {maximum, k_.let("sum", k_.warp_sum(part))};
  }

 private:
  dsl::Builder& k_;
  const RouterSpec& s_;
  int64_t slots_;
};

}  // namespace tessera::kernels::moe
