#pragma once
// Entries of a KV cache in a kernel: what cache_format.h says of their bytes, as loads and stores. Each warp has 128
// channels of an entry, four per lane, so that a group of a scale lies in one warp and its largest value takes shuffles alone.

#include <cstdint>
#include <functional>

#include "dsl/builder.h"
#include "kernels/serving/parts/cache_bytes.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kWarpChannels = 128;
inline constexpr int64_t kLaneChannels = 4;

/// The warps of a block: those of an entry side by side, at least four in all.
struct EntryWarps {
  explicit EntryWarps(int64_t channels)
      : per_entry((channels + kWarpChannels - 1) / kWarpChannels),
        entries(per_entry < 4 ? 4 / per_entry : 1) {}

  int64_t per_entry;
  int64_t entries;  // of a block

  int64_t warps() const { return per_entry * entries; }
  int threads() const { return static_cast<int>(warps() * 32); }
};

/// The part of a thread in the entries of a block of EntryWarps.
struct EntryPart {
  dsl::Value entry;   // of the call
  dsl::Value pass;    // the warp's number in its entry
  dsl::Value column;  // the lane's first channel
};
EntryPart entry_part(dsl::Builder& k, const EntryWarps& warps, const dsl::Value& block);
/// Loads the lane's channels of a row [channels] into f32 [4], in accesses of `width`; 0 beyond the row.
void load_lane(dsl::Builder& k, const dsl::Ref& row, int64_t channels, int64_t width,
               const dsl::Value& column, const dsl::Ref& values);

/// The entries of CacheBytes, by warps.
class CacheRows {
 public:
  /// `is_output`: entries are stored, else loaded.
  CacheRows(dsl::Builder& k, CacheKind kind, int64_t channels, bool is_output);

  const dsl::Value& page_size() const { return bytes_.page_size(); }

  using Slot = CacheBytes::Slot;
  /// The slot of a location, i32 or i64; one beyond the cache is reported as a value of `tensor`.
  Slot slot(const dsl::Value& location, const char* tensor) const {
    return bytes_.slot(location, tensor);
  }

  /// Stores `values`, f32 [4] of each lane of the entry's warps, if the slot exists. `rounds`: values are rounded to bf16 before
  /// they are quantised.
  void store(const dsl::Ref& values, const dsl::Value& column, const Slot& slot, bool rounds) const;
  /// Loads them, rounded to bf16 but for index_fp8. The slot exists.
  void load(const dsl::Ref& values, const dsl::Value& column, const Slot& slot) const;

 private:
  struct GroupScale;
  GroupScale scale_of(const dsl::Ref& values) const;
  dsl::Value code_of(const dsl::Value& value, const GroupScale& scale) const;
  void store_codes(const dsl::Ref& values, const dsl::Value& column, const Slot& slot) const;
  /// Runs `coded` for channels with a code and in a plain cache, `plain` for those in bf16, neither beyond the entry.
  void by_part(const dsl::Value& column, const std::function<void()>& coded,
               const std::function<void()>& plain) const;

  dsl::Builder& k_;
  const CacheBytes bytes_;
  const CacheLayout layout_;
  const int64_t channels_;
};

}  // namespace tessera::kernels::serving
