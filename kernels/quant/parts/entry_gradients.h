#pragma once
// The weight gradients of the backward pass of the gated activation, by entry.

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels {

/// The gradient of an entry comes from its row token_topk_to_pos, if pos_to_token_topk of that row
/// names the entry. Other entries get +0: block b clears `threads` entries from b * threads on.
class EntryGradients {
 public:
  EntryGradients(dsl::Builder& k, int64_t threads)
      : k_(k),
        threads_(threads),
        entries_(k.dim("entries")),
        positions_(k.input("token_topk_to_pos", DType::i32, {entries_}, {.align = 4})),
        grad_weight_(k.output("grad_weight", DType::f32, {entries_}, {.align = 4})) {}

  const dsl::Value& num_entries() const { return entries_; }
  /// The number of blocks that clear all entries.
  dsl::Value blocks() const { return ceil_div(entries_, threads_); }

  /// Stores the sums of `rows` rows from `first` on. Each row has a slot, negative in padding.
  void store(int64_t rows, const dsl::Ref& slot, const dsl::Ref& sum,
             const dsl::Value& first) const {
    using namespace dsl;
    k_.parallel({rows}, [&](Value r) {
      k_.if_(slot(r) >= 0 && slot(r) < entries_ && positions_(slot(r)) == first + r,
             [&] { grad_weight_(slot(r)) = sum(r); });
    });
  }
  /// Clears entries that no row owns.
  void clear_unowned(const dsl::Value& block, const dsl::Ref& slots, const dsl::Value& rows) const {
    using namespace dsl;
    k_.parallel({threads_}, [&](Value i) {
      const Value entry = k_.let("entry", block * threads_ + i);
      k_.if_(entry < entries_, [&] {
        const Value row = k_.let("row_of_entry", positions_(entry));
        k_.report_unless(row < rows, out_of_range("token_topk_to_pos"));
        k_.if_(!(row >= 0 && row < rows && slots(row) == entry),
               [&] { grad_weight_(entry) = 0.0f; });
      });
    });
  }
  /// Clears entries of calls without rows.
  void clear(const dsl::Value& block) const {
    k_.parallel({threads_}, [&](dsl::Value i) { grad_weight_(block * threads_ + i) = 0.0f; });
  }

 private:
  dsl::Builder& k_;
  int64_t threads_;
  dsl::Value entries_;
  dsl::Ref positions_, grad_weight_;
};

}  // namespace tessera::kernels
