#pragma once
// The KV compressor by definition, one channel of one window at a time.

#include "tests/reference/cache_entry.h"
#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct CompressorOptions {
  int64_t ratio = 4;
  DType out_dtype = DType::f32;
  bool save_out = false;
  EntryOptions entry;
};

/// The entries of the windows of a plan; 0 where a window is not whole.
///
///   x        f32 or bf16 [N, L], ape f32 [W, D], state of x's dtype or f32 [slots, L]
///   plan     i32 [C, 8] of compress_plan
///   returns  [C, D]
test::HostTensor compress_fwd(const test::HostTensors& in, const CompressorOptions& options);

/// The state with the rows of write_plan, i32 [Y, 2].
test::HostTensor compress_state_write(const test::HostTensors& in);

/// compress_fwd, then compress_state_write.
test::HostTensors compress_prefill(const test::HostTensors& in, const CompressorOptions& options);

/// The rows of tokens, plan i32 [B, 8] of compress_plan_decode, are stored, then the windows that end
/// are read: out [B, D] and state.
test::HostTensors compress_decode(const test::HostTensors& in, const CompressorOptions& options);

/// compress_fwd, and compress_decode, in f32, whose entries go to the cache: cache, with save_out out,
/// and state of decode.
test::HostTensors compress_store(const test::HostTensors& in, const CompressorOptions& options);
test::HostTensors compress_decode_store(const test::HostTensors& in,
                                        const CompressorOptions& options);

}  // namespace tessera::reference
