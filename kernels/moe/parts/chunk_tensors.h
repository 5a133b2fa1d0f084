#pragma once
// Tensors and chunk bounds that the chunked kernels of get_fused_mapping share.

#include "kernels/moe/parts/mapping_tensors.h"

namespace tessera::kernels::moe {

class ChunkTensors : protected MappingTensors {
 protected:
  ChunkTensors(const char* name, const MappingSpec& s)
      : MappingTensors(name, s), num_chunks_(k_.scalar("num_chunks", DType::i32)) {}

  /// Launches `blocks` blocks and returns the block's index.
  dsl::Value launch(const dsl::Value& blocks, int threads) {
    auto at = k_.launch({blocks}, {.threads = threads});
    length_ = k_.let("length", pairs_ / num_chunks_);
    longer_ = k_.let("longer", pairs_ % num_chunks_);
    return at.x;
  }
  /// Returns the first pair of a chunk. Chunk lengths differ by at most one pair.
  dsl::Value begin_of(const dsl::Value& chunk) const {
    return chunk * length_ + min(chunk, longer_);
  }
  dsl::Ref shared(const char* name) { return k_.shared(DType::i32, {s_.experts}, name); }

  dsl::Value num_chunks_;

 private:
  dsl::Value length_, longer_;  // length of most chunks; number of chunks with one more pair
};

}  // namespace tessera::kernels::moe
