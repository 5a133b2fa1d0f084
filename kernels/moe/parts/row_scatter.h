#pragma once
// Moves rows of words by whole warps: the row of a token to all its positions, zeros to padding
// rows.

#include <cstdint>
#include <functional>
#include <vector>

#include "dsl/builder.h"

namespace tessera::kernels::moe {

/// The widest words that divide a row of `row_bytes` at addresses that are multiples of `align`.
struct RowWords {
  DType dtype;     // u32, u16 or u8
  int64_t words;   // per row
  int64_t vector;  // words per access, 16 bytes where the row allows it
};
RowWords row_words(int64_t row_bytes, int64_t align);

/// Returns the reference to one word of a row.
using WordOf = std::function<dsl::Ref(const dsl::Value& row, const dsl::Value& word)>;

/// Rows that move together: data and scales.
struct RowStream {
  RowWords row;
  WordOf from, to;
};

/// One of the equal parts of a row; the registers of a warp hold one part.
struct RowPart {
  dsl::Value number;
  int64_t of;  // number of parts
};
/// The number of parts for the rows of these streams.
int64_t row_parts(const std::vector<RowStream>& streams);

/// Reads a part of row `token` of every stream once and stores it to every position of the token.
/// Skips positions that are negative or not below `positions`. All lanes of a warp pass the same
/// token.
///
///   token_topk_to_pos   i32 [tokens, num_topk]
void scatter_rows(dsl::Builder& k, const std::vector<RowStream>& streams, const RowPart& part,
                  const dsl::Ref& token_topk_to_pos, const dsl::Value& token, int64_t num_topk,
                  const dsl::Value& positions);
/// Stores zeros to a part of row `position`.
void clear_row(dsl::Builder& k, const RowStream& stream, const RowPart& part,
               const dsl::Value& position);

}  // namespace tessera::kernels::moe
