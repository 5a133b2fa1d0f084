#pragma once
// The parts of the keys of a request in attention_decode, in both of its kernels.

#include <optional>

#include "dsl/builder.h"

namespace tessera::kernels::attention {

/// A request of the call: its keys and its rows.
struct DecodeRequest {
  dsl::Value length, tokens;       // keys; rows of q, the last of which belongs to the last key
  std::optional<dsl::Value> left;  // keys before its own that a row sees
  dsl::Value part_keys;            // of a part
  bool is_causal;

  /// The keys [begin, end) that row `token` sees.
  dsl::Value begin(const dsl::Value& token) const {
    if (!left) return dsl::i32(0);
    return max(token + (length - tokens) - *left, 0);
  }
  dsl::Value end(const dsl::Value& token) const {
    if (!is_causal) return length;
    return max(token + (length - tokens) + 1, 0);
  }
  /// The parts [first, end) in which some row sees a key; a request without keys has none.
  dsl::Value first_part() const { return begin(dsl::i32(0)) / part_keys; }
  dsl::Value end_part() const { return (length + part_keys - 1) / part_keys; }
};

}  // namespace tessera::kernels::attention
