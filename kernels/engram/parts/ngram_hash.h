#pragma once
// The row of a hashed embedding table, as engram_hash and engram_embed compute it.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"

namespace tessera::kernels::engram {

/// An id or a multiplier, by its column.
using NgramElement = std::function<dsl::Value(const dsl::Value& column)>;

/// The exclusive or of id * multiplier over the columns 0 .. order of `ngram`, modulo `size` (the least
/// remainder that is not negative; 0 for a size below 1), plus `offset`; i64.
inline dsl::Value ngram_row(dsl::Builder& k, int64_t ngram, const dsl::Value& order,
                            const NgramElement& id, const NgramElement& multiplier,
                            const dsl::Value& size, const dsl::Value& offset) {
  using namespace dsl;
  constexpr int64_t kUnrolledIds = 8;
  auto hash = k.var(DType::i64, 0, "hash");
  auto mix = [&](const Value& i) {
    const Value product = i64(id(i)) * multiplier(i);
    hash = select(i <= order, hash ^ product, hash);
  };
  if (ngram <= kUnrolledIds) {
    k.unrolled(ngram, mix);
  } else {
    k.serial(0, ngram, mix);
  }
  auto positive = k.let("positive", i64(max(size, 1)));
  auto remainder = k.let("remainder", hash % positive);
  auto row = select(remainder < 0, remainder + positive, remainder);
  return select(size > 0, row, i64(0)) + i64(offset);
}

}  // namespace tessera::kernels::engram
