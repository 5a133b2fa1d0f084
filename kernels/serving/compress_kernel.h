#pragma once
// The kernels of the KV compressor: one entry per window, from rows of x and of the state.

#include <cstdint>

#include "kernels/serving/cache_entry.h"
#include "kernels/serving/compress_tables.h"

namespace tessera::kernels::serving {

/// What the kernel depends on. A block has all channels of some windows for ratio 4, `span` channels
/// of one window or of several for ratio 128.
struct WindowSpec {
  int32_t channels, ratio;
  int32_t span;      // ratio 128
  int32_t cluster;   // blocks that share a window and the norm of its entry
  int32_t lanes;     // threads of a group of slots, 16 or 32
  int32_t is_ahead;  // 1: where it loops, the rows of x of the next window are on their way
  DType x, state;
  DType out;                     // where has_out; of the entry itself, unless it is stored
  uint8_t x_width, state_width;  // elements of an access
  uint8_t ape_width, out_width;
  bool is_decode;  // the row of the token is stored first, and its window is all in the state
  bool has_out;
  EntrySpec entry;
  bool
      loops;  // ratio 128: a block has several windows, as many as the scalar windows_per_block says
};

/// Tensors: x f32 or bf16 [x_rows, L], state [slots, L] of x's dtype or f32, their rows apart by
/// x_stride and state_stride; ape f32 [slots of a window, channels]; plan i32 [windows, 8]; out f32 or
/// bf16 [windows, channels]; those of CacheEntry. Scalars: windows_per_block i32 where it loops. The first kernel of a call of compress_fwd and of
/// what is made of it.
ir::Kernel build_compress(const WindowSpec& s);

/// Adds the kernel of a call, in clusters where the entry is stored and the device has them.
void launch_compress(const Call& c, Launches& go, bool is_decode);

}  // namespace tessera::kernels::serving
