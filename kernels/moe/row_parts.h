#pragma once
// A short row in the registers of one thread, in parts where it is longer than they are.

#include <algorithm>
#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

class RowParts {
 public:
  /// `length` elements, read and written in vectors of `vector`, which divides it.
  RowParts(dsl::Builder& k, int64_t length, int64_t vector)
      : k_(k), length_(length), vector_(vector), held_(vector) {
    for (int64_t size = vector; size <= std::min(length, kMost); size += vector) {
      if (length % size == 0) held_ = size;
    }
  }

  int64_t held() const { return held_; }  // elements of a part
  bool is_whole() const { return held_ == length_; }

  /// Does body(first element) for each part.
  void each_part(const std::function<void(const dsl::Value& first)>& body) const {
    if (is_whole()) return body(dsl::i32(0));
    k_.serial(0, length_ / held_, [&](dsl::Value part) { body(part * held_); });
  }
  /// Does body(i) for each element of a part, i < held(), one vector after the other.
  void each_vector(const std::function<void(const dsl::Value& i)>& body) const {
    k_.unrolled(held_ / vector_, [&](dsl::Value part) {
      k_.vectorized(vector_, [&](dsl::Value i) { body(part * vector_ + i); });
    });
  }

 private:
  static constexpr int64_t kMost = 32;  // elements in registers

  dsl::Builder& k_;
  int64_t length_, vector_, held_;
};

}  // namespace tessera::kernels::moe
