#pragma once
// An entry of a KV cache: norm, rotation, Hadamard transform and the encoding of a format. Each warp
// has 128 channels of an entry.

#include <cstdint>
#include <optional>

#include "dsl/builder.h"
#include "kernels/signature/call.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

enum class CacheFormat : uint8_t { none, bf16, v4_fp8, index_fp8, index_fp4 };

struct EntrySpec {
  CacheFormat format;  // none: nothing is stored
  DType weight;        // of norm_weight
  bool hadamard, halves;
  uint8_t weight_width, cos_sin_width;  // elements per access
};

inline constexpr int64_t kRotated = 64;        // the last channels
inline constexpr int64_t kWarpChannels = 128;  // four channels per lane
inline constexpr int64_t kLaneChannels = 4;

/// Reported for a position without a row of cos_sin; its angle is 0.
inline constexpr const char* kNoAngle = "argument 'cos_sin' has too few rows";

/// Bytes of a cache block of `page_size` tokens; for bf16 the elements of a row.
int64_t block_bytes(CacheFormat format, int64_t channels, int64_t page_size);
/// Parses the value of a parameter.
CacheFormat cache_format(std::string_view word);

/// Checks cache, cos_sin, norm_weight and their parameters.
void require_cache(const Call& c);

EntrySpec entry_spec(const Call& c);
/// Views the cache as the kernel declares it.
std::vector<Args::Tensor> cache_tensors(const Call& c);

/// Tensors: norm_weight f32 or bf16 [channels]; cos_sin f32 [cos_sin_rows, 64]; cache, as codes and
/// the other parts of its format. Scalars: norm_eps, page_size.
class CacheEntry {
 public:
  CacheEntry(dsl::Builder& k, const EntrySpec& s, int64_t channels);

  const dsl::Value& page_size() const { return *page_size_; }

  /// The four channels of each lane, from `column` on, and their destination.
  struct Place {
    dsl::Value column;
    dsl::Value position;  // of the rotation
    dsl::Value location;  // in the cache; negative: not stored
  };
  /// The sum of squares of a warp's channels, in every lane: lanes add in pairs at distance 1, 2, 4,
  /// 8, 16. The caller adds the sums of the warps in the order of their channels.
  dsl::Value sum_of_squares(const dsl::Ref& values) const;
  /// Loads the weights and angles of a place early.
  void prefetch(const Place& place);
  /// Applies norm, rotation and transform to `values`, f32 [4] of each lane, in place. Call prefetch
  /// first, with whole warps.
  void normalize(const dsl::Ref& values, const dsl::Value& total, const Place& place) const;
  /// Stores the values in the format of the cache.
  void store(const dsl::Ref& values, const Place& place) const;

 private:
  void transform(const dsl::Ref& values) const;
  void store_codes(const dsl::Ref& values, const Place& place, const dsl::Value& block,
                   const dsl::Value& offset) const;

  dsl::Builder& k_;
  const EntrySpec s_;
  const int64_t channels_;
  std::optional<dsl::Ref> held_weight_, angles_;  // weights and angles of the lane
  std::optional<dsl::Ref> weight_, cos_sin_, codes_, rotated_, scales_;
  std::optional<dsl::Value> positions_, blocks_, eps_, page_size_;
};

}  // namespace tessera::kernels::serving
