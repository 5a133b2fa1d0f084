#pragma once
// Cases of the linear attention family, which cases_of has too.

#include <string>
#include <vector>

#include "tests/support/ops/op_cases.h"

namespace tessera::test {

/// Requests of a short convolution.
struct ConvSize {
  int64_t requests, tokens, channels, taps;
  DType dtype = DType::bf16, weight = DType::bf16;
};
/// x, weight and bias of normal values.
OpCase normal_conv(const std::string& label, const ConvSize& size, bool has_silu = false);
/// Lengths around the taps and around a run, channels around an access, both kinds of states, slots that are none.
std::vector<OpCase> causal_conv1d_fwd_cases();
/// Pools of every layout, padding, one slot and several, slots out of range.
std::vector<OpCase> causal_conv1d_update_cases();
/// Rows of one warp to several steps of a block, both gates, rows of zeros, large gates.
std::vector<OpCase> rmsnorm_gated_fwd_cases();

/// Requests of the gated delta rule.
struct DeltaSize {
  int64_t requests = 2, tokens = 1, key_heads = 1, heads = 2, dk = 64, dv = 64;
  DType dtype = DType::bf16, beta = DType::f32, pool = DType::f32;
};
/// Gates whose decays are powers of two, so that every target has their bits, or any mild ones.
enum class Gates : uint8_t { exact, mild };
/// q and k of about unit length, v of normal values, gates and rates.
OpCase normal_delta(const std::string& label, const DeltaSize& size, Gates gates = Gates::exact);
/// The case with a pool of normal states, and with the slots that requests read and write.
OpCase with_delta_pool(OpCase test, const DeltaSize& size, const std::vector<double>& read,
                       const std::vector<double>& write, int64_t slots);
/// Lengths around blocks and chunks, extents, gates, both kinds of states, slots that are none, padding.
std::vector<OpCase> gated_delta_fwd_cases();
/// The first request of a case of gated_delta_fwd as packed ones, one behind the other, of these lengths; the tokens after them are
/// NaN.
OpCase packed_delta(OpCase test, const std::vector<int64_t>& lengths);
/// Lengths around chunks, none among them, tokens after all requests, bounds out of order, states.
std::vector<OpCase> gated_delta_varlen_fwd_cases();
/// Every extent, dtype and layout of the pool; padding, one slot and several, slots out of range, gates of all kinds.
std::vector<OpCase> gated_delta_decode_cases();

}  // namespace tessera::test
