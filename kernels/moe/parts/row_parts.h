#pragma once
// A short row in the registers of one thread; a longer row comes in parts.

#include <algorithm>
#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

class RowParts {
 public:
  /// A row of `length` elements, accessed in vectors of `vector`, a divisor of it.
  RowParts(dsl::Builder& k, int64_t length, int64_t vector)
      : k_(k), length_(length), vector_(vector), held_(vector) {
    for (int64_t size = vector; size <= std::min(length, kMost); size += vector) {
      if (length % size == 0) held_ = size;
    }
  }

  int64_t held() const { return held_; }  // elements per part
  bool is_whole() const { return held_ == length_; }

  /// Calls body(first element) for each part.
  void each_part(const std::function<void(const dsl::Value& first)>& body) const {
    if (is_whole()) return body(dsl::i32(0));
    k_.serial(0, length_ / held_, [&](dsl::Value part) { body(part * held_); });
  }
  /// Calls body(i) for each element i < held() of a part, vector after vector.
  void each_vector(const std::function<void(const dsl::Value& i)>& body) const {
    k_.unrolled(held_ / vector_, [&](dsl::Value part) {
      k_.vectorized(vector_, [&](dsl::Value i) { body(part * vector_ + i); });
    });
  }

 private:
  static constexpr int64_t kMost = 32;  // most elements in registers

  dsl::Builder& k_;
  int64_t length_, vector_, held_;
};

}  // namespace tessera::kernels::moe
