#pragma once
// The keys of sparse_mla_decode: each token has a list of slots in a cache, and may have a second one in a second cache.
//
// Entries of the first list stand in places from 0 on, those of the second from the next whole block of places on. Places that
// no entry has, and entries that are no slots, count as keys that are not there.

#include <optional>

#include "dsl/builder.h"
#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/parts/paged_items.h"
#include "kernels/serving/parts/cache_bytes.h"

namespace tessera::kernels::attention {

/// How many entries of its lists a request has.
struct ListLengths {
  dsl::Value columns;  // of the first list
  std::optional<dsl::Ref> lengths;
  std::optional<dsl::Value> extra_columns;
  std::optional<dsl::Ref> extra_lengths;

  dsl::Value first(dsl::Builder& k, const dsl::Value& request, bool reports) const;
  dsl::Value second(dsl::Builder& k, const dsl::Value& request, bool reports) const;
  /// Whole blocks of the first list.
  dsl::Value first_blocks() const { return ceil_div(columns, kLatentKeys); }
  /// The place behind the last entry of a request.
  dsl::Value places(dsl::Builder& k, const dsl::Value& request, bool reports) const;
  /// The most that a request may have.
  dsl::Value most_places() const;
};

/// The caches, and the second list. The first one is page_table.
struct MlaLists {
  MlaLists(PagedTensors& t, const MlaSpec& spec);

  serving::CacheBytes cache;
  ListLengths lengths;
  std::optional<serving::CacheBytes> extra_cache;
  std::optional<dsl::Ref> extra_indices;  // [B, n, extra_columns]
};

}  // namespace tessera::kernels::attention
