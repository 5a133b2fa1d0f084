#pragma once
// An entry of a KV cache: norm, rotation, Hadamard transform and the encoding of a format. Each warp
// has 128 channels of an entry.

#include <cstdint>
#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/serving/parts/cache_rows.h"
#include "kernels/serving/parts/pair_angles.h"

namespace tessera::kernels::serving {

struct EntrySpec {
  CacheKind kind;
  AngleSpec angles;
  DType weight;  // of norm_weight
  uint8_t weight_width;
  bool hadamard;
  bool rounds;  // to bf16 before values are quantised
};

/// Channels that the norm is of: the first 512 of 576, else all.
int64_t normed_channels(int64_t channels);

/// Checks the cache and the parameters of an entry of so many channels.
void require_entry(const Call& c, int64_t channels);

EntrySpec entry_spec(const Call& c);

/// Tensors: norm_weight f32 or bf16 [channels], cos_sin, those of CacheRows. Scalars: norm_eps, page_size.
class CacheEntry {
 public:
  CacheEntry(dsl::Builder& k, const EntrySpec& s, int64_t channels);

  const dsl::Value& page_size() const { return rows_->page_size(); }

  /// The four channels of each lane, from `column` on, and their destination.
  struct Place {
    dsl::Value column;
    dsl::Value position;  // of the rotation
    dsl::Value location;  // in the cache; negative: not stored
  };
  /// Loads the weights and angles of a place early. `reported`: of a position without angles.
  void prefetch(const Place& place, const std::string& reported = kNoAngle);
  /// The sum of squares of the entry of warp `pass` of its warps. All warps of the block come together.
  dsl::Value sum_of_squares(const dsl::Ref& values, const dsl::Value& pass) const;
  /// Applies norm, rotation and transform to `values`, f32 [4] of each lane, in place. Call prefetch
  /// first, with whole warps.
  void normalize(const dsl::Ref& values, const dsl::Value& total, const Place& place) const;
  /// Stores the values in the format of the cache; a location beyond it is reported as a value of `tensor`.
  void store(const dsl::Ref& values, const Place& place, const char* tensor) const;

 private:
  dsl::Builder& k_;
  const EntrySpec s_;
  const int64_t channels_, normed_;
  std::optional<PairAngles> angles_;
  std::optional<CacheRows> rows_;
  std::optional<dsl::Ref> held_weight_, weight_;  // of the lane; of the call
  std::optional<dsl::Value> eps_;
};

}  // namespace tessera::kernels::serving
