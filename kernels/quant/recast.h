#pragma once
// per_token_cast of an x that is quantised already: its codes times its scales are cast again,
// without the way through memory.

#include "kernels/quant/token_cast.h"

namespace tessera::kernels {

/// True if `x` is given as codes: e4m3, or i8 with two e2m1 codes per byte.
bool is_quantised(const Tensors& tensors);

/// Checks such an x with x_sf, x_block_size and the parameters of every token cast; binds T, H and
/// C as check_token_cast does.
TokenCast check_recast(ArgCheck& check, const Tensors& tensors, const Params& params);
/// Rejects x_sf and x_block_size, which an x that is not quantised must not have.
void require_plain(ArgCheck& check, const Tensors& tensors, const Params& params);

/// An example or a benchmark with packed or plain powers of two on both sides.
BenchCase recast_case(int64_t tokens, int64_t hidden, DType x, const Dims& block, int64_t group,
                      const std::string& sf_layout, DType format);

/// The kernel: x, x_sf, out, out_sf.
ir::Kernel build_recast(const TokenCastSpec& spec);

}  // namespace tessera::kernels
