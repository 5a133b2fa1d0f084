#pragma once
// What the kernels of get_fused_mapping over chunks of pairs share.

#include "kernels/moe/mapping_tensors.h"

namespace tessera::kernels::moe {

class ChunkTensors : protected MappingTensors {
 protected:
  ChunkTensors(const char* name, const MappingSpec& s)
      : MappingTensors(name, s), num_chunks_(k_.scalar("num_chunks", DType::i32)) {}

  /// Launches so many blocks; gives the number of this one.
  dsl::Value launch(const dsl::Value& blocks, int threads) {
    auto at = k_.launch({blocks}, {.threads = threads});
    length_ = k_.let("length", pairs_ / num_chunks_);
    longer_ = k_.let("longer", pairs_ % num_chunks_);
    return at.x;
  }
  /// The first pair of a chunk: chunks differ by one pair at most.
  dsl::Value begin_of(const dsl::Value& chunk) const {
    return chunk * length_ + min(chunk, longer_);
  }
  dsl::Ref shared(const char* name) { return k_.shared(DType::i32, {s_.experts}, name); }

  dsl::Value num_chunks_;

 private:
  dsl::Value length_, longer_;  // pairs of most chunks, how many chunks have one more
};

}  // namespace tessera::kernels::moe
