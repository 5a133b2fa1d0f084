#pragma once
// Rotary position embedding, by definition.

#include "kernels/call_types.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct RotaryOptions {
  bool interleaved = false;  // pairs (2j, 2j + 1); else (j, j + R / 2)
  bool conjugate = false;    // by the negative angle
  int64_t position_offset = 0;
  bool halves = true;  // cos_sin has R / 2 cosines, then R / 2 sines; else they alternate
};

/// Each pair (a, b) of a head becomes (fma(a, c, -(b s)), fma(a, s, b c)) in f32, rounded once. The
/// position of a token is its entry of positions, or its number in its sequence, plus the offset. A
/// position that cos_sin lacks has c = 1, s = 0.
///
///   tensors   cos_sin f32 [angles, R], positions i32 or i64 [T] or [batch, T] or none,
///             query bf16 or f32 [T, h, R] or [batch, T, h, R], key likewise or none
///   returns   query and key, if it was given
test::HostTensors apply_rotary(const test::HostTensors& tensors, const RotaryOptions& options);

}  // namespace tessera::reference
