#pragma once
// The kernels of the KV compressor: one entry per window, from rows of x and of the state.

#include <cstdint>

#include "kernels/serving/parts/cache_entry.h"
#include "kernels/serving/parts/compress_tables.h"

namespace tessera::kernels::serving {

/// The kernels of the family. Entries of ratio 128 are stored by two, because a block has a span of
/// their channels, and their norm is that of all.
enum class Step : uint8_t {
  windows,  // from rows to entries
  store,    // from rows to entries in the cache; ratio 4
  entries,  // from the entries that `windows` has left to the cache
};

/// The parameters of the kernel. A block has all channels of some windows, or a span of the channels of
/// one window of 128 or of several.
struct WindowSpec {
  int32_t channels;
  uint8_t ratio;
  Step step;
  DType x, state;
  DType out;                     // of the entries
  uint8_t x_width, state_width;  // elements of an access
  uint8_t ape_width, out_width;
  bool is_decode;  // the row of the token is stored too, and its window is all in the state
  bool has_out;
  bool fills_out;  // the entry of a window that is not there is +0
  bool loops;      // ratio 128: a block has as many windows as the scalar windows_per_block says
  bool is_ahead;   // where it loops: the rows of x of the next window are on their way
  EntrySpec entry;
  uint8_t unused[2] = {};
};

/// Tensors: x f32 or bf16 [x_rows, L], state [slots, L] of x's dtype or f32, their rows apart by
/// x_stride and state_stride; plan i32 [windows, 8]; ape f32 [slots of a window, channels], or
/// for Step::entries entries f32 [windows, channels]; out f32 or bf16 [windows, channels]; those of
/// CacheEntry where it stores. Scalars: windows_per_block i32 where it loops.
ir::Kernel build_compress(const WindowSpec& s);

/// Adds the kernels of a call.
void launch_compress(const Call& c, Launches& go, bool is_decode);

}  // namespace tessera::kernels::serving
