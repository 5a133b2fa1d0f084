#pragma once
// Work on requests whose keys lie in pages.
//
// The rows of a tile are the queries of several tokens and of all heads that share a head of keys, so a key is
// loaded once for all of them. A request's keys are cut into parts of fixed length from its first key. An item of
// work is a part of one request for one tile and one head of keys. Blocks walk the items of all requests, which they
// find by prefix sums of the lengths: the grid depends on neither lengths nor batch.
//
// Each role of a kernel walks the items by itself: those that load are ahead of those that multiply.

#include <functional>
#include <optional>

#include "dsl/builder.h"
#include "kernels/attention/parts/prefix_search.h"
#include "kernels/attention/parts/request_parts.h"

namespace tessera::kernels::attention {

inline constexpr int64_t kMaxKeys = int64_t{1} << 29;  // of a request

/// The tiles of a kernel, and the rules that decide which keys a row sees.
struct PagedShape {
  int64_t rows, keys;  // of a tile: queries, and a block of keys
  int32_t page_size;   // 0: known at the call
  bool is_causal;
  bool has_left = false;        // a scalar `left`: keys before its own that a row sees
  bool has_one_head = false;    // of keys; else a dim `g`, and a scalar `group`
  bool has_lengths = true;      // else each request has all keys of its pages
  bool may_lack_pages = false;  // keys without a page are ordinary, and not reported
  bool has_token_lists =
      false;  // each token has keys of its own; there are no pages, and no tile has rows of two tokens
  int64_t requests = kRequests;  // whose items a block sums together: a power of two
};

/// The dims, tables and scalars of such a call: B, n, h, g, P, ps, Q, page_table, lengths, part_blocks, group, left. With lists
/// of tokens Q is the length of a list, and page_table [B, n, Q] holds them.
struct PagedTensors {
  PagedTensors(const char* kernel, const PagedShape& shape);
  virtual ~PagedTensors() = default;

  /// The keys of a request, after a look at its length.
  virtual DecodeRequest request(const dsl::Value& at, bool reports);
  /// Takes the block's place in a grid of `blocks`, which walk the items in turn.
  void start(const dsl::Value& block, const dsl::Value& blocks);
  /// Items of each part of a request; tiles of rows that share their keys.
  dsl::Value of_part() const;
  dsl::Value tiles() const;

  const PagedShape shape;
  dsl::Builder k;
  dsl::Value batch, tokens, heads, k_heads, pages, page_size, columns;
  dsl::Value part_blocks,
      group;  // blocks of a part; heads of q that share one of keys
  dsl::Ref table;
  std::optional<dsl::Ref> lengths;
  std::optional<dsl::Value> left;
  dsl::Value block, step, items_of_part;  // of the grid
};

/// The place of an item in the call. Each role has one of its own.
class PagedPlace {
 public:
  explicit PagedPlace(PagedTensors& tensors);

  /// Finds the head, rows, part and blocks of an item. One thread divides; the others read what it found, so neither
  /// the code nor the proofs of bounds repeat the divisions.
  void find(const dsl::Value& of_request, const dsl::Value& item);

  dsl::Value request, length, k_head, row, count, part, is_alone;
  dsl::Value first, end;  // blocks of keys

 private:
  PagedTensors& t_;
  dsl::Builder& k_;
  const dsl::Ref place_;
};

/// Calls `body` with request and item of each item of the block.
void each_item(PagedTensors& t, bool reports,
               const std::function<void(dsl::Value, dsl::Value)>& body);

/// Copies rows of a cache [P, ps, g, d]; those behind the request, and of pages that do not exist, are zeros.
void load_rows(PagedTensors& t, const PagedPlace& at, const dsl::Ref& cache, const dsl::Value& j,
               const dsl::Ref& tile);
/// Notes in `is_there` which keys of a block have a page.
void note_pages(PagedTensors& t, const PagedPlace& at, const dsl::Value& j,
                const dsl::Ref& is_there);

}  // namespace tessera::kernels::attention
