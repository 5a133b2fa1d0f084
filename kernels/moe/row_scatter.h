#pragma once
// Rows of plain words, moved by whole warps: the row of a token to all its positions, zeros to the
// rows of padding.

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

/// Where one word of a row is: the reference for row and word.
using WordOf = std::function<dsl::Ref(const dsl::Value& row, const dsl::Value& word)>;

/// Rows that travel together: those of data and those of its scales.
struct RowStream {
  RowWords row;
  WordOf from, to;
};

/// One of the equal parts of a row, each as much as the registers of a warp hold.
struct RowPart {
  dsl::Value number;
  int64_t of;  // parts
};
/// How many parts the rows of these streams take.
int64_t row_parts(const std::vector<RowStream>& streams);

/// Reads a part of row `token` of every stream once and stores it to every position of the token,
/// positions that are negative or not below `positions` left out. All lanes of a warp call it for one
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
