#pragma once
// The places of a request's tokens: slots in the state pool and locations in the compressed cache.

#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/signature/call.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

/// The Spec of the kernels of the compressor's plans.
struct CompressSpec {
  int32_t ratio;           // 4 or 128
  int32_t capacity;        // most requests of the kernel; 0: one thread each
  int32_t has_pages;       // the state is paged; else every request has one ring
  int32_t has_page_table;  // of the compressed cache
};

/// Slots per window. Ratio 4 has two ratios of slots: the older half comes from the previous row.
inline int64_t window_slots(int64_t ratio) {
  return ratio == 4 ? 8 : ratio;
}

CompressSpec compress_spec(const Call& c, int32_t capacity);

/// Checks the parameters of the plans: ring, pages, and that exactly one of the two tables is
/// given.
void require_rings(const Call& c);

/// The tables as a kernel declares them: state_slot i32 [batch] or state_pages i32 [batch, state_columns],
/// page_table i32 [batch, page_columns], their row strides; scalars ring, state_page_size, page_size.
class CompressTables {
 public:
  CompressTables(dsl::Builder& k, const CompressSpec& s, const dsl::Value& batch);

  /// The slot of a position in the state pool; -1 if its page or ring is missing or beyond i32.
  dsl::Value slot(const dsl::Value& request, const dsl::Value& position) const;
  /// The location of a window's entry; -1 without tables or if its page is negative, or beyond i32, which is
  /// reported.
  dsl::Value location(const dsl::Value& request, const dsl::Value& window) const;
  /// False if the table has no column for a window.
  dsl::Value has_location(const dsl::Value& window) const;

  /// Reported where a slot that is needed is missing.
  std::string no_slot() const;

  const dsl::Value& state_page_size() const { return *state_page_size_; }
  /// The plan carries it: the op that stores the entries refuses another.
  const dsl::Value& page_size() const { return *page_size_; }

 private:
  dsl::Builder& k_;
  const CompressSpec s_;
  std::optional<dsl::Ref> state_slot_, state_pages_, page_table_;
  std::optional<dsl::Value> state_columns_, page_columns_, ring_, state_page_size_, page_size_;
};

/// Reported by an op that stores entries in pages of another size than those that a plan was made for.
inline constexpr const char* kOtherPages = "argument 'plan' was made for another page size";
/// Reported by a plan of a window beyond the columns of the table.
inline constexpr const char* kNoLocation = "argument 'page_table' has too few columns";

}  // namespace tessera::kernels::serving
