#pragma once
// The logits of a router, x times w transposed, a tile of tokens and experts at a time.
//
// The columns are cut into chunks of 1024. The tensor cores sum a chunk as gemm_bf16 does, from +0, and the chunks are
// added ascending in f32, beginning with the first. This order is part of the result and depends on nothing but the
// columns. So the chunks of few tokens may be summed side by side, and every number of tokens gives the same bits.

#include <cstdint>
#include <optional>

#include "dsl/builder.h"
#include "kernels/gemm/parts/operand_tiles.h"
#include "kernels/signature/call.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kLogitsChunk = 1024;  // columns; results depend on it

/// Everything that generated code depends on.
struct LogitsSpec {
  gemm::Operand x, w;
  int32_t depth_multiple;         // the number of columns is a multiple of it
  int32_t rows, columns, stages;  // of a tile; buffers of a step
};

/// The Spec of a call that has x [T, H] and w [E, H].
LogitsSpec logits_spec(const Call& c, int64_t rows, int64_t columns);

class LogitsTile {
 public:
  /// Declares x and w.
  LogitsTile(dsl::Builder& k, const LogitsSpec& s, const dsl::Value& tokens,
             const dsl::Value& experts);

  dsl::Value chunks() const;
  /// Sums one chunk of the tile from this token and expert on. Returns a fragment [rows, columns].
  dsl::Ref sum_of_chunk(const dsl::Value& token, const dsl::Value& expert, const dsl::Value& chunk);
  /// The logits of the tile, [rows, columns]. Nothing is read, and they are +0, where not `is_wanted`, a condition that
  /// all threads share.
  dsl::Ref logits(const dsl::Value& token, const dsl::Value& expert,
                  const std::optional<dsl::Value>& is_wanted = {});

 private:
  dsl::Builder& k_;
  const LogitsSpec s_;
  const dsl::Value depth_;
  const gemm::OperandTiles x_, w_;
};

}  // namespace tessera::kernels::serving
