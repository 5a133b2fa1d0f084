#pragma once
// Weights of the gate in shared memory.

#include "dsl/builder.h"
#include "kernels/engram/parts/gate_bwd_kernel.h"
#include "kernels/engram/parts/gate_tile.h"

namespace tessera::kernels::engram {

/// Weights or their sums: one run of every stream per thread. The 16-byte pieces of neighbouring
/// threads are adjacent, free of bank conflicts.
class WeightTile {
 public:
  WeightTile(dsl::Builder& k, const GateTile& tile, const char* name)
      : k_(k), tile_(k.shared(DType::f32, {tile.runs * kStreams * 2, tile.threads, 4}, name)) {}

  void load(const dsl::Value& run, const dsl::Arg& stream, const dsl::Ref& to) const {
    each(run, stream, [&](const dsl::Ref& element, const dsl::Value& i) { to(i) = element; });
  }
  template <class Fn>
  void store(const dsl::Value& run, const dsl::Arg& stream, const Fn& at) const {
    each(run, stream, [&](const dsl::Ref& element, const dsl::Value& i) { element = at(i); });
  }

 private:
  template <class Fn>
  void each(const dsl::Value& run, const dsl::Arg& stream, const Fn& body) const {
    for (int64_t half = 0; half < 2; ++half) {
      k_.vectorized(4, [&](dsl::Value i) {
        body(tile_((run * kStreams + stream) * 2 + half, k_.thread(), i), half * 4 + i);
      });
    }
  }

  dsl::Builder& k_;
  dsl::Ref tile_;
};

}  // namespace tessera::kernels::engram
