#pragma once
// Every op as a C++ function of a struct with its tensors and options by name.
//
//   post_fwd({.x = x, .residual = residual, .post_mix = post_mix, .comb_mix = comb_mix,
//             .out = out}, stream);
//
// Tensors that may be absent stay out. Above each struct stands the signature, see
// kernels/signature/signature.h. Outputs are allocated by the caller, of the shapes that
// find_op(name).outputs(...) gives; accumulators (acc) are added to: a new one is filled with zeros.
// A workspace is scratch memory: workspace_of(call) gives it without data, its contents do not
// matter before or after the call.
// Errors: kind argument if a tensor or an option is not what
// the signature says, kind unsupported beyond its limits; both name op, argument, expected, got.
// Written from the signatures of the ops; a test compares, and with TESSERA_APPROVE=1 writes it again.
// clang-format off

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dsl/base/api.h"
#include "kernels/op_arguments.h"

namespace tessera::kernels {

enum class ScoringFunc : uint8_t { sigmoid, sqrtsoftplus, softmax };
TESSERA_API std::string_view name(ScoringFunc value);

enum class Fold : uint8_t { none, row, block };
TESSERA_API std::string_view name(Fold value);

enum class Format : uint8_t { bf16, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4, v32_fp8 };
TESSERA_API std::string_view name(Format value);

enum class CacheOrder : uint8_t { planes, rows };
TESSERA_API std::string_view name(CacheOrder value);

enum class CosSinLayout : uint8_t { pairs, halves };
TESSERA_API std::string_view name(CosSinLayout value);

enum class Order : uint8_t { index, value };
TESSERA_API std::string_view name(Order value);

enum class Scale : uint8_t { shared, routed };
TESSERA_API std::string_view name(Scale value);

enum class WeightsAt : uint8_t { l1, combine };
TESSERA_API std::string_view name(WeightsAt value);

enum class Routing : uint8_t { topk, hash };
TESSERA_API std::string_view name(Routing value);

enum class ExtraFormat : uint8_t { none, v4_fp8, v41_fp8, v41_fp4 };
TESSERA_API std::string_view name(ExtraFormat value);

enum class Activation : uint8_t { none, silu, sigmoid };
TESSERA_API std::string_view name(Activation value);

/// ids of the num_topk largest scores of each token
///
///   scores       f32 [T, E]
///   -> topk_idx  i64 [T, K]
///   param        num_topk int 1..E
///   let          K = num_topk
///   limit        E <= 4096 "too many experts"    # 128 keys per lane still fit its registers
struct TopkGate {
  TensorView scores = {};
  TensorView topk_idx = {};
  std::optional<int64_t> num_topk = {};  // must be given
};
TESSERA_API void topk_gate(const TopkGate& call, Stream stream);

/// the groups with the largest sums of their one or two best scores
///
///   scores             f32 [T, G, E/G]
///   -> topk_group_idx  i64 [T, num_topk_groups]
///   param  num_topk_sum {1, 2}
///   param  num_topk_groups int 1..G
///   let    members = E / G
///   need   num_topk_sum <= members on scores "'scores' has too few members per group"
///   limit  G <= 32 "too many groups"            # a lane for each
struct TopkSumAndTopkGroupIdx {
  TensorView scores = {};
  TensorView topk_group_idx = {};
  std::optional<int64_t> num_topk_sum = {};  // must be given
  std::optional<int64_t> num_topk_groups = {};  // must be given
};
TESSERA_API void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdx& call, Stream stream);

/// the experts of each token, their weights and where they live on this rank
///
///   logits             f32 [T, E]
///   bias               f32 [E]
///   mask?              bool [T]         # false: a padding row, of which nothing is looked at
///   fix_routing_mask?  bool [T]
///   to_physical_map?   i32 [E+S, D]     iff logical_count
///   logical_count?     i32 [E+S]        iff to_physical_map
///   -> topk_idx        i64 [T, K+S]
///   -> topk_weights    f32 [T, K+S]
///   -> inout unmapped_topk_idx?  i64 [T, K] rows
///   param  num_topk int 1..32
///   param  num_topk_groups int = 0
///   param  num_groups int = 0
///   param  use_shared_as_routed bool = false
///   param  num_shared_experts int = 0
///   param  routed_scaling_factor float = 1
///   param  ep_rank int = 0
///   param  num_ep_ranks int = 1
///   param  tp_rank int = 0
///   param  num_tp_ranks int = 1
///   param  scoring_func {sigmoid, sqrtsoftplus, softmax}
///   let    K = num_topk
///   let    S = shared_slots()
///   let    members = E / num_groups
///   let    physical = num_physical()
///   need   num_topk <= E
///   limit  E <= 4096 on logits "too many experts"   # 128 keys per lane still fit its registers
///   need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
///   need   num_shared_experts in {1, 2} if use_shared_as_routed
///   need   (num_groups = 0) = (num_topk_groups = 0) on num_topk_groups
///   |      "'num_groups' and 'num_topk_groups' go together"
///   need   1 <= num_groups <= 32 and E % num_groups = 0 if num_groups != 0 on num_groups
///   need   1 <= num_topk_groups <= num_groups if num_groups != 0 on num_topk_groups
///   need   2 <= members <= 32 if num_groups != 0 on num_groups
///   |      "'num_groups' makes groups of the wrong size"
///   need   num_topk_groups * members >= num_topk if num_groups != 0
///   |      "'num_topk_groups' leaves too few experts"
///   need   K % S = 0 and E % (K / S) = 0 if use_shared_as_routed on num_shared_experts
///   |      "'num_shared_experts' does not fit num_topk and the experts"
///   need   S <= physical - E if use_shared_as_routed on to_physical_map
///   |      "shared experts need as many extra columns of 'to_physical_map'"
///   need   K + S <= 32 on num_topk "'num_topk' and shared experts are too many for a token"
///   need   num_ep_ranks >= 1 and physical % num_ep_ranks = 0
///   need   0 <= ep_rank < num_ep_ranks on ep_rank
///   need   1 <= num_tp_ranks <= 2147483647 / physical on num_tp_ranks # products stay in 32 bits
///   need   0 <= tp_rank < num_tp_ranks on tp_rank
///   need   unmapped_topk_idx if fix_routing_mask
///   |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
struct Top2SumGate {
  TensorView logits = {};
  TensorView bias = {};
  TensorView mask = {};
  TensorView fix_routing_mask = {};
  TensorView to_physical_map = {};
  TensorView logical_count = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView unmapped_topk_idx = {};
  std::optional<int64_t> num_topk = {};  // must be given
  int64_t num_topk_groups = 0;
  int64_t num_groups = 0;
  bool use_shared_as_routed = false;
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0;
  int64_t num_ep_ranks = 1;
  int64_t tp_rank = 0;
  int64_t num_tp_ranks = 1;
  std::optional<ScoringFunc> scoring_func = {};  // must be given
};
TESSERA_API void top2_sum_gate(const Top2SumGate& call, Stream stream);

/// routing weights of each token, divided by their sum
///
///   topk_weights           f32 [T, K]
///   -> denominator         f32 [T]
///   -> normalized_weights  f32 [T, K]
struct NormalizeWeight {
  TensorView topk_weights = {};
  TensorView denominator = {};
  TensorView normalized_weights = {};
};
TESSERA_API void normalize_weight(const NormalizeWeight& call, Stream stream);

/// the experts of one tensor-parallel rank, renumbered; -1 for the others
///
///   indices            i64/i32 [T, K]
///   -> masked_indices  as indices [T, K]
///   param  num_experts int >= 1
///   param  num_ep_ranks int >= 1
///   param  tp_rank int
///   param  num_tp_ranks int >= 1
///   let    experts_per_rank = num_experts / num_ep_ranks
///   need   num_ep_ranks <= num_experts
///   need   0 <= tp_rank < num_tp_ranks
///   limit  T * K <= 2130706431 "'indices' has too many slots"
struct MaskIndicesByTp {
  TensorView indices = {};
  TensorView masked_indices = {};
  std::optional<int64_t> num_experts = {};  // must be given
  std::optional<int64_t> num_ep_ranks = {};  // must be given
  std::optional<int64_t> tp_rank = {};  // must be given
  std::optional<int64_t> num_tp_ranks = {};  // must be given
};
TESSERA_API void mask_indices_by_tp(const MaskIndicesByTp& call, Stream stream);

/// keeps the first of each group of a token, -1 for the others
///
///   -> inout group_indices  i64 [T, K]
///   param  num_groups int 1..128
struct InplaceUniqueGroupIndices {
  TensorView group_indices = {};
  std::optional<int64_t> num_groups = {};  // must be given
};
TESSERA_API void inplace_unique_group_indices(const InplaceUniqueGroupIndices& call, Stream stream);

/// how often each group occurs
///
///   group_idx  i64 [T, K]            values -1 .. num_groups - 1
///   -> out     i32 [num_groups]
///   workspace  i32 [elements()]
///   param      num_groups int >= 1
///   let        groups = num_groups
///   limit      T * K <= 2130706431 "'group_idx' has too many slots"
///   limit      num_groups <= 536862720 "so many groups are not supported"  # 65535 blocks of 8192
///   bucket     T * K at 4097  # one block, two kernels
struct GroupCount {
  TensorView group_idx = {};
  TensorView out = {};
  TensorView workspace = {};
  std::optional<int64_t> num_groups = {};  // must be given
};
TESSERA_API void group_count(const GroupCount& call, Stream stream);
TESSERA_API TensorView workspace_of(const GroupCount& call);

/// how often each expert is chosen, as a multiple of its fair share
///
///   topk_idx   i64 [T, K]            values -1 .. num_experts - 1
///   -> out     f32 [num_experts]
///   workspace  i32 [elements()]
///   param      num_experts int >= 1
///   param      num_aux_topk int >= 1
///   let        groups = num_experts
///   limit      T * K <= 2130706431 "'topk_idx' has too many slots"
///   limit      num_experts <= 536862720 "so many experts are not supported"  # 65535 blocks of 8192
///   limit      num_aux_topk <= 2147483647
///   bucket     T * K at 4097  # one block, two kernels
struct AuxFi {
  TensorView topk_idx = {};
  TensorView out = {};
  TensorView workspace = {};
  std::optional<int64_t> num_experts = {};  // must be given
  std::optional<int64_t> num_aux_topk = {};  // must be given
};
TESSERA_API void aux_fi(const AuxFi& call, Stream stream);
TESSERA_API TensorView workspace_of(const AuxFi& call);

/// positions of the pairs of a routing, sorted by expert
///
///   topk_idx                  i64 [T, K]      values -1 .. E - 1
///   -> pos_to_expert, pos_to_token, pos_to_token_topk       i32 [P]
///   -> token_topk_to_pos      i32 [T, K]
///   -> expert_start, expert_end, num_tokens_per_expert      i32 [E]  # rows of padding included
///   param  num_experts int 1..1024
///   param  alignment int >= 1
///   param  num_expanded_tokens int >= 0 = 0
///   param  force_no_sync bool = false
///   let    E = num_experts
///   let    P at most positions() trimmed by positions_taken()
///   limit  T * K + (alignment - 1) * E <= 2130706431 "'topk_idx' has too many pairs" # positions are i32
///   need   num_expanded_tokens <= 2130706431
///   need   alignment <= 2130706431 / E
///   bucket T * K at 2049, 65537               # one block, one cluster, three kernels
struct GetFusedMapping {
  TensorView topk_idx = {};
  TensorView pos_to_expert = {};
  TensorView pos_to_token = {};
  TensorView pos_to_token_topk = {};
  TensorView token_topk_to_pos = {};
  TensorView expert_start = {};
  TensorView expert_end = {};
  TensorView num_tokens_per_expert = {};
  std::optional<int64_t> num_experts = {};  // must be given
  std::optional<int64_t> alignment = {};  // must be given
  int64_t num_expanded_tokens = 0;
  bool force_no_sync = false;
};
TESSERA_API void get_fused_mapping(const GetFusedMapping& call, Stream stream);

/// rows of tokens to the positions of their experts
///
///   x                  bytes1/bytes2/bytes4 [T, H]
///   token_topk_to_pos  i32 [T, K]                   values -1 .. P - 1
///   pos_to_expert      i32 [P]
///   -> out             as x [P, H]
///   limit              H <= 268435456 "the rows are too long"
struct ExpandToFused {
  TensorView x = {};
  TensorView token_topk_to_pos = {};
  TensorView pos_to_expert = {};
  TensorView out = {};
};
TESSERA_API void expand_to_fused(const ExpandToFused& call, Stream stream);

/// quantised rows and their scales to the positions of their experts
///
///   x                  e4m3/e2m1 [T, H]
///   x_sf               f32/i32 [T, C] any           # i32: four exponents per word
///   token_topk_to_pos  i32 [T, K]                   values -1 .. P - 1
///   pos_to_expert      i32 [P]
///   -> out             as x [P, H]
///   -> out_sf          as x_sf [P, C] in sf_layout
///   param              num_per_channels {32, 128}
///   param              sf_layout = row_major
///   let                groups = ceil(H / num_per_channels)
///   need               C = groups if x_sf is f32
///   need               C = ceil(groups / 4) if x_sf is i32
///   need               x_sf is i32 iff sf_layout = packed_ue8m0 on sf_layout
///   |                  "parameter 'sf_layout' does not go with the dtype of x_sf"
struct ExpandToFusedWithSf {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView token_topk_to_pos = {};
  TensorView pos_to_expert = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<int64_t> num_per_channels = {};  // must be given
  SfLayout sf_layout = SfLayout::row_major;
};
TESSERA_API void expand_to_fused_with_sf(const ExpandToFusedWithSf& call, Stream stream);

/// the rows of each token's positions, weighted and summed
///
///   x                  f32/bf16 [P, H]
///   x_sf?              f32 [P]
///   topk_weights?      f32 [T, K]
///   token_topk_to_pos  i32 [T, K]                   values -1 .. P - 1
///   sf?                f32 [1]
///   -> out             format/as x [T, H]
///   param              format {none, e4m3} = none
///   need               H % 256 = 0
///   need               format = e4m3 if sf on sf "'sf' scales e4m3 outputs only"
///   bucket             T at 1024                    # pick_walk
struct ReduceFused {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView topk_weights = {};
  TensorView token_topk_to_pos = {};
  TensorView sf = {};
  TensorView out = {};
  std::optional<DType> format = {};
};
TESSERA_API void reduce_fused(const ReduceFused& call, Stream stream);

/// rows to 8-bit or 4-bit floats with one scale per group of columns
///
///   x          bf16/f32/e4m3/e2m1 [T, H] rows
///   x_sf?      SF(x_block_size) x_sf_layout     iff x is e4m3/e2m1
///   -> out     format [T, H] align 16
///   -> out_sf  SF(1,num_per_channels) sf_layout
///   param      format {e4m3, e2m1}
///   param      num_per_channels {16, 32, 64, 128, H}
///   param      x_block_size tuple = none        iff x_sf
///   param      x_sf_layout, sf_layout = row_major
///   param      round_sf bool = false
///   let        br, bc = x_block_size
///   need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
///   limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
///   need       H % 2 = 0 if format = e2m1
///   limit      H <= 2147483647
///   need       num_per_channels in {16, 32, 64, 128} if x_sf
///   need       bc % 16 = 0 and (bc % num_per_channels = 0 or num_per_channels % bc = 0)
///   |          if x_sf on x_block_size "blocks of x and groups of 'out' do not nest"
///   need       round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |          "packed_ue8m0 scales are powers of two"
struct PerTokenCast {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<DType> format = {};  // must be given
  std::optional<int64_t> num_per_channels = {};  // must be given
  std::optional<std::array<int64_t, 2>> x_block_size = {};
  SfLayout x_sf_layout = SfLayout::row_major;
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};
TESSERA_API void per_token_cast(const PerTokenCast& call, Stream stream);

/// the scales of per_token_cast alone
///
///   x          bf16/f32 [T, H] rows
///   -> out_sf  SF(1,num_per_channels) sf_layout of x
///   param      format {e4m3, e2m1}
///   param      num_per_channels {16, 32, 64, 128, H}
///   param      sf_layout = row_major
///   param      round_sf bool = false
///   need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
///   limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
///   need       H % 2 = 0 if format = e2m1
///   limit      H <= 2147483647
///   need       round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |          "packed_ue8m0 scales are powers of two"
struct PerTokenCastWithSfOnly {
  TensorView x = {};
  TensorView out_sf = {};
  std::optional<DType> format = {};  // must be given
  std::optional<int64_t> num_per_channels = {};  // must be given
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};
TESSERA_API void per_token_cast_with_sf_only(const PerTokenCastWithSfOnly& call, Stream stream);

/// rows to 8-bit or 4-bit floats with given scales per group of columns
///
///   x          bf16/f32 [T, H] rows
///   sf         f32 [T, C] rows
///   -> out     format [T, H] align 16
///   param      format {e4m3, e2m1}
///   param      num_per_channels {16, 32, 64, 128, H}
///   let        C = ceil(H / num_per_channels)
///   need       num_per_channels in {16, 32, 64, 128} or num_per_channels = H and H % 64 = 0
///   limit      num_per_channels <= 65536 "one scale for so many columns is not supported"
///   need       H % 2 = 0 if format = e2m1
///   limit      H <= 2147483647
struct PerTokenCastWithPrecomputedSf {
  TensorView x = {};
  TensorView sf = {};
  TensorView out = {};
  std::optional<DType> format = {};  // must be given
  std::optional<int64_t> num_per_channels = {};  // must be given
};
TESSERA_API void per_token_cast_with_precomputed_sf(const PerTokenCastWithPrecomputedSf& call, Stream stream);

/// rows to 12-bit floats with one scale per row
///
///   x          bf16/f32 [T, H] rows
///   -> out     e5m6 [T, H] align 16
///   -> out_sf  SF(1,H) sf_layout
///   param      sf_layout = row_major
///   param      round_sf bool = false
///   need       H % 8 = 0
///   limit      H <= 24576 "rows of so many columns are not supported"   # their words in shared memory
///   need       round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |          "packed_ue8m0 scales are powers of two"
struct PerTokenCastToE5m6 {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};
TESSERA_API void per_token_cast_to_e5m6(const PerTokenCastToE5m6& call, Stream stream);

/// blocks of rows and columns to 8-bit or 4-bit floats with one scale per block
///
///   x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
///   -> out     format [T, H] align 16
///   -> out_sf  SF(block_size) sf_layout
///   param      format {e4m3, e2m1}
///   param      block_size tuple of {32, 128}
///   param      sf_layout = row_major
///   param      round_sf bool = false
///   let        br, bc = block_size
///   need       H % 64 = 0
///   limit      H <= 2147483647
///   need       round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |          "packed_ue8m0 scales are powers of two"
struct PerBlockCast {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<DType> format = {};  // must be given
  std::optional<std::array<int64_t, 2>> block_size = {};  // must be given
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};
TESSERA_API void per_block_cast(const PerBlockCast& call, Stream stream);

/// the scales of per_block_cast alone
///
///   x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
///   -> out_sf  SF(block_size) sf_layout of x
///   param      format {e4m3, e2m1}
///   param      block_size tuple of {32, 128}
///   param      sf_layout = row_major
///   param      round_sf bool = false
///   let        br, bc = block_size
///   need       H % 64 = 0
///   limit      H <= 2147483647
///   need       round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |          "packed_ue8m0 scales are powers of two"
struct PerBlockCastWithSfOnly {
  TensorView x = {};
  TensorView out_sf = {};
  std::optional<DType> format = {};  // must be given
  std::optional<std::array<int64_t, 2>> block_size = {};  // must be given
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
};
TESSERA_API void per_block_cast_with_sf_only(const PerBlockCastWithSfOnly& call, Stream stream);

/// blocks of rows and columns to 8-bit or 4-bit floats with given scales
///
///   x          bf16/f32 [T, H]   # [G, N, H] as [G * N, H] if block_size[0] divides N: else blocks straddle
///   sf         SF(block_size) of x
///   -> out     format [T, H] align 16
///   param      format {e4m3, e2m1}
///   param      block_size tuple of {32, 128}
///   let        br, bc = block_size
///   need       H % 64 = 0
///   limit      H <= 2147483647
struct PerBlockCastWithPrecomputedSf {
  TensorView x = {};
  TensorView sf = {};
  TensorView out = {};
  std::optional<DType> format = {};  // must be given
  std::optional<std::array<int64_t, 2>> block_size = {};  // must be given
};
TESSERA_API void per_block_cast_with_precomputed_sf(const PerBlockCastWithPrecomputedSf& call, Stream stream);

/// 4-bit floats in small blocks to 8-bit floats in larger ones, exactly
///
///   x          e2m1 [T, H]
///   x_sf       SF(x_block_size) x_sf_layout     # powers of two
///   -> out     e4m3 [T, H] align 16
///   -> out_sf  SF(out_block_size) sf_layout
///   param      x_block_size, out_block_size tuple
///   param      x_sf_layout, sf_layout = row_major
///   param      format {e4m3} = e4m3
///   let        br, bc = x_block_size
///   let        out_br, out_bc = out_block_size
///   need       H % 32 = 0
///   need       out_br % br = 0 and out_bc % bc = 0 on out_block_size
///   |          "'out_block_size' is no multiple of 'x_block_size'"
///   limit      H <= 2147483647
struct PerBlockCastLossless {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<std::array<int64_t, 2>> x_block_size = {};  // must be given
  std::optional<std::array<int64_t, 2>> out_block_size = {};  // must be given
  SfLayout x_sf_layout = SfLayout::row_major;
  SfLayout sf_layout = SfLayout::row_major;
  DType format = DType::e4m3;
};
TESSERA_API void per_block_cast_lossless(const PerBlockCastLossless& call, Stream stream);

/// columns to 8-bit floats with one scale per run of tokens
///
///   x          bf16/f32 [T, H]
///   -> out     e4m3 [T, H] align 16
///   -> out_sf  SF(128,1)
///   param      num_per_tokens {128} = 128
///   param      round_sf bool = false
///   param      format {e4m3} = e4m3
///   need       T % 128 = 0
///   need       H % 64 = 0
///   limit      H <= 2147483647
struct PerChannelCast {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  int64_t num_per_tokens = 128;
  bool round_sf = false;
  DType format = DType::e4m3;
};
TESSERA_API void per_channel_cast(const PerChannelCast& call, Stream stream);

/// gathered rows, their columns to 8-bit floats with one scale per run of them
///
///   x              bf16/f32/e4m3 [T, H]
///   x_sf?          SF(1,num_per_channels)       iff x is e4m3
///   pos_to_token?  i32 [P]                      values -2147483648 .. T - 1   # negative: padding
///   -> out         e4m3 [P, H] align 16
///   -> out_sf      f32 [ceil(P/128), H]
///   param          num_per_tokens {128} = 128
///   param          num_per_channels {none, 128} = none
///   param          round_sf bool = false
///   param          format {e4m3} = e4m3
///   let            P = positions()
///   need           num_per_channels != none iff x_sf on num_per_channels
///   |              "only e4m3 has scales, one per 128 columns"
///   need           H % 128 = 0 if x is e4m3
///   need           P % 16 = 0 if pos_to_token on pos_to_token
///   need           T % 128 = 0 if not pos_to_token
///   limit          H <= 2147483647
struct PerChannelCastFused {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView pos_to_token = {};
  TensorView out = {};
  TensorView out_sf = {};
  int64_t num_per_tokens = 128;
  std::optional<int64_t> num_per_channels = {};
  bool round_sf = false;
  DType format = DType::e4m3;
};
TESSERA_API void per_channel_cast_fused(const PerChannelCastFused& call, Stream stream);

/// columns to 8-bit floats with one scale per run of tokens, transposed
///
///   x          bf16 [T, H]
///   -> out     e4m3 [H, T] align 16
///   -> out_sf  SF(num_per_tokens,1) of x
///   param      num_per_tokens {32, 128}
///   param      round_sf bool = false
///   param      format {e4m3} = e4m3
///   need       T % 128 = 0
///   need       H % 64 = 0
///   limit      H <= 2147483647
struct PerChannelCastAndTranspose {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<int64_t> num_per_tokens = {};  // must be given
  bool round_sf = false;
  DType format = DType::e4m3;
};
TESSERA_API void per_channel_cast_and_transpose(const PerChannelCastAndTranspose& call, Stream stream);

/// 8-bit or 4-bit floats with one scale per block back to bf16 or f32
///
///   x           e4m3/e2m1 [T, H]
///   x_sf        SF(x_block_size) x_sf_layout
///   -> out      out_dtype [T, H] align 16
///   param       x_block_size tuple
///   param       out_dtype {bf16, f32} = bf16
///   param       x_sf_layout = row_major
///   let         br, bc = x_block_size
///   need        H % 64 = 0
///   limit       H <= 2147483647
struct CastBack {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView out = {};
  std::optional<std::array<int64_t, 2>> x_block_size = {};  // must be given
  DType out_dtype = DType::bf16;
  SfLayout x_sf_layout = SfLayout::row_major;
};
TESSERA_API void cast_back(const CastBack& call, Stream stream);

/// 8-bit or 4-bit floats with one scale per group of columns back to bf16 or f32
///
///   x           e4m3/e2m1 [T, H]
///   x_sf        SF(1,num_per_channels) x_sf_layout
///   -> out      out_dtype [T, H] align 16
///   param       num_per_channels int 1..H
///   param       out_dtype {bf16, f32} = bf16
///   param       x_sf_layout = row_major
///   let         br = 1
///   let         bc = num_per_channels
///   need        H % 64 = 0
///   limit       H <= 2147483647
struct PerTokenCastBack {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView out = {};
  std::optional<int64_t> num_per_channels = {};  // must be given
  DType out_dtype = DType::bf16;
  SfLayout x_sf_layout = SfLayout::row_major;
};
TESSERA_API void per_token_cast_back(const PerTokenCastBack& call, Stream stream);

/// 12-bit floats with one scale per block back to bf16 or f32
///
///   x       e5m6 [T, H] align 4
///   x_sf    SF(x_block_size) x_sf_layout
///   -> out  out_dtype [T, H] align 16
///   param   x_block_size tuple = none
///   param   out_dtype {bf16, f32} = bf16
///   param   x_sf_layout = row_major
///   let     br, bc = x_block_size
///   need    H % 8 = 0
///   limit   H <= 1431655760     # bytes of a row below 2^31
struct CastBackE5m6 {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView out = {};
  std::optional<std::array<int64_t, 2>> x_block_size = {};
  DType out_dtype = DType::bf16;
  SfLayout x_sf_layout = SfLayout::row_major;
};
TESSERA_API void cast_back_e5m6(const CastBackE5m6& call, Stream stream);

/// gated activation of an expert's rows to 8-bit floats with one scale per group
///
///   x                   bf16/f32 [P, 2H]       # gate, then up
///   pos_to_token_topk?  i32 [P]                iff topk_weights
///   topk_weights?       f32 [T, K]             iff pos_to_token_topk
///   pos_to_expert?      i32 [P]
///   -> out              e4m3 [P, H] align 16
///   -> out_sf           SF(1,num_per_channels) sf_layout
///   -> inout clamped_count?  i64 [3]
///   param  num_per_channels {128, H}
///   param  sf_layout = row_major
///   param  round_sf bool = false
///   param  swiglu_clamp_value float = none
///   param  sf_clamp_min float = none
///   param  format {e4m3} = e4m3
///   need   H % 128 = 0
///   limit  2*H <= 2147483647
///   need   num_per_channels = 128 or num_per_channels = H
///   need   sf_layout = row_major if num_per_channels != 128 "one scale per row is stored row-major"
///   limit  num_per_channels <= 32768 if num_per_channels != 128
///   |      "one scale for so many columns is not supported"
///   need   round_sf if sf_layout = packed_ue8m0 on sf_layout "packed_ue8m0 scales are powers of two"
///   need   swiglu_clamp_value != none if clamped_count on clamped_count
///   |      "'clamped_count' needs 'swiglu_clamp_value'"
///   need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
///   need   2^-117 <= sf_clamp_min <= 3.4028234e38 if sf_clamp_min != none on sf_clamp_min
///   bucket P * H at 262145, 1048577, 2097153          # cut_work
struct SwigluForwardAndPerTokenCast {
  TensorView x = {};
  TensorView pos_to_token_topk = {};
  TensorView topk_weights = {};
  TensorView pos_to_expert = {};
  TensorView out = {};
  TensorView out_sf = {};
  TensorView clamped_count = {};
  std::optional<int64_t> num_per_channels = {};  // must be given
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
  std::optional<double> swiglu_clamp_value = {};
  std::optional<double> sf_clamp_min = {};
  DType format = DType::e4m3;
};
TESSERA_API void swiglu_forward_and_per_token_cast(const SwigluForwardAndPerTokenCast& call, Stream stream);

/// gradients of the gated activation of an expert's rows, as floats and 8-bit floats
///
///   x                  e4m3 [P, 2H]              # gate, then up
///   x_sf               SF(1,num_per_channels)
///   grad_out           bf16 [P, H]
///   weight             f32 [T, K]
///   pos_to_token_topk  i32 [P]                   values -2147483648 .. T * K - 1   # negative: padding
///   token_topk_to_pos  i32 [T, K]                values -2147483648 .. P - 1
///   -> out             bf16 [P, H] align 16
///   -> grad_x_fp8      e4m3 [P, 2H] align 16
///   -> grad_x_fp8_sf   SF(1,num_per_channels)
///   -> grad_x          bf16 [P, 2H] align 16
///   -> grad_weight     f32 [T, K]
///   param  num_per_channels {32, 128}
///   param  round_sf bool = false
///   param  swiglu_clamp_value float = none
///   need   H % num_per_channels = 0
///   need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
///   limit  H <= 65536 "rows of so many columns are not supported"
///   limit  T * K <= 2130706431 on weight
struct SwigluBackwardAndPerTokenCast {
  TensorView x = {};
  TensorView x_sf = {};
  TensorView grad_out = {};
  TensorView weight = {};
  TensorView pos_to_token_topk = {};
  TensorView token_topk_to_pos = {};
  TensorView out = {};
  TensorView grad_x_fp8 = {};
  TensorView grad_x_fp8_sf = {};
  TensorView grad_x = {};
  TensorView grad_weight = {};
  std::optional<int64_t> num_per_channels = {};  // must be given
  bool round_sf = false;
  std::optional<double> swiglu_clamp_value = {};
};
TESSERA_API void swiglu_backward_and_per_token_cast(const SwigluBackwardAndPerTokenCast& call, Stream stream);

/// gated activation, its columns to 8-bit floats with one scale per run of tokens, transposed
///
///   x          bf16 [T, 2H]                    # gate, then up
///   -> out     e4m3 [H, T] align 16
///   -> out_sf  f32 [T/num_per_tokens, H]
///   param      num_per_tokens {32, 128}
///   param      round_sf bool = false
///   param      swiglu_clamp_value float = none
///   param      format {e4m3} = e4m3
///   need       T % 128 = 0
///   need       H % 64 = 0
///   need       swiglu_clamp_value > 0 if swiglu_clamp_value != none
///   limit      2*H <= 2147483647
struct SwigluForwardAndPerChannelCastAndTranspose {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<int64_t> num_per_tokens = {};  // must be given
  bool round_sf = false;
  std::optional<double> swiglu_clamp_value = {};
  DType format = DType::e4m3;
};
TESSERA_API void swiglu_forward_and_per_channel_cast_and_transpose(const SwigluForwardAndPerChannelCastAndTranspose& call, Stream stream);

/// gated activation, its columns to 8-bit floats with one scale per run of tokens
///
///   x          bf16 [T, 2H]                    # gate, then up
///   -> out     e4m3 [T, H] align 16
///   -> out_sf  f32 [T/num_per_tokens, H]
///   param      num_per_tokens {32, 128}
///   param      round_sf bool = false
///   param      swiglu_clamp_value float = none
///   param      format {e4m3} = e4m3
///   need       T % 128 = 0
///   need       H % 64 = 0
///   need       swiglu_clamp_value > 0 if swiglu_clamp_value != none
///   limit      2*H <= 2147483647
struct SwigluForwardAndPerChannelCast {
  TensorView x = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<int64_t> num_per_tokens = {};  // must be given
  bool round_sf = false;
  std::optional<double> swiglu_clamp_value = {};
  DType format = DType::e4m3;
};
TESSERA_API void swiglu_forward_and_per_channel_cast(const SwigluForwardAndPerChannelCast& call, Stream stream);

/// bytes of two 4-bit floats to floats
///
///   x          i8/u8 [.., W]
///   -> out     out_dtype [.., 2W] align 16
///   param      out_dtype {f32, bf16, f16} = f32
///   limit      T * W <= 1000000000
struct UnpackFromE2m1fnX2 {
  TensorView x = {};
  TensorView out = {};
  DType out_dtype = DType::f32;
};
TESSERA_API void unpack_from_e2m1fn_x2(const UnpackFromE2m1fnX2& call, Stream stream);

/// packed exponents of the scales of weight blocks, by rows and by columns of the weight
///
///   sf      f32 [.., R, C]                          # of blocks of block_size x block_size
///   -> sf0  i32 [.., ceil(C / 4), R*block_size]     align 16  # per row of the weight
///   -> sf1  i32 [.., ceil(R / 4), C*block_size]     align 16  # per column
///   param  block_size {32, 128}
///   need   R * block_size % 128 = 0 on sf "argument 'sf' has the wrong number of rows"
///   need   C * block_size % 128 = 0 on sf "argument 'sf' has the wrong number of columns"
///   limit  T * (R + C) * block_size <= 2130706431 on sf "so many scales are not supported"
///   limit  R * C * block_size <= 2130706431 on sf "so many scales are not supported"
struct BatchedTransposeWeightSf {
  TensorView sf = {};
  TensorView sf0 = {};
  TensorView sf1 = {};
  std::optional<int64_t> block_size = {};  // must be given
};
TESSERA_API void batched_transpose_weight_sf(const BatchedTransposeWeightSf& call, Stream stream);

/// transposes a matrix
///
///   x       bytes1/bytes2/bytes4 [R, C] rows
///   -> out  as x [C, R]
///   limit   C <= most_cols() if R * C > 0 "the rows are too long for one launch"
struct Transpose {
  TensorView x = {};
  TensorView out = {};
};
TESSERA_API void transpose(const Transpose& call, Stream stream);

/// transposes the last two dimensions of every batch
///
///   x       bytes1/bytes2/bytes4 [B, R, C] rows
///   -> out  as x [B, C, R]
///   limit   B <= 65535 if B * R * C > 0 "the batch is too large for one launch"
///   limit   C <= most_cols() if B * R * C > 0 "the rows are too long for one launch"
struct BatchedTranspose {
  TensorView x = {};
  TensorView out = {};
};
TESSERA_API void batched_transpose(const BatchedTranspose& call, Stream stream);

/// product of the two norm weights of the gate
///
///   weight_hidden    bf16 [hc, D]
///   weight_embed     bf16 [hc, D]
///   -> weight_fused  f32 [hc, D]
///   need             D % 256 = 0
///   limit            hc * D <= 2130706431 on weight_hidden "so many weights are not supported"
struct FusedWeight {
  TensorView weight_hidden = {};
  TensorView weight_embed = {};
  TensorView weight_fused = {};
};
TESSERA_API void fused_weight(const FusedWeight& call, Stream stream);

/// residual streams plus the value row, weighted by the gate of each stream
///
///   hidden_states  bf16 [T.., hc, D]
///   k              bf16 [T.., hc, D] rows
///   v              bf16 [T.., D] rows
///   weight_fused   f32 [hc, D]
///   image_token_mask?  bool [T..]     # true: out is the token's hidden_states, and what is saved 0
///   -> out         bf16 [T.., hc, D]
///   -> dot?, gate_score?, rstd_x?, rstd_k?  f32 [T.., hc]    iff save_for_backward
///   param          eps float
///   param          clamp_value float = 1e-6
///   param          save_for_backward bool = true
///   need           D % 256 = 0
///   need           512 <= D <= 16777216
///   need           1 <= hc <= 65536
struct EngramGateFwd {
  TensorView hidden_states = {};
  TensorView k = {};
  TensorView v = {};
  TensorView weight_fused = {};
  TensorView image_token_mask = {};
  TensorView out = {};
  TensorView dot = {};
  TensorView gate_score = {};
  TensorView rstd_x = {};
  TensorView rstd_k = {};
  std::optional<double> eps = {};  // must be given
  double clamp_value = 1e-06;
  bool save_for_backward = true;
};
TESSERA_API void engram_gate_fwd(const EngramGateFwd& call, Stream stream);

/// gradients of the gate's inputs, and one partial of its weights' per run of tokens
///
///   grad_out               bf16 [T.., 4, D]
///   hidden_states          bf16 [T.., 4, D]
///   k                      bf16 [T.., 4, D] rows
///   v                      bf16 [T.., D] rows
///   weight_fused           f32 [4, D]
///   dot, gate_score, rstd_x, rstd_k  f32 [T.., 4]
///   image_token_mask?      bool [T..]  # that of engram_gate_fwd
///   -> grad_hidden_states  bf16 [T.., 4, D]
///   -> grad_k              bf16 [T.., 4, D]
///   -> grad_v              bf16 [T.., D]
///   -> grad_w_partial      f32 [num_persistent_blocks, 4, D]
///   workspace              f32 [elements()]
///   param                  clamp_value float = 1e-6
///   param                  num_persistent_blocks int >= 1
///   need                   D % 512 = 0
///   bucket                 T at 1          # no tokens
///   limit                  D <= 16777216
///   limit                  num_persistent_blocks <= 16777216
struct EngramGateBwd {
  TensorView grad_out = {};
  TensorView hidden_states = {};
  TensorView k = {};
  TensorView v = {};
  TensorView weight_fused = {};
  TensorView dot = {};
  TensorView gate_score = {};
  TensorView rstd_x = {};
  TensorView rstd_k = {};
  TensorView image_token_mask = {};
  TensorView grad_hidden_states = {};
  TensorView grad_k = {};
  TensorView grad_v = {};
  TensorView grad_w_partial = {};
  TensorView workspace = {};
  double clamp_value = 1e-06;
  std::optional<int64_t> num_persistent_blocks = {};  // must be given
};
TESSERA_API void engram_gate_bwd(const EngramGateBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const EngramGateBwd& call);

/// gradients of the two norm weights of the gate, from partial sums over tokens
///
///   grad_w_partial              f32 [Z, hc, D]
///   weight_hidden               bf16 [hc, D]
///   weight_embed                bf16 [hc, D]
///   -> acc grad_weight_hidden?  f32 [hc, D]
///   -> acc grad_weight_embed?   f32 [hc, D]
///   need                        Z >= 1 on grad_w_partial "there must be a partial"
///   limit                       hc * D <= 2130706431 on weight_hidden "so many weights are not supported"
struct GradWReduce {
  TensorView grad_w_partial = {};
  TensorView weight_hidden = {};
  TensorView weight_embed = {};
  TensorView grad_weight_hidden = {};
  TensorView grad_weight_embed = {};
};
TESSERA_API void grad_w_reduce(const GradWReduce& call, Stream stream);

/// rows of hashed embedding tables for the last token ids
///
///   ngram_token_ids  i32 [T, N]
///   multipliers      i64 [L, N]
///   vocab_sizes      i32 [L, N-1, J]     values 1 .. 2147483647
///   offsets          i32 [L, (N-1)*J]
///   image_token_mask?  bool [T]          # true: the rows of the token are -1
///   -> out           i32 [L, T, (N-1)*J]
///   need             1 <= N <= 65536
struct EngramHash {
  TensorView ngram_token_ids = {};
  TensorView multipliers = {};
  TensorView vocab_sizes = {};
  TensorView offsets = {};
  TensorView image_token_mask = {};
  TensorView out = {};
};
TESSERA_API void engram_hash(const EngramHash& call, Stream stream);

/// first rows of the hashed embedding tables, from their sizes
///
///   vocab_sizes  i32 [L, N-1, J]
///   -> offsets   i32 [L, (N-1)*J]
///   limit        (N-1)*J <= 2130706431 on vocab_sizes "so many tables are not supported"
struct EngramMakeOffsets {
  TensorView vocab_sizes = {};
  TensorView offsets = {};
};
TESSERA_API void engram_make_offsets(const EngramMakeOffsets& call, Stream stream);

/// the last token ids of each row of a ragged batch, for engram_hash and engram_embed
///
///   token_ids           i32/i64 [T]        values -2147483648 .. 2147483647
///   row_start           i32 [B+1]          # first row of each request, then the end of the last; rows behind it are padding
///   history?            i32 [B, N-1]       # the ids before each request's rows, the oldest first
///   -> ngram_token_ids  i32 [T, N]         # its own id, the one before it, ..
///   -> next_history?    i32 [B, N-1]       iff history  # for the next call
///   param  ngram_size int
///   param  pad_id int = -1
///   let    N = ngram_size
///   need   1 <= ngram_size <= 64
///   need   -2147483648 <= pad_id <= 2147483647
///   limit  T + B <= 2130706431 on token_ids "so many tokens are not supported"
struct EngramNgramIds {
  TensorView token_ids = {};
  TensorView row_start = {};
  TensorView history = {};
  TensorView ngram_token_ids = {};
  TensorView next_history = {};
  std::optional<int64_t> ngram_size = {};  // must be given
  int64_t pad_id = -1;
};
TESSERA_API void engram_ngram_ids(const EngramNgramIds& call, Stream stream);

/// rows of a layer's hashed embedding tables for the last token ids
///
///   ngram_token_ids  i32 [T, N]
///   multipliers      i64 [N]             # of the layer
///   vocab_sizes      i32 [N-1, J]        values 1 .. V
///   offsets          i32 [(N-1)*J]       # first row of each table
///   table            bf16/f32 [V, D] rows
///   -> out           as table [T, (N-1)*J*D] align 16
///   need             1 <= N <= 64
///   need             D >= 1 on table "argument 'table' has no columns"
///   need             V >= 1 on table "argument 'table' has no rows"
///   limit            D <= 65536 on table "rows this long are not supported"
///   limit            V <= 2130706431 on table "so many rows are not supported"
///   limit            T * (N-1) * J <= 2130706431 on ngram_token_ids "so many tokens are not supported"
struct EngramEmbed {
  TensorView ngram_token_ids = {};
  TensorView multipliers = {};
  TensorView vocab_sizes = {};
  TensorView offsets = {};
  TensorView table = {};
  TensorView out = {};
};
TESSERA_API void engram_embed(const EngramEmbed& call, Stream stream);

/// momentum of the gradient of embedding tables, and the update that it gives
///
///   grad               bf16/f32 [n]
///   -> inout momentum  bf16/f32 [n]
///   -> out             f32 [n]
///   param  beta1 float
///   param  nesterov bool = true
///   need   n % 256 = 0 on grad "the number of elements is no multiple of 256"
///   limit  n <= 545460846336    # rows are i32
struct EngramSinkhornMomentum {
  TensorView grad = {};
  TensorView momentum = {};
  TensorView out = {};
  std::optional<double> beta1 = {};  // must be given
  bool nesterov = true;
};
TESSERA_API void engram_sinkhorn_momentum(const EngramSinkhornMomentum& call, Stream stream);

/// scales the rows of an embedding table's update to norm 1 and sums its columns' squares
///
///   matrix              f32 [R, D]
///   col_scale           f32 [D]
///   -> inout row_scale  f32 [R]
///   -> row_norm         f32 [R]          # before the step
///   -> col_sumsq        f32 [D]          # after it
///   workspace           f32 [elements()]
///   param  eps float
///   need   D >= 1 on matrix "argument 'matrix' has no columns"
///   need   D % 256 = 0 on matrix "a row has the wrong number of columns"
///   limit  D <= 4096 on matrix "rows this long are not supported"
///   limit  R <= 2130706431 on matrix "so many rows are not supported"
struct EngramSinkhornStep {
  TensorView matrix = {};
  TensorView col_scale = {};
  TensorView row_scale = {};
  TensorView row_norm = {};
  TensorView col_sumsq = {};
  TensorView workspace = {};
  std::optional<double> eps = {};  // must be given
};
TESSERA_API void engram_sinkhorn_step(const EngramSinkhornStep& call, Stream stream);
TESSERA_API TensorView workspace_of(const EngramSinkhornStep& call);

/// the scaled update of an embedding table, with rows of norm alpha
///
///   matrix     f32 [R, D]
///   row_scale  f32 [R]
///   col_scale  f32 [D]
///   -> out     f32 [R, D] align 16
///   param  eps, alpha float
///   need   D >= 1 on matrix "argument 'matrix' has no columns"
///   need   D % 256 = 0 on matrix "a row has the wrong number of columns"
///   limit  D <= 4096 on matrix "rows this long are not supported"
///   limit  R <= 2130706431 on matrix "so many rows are not supported"
struct EngramSinkhornFinalize {
  TensorView matrix = {};
  TensorView row_scale = {};
  TensorView col_scale = {};
  TensorView out = {};
  std::optional<double> eps = {};  // must be given
  std::optional<double> alpha = {};  // must be given
};
TESSERA_API void engram_sinkhorn_finalize(const EngramSinkhornFinalize& call, Stream stream);

/// copies each row into every residual stream
///
///   x       bf16 [T.., H]
///   -> out  bf16 [T.., n, H]
///   param   mhc_mult int >= 1 = 4
///   let     n = mhc_mult
///   limit   mhc_mult <= 65536 "so many streams are not supported"  # offsets in a token stay small
struct ExpandToMhcFwd {
  TensorView x = {};
  TensorView out = {};
  int64_t mhc_mult = 4;
};
TESSERA_API void expand_to_mhc_fwd(const ExpandToMhcFwd& call, Stream stream);

/// sums the residual streams of each row
///
///   grad_out   bf16 [T.., n, H]
///   -> grad_x  bf16 [T.., H]
///   need       n >= 1 on grad_out "there must be a stream"
///   limit      n <= 65536 on grad_out "so many streams are not supported"  # offsets stay small
struct ExpandToMhcBwd {
  TensorView grad_out = {};
  TensorView grad_x = {};
};
TESSERA_API void expand_to_mhc_bwd(const ExpandToMhcBwd& call, Stream stream);

/// projection of the normalised residual, from which the mixes are made
///
///   residual       bf16 [T.., n, H]
///   fn             f32 [M, n*H]
///   norm_weight?   f32 [n*H]
///   -> out         f32 [T.., M]
///   -> out_mul?    f32 [T.., M]      iff save_for_backward
///   -> sqrsum?     f32 [T..]         iff save_for_backward
///   workspace      f32 [elements()]
///   param          norm_eps float = 1e-6
///   param          n_splits int 1..16 = 16
///   param          save_for_backward bool = true
///   need           n >= 1 on residual "there must be a stream"
///   limit          n <= 65536 on residual "so many streams are not supported"
///   need           n*H % 256 = 0 on residual "a row has the wrong number of columns"
///   limit          n*H <= 16777216 on residual "rows this long are not supported"
///   need           M >= 1 on fn "there must be a row"
///   limit          M <= 32 on fn "so many rows are not supported"
///   limit          T * M <= 2147483647 on residual "so many tokens are not supported"
///   bucket         T at 129, 513                # halves of parts; rows of a block
struct NormFnFwd {
  TensorView residual = {};
  TensorView fn = {};
  TensorView norm_weight = {};
  TensorView out = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  int64_t n_splits = 16;
  bool save_for_backward = true;
};
TESSERA_API void norm_fn_fwd(const NormFnFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const NormFnFwd& call);

/// gradients of the residual and of its projection, added to what is there
///
///   grad_out                  f32 [T.., M]
///   residual                  bf16 [T.., n, H]
///   fn                        f32 [M, n*H]
///   norm_weight?              f32 [n*H]
///   out_mul                   f32 [T.., M]
///   sqrsum                    f32 [T..]
///   -> acc grad_residual?     bf16 [T.., n, H]
///   -> acc grad_fn?           f32 [M, n*H]
///   -> acc grad_norm_weight?  f32 [n*H]         iff norm_weight
///   workspace                 f32 [elements()]
///   param                     norm_eps float = 1e-6
///   need                      n >= 1 on residual "there must be a stream"
///   limit                     n <= 65536 on residual "so many streams are not supported"
///   need                      n*H % 256 = 0 on residual "a row has the wrong number of columns"
///   limit                     n*H <= 16777216 on residual "rows this long are not supported"
///   need                      M >= 1 on grad_out "there must be a column"
///   limit                     M <= 32 on grad_out "so many columns are not supported"
///   limit                     T * M <= 2147483647 on residual "so many tokens are not supported"
struct NormFnBwd {
  TensorView grad_out = {};
  TensorView residual = {};
  TensorView fn = {};
  TensorView norm_weight = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView grad_residual = {};
  TensorView grad_fn = {};
  TensorView grad_norm_weight = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
};
TESSERA_API void norm_fn_bwd(const NormFnBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const NormFnBwd& call);

/// rounds f32 values to tf32, ties away from zero
///
///   x       f32 [..]
///   -> out  f32 [..]
struct RoundToTf32 {
  TensorView x = {};
  TensorView out = {};
};
TESSERA_API void round_to_tf32(const RoundToTf32& call, Stream stream);

/// splits the projected residual into the mixes of a sub-layer
///
///   input_mixes     f32 [T.., M]
///   scale           f32 [3]
///   base            f32 [M]
///   -> pre_mix      f32 [T.., n]
///   -> post_mix     f32 [T.., n]
///   -> comb_logits  f32 [T.., n, n]
///   param           post_mult_value float = 1
///   param           pre_eps float = 1e-6
///   let             n = streams()
///   need            M = n*(n+2) and n >= 1 "argument 'input_mixes' has the wrong number of columns"
///   limit           n <= 1024 on input_mixes "so many streams are not supported"
struct PreSplitMixesFwd {
  TensorView input_mixes = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView pre_mix = {};
  TensorView post_mix = {};
  TensorView comb_logits = {};
  double post_mult_value = 1;
  double pre_eps = 1e-06;
};
TESSERA_API void pre_split_mixes_fwd(const PreSplitMixesFwd& call, Stream stream);

/// gradients of the projected residual, of its scales and of its bases
///
///   grad_pre_mix         f32 [T.., n]
///   grad_post_mix        f32 [T.., n]
///   grad_comb_logits     f32 [T.., n, n]
///   input_mixes          f32 [T.., M]
///   post_mix             f32 [T.., n]
///   scale                f32 [3]
///   base                 f32 [M]
///   -> grad_input_mixes  f32 [T.., M]
///   -> acc grad_scale?   f32 [3]
///   -> acc grad_base?    f32 [M]
///   workspace            f32 [elements()]
///   param                post_mult_value float = 1
///   need                 n >= 1 on grad_pre_mix "there must be a stream"
///   limit                n <= 16 on grad_pre_mix "so many streams are not supported"
///   need                 M = n*(n+2) "argument 'input_mixes' has the wrong number of columns"
///   need                 post_mult_value != 0
struct PreSplitMixesBwd {
  TensorView grad_pre_mix = {};
  TensorView grad_post_mix = {};
  TensorView grad_comb_logits = {};
  TensorView input_mixes = {};
  TensorView post_mix = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView grad_input_mixes = {};
  TensorView grad_scale = {};
  TensorView grad_base = {};
  TensorView workspace = {};
  double post_mult_value = 1;
};
TESSERA_API void pre_split_mixes_bwd(const PreSplitMixesBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const PreSplitMixesBwd& call);

/// logits of the residual mix to nearly doubly stochastic matrices
///
///   x       f32 [T.., n, n]
///   -> out  f32 [T.., n, n]
///   param   repeat int 1..45 = 10
///   param   eps float = 1e-6
///   need    n >= 1 on x "there must be a stream"
///   limit   n <= 4 on x "so many streams are not supported"   # 16 lanes per matrix
struct SinkhornFwd {
  TensorView x = {};
  TensorView out = {};
  int64_t repeat = 10;
  double eps = 1e-06;
};
TESSERA_API void sinkhorn_fwd(const SinkhornFwd& call, Stream stream);

/// gradient of the Sinkhorn projection with respect to its logits
///
///   grad_out   f32 [T.., n, n]
///   x          f32 [T.., n, n]    # the logits
///   -> grad_x  f32 [T.., n, n]
///   param      repeat int 1..45 = 10
///   param      eps float = 1e-6
///   need       n >= 1 on grad_out "there must be a stream"
///   limit      n <= 4 on grad_out "so many streams are not supported"   # 16 lanes per matrix
struct SinkhornBwd {
  TensorView grad_out = {};
  TensorView x = {};
  TensorView grad_x = {};
  int64_t repeat = 10;
  double eps = 1e-06;
};
TESSERA_API void sinkhorn_bwd(const SinkhornBwd& call, Stream stream);

/// mixes the residual streams of each token into the input of a sub-layer
///
///   x       bf16 [T.., n, H]
///   mix     f32 [T.., n]
///   -> out  bf16 [T.., H]
///   need    n >= 1 on x "there must be a stream"
///   limit   n <= 16 on x "so many streams are not supported"   # a vector of each in registers
struct PreApplyMixFwd {
  TensorView x = {};
  TensorView mix = {};
  TensorView out = {};
};
TESSERA_API void pre_apply_mix_fwd(const PreApplyMixFwd& call, Stream stream);

/// gradients of the residual streams that a sub-layer reads, and of their mixes
///
///   grad_out        bf16 [T.., H]
///   x               bf16 [T.., n, H]
///   mix             f32 [T.., n]
///   -> acc grad_x?  bf16 [T.., n, H]
///   -> grad_mix     f32 [T.., n]
///   need            n >= 1 on x "there must be a stream"
///   limit           n <= 16 on x "so many streams are not supported"  # vectors in registers
struct PreApplyMixBwd {
  TensorView grad_out = {};
  TensorView x = {};
  TensorView mix = {};
  TensorView grad_x = {};
  TensorView grad_mix = {};
};
TESSERA_API void pre_apply_mix_bwd(const PreApplyMixBwd& call, Stream stream);

/// new residual streams from a sub-layer's output and the mixed old ones
///
///   x         bf16 [T.., H]         # the sub-layer's output
///   residual  bf16 [T.., n, H]
///   post_mix  f32 [T.., n]
///   comb_mix  f32 [T.., n, n]       # rows are the streams read
///   -> out    bf16 [T.., n, H]
///   need      n >= 1 on residual "there must be a stream"
///   limit     n <= 8 on residual "so many streams are not supported"   # sums in registers
struct PostFwd {
  TensorView x = {};
  TensorView residual = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView out = {};
};
TESSERA_API void post_fwd(const PostFwd& call, Stream stream);

/// gradients of the residual streams behind a sub-layer and of their mixes
///
///   grad_out          bf16 [T.., n, H]
///   x                 bf16 [T.., H]
///   residual          bf16 [T.., n, H]
///   post_mix          f32 [T.., n]
///   comb_mix          f32 [T.., n, n]
///   -> grad_x         bf16 [T.., H]
///   -> grad_residual  bf16 [T.., n, H]
///   -> grad_post_mix  f32 [T.., n]
///   -> grad_comb_mix  f32 [T.., n, n]
///   need              n >= 1 on grad_out "there must be a stream"
///   limit             n <= 4 on grad_out "so many streams are not supported"
struct PostBwd {
  TensorView grad_out = {};
  TensorView x = {};
  TensorView residual = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView grad_x = {};
  TensorView grad_residual = {};
  TensorView grad_post_mix = {};
  TensorView grad_comb_mix = {};
};
TESSERA_API void post_bwd(const PostBwd& call, Stream stream);

/// mixes and input of a sub-layer from the residual, in one
///
///   residual       bf16 [T.., n, H]
///   fn             f32 [M, n*H]
///   scale          f32 [3]
///   base           f32 [M]
///   norm_weight?   f32 [n*H]
///   -> post_mix    f32 [T.., n]
///   -> comb_mix    f32 [T.., n, n]
///   -> layer_input bf16 [T.., H]
///   workspace      f32 [elements()]
///   param          norm_eps, pre_eps, sinkhorn_eps float = 1e-6
///   param          post_mult_value float = 1
///   param          sinkhorn_repeat int 1..45 = 10
///   param          n_splits int 1..16 = 16
///   need           n >= 1 on residual "there must be a stream"
///   limit          n <= 65536 on residual "so many streams are not supported"
///   need           n*H % 256 = 0 on residual "a row has the wrong number of columns"
///   limit          n*H <= 16777216 on residual "rows this long are not supported"
///   need           M >= 1 on fn "there must be a row"
///   limit          M <= 32 on fn "so many rows are not supported"
///   limit          T * M <= 2147483647 on residual "so many tokens are not supported"
///   limit          n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
///   need           M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
///   bucket         T at 129
struct PreBigFuse {
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView layer_input = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double pre_eps = 1e-06;
  double sinkhorn_eps = 1e-06;
  double post_mult_value = 1;
  int64_t sinkhorn_repeat = 10;
  int64_t n_splits = 16;
};
TESSERA_API void pre_big_fuse(const PreBigFuse& call, Stream stream);
TESSERA_API TensorView workspace_of(const PreBigFuse& call);

/// weights of the residual streams that the head reads
///
///   input_mix  f32 [T.., n] rows
///   scale      f32 [1]
///   base       f32 [n]
///   -> out     f32 [T.., n]
///   param      pre_eps float = 1e-6
///   need       n >= 1 on input_mix "there must be a stream"
///   limit      n <= 1024 on input_mix "so many streams are not supported"
struct HeadComputeMixFwd {
  TensorView input_mix = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView out = {};
  double pre_eps = 1e-06;
};
TESSERA_API void head_compute_mix_fwd(const HeadComputeMixFwd& call, Stream stream);

/// gradients of the head's projected residual, of its scale and of its bases
///
///   grad_out           f32 [T.., n]
///   input_mix          f32 [T.., n] rows
///   scale              f32 [1]
///   base               f32 [n]
///   -> grad_input_mix  f32 [T.., n]
///   -> acc grad_scale? f32 [1]
///   -> acc grad_base?  f32 [n]
///   workspace          f32 [elements()]
///   need               n >= 1 on grad_out "there must be a stream"
///   limit              n <= 256 on grad_out "so many streams are not supported"
struct HeadComputeMixBwd {
  TensorView grad_out = {};
  TensorView input_mix = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView grad_input_mix = {};
  TensorView grad_scale = {};
  TensorView grad_base = {};
  TensorView workspace = {};
};
TESSERA_API void head_compute_mix_bwd(const HeadComputeMixBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const HeadComputeMixBwd& call);

/// inputs of a run of sub-layers and the residual streams after each, from its first
///
///   initial_residual            bf16 [T.., n, H]
///   list pre_mix_list (L)       f32 [T.., n]
///   list layer_output_list (Q)  bf16 [T.., H]
///   list post_mix_list (Q)      f32 [T.., n]
///   list comb_mix_list (Q)      f32 [T.., n, n]     # rows are the streams read
///   -> list layer_input_list (L)  bf16 [T.., H]
///   -> list residual_list (Q)   bf16 [T.., n, H]
///   need   n >= 1 on initial_residual "there must be a stream"
///   limit  n <= 8 on initial_residual "so many streams are not supported"   # registers
struct MultilayerRecompute {
  TensorView initial_residual = {};
  std::span<const TensorView> pre_mix_list = {};
  std::span<const TensorView> layer_output_list = {};
  std::span<const TensorView> post_mix_list = {};
  std::span<const TensorView> comb_mix_list = {};
  std::span<const TensorView> layer_input_list = {};
  std::span<const TensorView> residual_list = {};
};
TESSERA_API void multilayer_recompute(const MultilayerRecompute& call, Stream stream);

/// mixes and normalised input of a sub-layer from the residual, in one
///
///   residual        bf16 [T, n, H]
///   fn              f32 [M, n*H]
///   scale           f32 [3]
///   base            f32 [M]
///   norm_weight?    f32 [n*H]             # of the residual, as for pre_big_fuse
///   weight?         bf16 [H]              # of the norm of layer_input
///   -> post_mix     f32 [T, n]
///   -> comb_mix     f32 [T, n, n]
///   -> layer_input? bf16 [T, H]           iff save_layer_input
///   -> out          bf16/e4m3 [T, H] align 16  # e4m3 where format says so
///   -> out_sf?      SF(1,num_per_channels) sf_layout  iff format = e4m3
///   -> out_bf16?    bf16 [T, H] align 16  iff save_bf16
///   workspace       f32 [elements()]
///   param           norm_eps, pre_eps, sinkhorn_eps float = 1e-6
///   param           post_mult_value float = 1
///   param           sinkhorn_repeat int 1..45 = 10
///   param           n_splits int 1..16 = 16
///   param           rms_eps float         # of the norm of layer_input
///   param           out_scale float = 1
///   param           format {none, e4m3} = none
///   param           num_per_channels {32, 128} = 32
///   param           round_sf bool = false
///   param           sf_layout = row_major
///   param           save_layer_input, save_bf16 bool = false
///   need            n >= 1 on residual "there must be a stream"
///   limit           n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
///   need            H >= 1 on residual "argument 'residual' has no columns"
///   limit           H % 16 = 0 on residual "rows of this length are not supported"
///   limit           H <= 8192 on residual "rows this long are not supported"  # registers
///   need            n*H % 256 = 0 on residual "a row has the wrong number of columns"
///   need            M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
///   limit           T * M <= 2147483647 on residual "so many tokens are not supported"
///   need            round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |               "packed_ue8m0 scales are powers of two"
///   bucket          T at 129
struct PreBigFuseAndNorm {
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView weight = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView layer_input = {};
  TensorView out = {};
  TensorView out_sf = {};
  TensorView out_bf16 = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double pre_eps = 1e-06;
  double sinkhorn_eps = 1e-06;
  double post_mult_value = 1;
  int64_t sinkhorn_repeat = 10;
  int64_t n_splits = 16;
  std::optional<double> rms_eps = {};  // must be given
  double out_scale = 1;
  std::optional<DType> format = {};
  int64_t num_per_channels = 32;
  bool round_sf = false;
  SfLayout sf_layout = SfLayout::row_major;
  bool save_layer_input = false;
  bool save_bf16 = false;
};
TESSERA_API void pre_big_fuse_and_norm(const PreBigFuseAndNorm& call, Stream stream);
TESSERA_API TensorView workspace_of(const PreBigFuseAndNorm& call);

/// from a sub-layer's output to the normalised input of the next, in one call
///
///   x                 bf16 [T, H]           # the output of a sub-layer
///   residual          bf16 [T, n, H]
///   post_mix          f32 [T, n]            # of that sub-layer
///   comb_mix          f32 [T, n, n]
///   fn                f32 [M, n*H]          # of the next one, as for pre_big_fuse
///   scale             f32 [3]
///   base              f32 [M]
///   norm_weight?      f32 [n*H]
///   weight?           bf16 [H]              # of the norm
///   -> next_residual  bf16 [T, n, H]
///   -> next_post_mix  f32 [T, n]
///   -> next_comb_mix  f32 [T, n, n]
///   -> layer_input?   bf16 [T, H]           iff save_layer_input
///   -> out            bf16/e4m3 [T, H] align 16  # e4m3 where format says so
///   -> out_sf?        SF(1,num_per_channels) sf_layout  iff format = e4m3
///   -> out_bf16?      bf16 [T, H] align 16  iff save_bf16
///   workspace         f32 [elements()]
///   param             norm_eps, pre_eps, sinkhorn_eps float = 1e-6
///   param             post_mult_value float = 1
///   param             sinkhorn_repeat int 1..45 = 10
///   param             n_splits int 1..16 = 16
///   param             rms_eps float         # of the norm
///   param             out_scale float = 1
///   param             format {none, e4m3} = none
///   param             num_per_channels {32, 128} = 32
///   param             round_sf bool = false
///   param             sf_layout = row_major
///   param             save_layer_input, save_bf16 bool = false
///   limit             n = 4 on residual "so many streams are not supported"
///   need              H >= 1 on x "argument 'x' has no columns"
///   limit             H % 256 = 0 on x "rows of this length are not supported"
///   limit             H <= 8192 on x "rows this long are not supported"
///   need              M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
///   limit             T * M <= 2147483647 on residual "so many tokens are not supported"
///   need              round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |                 "packed_ue8m0 scales are powers of two"
///   bucket            T at 129
struct MhcBoundary {
  TensorView x = {};
  TensorView residual = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView weight = {};
  TensorView next_residual = {};
  TensorView next_post_mix = {};
  TensorView next_comb_mix = {};
  TensorView layer_input = {};
  TensorView out = {};
  TensorView out_sf = {};
  TensorView out_bf16 = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double pre_eps = 1e-06;
  double sinkhorn_eps = 1e-06;
  double post_mult_value = 1;
  int64_t sinkhorn_repeat = 10;
  int64_t n_splits = 16;
  std::optional<double> rms_eps = {};  // must be given
  double out_scale = 1;
  std::optional<DType> format = {};
  int64_t num_per_channels = 32;
  bool round_sf = false;
  SfLayout sf_layout = SfLayout::row_major;
  bool save_layer_input = false;
  bool save_bf16 = false;
};
TESSERA_API void mhc_boundary(const MhcBoundary& call, Stream stream);
TESSERA_API TensorView workspace_of(const MhcBoundary& call);

/// the Engram gate with the weights of its two norms
///
///   hidden_states     bf16 [T.., hc, D]
///   k                 bf16 [T.., hc, D] rows
///   v                 bf16 [T.., D] rows
///   weight_hidden, weight_embed  bf16 [hc, D]
///   image_token_mask? bool [T..]       # true: out is the token's hidden_states, and what is saved 0
///   -> out            bf16 [T.., hc, D]
///   -> weight_fused?  f32 [hc, D]      iff save_for_backward
///   -> dot?, gate_score?, rstd_x?, rstd_k?  f32 [T.., hc]    iff save_for_backward
///   workspace         f32 [elements()]
///   param             eps float
///   param             clamp_value float = 1e-6
///   param             save_for_backward bool = true
struct EngramFwd {
  TensorView hidden_states = {};
  TensorView k = {};
  TensorView v = {};
  TensorView weight_hidden = {};
  TensorView weight_embed = {};
  TensorView image_token_mask = {};
  TensorView out = {};
  TensorView weight_fused = {};
  TensorView dot = {};
  TensorView gate_score = {};
  TensorView rstd_x = {};
  TensorView rstd_k = {};
  TensorView workspace = {};
  std::optional<double> eps = {};  // must be given
  double clamp_value = 1e-06;
  bool save_for_backward = true;
};
TESSERA_API void engram_fwd(const EngramFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const EngramFwd& call);

/// gradients of the Engram gate and of the weights of its norms
///
///   grad_out, hidden_states           bf16 [T.., 4, D]
///   k                                 bf16 [T.., 4, D] rows
///   v                                 bf16 [T.., D] rows
///   weight_fused                      f32 [4, D]
///   dot, gate_score, rstd_x, rstd_k   f32 [T.., 4]
///   image_token_mask?                 bool [T..]  # that of engram_fwd
///   weight_hidden, weight_embed       bf16 [4, D]
///   -> grad_hidden_states, grad_k     bf16 [T.., 4, D]
///   -> grad_v                         bf16 [T.., D]
///   -> acc grad_weight_hidden?, grad_weight_embed?   f32 [4, D]
///   workspace                         f32 [elements()]
///   param                             clamp_value float = 1e-6
struct EngramBwd {
  TensorView grad_out = {};
  TensorView hidden_states = {};
  TensorView k = {};
  TensorView v = {};
  TensorView weight_fused = {};
  TensorView dot = {};
  TensorView gate_score = {};
  TensorView rstd_x = {};
  TensorView rstd_k = {};
  TensorView image_token_mask = {};
  TensorView weight_hidden = {};
  TensorView weight_embed = {};
  TensorView grad_hidden_states = {};
  TensorView grad_k = {};
  TensorView grad_v = {};
  TensorView grad_weight_hidden = {};
  TensorView grad_weight_embed = {};
  TensorView workspace = {};
  double clamp_value = 1e-06;
};
TESSERA_API void engram_bwd(const EngramBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const EngramBwd& call);

/// mixes and input of a sub-layer from the residual, saving what its gradient needs
///
///   residual         bf16 [T.., n, H]
///   fn               f32 [M, n*H]
///   scale            f32 [3]
///   base             f32 [M]
///   norm_weight?     f32 [n*H]
///   -> layer_input   bf16 [T.., H]
///   -> post_mix      f32 [T.., n]
///   -> comb_mix      f32 [T.., n, n]
///   -> out_mul?      f32 [T.., M]      iff save_for_backward
///   -> sqrsum?       f32 [T..]         iff save_for_backward
///   -> input_mixes?  f32 [T.., M]      iff save_for_backward
///   -> pre_mix?      f32 [T.., n]      iff save_for_backward
///   -> comb_logits?  f32 [T.., n, n]   iff save_for_backward
///   workspace        f32 [elements()]
///   param            norm_eps, pre_eps, sinkhorn_eps float = 1e-6
///   param            post_mult_value float = 1
///   param            sinkhorn_repeat int 1..45 = 10
///   param            n_splits int 1..16 = 16
///   param            save_for_backward bool = true
///   need             n >= 1 on residual "there must be a stream"
///   limit            n <= 4 on residual "so many streams are not supported"   # sinkhorn.h
///   need             n*H % 256 = 0 on residual "a row has the wrong number of columns"
///   limit            n*H <= 16777216 on residual "rows this long are not supported"
///   need             M = n*(n+2) on fn "argument 'fn' has the wrong number of rows"
///   limit            T * M <= 2147483647 on residual "so many tokens are not supported"
///   bucket           T at 129
struct MhcPreFwd {
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView layer_input = {};
  TensorView post_mix = {};
  TensorView comb_mix = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView input_mixes = {};
  TensorView pre_mix = {};
  TensorView comb_logits = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double pre_eps = 1e-06;
  double sinkhorn_eps = 1e-06;
  double post_mult_value = 1;
  int64_t sinkhorn_repeat = 10;
  int64_t n_splits = 16;
  bool save_for_backward = true;
};
TESSERA_API void mhc_pre_fwd(const MhcPreFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const MhcPreFwd& call);

/// gradients of the residual and the weights in front of a sub-layer
///
///   grad_layer_input  bf16 [T.., H]
///   grad_post_mix     f32 [T.., n]
///   grad_comb_mix     f32 [T.., n, n]
///   residual          bf16 [T.., n, H]
///   fn                f32 [M, n*H]
///   scale             f32 [3]
///   base              f32 [M]
///   norm_weight?      f32 [n*H]
///   out_mul           f32 [T.., M]
///   sqrsum            f32 [T..]
///   input_mixes       f32 [T.., M]
///   pre_mix, post_mix f32 [T.., n]
///   comb_logits       f32 [T.., n, n]
///   -> acc grad_residual?     bf16 [T.., n, H]
///   -> acc grad_fn?           f32 [M, n*H]
///   -> acc grad_scale?        f32 [3]
///   -> acc grad_base?         f32 [M]
///   -> acc grad_norm_weight?  f32 [n*H]    iff norm_weight
///   workspace         f32 [elements()]
///   param             norm_eps, sinkhorn_eps float = 1e-6
///   param             post_mult_value float = 1
///   param             sinkhorn_repeat int = 10
struct MhcPreBwd {
  TensorView grad_layer_input = {};
  TensorView grad_post_mix = {};
  TensorView grad_comb_mix = {};
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView input_mixes = {};
  TensorView pre_mix = {};
  TensorView post_mix = {};
  TensorView comb_logits = {};
  TensorView grad_residual = {};
  TensorView grad_fn = {};
  TensorView grad_scale = {};
  TensorView grad_base = {};
  TensorView grad_norm_weight = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double sinkhorn_eps = 1e-06;
  double post_mult_value = 1;
  int64_t sinkhorn_repeat = 10;
};
TESSERA_API void mhc_pre_bwd(const MhcPreBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const MhcPreBwd& call);

/// one row of each token from the streams of the last residual
///
///   residual        bf16 [T.., n, H]
///   fn              f32 [R, n*H]      # rows behind the n-th are not used
///   scale           f32 [1]
///   base            f32 [n]
///   norm_weight?    f32 [n*H]
///   -> out          bf16 [T.., H]
///   -> out_mul?     f32 [T.., n]      iff save_for_backward
///   -> sqrsum?      f32 [T..]         iff save_for_backward
///   -> input_mix?, pre_mix?  f32 [T.., n]    iff save_for_backward
///   workspace       f32 [elements()]
///   param           norm_eps, pre_eps float = 1e-6
///   param           n_splits int 1..16 = 16
///   param           save_for_backward bool = true
///   need            n <= R and R <= 32 on fn "argument 'fn' has the wrong number of rows"
///   bucket          T at 129, 513
struct MhcHeadFwd {
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView out = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView input_mix = {};
  TensorView pre_mix = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
  double pre_eps = 1e-06;
  int64_t n_splits = 16;
  bool save_for_backward = true;
};
TESSERA_API void mhc_head_fwd(const MhcHeadFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const MhcHeadFwd& call);

/// gradients of the last residual and of its weights
///
///   grad_out        bf16 [T.., H]
///   residual        bf16 [T.., n, H]
///   fn              f32 [R, n*H]      # rows behind the n-th are not used
///   scale           f32 [1]
///   base            f32 [n]
///   norm_weight?    f32 [n*H]
///   out_mul         f32 [T.., n]
///   sqrsum          f32 [T..]
///   input_mix, pre_mix  f32 [T.., n]
///   -> acc grad_residual?     bf16 [T.., n, H]
///   -> acc grad_fn?           f32 [R, n*H]
///   -> acc grad_scale?        f32 [1]
///   -> acc grad_base?         f32 [n]
///   -> acc grad_norm_weight?  f32 [n*H]    iff norm_weight
///   workspace       f32 [elements()]
///   param           norm_eps float = 1e-6
///   need            n <= R and R <= 32 on fn "argument 'fn' has the wrong number of rows"
struct MhcHeadBwd {
  TensorView grad_out = {};
  TensorView residual = {};
  TensorView fn = {};
  TensorView scale = {};
  TensorView base = {};
  TensorView norm_weight = {};
  TensorView out_mul = {};
  TensorView sqrsum = {};
  TensorView input_mix = {};
  TensorView pre_mix = {};
  TensorView grad_residual = {};
  TensorView grad_fn = {};
  TensorView grad_scale = {};
  TensorView grad_base = {};
  TensorView grad_norm_weight = {};
  TensorView workspace = {};
  double norm_eps = 1e-06;
};
TESSERA_API void mhc_head_bwd(const MhcHeadBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const MhcHeadBwd& call);

/// the product of two bf16 matrices by the tensor cores, with a bias if given
///
///   a       bf16 [M, K] any1
///   b       bf16 [N, K] any1
///   bias?   f32 [N]
///   -> out  out_dtype [M, N] rows
///   param   out_dtype {bf16, f32} = bf16
///   limit   M <= 2130706431
///   limit   N <= 2130706431
///   limit   K <= 2130706431
struct GemmBf16 {
  TensorView a = {};
  TensorView b = {};
  TensorView bias = {};
  TensorView out = {};
  DType out_dtype = DType::bf16;
};
TESSERA_API void gemm_bf16(const GemmBf16& call, Stream stream);

/// the product of two block-scaled e4m3 matrices by the tensor cores
///
///   a       e4m3 [M, K] rows
///   a_sf    SF(1,128) a_sf_layout
///   b       e4m3 [N, K] rows
///   b_sf    SF(128,128)
///   -> out  out_dtype [M, N] rows
///   param   a_sf_layout {row_major, col_major_tma} = row_major
///   param   out_dtype {bf16, f32} = bf16
///   limit   M <= 2130706431
///   limit   N <= 2130706431
///   limit   K <= 2130706431
struct GemmFp8Block {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_sf = {};
  TensorView out = {};
  SfLayout a_sf_layout = SfLayout::row_major;
  DType out_dtype = DType::bf16;
};
TESSERA_API void gemm_fp8_block(const GemmFp8Block& call, Stream stream);

/// block-scaled e4m3 rows, each times the matrix of its group
///
///   a             e4m3 [M, K] rows
///   a_sf          SF(1,128) a_sf_layout
///   b             e4m3 [G, N, K]
///   b_sf          f32 [G, ceil(N/128), ceil(K/128)]
///   m_indices?    i32 [M]  values -1 .. G - 1  iff not psum  # the group of each row, -1: none
///   psum?         i32 [G]                  # or the end of each group's rows, which begin at a multiple of alignment
///   -> inout out  bf16 [M, N] rows         # rows without a group stay as they are
///   param         a_sf_layout {row_major, col_major_tma} = row_major
///   param         alignment int >= 1 = 128 # a multiple of 128 promises one group in 128 rows of m_indices
///   need          alignment <= 2147483647
///   limit         M <= 2130706431
///   limit         N <= 2130706431
///   limit         K <= 2130706431
struct GemmFp8Grouped {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_sf = {};
  TensorView m_indices = {};
  TensorView psum = {};
  TensorView out = {};
  SfLayout a_sf_layout = SfLayout::row_major;
  int64_t alignment = 128;
};
TESSERA_API void gemm_fp8_grouped(const GemmFp8Grouped& call, Stream stream);

/// a product of block-scaled e4m3 matrices per group, of the rows that count
///
///   a             e4m3 [G, Mmax, K]
///   a_sf          f32 [G, Mmax, ceil(K/128)] any
///   b             e4m3 [G, N, K]
///   b_sf          f32 [G, ceil(N/128), ceil(K/128)]
///   masked_m      i32 [G]                  values 0 .. Mmax
///   -> inout out  bf16 [G, Mmax, N]        # rows of padding stay as they are
///   param         expected_m int = 0       # says nothing that changes a result
///   limit         Mmax <= 2130706431
///   limit         N <= 2130706431
///   limit         K <= 2130706431
struct GemmFp8Masked {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_sf = {};
  TensorView masked_m = {};
  TensorView out = {};
  int64_t expected_m = 0;
};
TESSERA_API void gemm_fp8_masked(const GemmFp8Masked& call, Stream stream);

/// products of groups of columns of two scaled e4m3 matrices, added to out
///
///   a           e4m3 [M, K] any1
///   a_sf        f32 [ceil(K/128), M]
///   b           e4m3 [N, K] any1
///   b_sf        f32 [ceil(K/128), N]
///   k_offsets   i32 [G+1]                  values 0 .. K     # multiples of 128, ascending
///   -> acc out  f32 [G, M, N]
///   need        G >= 0 on k_offsets "argument 'k_offsets' is empty"
///   limit       M <= 2130706431
///   limit       N <= 2130706431
///   limit       K <= 2130706431
///   limit       G * ceil(M / 64) <= 2130706431 on k_offsets
struct GemmFp8KGrouped {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_sf = {};
  TensorView k_offsets = {};
  TensorView out = {};
};
TESSERA_API void gemm_fp8_k_grouped(const GemmFp8KGrouped& call, Stream stream);

/// MXFP4 weights in the order and with the scales that the products read
///
///   w             e2m1 [G, N, K]
///   w_sf          u8 [G, N, ceil(K / 32)] rows    # UE8M0 bytes; 255: NaN
///   -> out        u8 [G, ceil(N / 64), depth_tiles(), tile_bytes()] align 16
///   -> out_shift  u8 [G, ceil(N / 64), ceil(K / 128), 64, 4] align 16
///   -> out_sf     f32 [G, N, ceil(K / 128) if by_block()]    # fold row: [G, N]
///   -> inexact?   i32 [G]                         iff save_inexact
///   param         operand {e4m3, bf16} = e4m3
///   param         fold {none, row, block} = none  # none: block with e4m3, row with bf16
///   param         save_inexact bool = false
///   need          fold != block                   if operand = bf16 on fold
///   |             "parameter 'fold' is row where operand is bf16"
///   limit         N <= 2130706431
///   limit         K <= 2130706431
///   limit         G * ceil(N / 64) <= 2130706431
struct Mxfp4Prepack {
  TensorView w = {};
  TensorView w_sf = {};
  TensorView out = {};
  TensorView out_shift = {};
  TensorView out_sf = {};
  TensorView inexact = {};
  DType operand = DType::e4m3;
  std::optional<Fold> fold = {};
  bool save_inexact = false;
};
TESSERA_API void mxfp4_prepack(const Mxfp4Prepack& call, Stream stream);

/// the weights of mxfp4_prepack as the products see them, without their f32 scales
///
///   b        u8 [G, Nt, Kt, S] align 16
///   b_shift  u8 [G, Nt, Kb, 64, 4] align 16
///   b_sf     f32 [G, N, Fb?]             # its values say nothing; N is its extent
///   -> out   e4m3/bf16 [G, N, num_columns]  # e4m3 where S = 4096, bf16 where S = 2048
///   param    num_columns int >= 0           # K
///   need     S in {2048, 4096}              on b "argument 'b' has the wrong shape"
///   need     Nt = ceil(N / 64)              on b
///   need     Kt = ceil(num_columns / (S / 32))    on b
///   need     Kb = ceil(num_columns / 128)   on b_shift
///   limit    N <= 2130706431
///   limit    num_columns <= 2130706431
///   limit    G * Nt * Kt <= 2130706431
struct Mxfp4Decode {
  TensorView b = {};
  TensorView b_shift = {};
  TensorView b_sf = {};
  TensorView out = {};
  std::optional<int64_t> num_columns = {};  // must be given
};
TESSERA_API void mxfp4_decode(const Mxfp4Decode& call, Stream stream);

/// the product of scaled e4m3 rows and MXFP4 weights by the tensor cores
///
///   a          e4m3/bf16 [M, K] rows
///   a_sf?      SF(1, num_per_channels) a_sf_layout    iff a is e4m3
///   b          u8 [Nt, Kt, S] align 16      # by mxfp4_prepack, as b_shift and b_sf
///   b_shift    u8 [Nt, Kb, 64, 4] align 16
///   b_sf       f32 [N, Fb?]                  # Fb: ceil(K / 128), of weights folded by blocks
///   bias?      f32 [N]
///   -> out     out_dtype [M, N] rows
///   param      num_per_channels {32, 128} = 128
///   param      a_sf_layout = row_major
///   param      out_dtype {bf16, f32} = bf16
///   need       S = 4096                     if a is e4m3 on b
///   need       S = 2048                     if a is bf16 on b
///   need       Nt = ceil(N / 64)            on b
///   need       Kt = ceil(K / 128)           if a is e4m3 on b
///   need       Kt = ceil(K / 64)            if a is bf16 on b
///   need       Kb = ceil(K / 128)           on b_shift
///   limit      M <= 2130706431
///   limit      N <= 2130706431
///   limit      K <= 2130706431
///   limit      ceil(M / 8) * Nt <= 2130706431
struct GemmMxfp4 {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_shift = {};
  TensorView b_sf = {};
  TensorView bias = {};
  TensorView out = {};
  int64_t num_per_channels = 128;
  SfLayout a_sf_layout = SfLayout::row_major;
  DType out_dtype = DType::bf16;
};
TESSERA_API void gemm_mxfp4(const GemmMxfp4& call, Stream stream);

/// scaled e4m3 rows, each times the MXFP4 weights of its group
///
///   a             e4m3/bf16 [M, K] rows
///   a_sf?         SF(1, num_per_channels) a_sf_layout    iff a is e4m3
///   b             u8 [G, Nt, Kt, S] align 16    # by mxfp4_prepack, as b_shift and b_sf
///   b_shift       u8 [G, Nt, Kb, 64, 4] align 16
///   b_sf          f32 [G, N, Fb?]                # Fb: ceil(K / 128), of weights folded by blocks
///   bias?         f32 [G, N]
///   psum?         i32 [G]                       # ascending; group e: rows align(psum[e - 1]) .. psum[e] - 1
///   m_indices?    i32 [M]                       values -1 .. G - 1  # one group in `alignment` rows, or -1 anywhere
///   -> inout out  bf16 [M, N] rows              # rows without a group stay as they are
///   param         num_per_channels {32, 128} = 128
///   param         a_sf_layout = row_major
///   param         alignment int >= 1 = 128
///   need          S = 4096                      if a is e4m3 on b
///   need          S = 2048                      if a is bf16 on b
///   need          Nt = ceil(N / 64)             on b
///   need          Kt = ceil(K / 128)            if a is e4m3 on b
///   need          Kt = ceil(K / 64)             if a is bf16 on b
///   need          Kb = ceil(K / 128)            on b_shift
///   limit         alignment <= 16777216
///   limit         M <= 2113929216
///   limit         N <= 2130706431
///   limit         K <= 2130706431
///   limit         (M + G) * Nt <= 2130706431
struct GemmMxfp4Grouped {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_shift = {};
  TensorView b_sf = {};
  TensorView bias = {};
  TensorView psum = {};
  TensorView m_indices = {};
  TensorView out = {};
  int64_t num_per_channels = 128;
  SfLayout a_sf_layout = SfLayout::row_major;
  int64_t alignment = 128;
};
TESSERA_API void gemm_mxfp4_grouped(const GemmMxfp4Grouped& call, Stream stream);

/// a product of scaled e4m3 rows and MXFP4 weights per group, of the rows that count
///
///   a             e4m3/bf16 [G, Mmax, K]
///   a_sf?         f32/i32 [G, Mmax, C] any      iff a is e4m3
///   b             u8 [G, Nt, Kt, S] align 16    # by mxfp4_prepack, as b_shift and b_sf
///   b_shift       u8 [G, Nt, Kb, 64, 4] align 16
///   b_sf          f32 [G, N, Fb?]                # Fb: ceil(K / 128), of weights folded by blocks
///   bias?         f32 [G, N]
///   masked_m      i32 [G]                       values 0 .. Mmax
///   -> inout out  bf16 [G, Mmax, N]             # rows of padding stay as they are
///   param         num_per_channels {32, 128} = 128
///   param         a_sf_layout = row_major
///   param         expected_m int = 0            # says nothing that changes a result
///   need          S = 4096                      if a is e4m3 on b
///   need          S = 2048                      if a is bf16 on b
///   need          Nt = ceil(N / 64)             on b
///   need          Kt = ceil(K / 128)            if a is e4m3 on b
///   need          Kt = ceil(K / 64)             if a is bf16 on b
///   need          Kb = ceil(K / 128)            on b_shift
///   need          a_sf is i32 iff a_sf_layout = packed_ue8m0    on a_sf_layout
///   need          C = ceil(K / num_per_channels)                if a_sf is f32 on a_sf
///   need          C = ceil(K / (4 * num_per_channels))          if a_sf is i32 on a_sf
///   limit         Mmax <= 2130706431
///   limit         N <= 2130706431
///   limit         K <= 2130706431
///   limit         G * ceil(Mmax / 8) * Nt <= 2130706431
struct GemmMxfp4Masked {
  TensorView a = {};
  TensorView a_sf = {};
  TensorView b = {};
  TensorView b_shift = {};
  TensorView b_sf = {};
  TensorView bias = {};
  TensorView masked_m = {};
  TensorView out = {};
  int64_t num_per_channels = 128;
  SfLayout a_sf_layout = SfLayout::row_major;
  int64_t expected_m = 0;
};
TESSERA_API void gemm_mxfp4_masked(const GemmMxfp4Masked& call, Stream stream);

/// windows and writes of the new tokens of a batch, for the KV compressor
///
///   start          i32 [B]          # length of each request before the call
///   row_start      i32 [B+1]        # rows of its new tokens
///   state_slot?    i32 [B]          # the ring of each request
///   state_pages?   i32 [B, S] rows  # or the rings of its pages
///   page_table?    i32 [B, Q] rows  # of the compressed cache
///   -> plan        i32 [num_windows, 8]
///   -> write_plan  i32 [num_writes, 2]
///   -> counts      i32 [2]          # windows and writes that are needed
///   param  ratio {4, 128}
///   param  num_windows, num_writes int >= 0
///   param  ring int
///   param  max_rollback int = 0
///   param  state_page_size int = 0
///   param  page_size int = 64
///   need   1 <= page_size <= 2147483647
///   need   S >= 1 if state_pages on state_pages "argument 'state_pages' has no columns"
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
///   limit  B <= 8192 on start "so many requests are not supported"
struct CompressPlan {
  TensorView start = {};
  TensorView row_start = {};
  TensorView state_slot = {};
  TensorView state_pages = {};
  TensorView page_table = {};
  TensorView plan = {};
  TensorView write_plan = {};
  TensorView counts = {};
  std::optional<int64_t> ratio = {};  // must be given
  std::optional<int64_t> num_windows = {};  // must be given
  std::optional<int64_t> num_writes = {};  // must be given
  std::optional<int64_t> ring = {};  // must be given
  int64_t max_rollback = 0;
  int64_t state_page_size = 0;
  int64_t page_size = 64;
};
TESSERA_API void compress_plan(const CompressPlan& call, Stream stream);

/// slots and windows of one new token of each request, for the KV compressor
///
///   positions     i32 [B]          # -1: padding
///   state_slot?   i32 [B]          # the ring of each request
///   state_pages?  i32 [B, S] rows  # or the rings of its pages
///   page_table?   i32 [B, Q] rows  # of the compressed cache
///   -> plan       i32 [B, 8]
///   param  ratio {4, 128}
///   param  ring int
///   param  max_rollback int = 0
///   param  state_page_size int = 0
///   param  page_size int = 64
///   need   1 <= page_size <= 2147483647
///   need   S >= 1 if state_pages on state_pages "argument 'state_pages' has no columns"
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
struct CompressPlanDecode {
  TensorView positions = {};
  TensorView state_slot = {};
  TensorView state_pages = {};
  TensorView page_table = {};
  TensorView plan = {};
  std::optional<int64_t> ratio = {};  // must be given
  std::optional<int64_t> ring = {};  // must be given
  int64_t max_rollback = 0;
  int64_t state_page_size = 0;
  int64_t page_size = 64;
};
TESSERA_API void compress_plan_decode(const CompressPlanDecode& call, Stream stream);

/// KV entries of windows of tokens, weighted by their scores
///
///   x       f32/bf16 [N, L] rows      # kv and score of the new tokens
///   ape     f32 [W, D]                # bias of the scores by slot
///   state   f32/bf16 [slots, L] rows  # rows of tokens before
///   plan    i32 [C, 8]                # of compress_plan
///   -> out  out_dtype [C, D]
///   param  ratio {4, 128}
///   param  out_dtype {f32, bf16} = f32
///   need   slots >= 1 on state "argument 'state' has no rows"
struct CompressFwd {
  TensorView x = {};
  TensorView ape = {};
  TensorView state = {};
  TensorView plan = {};
  TensorView out = {};
  std::optional<int64_t> ratio = {};  // must be given
  DType out_dtype = DType::f32;
};
TESSERA_API void compress_fwd(const CompressFwd& call, Stream stream);

/// rows of new tokens to their slots in the state of the KV compressor
///
///   x                f32/bf16 [N, L] rows
///   write_plan       i32 [Y, 2]                # of compress_plan
///   -> inout state   f32/bf16 [slots, L] rows
///   param  ratio {4, 128}
///   need   slots >= 1 on state "argument 'state' has no rows"
///   need   L >= 1 on x "argument 'x' has no columns"
///   need   L % 512 = 0 if ratio = 4 on x "argument 'x' has the wrong shape"
///   need   L % 256 = 0 if ratio = 128 on x "argument 'x' has the wrong shape"
struct CompressStateWrite {
  TensorView x = {};
  TensorView write_plan = {};
  TensorView state = {};
  std::optional<int64_t> ratio = {};  // must be given
};
TESSERA_API void compress_state_write(const CompressStateWrite& call, Stream stream);

/// one new token of each request to the state, and the KV entries of windows that end
///
///   x                f32/bf16 [B, L] rows
///   ape              f32 [W, D]                # bias of the scores by slot
///   plan             i32 [B, 8]                # of compress_plan_decode
///   -> out           out_dtype [B, D]          # 0 where no window ends
///   -> inout state   f32/bf16 [slots, L] rows
///   param  ratio {4, 128}
///   param  out_dtype {f32, bf16} = f32
///   need   slots >= 1 on state "argument 'state' has no rows"
struct CompressDecode {
  TensorView x = {};
  TensorView ape = {};
  TensorView plan = {};
  TensorView out = {};
  TensorView state = {};
  std::optional<int64_t> ratio = {};  // must be given
  DType out_dtype = DType::f32;
};
TESSERA_API void compress_decode(const CompressDecode& call, Stream stream);

/// KV entries of windows of tokens, normalised and rotated, to the cache
///
///   x               f32/bf16 [N, L] rows      # kv and score of the new tokens
///   ape             f32 [W, D]                # bias of the scores by slot
///   state           f32/bf16 [slots, L] rows  # rows of tokens before
///   plan            i32 [C, 8]                # of compress_plan, for the same page_size
///   norm_weight     f32/bf16 [D]
///   cos_sin         f32 [angles, 64]
///   -> inout cache  u8/bf16 [blocks, bytes] rows
///   -> out?         f32 [C, D]  iff save_out  # before quantising
///   workspace?      f32 [C, D]  iff ratio = 128
///   param  ratio {4, 128}
///   param  format {bf16, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
///   param  page_size int = 64
///   param  cache_order {planes, rows} = planes  # as in kv_store
///   param  norm_eps float = 1e-6
///   param  hadamard bool = false
///   param  cos_sin_layout {pairs, halves} = pairs
///   param  save_out bool = false
///   need   slots >= 1 on state "argument 'state' has no rows"
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   blocks >= 1 on cache "argument 'cache' has no rows"
struct CompressStore {
  TensorView x = {};
  TensorView ape = {};
  TensorView state = {};
  TensorView plan = {};
  TensorView norm_weight = {};
  TensorView cos_sin = {};
  TensorView cache = {};
  TensorView out = {};
  TensorView workspace = {};
  std::optional<int64_t> ratio = {};  // must be given
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
  double norm_eps = 1e-06;
  bool hadamard = false;
  CosSinLayout cos_sin_layout = CosSinLayout::pairs;
  bool save_out = false;
};
TESSERA_API void compress_store(const CompressStore& call, Stream stream);
TESSERA_API TensorView workspace_of(const CompressStore& call);

/// one new token of each request to the state, and entries of windows that end to the KV cache
///
///   x               f32/bf16 [B, L] rows
///   ape             f32 [W, D]                # bias of the scores by slot
///   plan            i32 [B, 8]                # of compress_plan_decode, for the same page_size
///   norm_weight     f32/bf16 [D]
///   cos_sin         f32 [angles, 64]
///   -> inout state  f32/bf16 [slots, L] rows
///   -> inout cache  u8/bf16 [blocks, bytes] rows
///   -> out?         f32 [B, D]  iff save_out  # before quantising; 0 where no window ends
///   workspace?      f32 [B, D]  iff ratio = 128
///   param  ratio {4, 128}
///   param  format {bf16, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
///   param  page_size int = 64
///   param  cache_order {planes, rows} = planes  # as in kv_store
///   param  norm_eps float = 1e-6
///   param  hadamard bool = false
///   param  cos_sin_layout {pairs, halves} = pairs
///   param  save_out bool = false
///   need   slots >= 1 on state "argument 'state' has no rows"
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   blocks >= 1 on cache "argument 'cache' has no rows"
struct CompressDecodeStore {
  TensorView x = {};
  TensorView ape = {};
  TensorView plan = {};
  TensorView norm_weight = {};
  TensorView cos_sin = {};
  TensorView state = {};
  TensorView cache = {};
  TensorView out = {};
  TensorView workspace = {};
  std::optional<int64_t> ratio = {};  // must be given
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
  double norm_eps = 1e-06;
  bool hadamard = false;
  CosSinLayout cos_sin_layout = CosSinLayout::pairs;
  bool save_out = false;
};
TESSERA_API void compress_decode_store(const CompressDecodeStore& call, Stream stream);
TESSERA_API TensorView workspace_of(const CompressDecodeStore& call);

/// KV entries of windows of tokens, and the rows that later windows need to the state
///
///   x               f32/bf16 [N, L] rows      # kv and score of the new tokens
///   ape             f32 [W, D]                # bias of the scores by slot
///   plan            i32 [C, 8]                # of compress_plan
///   write_plan      i32 [Y, 2]
///   -> out          out_dtype [C, D]
///   -> inout state  f32/bf16 [slots, L] rows
///   param  ratio {4, 128}
///   param  out_dtype {f32, bf16} = f32
///   need   slots >= 1 on state "argument 'state' has no rows"
struct CompressPrefill {
  TensorView x = {};
  TensorView ape = {};
  TensorView plan = {};
  TensorView write_plan = {};
  TensorView out = {};
  TensorView state = {};
  std::optional<int64_t> ratio = {};  // must be given
  DType out_dtype = DType::f32;
};
TESSERA_API void compress_prefill(const CompressPrefill& call, Stream stream);

/// the columns of the largest scores of each row, exactly
///
///   scores           f32/bf16 [B, L] rows
///   lengths?         i32 [B]          # the ends of the rows; L
///   starts?          i32 [B]          # their first columns; 0
///   page_table?      i32 [R, Q] rows  # pages of the columns; row r of the scores has row r of it
///   table_row?       i32 [B]          # or this one
///   plan?            i32 [B+1, 2]     # of topk_plan
///   -> indices       i32 [B, topk]
///   -> raw_indices?  i32 [B, topk]    iff save_raw
///   -> values?       as scores [B, topk]  iff save_values
///   param  topk int 1..4096
///   param  order {index, value} = index
///   param  page_size int = 64
///   param  relative bool = false
///   param  save_raw, save_values bool = false
///   limit  topk <= 4096 "so many scores of a row are not supported"
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
///   need   page_table if table_row on table_row "argument 'table_row' goes with 'page_table'"
///   limit  B <= 266338303 on scores "so many rows are not supported"
struct TopkSelect {
  TensorView scores = {};
  TensorView lengths = {};
  TensorView starts = {};
  TensorView page_table = {};
  TensorView table_row = {};
  TensorView plan = {};
  TensorView indices = {};
  TensorView raw_indices = {};
  TensorView values = {};
  std::optional<int64_t> topk = {};  // must be given
  Order order = Order::index;
  int64_t page_size = 64;
  bool relative = false;
  bool save_raw = false;
  bool save_values = false;
};
TESSERA_API void topk_select(const TopkSelect& call, Stream stream);

/// the rows of a batch that are too long for one block
///
///   lengths  i32 [B]
///   -> plan  i32 [B+1, 2]  # threshold and count, then number and length of each longer row, then -1
///   param    topk int
///   param    max_length int
///   need     1 <= topk <= 2147483647
///   need     0 <= max_length <= 2147483647
///   limit    B <= 2130706430 on lengths
struct TopkPlan {
  TensorView lengths = {};
  TensorView plan = {};
  std::optional<int64_t> topk = {};  // must be given
  std::optional<int64_t> max_length = {};  // must be given
};
TESSERA_API void topk_plan(const TopkPlan& call, Stream stream);

/// the experts that a table names for each token, and their weights
///
///   token_ids        i64/i32 [T]
///   table            i32 [V, K]
///   logits           f32 [T, E] rows
///   num_tokens?      i32 [1]           # rows from here on are padding
///   -> topk_idx      idx_dtype [T, K+S]
///   -> topk_weights  f32 [T, K+S]
///   param  num_shared_experts int = 0
///   param  routed_scaling_factor float = 1
///   param  scale {shared, routed} = shared
///   param  idx_dtype {i32, i64} = i32
///   let    S = num_shared_experts
///   bucket T at 65                     # rows of logits are read whole
///   need   num_shared_experts >= 0
///   need   K >= 1 on table "argument 'table' has no columns"
///   need   V >= 1 on table "argument 'table' has no rows"
///   need   E >= 1 on logits "argument 'logits' has no columns"
///   need   K + S <= 32 on num_shared_experts
///   |      "parameter 'num_shared_experts' leaves too many slots for a token"
///   need   E + S <= 2130706431 on logits
struct HashGate {
  TensorView token_ids = {};
  TensorView table = {};
  TensorView logits = {};
  TensorView num_tokens = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1;
  Scale scale = Scale::shared;
  DType idx_dtype = DType::i32;
};
TESSERA_API void hash_gate(const HashGate& call, Stream stream);

/// empties the rows of a routing that are padding
///
///   num_tokens               i32 [1]        # rows from here on are padding
///   -> inout topk_idx        i32/i64 [T, K] rows
///   -> inout topk_weights?   f32 [T, K] rows
///   limit  T * K <= 2130706431 "'topk_idx' has too many slots"
struct MaskPaddedTopk {
  TensorView num_tokens = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
};
TESSERA_API void mask_padded_topk(const MaskPaddedTopk& call, Stream stream);

/// the experts of each token by the root of softplus, and their weights
///
///   logits             f32 [T, E]
///   bias?, image_bias? f32 [E]
///   image_token_mask?  bool [T]         iff image_bias  # true: ranked by image_bias
///   mask?              bool [T]         # false: a padding row, of which nothing is looked at
///   fix_routing_mask?  bool [T]         # true: keeps its unmapped_topk_idx
///   to_physical_map?   i32 [E+S, D]     iff logical_count
///   logical_count?     i32 [E+S]        iff to_physical_map
///   -> topk_idx        i64 [T, K+S]
///   -> topk_weights    f32 [T, K+S]
///   -> scores?         f32 [T, E]       iff save_scores
///   -> inout unmapped_topk_idx?  i64 [T, K] rows
///   param  num_topk int 1..32
///   param  use_shared_as_routed bool = false
///   param  num_shared_experts int = 0
///   param  routed_scaling_factor float = 1
///   param  ep_rank int = 0
///   param  save_scores bool = false
///   let    K = num_topk
///   let    S = shared_slots()
///   let    physical = num_physical()
///   need   num_topk <= E
///   limit  E <= 4096 on logits "too many experts"   # 128 keys per lane still fit its registers
///   need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
///   need   num_shared_experts >= 0
///   need   K + S <= 32 on num_topk "'num_topk' and shared experts are too many for a token"
///   need   0 <= ep_rank <= 2147483647
///   need   unmapped_topk_idx if fix_routing_mask
///   |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
struct MoeTopkGateFwd {
  TensorView logits = {};
  TensorView bias = {};
  TensorView image_bias = {};
  TensorView image_token_mask = {};
  TensorView mask = {};
  TensorView fix_routing_mask = {};
  TensorView to_physical_map = {};
  TensorView logical_count = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView scores = {};
  TensorView unmapped_topk_idx = {};
  std::optional<int64_t> num_topk = {};  // must be given
  bool use_shared_as_routed = false;
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0;
  bool save_scores = false;
};
TESSERA_API void moe_topk_gate_fwd(const MoeTopkGateFwd& call, Stream stream);

/// gradients of the logits of moe_topk_gate_fwd
///
///   scores              f32 [T, E]
///   topk_idx            i64 [T, K]           # before the map of experts: unmapped_topk_idx
///   topk_weights        f32 [T, K]
///   grad_topk_weights   f32 [T, K]
///   mask?               bool [T]             iff grad_scores_sum
///   grad_scores_sum?    f32 [Q, E]           iff mask  # of gate_scores_sum
///   -> grad_logits      f32 [T, E]
///   param  routed_scaling_factor float = 1
///   need   E >= 1 on scores "argument 'scores' has no columns"
///   limit  E <= 4096 on scores "too many experts"
///   need   1 <= K <= 32 on topk_idx "'topk_idx' has the wrong number of columns"
///   need   Q >= 1 and T % Q = 0 if grad_scores_sum on grad_scores_sum
///   |      "sequences of 'grad_scores_sum' do not divide the tokens"
struct MoeTopkGateBwd {
  TensorView scores = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView grad_topk_weights = {};
  TensorView mask = {};
  TensorView grad_scores_sum = {};
  TensorView grad_logits = {};
  double routed_scaling_factor = 1;
};
TESSERA_API void moe_topk_gate_bwd(const MoeTopkGateBwd& call, Stream stream);

/// sums of the normalised scores of each sequence
///
///   scores     f32 [T, E]               # of moe_topk_gate_fwd
///   mask       bool [T]                 # false: the token is left out
///   -> out     f32 [Q, E]
///   workspace  f32 [elements()]
///   param  num_seqs int
///   let    Q = num_seqs
///   need   num_seqs >= 1
///   need   T % Q = 0 on num_seqs "parameter 'num_seqs' does not divide the tokens"
///   need   E >= 1 on scores "argument 'scores' has no columns"
///   limit  E <= 4096 on scores "too many experts"
///   limit  Q * E <= 2130706431 on num_seqs "so many sequences are not supported"
struct GateScoresSum {
  TensorView scores = {};
  TensorView mask = {};
  TensorView out = {};
  TensorView workspace = {};
  std::optional<int64_t> num_seqs = {};  // must be given
};
TESSERA_API void gate_scores_sum(const GateScoresSum& call, Stream stream);
TESSERA_API TensorView workspace_of(const GateScoresSum& call);

/// rotates query and key by the angles of their positions, in place
///
///   cos_sin         f32 [angles, R] rows
///   positions?      i32/i64 [T..]           # else the number of the token in its sequence
///   -> inout query  bf16/f32 [T.., h, R] any  # [T, h, R], or [batch, T, h, R]
///   -> inout key?   as query [T.., g, R] any
///   param  interleaved, conjugate bool = false
///   param  position_offset int = 0          # is added to each position
///   param  cos_sin_layout {halves, pairs} = halves
///   bucket T * h at 32768                   # several heads per thread
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   h >= 1 on query "argument 'query' has no heads"
///   need   g >= 1 if key on key "argument 'key' has no heads"
///   limit  R in {64, 128} on cos_sin "so many channels are not supported"
///   need   -2147483648 <= position_offset <= 2147483647
struct ApplyRotary {
  TensorView cos_sin = {};
  TensorView positions = {};
  TensorView query = {};
  TensorView key = {};
  bool interleaved = false;
  bool conjugate = false;
  int64_t position_offset = 0;
  CosSinLayout cos_sin_layout = CosSinLayout::halves;
};
TESSERA_API void apply_rotary(const ApplyRotary& call, Stream stream);

/// root mean square norm of rows, after an optional addition
///
///   x                 bf16/f32 [T.., H] rows
///   weight?           as x [H]
///   residual?         as x [T.., H] rows         # is added to x first
///   -> out            as x [T.., H] align 16
///   -> residual_out?  as x [T.., H] align 16     iff residual
///   -> rstd?          f32 [T..]                  iff save_rstd
///   param  norm_eps float
///   param  out_scale float = 1
///   param  save_rstd bool = false
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   H % 16 = 0 on x "a row has the wrong number of columns"
///   limit  H <= 16384 on x "rows this long are not supported"
///   bucket T at 1024                 # weights in registers, or loaded late
struct NormFwd {
  TensorView x = {};
  TensorView weight = {};
  TensorView residual = {};
  TensorView out = {};
  TensorView residual_out = {};
  TensorView rstd = {};
  std::optional<double> norm_eps = {};  // must be given
  double out_scale = 1;
  bool save_rstd = false;
};
TESSERA_API void norm_fwd(const NormFwd& call, Stream stream);

/// root mean square norm of rows, cast to e4m3 with one scale per group of columns
///
///   x                       bf16/f32 [T, H] rows
///   weight?                 as x [H]
///   residual?               as x [T, H] rows     # is added to x first
///   -> out                  e4m3 [T, H] align 16
///   -> out_sf               SF(1,num_per_channels) sf_layout
///   -> out_bf16?            bf16 [T, H] align 16  iff save_bf16
///   -> inout mega_moe_sf?   i32 [R, H/128] any    # strides (1, R), a word of four exponents
///   -> residual_out?        as x [T, H] align 16  iff residual
///   -> rstd?                f32 [T]               iff save_rstd
///   param  norm_eps float
///   param  out_scale float = 1
///   param  save_rstd bool = false
///   param  num_per_channels {32, 128} = 32
///   param  sf_layout = row_major
///   param  round_sf bool = false
///   param  save_bf16 bool = false
///   param  mega_moe_block_m int = 0
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   H % 16 = 0 on x "a row has the wrong number of columns"
///   limit  H <= 16384 on x "rows this long are not supported"
///   need   round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |      "packed_ue8m0 scales are powers of two"
///   need   round_sf if mega_moe_sf on round_sf "scales of 'mega_moe_sf' are powers of two"
///   need   num_per_channels = 32 if mega_moe_sf
///   need   H % 128 = 0 if mega_moe_sf on x "a row has the wrong number of columns"
///   need   1 <= mega_moe_block_m <= 65536 if mega_moe_sf on mega_moe_block_m
///   limit  T <= 1073741824
///   bucket T at 1024                 # weights in registers, or loaded late
struct NormFwdAndPerTokenCast {
  TensorView x = {};
  TensorView weight = {};
  TensorView residual = {};
  TensorView out = {};
  TensorView out_sf = {};
  TensorView out_bf16 = {};
  TensorView mega_moe_sf = {};
  TensorView residual_out = {};
  TensorView rstd = {};
  std::optional<double> norm_eps = {};  // must be given
  double out_scale = 1;
  bool save_rstd = false;
  int64_t num_per_channels = 32;
  SfLayout sf_layout = SfLayout::row_major;
  bool round_sf = false;
  bool save_bf16 = false;
  int64_t mega_moe_block_m = 0;
};
TESSERA_API void norm_fwd_and_per_token_cast(const NormFwdAndPerTokenCast& call, Stream stream);

/// gradients of root mean square norm: of the rows and of the weight
///
///   grad_out             bf16/f32 [T.., H] rows
///   x                    as grad_out [T.., H] rows # what was normalised: residual_out of norm_fwd
///   weight?              as x [H]
///   rstd                 f32 [T..]
///   grad_residual_out?   as x [T.., H] rows        # is added
///   -> grad_x            as x [T.., H] align 16
///   -> acc grad_weight?  f32/bf16 [H]              iff weight
///   workspace?           f32 [elements()]          iff weight
///   param  out_scale float = 1
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   H % 16 = 0 on x "a row has the wrong number of columns"
///   limit  H <= 16384 on x "rows this long are not supported"
struct NormBwd {
  TensorView grad_out = {};
  TensorView x = {};
  TensorView weight = {};
  TensorView rstd = {};
  TensorView grad_residual_out = {};
  TensorView grad_x = {};
  TensorView grad_weight = {};
  TensorView workspace = {};
  double out_scale = 1;
};
TESSERA_API void norm_bwd(const NormBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const NormBwd& call);

/// converts a tensor to another float format, to nearest or stochastically
///
///   x       f32/bf16/f16/e4m3 [..]
///   -> out  out_dtype [..]
///   param  out_dtype {f32, bf16, f16, e4m3}
///   param  stochastic bool = false
///   param  seed int = 0
///   need   T % 4 = 0 if stochastic on x "the number of elements is no multiple of 4"
///   need   0 <= seed <= 4294967295
///   limit  T <= 4363686770688   # rows are i32
struct Cast {
  TensorView x = {};
  TensorView out = {};
  std::optional<DType> out_dtype = {};  // must be given
  bool stochastic = false;
  int64_t seed = 0;
};
TESSERA_API void cast(const Cast& call, Stream stream);

/// rounds rows to the values of 8-bit or 4-bit floats with one scale per group, in place
///
///   -> inout x  bf16/f32 [T, H] rows
///   param  format {e4m3, e2m1}
///   param  num_per_channels {16, 32, 64, 128}
///   param  round_sf bool = false
///   param  e4m3_sf bool = false         # scales are e4m3 themselves
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   H % 64 = 0 and H % num_per_channels = 0 on x "a row has the wrong number of columns"
///   need   not (round_sf and e4m3_sf) on e4m3_sf "parameter 'e4m3_sf' does not go with 'round_sf'"
///   limit  T * H <= 17045651448 on x "so many elements are not supported"
struct PerTokenCastAndCastBack {
  TensorView x = {};
  std::optional<DType> format = {};  // must be given
  std::optional<int64_t> num_per_channels = {};  // must be given
  bool round_sf = false;
  bool e4m3_sf = false;
};
TESSERA_API void per_token_cast_and_cast_back(const PerTokenCastAndCastBack& call, Stream stream);

/// gated activation of rows, weighted
///
///   x               bf16/f32 [P, 2H]     # gate, then up
///   psum?           i32 [E]              # the ends of the experts' rows; other rows are padding
///   topk_weights?   f32 [P]
///   -> out          out_dtype [P, H] align 16
///   -> inout clamped_count?  i64 [4]     # gates above, ups above, ups below, all values
///   param  out_dtype {bf16, f32}
///   param  routed_scaling_factor float = none
///   param  swiglu_clamp_value float = none
///   param  alignment int = 128           # of the rows of an expert
///   need   H >= 1 on x "argument 'x' has no columns"
///   limit  H % 8 = 0 on x "rows of so many columns are not supported"
///   limit  H <= 16384 on x "rows this long are not supported"
///   need   1 <= alignment <= 2147483647
///   need   swiglu_clamp_value != none if clamped_count on clamped_count
///   |      "'clamped_count' needs 'swiglu_clamp_value'"
///   need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
struct SwigluFwd {
  TensorView x = {};
  TensorView psum = {};
  TensorView topk_weights = {};
  TensorView out = {};
  TensorView clamped_count = {};
  std::optional<DType> out_dtype = {};  // must be given
  std::optional<double> routed_scaling_factor = {};
  std::optional<double> swiglu_clamp_value = {};
  int64_t alignment = 128;
};
TESSERA_API void swiglu_fwd(const SwigluFwd& call, Stream stream);

/// gradients of the gated activation of rows, and of their weights
///
///   x                bf16/f32 [P, 2H]    # gate, then up
///   grad_out         bf16/f32 [P, H]
///   psum?            i32 [E]             # the ends of the experts' rows; other rows are padding
///   topk_weights?    f32 [P]
///   -> grad_x        out_dtype [P, 2H] align 16
///   -> out?          out_dtype [P, H] align 16    iff save_out
///   -> grad_weight?  f32 [P]                      iff topk_weights
///   param  out_dtype {bf16, f32}
///   param  save_out bool = false
///   param  routed_scaling_factor float = none
///   param  swiglu_clamp_value float = none
///   param  alignment int = 128           # of the rows of an expert
///   need   H >= 1 on x "argument 'x' has no columns"
///   limit  H % 8 = 0 on x "rows of so many columns are not supported"
///   limit  H <= 16384 on x "rows this long are not supported"
///   need   1 <= alignment <= 2147483647
///   need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
struct SwigluBwd {
  TensorView x = {};
  TensorView grad_out = {};
  TensorView psum = {};
  TensorView topk_weights = {};
  TensorView grad_x = {};
  TensorView out = {};
  TensorView grad_weight = {};
  std::optional<DType> out_dtype = {};  // must be given
  bool save_out = false;
  std::optional<double> routed_scaling_factor = {};
  std::optional<double> swiglu_clamp_value = {};
  int64_t alignment = 128;
};
TESSERA_API void swiglu_bwd(const SwigluBwd& call, Stream stream);

/// the slots of logical entries by a page table
///
///   indices     i32 [R, k] rows          # negative: none
///   page_table  i32 [R, Q] rows          # negative: no page
///   -> out      i32 [R, k]
///   param  page_size int
///   need   1 <= page_size <= 1073741824
///   need   Q >= 1 on page_table "argument 'page_table' has no columns"
///   limit  R * k <= 2130706431 "so many indices are not supported"
struct GatherPages {
  TensorView indices = {};
  TensorView page_table = {};
  TensorView out = {};
  std::optional<int64_t> page_size = {};  // must be given
};
TESSERA_API void gather_pages(const GatherPages& call, Stream stream);

/// lengths of compressed caches and the pages that they fill
///
///   lengths        i32 [B]               values 0 .. 2147483647
///   -> compressed  i32 [B]
///   -> blocks      i32 [B]
///   param  ratio int
///   param  page_size int
///   need   1 <= ratio <= 2147483647
///   need   1 <= page_size <= 2147483647
///   limit  B <= 2130706431
struct PagedLengths {
  TensorView lengths = {};
  TensorView compressed = {};
  TensorView blocks = {};
  std::optional<int64_t> ratio = {};  // must be given
  std::optional<int64_t> page_size = {};  // must be given
};
TESSERA_API void paged_lengths(const PagedLengths& call, Stream stream);

/// the slots of new tokens in the window pool and the pools of compressed entries
///
///   positions        i32 [B]             # -1: padding
///   window_pages     i32 [B, Q0] rows    # negative: no page
///   c4_pages?        i32 [B, Q1] rows
///   c128_pages?      i32 [B, Q2] rows
///   -> window_slot   i32 [B]
///   -> c4_slot?      i32 [B]             iff c4_pages
///   -> c128_slot?    i32 [B]             iff c128_pages
///   param  window_page_size int
///   param  c4_page_size int = 64
///   param  c128_page_size int = 64
///   limit  B <= 2130706431
struct SlotPlan {
  TensorView positions = {};
  TensorView window_pages = {};
  TensorView c4_pages = {};
  TensorView c128_pages = {};
  TensorView window_slot = {};
  TensorView c4_slot = {};
  TensorView c128_slot = {};
  std::optional<int64_t> window_page_size = {};  // must be given
  int64_t c4_page_size = 64;
  int64_t c128_page_size = 64;
};
TESSERA_API void slot_plan(const SlotPlan& call, Stream stream);

/// requests, positions, entries and slots of the rows of a step
///
///   row_start       i32 [B+1]               # rows of the new tokens of each request, ascending
///   start?          i32 [B]                 # its tokens before the call; none: 0
///   page_table?     i32 [B, Q] rows         # of its own tokens; negative: no page
///   -> row_request  i32 [num_rows]          # -1: padding
///   -> positions    i32 [num_rows]          # -1: padding
///   -> entries      i32 [2, num_rows]       # of the caches of both ratios, as lengths of the indexer and topk_select
///   -> slots?       i32 [num_rows]          iff page_table  # -1: none
///   param  num_rows int >= 0
///   param  ratio int = 4
///   param  second_ratio int = 128
///   param  page_size int = 64
///   need   1 <= ratio <= 2147483647
///   need   1 <= second_ratio <= 2147483647
///   need   1 <= page_size <= 1073741824
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
///   limit  B <= 2130706430
///   limit  num_rows <= 1065353215
struct ServingPlan {
  TensorView row_start = {};
  TensorView start = {};
  TensorView page_table = {};
  TensorView row_request = {};
  TensorView positions = {};
  TensorView entries = {};
  TensorView slots = {};
  std::optional<int64_t> num_rows = {};  // must be given
  int64_t ratio = 4;
  int64_t second_ratio = 128;
  int64_t page_size = 64;
};
TESSERA_API void serving_plan(const ServingPlan& call, Stream stream);

/// places of wanted tokens in a cache on the device, whose missing rows come from the host
///
///   tokens               i32 [B, n, k]           # -1: none
///   seq_len              i32 [B]
///   req                  i32 [B]                 # row of the state tables, each once
///   num_reqs?            i32 [1]                 # requests from here on do not count
///   hot_slots            i32 [Q, C+1]            # cache row of each slot; the last one is the newest token's
///   host_loc             i64 [Q, L] rows         # host row of each token; -1: none
///   host                 u8 [S, bytes] rows      # pinned and mapped
///   -> locations         i32 [B, n, k]           # cache row; -1: none
///   -> inout hot_tokens  i32 [Q, C+1]            # token in each slot; -1: none
///   -> inout lru         i16 [Q, C]              # slots, the one used longest ago first
///   -> inout cache       u8 [rows, bytes] rows
///   -> miss_list?        i64 [B, n*k, 2]         iff save_misses  # host row, cache row; then -1
///   -> miss_count?       i32 [B]                 iff save_misses
///   workspace?           i64 [elements()]        iff not save_misses
///   param  save_misses bool = false
///   need   1 <= C on hot_slots "there must be a slot"
///   limit  C <= 32767 on hot_slots "so many slots are not supported"
///   limit  n * k <= 4096 on tokens "so many tokens are not supported"
///   limit  B * n * k <= 2130706431 on tokens "so many tokens are not supported"
///   need   bytes % 16 = 0 on host "a row has the wrong number of bytes"
///   limit  S <= 2130706431 on host "so many rows are not supported"
///   limit  rows <= 2130706431 on cache "so many rows are not supported"
///   need   Q >= 1 on hot_slots "argument 'hot_slots' has no rows"
///   need   L >= 1 on host_loc "argument 'host_loc' has no columns"
struct HisparseSwapIn {
  TensorView tokens = {};
  TensorView seq_len = {};
  TensorView req = {};
  TensorView num_reqs = {};
  TensorView hot_slots = {};
  TensorView host_loc = {};
  TensorView host = {};
  TensorView locations = {};
  TensorView hot_tokens = {};
  TensorView lru = {};
  TensorView cache = {};
  TensorView miss_list = {};
  TensorView miss_count = {};
  TensorView workspace = {};
  bool save_misses = false;
};
TESSERA_API void hisparse_swap_in(const HisparseSwapIn& call, Stream stream);
TESSERA_API TensorView workspace_of(const HisparseSwapIn& call);

/// copies the rows that hisparse_swap_in missed from the host, for a further layer
///
///   miss_list       i64 [B, N, 2]        # host row, device row; negative: none
///   miss_count      i32 [B]              # entries of the list that count
///   host            u8 [S, bytes] rows   # pinned and mapped
///   -> inout cache  u8 [slots, bytes] rows
///   need   bytes % 16 = 0 on host "a row has the wrong number of bytes"
///   limit  B * N <= 2130706431 on miss_list "so many entries are not supported"
///   limit  S <= 2130706431 on host "so many rows are not supported"
///   limit  slots <= 2130706431 on cache "so many rows are not supported"
struct HisparseReplay {
  TensorView miss_list = {};
  TensorView miss_count = {};
  TensorView host = {};
  TensorView cache = {};
};
TESSERA_API void hisparse_replay(const HisparseReplay& call, Stream stream);

/// copies the row of each request's newest token from the device cache to the host
///
///   seq_len        i32 [B]               # 0: nothing is copied
///   req            i32 [B]               # row of the state tables, each once
///   num_reqs?      i32 [1]               # requests from here on do not count
///   hot_slots      i32 [Q, C+1]          # cache row of each slot; the last one is the newest token's
///   host_loc       i64 [Q, L] rows       # host row of each token; -1: none
///   cache          u8 [rows, bytes] rows
///   -> inout host  u8 [S, bytes] rows    # pinned and mapped
///   need   C >= 0 on hot_slots "there must be a slot"
///   need   Q >= 1 on hot_slots "argument 'hot_slots' has no rows"
///   need   L >= 1 on host_loc "argument 'host_loc' has no columns"
///   need   bytes % 16 = 0 on cache "a row has the wrong number of bytes"
///   limit  B <= 2130706431
///   limit  rows <= 2130706431 on cache "so many rows are not supported"
///   limit  S <= 2130706431 on host "so many rows are not supported"
struct HisparseBackup {
  TensorView seq_len = {};
  TensorView req = {};
  TensorView num_reqs = {};
  TensorView hot_slots = {};
  TensorView host_loc = {};
  TensorView cache = {};
  TensorView host = {};
};
TESSERA_API void hisparse_backup(const HisparseBackup& call, Stream stream);

/// rows of experts for the pairs of a routing, with true counts and ends
///
///   topk_idx         i32/i64 [T, K]      # an expert, or -1
///   topk_weights?    f32 [T, K]
///   num_tokens?      i32 [1]             # tokens from here on have no expert
///   -> pos_to_pair   i32 [P]             # t * K + k of each row, -1 in padding; P is num_rows, or moe_rows(T, K, E, alignment)
///   -> pair_to_pos   i32 [T, K]          # the row of each pair, -1 without one
///   -> psum          i32 [E]             # the end of each expert's rows, which begin at a multiple of alignment
///   -> counts        i32 [E]             # rows of each expert without padding
///   -> row_weights?  f32 [P]             iff topk_weights  # 0 in padding
///   -> m_indices?    i32 [P]             iff save_m_indices  # the expert of each row, -1 in padding
///   param  num_experts int 1..1024
///   param  alignment int >= 1
///   param  num_rows int >= 0 = 0         # 0: as many as any ids need
///   param  save_m_indices bool = false
///   let    E = num_experts
///   let    P = moe_rows()
///   need   num_rows <= 2130706431
///   need   alignment <= 2130706431 / E
///   limit  T * K <= 16777216 on topk_idx "'topk_idx' has too many pairs"
///   limit  T * K + (alignment - 1) * E <= 2130706431 on topk_idx "'topk_idx' has too many pairs"
///   bucket T * K at 2049, 65537               # one block, one cluster, three kernels
struct MoePlan {
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView num_tokens = {};
  TensorView pos_to_pair = {};
  TensorView pair_to_pos = {};
  TensorView psum = {};
  TensorView counts = {};
  TensorView row_weights = {};
  TensorView m_indices = {};
  std::optional<int64_t> num_experts = {};  // must be given
  std::optional<int64_t> alignment = {};  // must be given
  int64_t num_rows = 0;
  bool save_m_indices = false;
};
TESSERA_API void moe_plan(const MoePlan& call, Stream stream);

/// rows of tokens to e4m3 at the rows of their experts, one scale per group
///
///   x            bf16 [T, H] rows
///   pos_to_pair  i32 [P]                         values -1 .. T * num_topk - 1  # of moe_plan; -1: padding
///   -> out       e4m3 [P, H] align 16
///   -> out_sf    SF(1,num_per_channels) sf_layout
///   param  num_topk int >= 1                     # K of moe_plan
///   param  num_per_channels {32, 128} = 128
///   param  round_sf bool = false
///   param  sf_layout = row_major
///   param  fill_padding bool = true              # zeros in padding, else it is not written
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |      "packed_ue8m0 scales are powers of two"
///   limit  H <= 2147483647
///   limit  num_topk <= 2147483647
///   limit  T * num_topk <= 2130706431 on x "so many pairs are not supported"
struct MoeGatherCast {
  TensorView x = {};
  TensorView pos_to_pair = {};
  TensorView out = {};
  TensorView out_sf = {};
  std::optional<int64_t> num_topk = {};  // must be given
  int64_t num_per_channels = 128;
  bool round_sf = false;
  SfLayout sf_layout = SfLayout::row_major;
  bool fill_padding = true;
};
TESSERA_API void moe_gather_cast(const MoeGatherCast& call, Stream stream);

/// gated activation of the rows of experts to e4m3 with one scale per group
///
///   x              bf16 [P, 2H]          # gate, then up
///   topk_weights?  f32 [P]               # of each row: row_weights of moe_plan
///   psum           i32 [E]               # the ends of the experts' rows; other rows are padding
///   -> out         e4m3 [P, H] align 16  # zeros in padding
///   -> out_sf      SF(1,num_per_channels) sf_layout
///   param  num_per_channels {32, 128} = 32
///   param  swiglu_clamp_value float = 10 # a value of bf16; inf: none
///   param  alignment int = 128           # of the rows of an expert
///   param  round_sf bool = true
///   param  sf_layout = packed_ue8m0
///   need   H >= 1 on x "argument 'x' has no columns"
///   limit  H % 32 = 0 on x "rows of so many columns are not supported"
///   limit  2*H <= 2147483647
///   need   1 <= alignment <= 2147483647
///   need   E >= 1 on psum "argument 'psum' has no experts"
///   need   swiglu_clamp_value > 0
///   need   round_sf if sf_layout = packed_ue8m0 on sf_layout
///   |      "packed_ue8m0 scales are powers of two"
///   bucket P * H at 1048577, 2097153     # cut_work
struct SwigluPsumCast {
  TensorView x = {};
  TensorView topk_weights = {};
  TensorView psum = {};
  TensorView out = {};
  TensorView out_sf = {};
  int64_t num_per_channels = 32;
  double swiglu_clamp_value = 10;
  int64_t alignment = 128;
  bool round_sf = true;
  SfLayout sf_layout = SfLayout::packed_ue8m0;
};
TESSERA_API void swiglu_psum_cast(const SwigluPsumCast& call, Stream stream);

/// the rows of each token's experts, weighted and summed, on top of a base if given
///
///   x              bf16 [R, H] rows
///   pos            i32 [T, K]        values -1 .. R - 1  # pair_to_pos of moe_plan; -1: no row
///   topk_weights?  f32 [T, K]
///   base?          bf16 [T, H] rows                      # sums begin here, else at 0
///   num_tokens?    i32 [1]                               # tokens from here on are 0
///   -> out         bf16 [T, H] align 16
///   limit  H <= 2147483647
///   limit  T * H <= 17045651448 on pos "so many elements are not supported"
///   bucket T at 1024                                     # pick_walk
struct CombineReduce {
  TensorView x = {};
  TensorView pos = {};
  TensorView topk_weights = {};
  TensorView base = {};
  TensorView num_tokens = {};
  TensorView out = {};
};
TESSERA_API void combine_reduce(const CombineReduce& call, Stream stream);

/// a layer of experts: two products of e4m3 or MXFP4 weights, a gated activation between
///
///   x             bf16 [T, H] rows
///   topk_idx      i32/i64 [T, K]                              # an expert, or -1
///   topk_weights  f32 [T, K]
///   w13           e4m3/u8 [E, N1, D1, S1?]                    # [E, 2I, H], gate, then up; u8: by mxfp4_prepack
///   w13_sf        f32 [E, R1, F1?]                            # [E, 2I/128, H/128]; or by mxfp4_prepack
///   w2            e4m3/u8 [E, N2, D2, S2?]                    # [E, H, I]; u8: by mxfp4_prepack
///   w2_sf         f32 [E, R2, F2?]                            # [E, H/128, I/128]; or by mxfp4_prepack
///   w13_shift?    u8 [E, ceil(2I/64), ceil(H/128), 64, 4]    iff w13 is u8
///   w2_shift?     u8 [E, ceil(H/64), ceil(I/128), 64, 4]     iff w13 is u8
///   base?         bf16 [T, H] rows                            # such as a shared expert's result: is added
///   num_tokens?   i32 [1]                                     # tokens from here on are 0
///   -> out        bf16 [T, H] align 16
///   workspace     f32 [elements()]
///   param  activation {e4m3, bf16} = e4m3                     # the dtype of rows in the products
///   param  num_per_channels {32, 128} = 128                   # columns of a scale of e4m3 rows
///   param  round_sf bool = false
///   param  swiglu_clamp_value float = none                    # a value of bf16
///   param  weights_at {l1, combine} = l1                      # of the activation, or of the sums
///   let    I = inner()
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   H % 128 = 0 and I % 128 = 0 if w13 is e4m3 on w2 "the sizes of 'w2' are no multiples of 128"
///   need   H % 32 = 0 and I % 32 = 0 if w13 is u8 on w2 "the sizes of 'w2' are no multiples of 32"
///   need   1 <= E <= 1024 and I >= 1 on w13 "'w13' has no rows, or the wrong number of experts"
///   need   activation = e4m3 and num_per_channels = 128 if w13 is e4m3 on activation
///   |      "e4m3 weights take rows of e4m3 with scales of 128 columns"
///   need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
///   limit  T * K <= 16777216 on topk_idx "'topk_idx' has too many pairs"
///   bucket T * K at 2049, 65537                               # moe_plan
///   bucket T * K / E at 65                                    # gemm_fp8_grouped
///   bucket ceil(T * K / E) at 6, 12, 22, 44, 86               # gemm_mxfp4_grouped
///   bucket T * K * I at 1048577, 2097153                      # swiglu_psum_cast
///   bucket T at 1024                                          # combine_reduce
struct MoeForward {
  TensorView x = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView w13 = {};
  TensorView w13_sf = {};
  TensorView w2 = {};
  TensorView w2_sf = {};
  TensorView w13_shift = {};
  TensorView w2_shift = {};
  TensorView base = {};
  TensorView num_tokens = {};
  TensorView out = {};
  TensorView workspace = {};
  DType activation = DType::e4m3;
  int64_t num_per_channels = 128;
  bool round_sf = false;
  std::optional<double> swiglu_clamp_value = {};
  WeightsAt weights_at = WeightsAt::l1;
};
TESSERA_API void moe_forward(const MoeForward& call, Stream stream);
TESSERA_API TensorView workspace_of(const MoeForward& call);

/// the logits of a router: a product whose bits do not depend on the number of tokens
///
///   x           bf16 [T, H] rows
///   w           bf16 [E, H]
///   -> logits   f32 [T, E]
///   workspace   f32 [elements()]
///   need   H >= 1 on x "argument 'x' has no columns"
///   limit  T <= 2130706431
///   limit  E <= 65536 on w "too many experts"
///   limit  H <= 65536 on x "rows this long are not supported"
///   bucket T at 65, 1025              # tiles of more rows; chunks are summed one after the other
struct RouterLogits {
  TensorView x = {};
  TensorView w = {};
  TensorView logits = {};
  TensorView workspace = {};
};
TESSERA_API void router_logits(const RouterLogits& call, Stream stream);
TESSERA_API TensorView workspace_of(const RouterLogits& call);

/// the experts of each token and their weights, from the tokens
///
///   x                  bf16 [T, H] rows
///   w                  bf16 [E, H]
///   bias?, image_bias? f32 [E]
///   image_token_mask?  bool [T]         iff image_bias  # true: ranked by image_bias
///   mask?              bool [T]         # false: a padding row, of which nothing is looked at
///   fix_routing_mask?  bool [T]         # true: keeps its unmapped_topk_idx
///   to_physical_map?   i32 [E+S, D]     iff logical_count
///   logical_count?     i32 [E+S]        iff to_physical_map
///   token_ids?         i64/i32 [T]      iff routing = hash
///   table?             i32 [V, K]       iff routing = hash
///   num_tokens?        i32 [1]          # rows from here on are padding
///   -> topk_idx        i32/i64 [T, K+S] # i64; of hash idx_dtype
///   -> topk_weights    f32 [T, K+S]
///   -> scores?         f32 [T, E]       iff save_scores  # +0 in rows of padding
///   -> logits?         f32 [T, E]       iff save_logits  # +0 in rows of padding
///   -> inout unmapped_topk_idx?  i64 [T, K] rows
///   workspace          f32 [elements()]
///   param  routing {topk, hash} = topk  # by scores, or by a table
///   param  num_topk int 1..32 = none    iff routing = topk
///   param  use_shared_as_routed bool = false
///   param  num_shared_experts int = 0
///   param  routed_scaling_factor float = 1
///   param  ep_rank int = 0
///   param  save_scores bool = false
///   param  scale {shared, routed} = shared  # of hash
///   param  idx_dtype {i32, i64} = i32       # of hash
///   param  save_logits bool = false
///   let    K = num_routed()
///   let    S = num_shared()
///   let    physical = num_physical()
///   need   H >= 1 on x "argument 'x' has no columns"
///   need   E >= 1 on w "argument 'w' has no rows"
///   need   routing = topk if use_shared_as_routed on use_shared_as_routed
///   |      "shared experts always have slots with routing hash"
///   need   num_topk <= E if routing = topk
///   need   K >= 1 on table "argument 'table' has no columns"
///   need   V >= 1 if table on table "argument 'table' has no rows"
///   need   D >= 1 if to_physical_map on to_physical_map "'to_physical_map' has no columns"
///   need   num_shared_experts >= 0
///   need   K + S <= 32 on num_shared_experts
///   |      "parameter 'num_shared_experts' leaves too many slots for a token"
///   need   0 <= ep_rank <= 2147483647
///   need   unmapped_topk_idx if fix_routing_mask
///   |      "'fix_routing_mask' needs 'unmapped_topk_idx'"
///   limit  T <= 2130706431
///   limit  E <= 512 on w "too many experts"         # the logits of a token lie in one block
///   limit  H <= 65536 on x "rows this long are not supported"
///   bucket T at 65, 2112                            # tiles of more rows; one launch
struct MoeGate {
  TensorView x = {};
  TensorView w = {};
  TensorView bias = {};
  TensorView image_bias = {};
  TensorView image_token_mask = {};
  TensorView mask = {};
  TensorView fix_routing_mask = {};
  TensorView to_physical_map = {};
  TensorView logical_count = {};
  TensorView token_ids = {};
  TensorView table = {};
  TensorView num_tokens = {};
  TensorView topk_idx = {};
  TensorView topk_weights = {};
  TensorView scores = {};
  TensorView logits = {};
  TensorView unmapped_topk_idx = {};
  TensorView workspace = {};
  Routing routing = Routing::topk;
  std::optional<int64_t> num_topk = {};
  bool use_shared_as_routed = false;
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1;
  int64_t ep_rank = 0;
  bool save_scores = false;
  Scale scale = Scale::shared;
  DType idx_dtype = DType::i32;
  bool save_logits = false;
};
TESSERA_API void moe_gate(const MoeGate& call, Stream stream);
TESSERA_API TensorView workspace_of(const MoeGate& call);

/// rows to the slots of a KV cache, in the cache's format
///
///   x               bf16/f32 [T, d] rows
///   loc             i32/i64 [T]                   # slots: block * page_size + place in the block; negative: not stored
///   -> inout cache  u8/bf16 [blocks, bytes] rows  # bf16: a slot per row
///   param  format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
///   param  page_size int = 64
///   param  cache_order {planes, rows} = planes    # of v41_fp8, v41_fp4, index_fp4: scales behind the data of a block, or of a token
///   need   blocks >= 1 on cache "argument 'cache' has no rows"
struct KvStore {
  TensorView x = {};
  TensorView loc = {};
  TensorView cache = {};
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
};
TESSERA_API void kv_store(const KvStore& call, Stream stream);

/// slots of a KV cache as rows
///
///   cache   u8/bf16 [blocks, bytes] rows           # of kv_store
///   loc     i32/i64 [T]                            # slots; negative: a row of zeros
///   -> out  out_dtype [T, channels()] align 16
///   param   format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
///   param   page_size int = 64
///   param   cache_order {planes, rows} = planes
///   param   out_dtype {bf16, f32} = bf16
///   need    blocks >= 1 on cache "argument 'cache' has no rows"
struct KvLoad {
  TensorView cache = {};
  TensorView loc = {};
  TensorView out = {};
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
  DType out_dtype = DType::bf16;
};
TESSERA_API void kv_load(const KvLoad& call, Stream stream);

/// rows, normalised and rotated, to the slots of a KV cache
///
///   x               bf16/f32 [T, d] rows
///   norm_weight     f32/bf16 [d]                  # of 576 channels the last 64 are rotated only
///   cos_sin         f32 [angles, 64]              # of the last 64 channels, in pairs (2j, 2j + 1)
///   positions       i32/i64 [T]                   # -1: padding, not stored
///   loc             i32/i64 [T]                   # slots; negative: not stored
///   -> inout cache  u8/bf16 [blocks, bytes] rows
///   param  format {bf16, v32_fp8, v4_fp8, v41_fp8, v41_fp4, index_fp8, index_fp4}
///   param  page_size int = 64
///   param  cache_order {planes, rows} = planes
///   param  norm_eps float = 1e-6
///   param  hadamard bool = false                  # of 128 channels, after the rotation
///   param  round_before bool = true               # to bf16 before values are quantised
///   param  cos_sin_layout {pairs, halves} = pairs
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   blocks >= 1 on cache "argument 'cache' has no rows"
struct KvNormRopeStore {
  TensorView x = {};
  TensorView norm_weight = {};
  TensorView cos_sin = {};
  TensorView positions = {};
  TensorView loc = {};
  TensorView cache = {};
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
  double norm_eps = 1e-06;
  bool hadamard = false;
  bool round_before = true;
  CosSinLayout cos_sin_layout = CosSinLayout::pairs;
};
TESSERA_API void kv_norm_rope_store(const KvNormRopeStore& call, Stream stream);

/// heads of queries, normalised without a weight, their last 64 channels rotated
///
///   q           bf16 [T, h, d] rows
///   cos_sin     f32 [angles, 64]       # of pairs (2j, 2j + 1)
///   positions   i32/i64 [T]            # -1: padding, a row of zeros
///   -> out      bf16 [T, h, d] rows
///   param  norm_eps float = 1e-6
///   param  cos_sin_layout {pairs, halves} = pairs
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   h >= 1 on q "argument 'q' has no heads"
///   need   d >= 64 on q "a head has too few channels"
///   need   d % 16 = 0 on q "a head has the wrong number of channels"
///   limit  d <= 16384 on q "heads this long are not supported"
///   limit  T * h <= 2130706431 on q "so many heads of tokens are not supported"
struct QNormRope {
  TensorView q = {};
  TensorView cos_sin = {};
  TensorView positions = {};
  TensorView out = {};
  double norm_eps = 1e-06;
  CosSinLayout cos_sin_layout = CosSinLayout::pairs;
};
TESSERA_API void q_norm_rope(const QNormRope& call, Stream stream);

/// index queries, rotated and quantised, with their scales in the weights of heads
///
///   q           bf16 [T, h, 128]
///   weight      bf16/f32 [T, h] rows
///   cos_sin     f32 [angles, 64]       # of pairs (2j, 2j + 1)
///   positions   i32/i64 [T]            # -1: padding, rows of zeros
///   -> out      e4m3 [T, h, 128]
///   -> weights  f32 [T, h]             # (weight * weight_scale) * scale of the head
///   param  weight_scale float
///   param  hadamard bool = true        # after the rotation
///   param  rope_first bool = false     # the first 64 channels rotate, else the last
///   param  cos_sin_layout {pairs, halves} = pairs
///   need   angles >= 1 on cos_sin "argument 'cos_sin' has no rows"
///   need   h >= 1 on q "argument 'q' has no heads"
///   limit  T * h <= 2130706431 on q "so many heads of tokens are not supported"
struct IndexQStore {
  TensorView q = {};
  TensorView weight = {};
  TensorView cos_sin = {};
  TensorView positions = {};
  TensorView out = {};
  TensorView weights = {};
  std::optional<double> weight_scale = {};  // must be given
  bool hadamard = true;
  bool rope_first = false;
  CosSinLayout cos_sin_layout = CosSinLayout::pairs;
};
TESSERA_API void index_q_store(const IndexQStore& call, Stream stream);

/// scores of keys for queries of several heads, of which the positive products count
///
///   q          e4m3 [S, h, D]
///   k          e4m3 [T, D] rows
///   k_sf       f32 [T]
///   weights    f32 [S, h] rows
///   k_start    i32 [S]                         values 0 .. T
///   k_end      i32 [S]                         values 0 .. T  # row i sees the keys k_start[i] .. k_end[i] - 1
///   -> logits  logits_dtype [S, columns] rows  # T columns, or max_len where compressed; not clean: one without a key stays as it was
///   param  logits_dtype {f32, bf16} = f32
///   param  compressed bool = false             # the first column of a row is its first key
///   param  max_len int >= 0 = 0                # columns where compressed
///   param  clean bool = true                   # columns without a key are -inf
///   let    columns = columns()
///   limit  S * h <= 2130706431 on q "so many queries are not supported"
///   limit  T <= 2130706431 on k "so many keys are not supported"
///   limit  columns <= 2130706431 on max_len "so many columns are not supported"
struct MqaLogits {
  TensorView q = {};
  TensorView k = {};
  TensorView k_sf = {};
  TensorView weights = {};
  TensorView k_start = {};
  TensorView k_end = {};
  TensorView logits = {};
  DType logits_dtype = DType::f32;
  bool compressed = false;
  int64_t max_len = 0;
  bool clean = true;
};
TESSERA_API void mqa_logits(const MqaLogits& call, Stream stream);

/// scores of the keys of a paged cache for queries of several heads
///
///   q           e4m3 [B, n, h, D]                # the last n tokens of each request
///   cache       u8 [P, bytes] rows               # pages of page_size * D codes, then page_size scales of f32: index_fp8
///   weights     f32 [B*n, h] rows
///   lengths     i32 [B, n]                       values 0 .. max_len
///   page_table  i32 [B, Q] rows                  # pages of a request; behind its length any value
///   -> logits   logits_dtype [B*n, max_len] rows
///   param  max_len int >= 0
///   param  logits_dtype {f32, bf16} = f32
///   param  clean bool = true                     # columns without a key are -inf; keys without a page always
///   param  page_size int = 64
///   need   1 <= page_size <= 1048576
///   limit  max_len <= 1073741824 "so many columns are not supported"
///   limit  B * n * h <= 2130706431 on q "so many queries are not supported"
struct PagedMqaLogits {
  TensorView q = {};
  TensorView cache = {};
  TensorView weights = {};
  TensorView lengths = {};
  TensorView page_table = {};
  TensorView logits = {};
  std::optional<int64_t> max_len = {};  // must be given
  DType logits_dtype = DType::f32;
  bool clean = true;
  int64_t page_size = 64;
};
TESSERA_API void paged_mqa_logits(const PagedMqaLogits& call, Stream stream);

/// the keys with the best scores of each query of an indexer, exactly
///
///   q            e4m3 [S, h, D]
///   k            e4m3 [T, D] rows
///   k_sf         f32 [T]
///   weights      f32 [S, h] rows
///   k_start      i32 [S]          values 0 .. T
///   k_end        i32 [S]          values 0 .. T  # row i chooses from the keys k_start[i] .. k_end[i] - 1
///   page_table?  i32 [R, Q] rows  # S in R groups of as many; a group has a row of the table
///   -> indices   i32 [S, topk]
///   -> values?   f32 [S, topk]    iff save_values
///   workspace    f32 [elements()]
///   param  topk int 1..4096
///   param  order {index, value} = index
///   param  page_size int = 64
///   param  relative bool = false
///   param  save_values bool = false
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
///   limit  topk <= 4096 "so many keys of a row are not supported"
///   limit  S * h <= 2130706431 on q "so many queries are not supported"
///   limit  T <= 2130706431 on k "so many keys are not supported"
struct MqaTopk {
  TensorView q = {};
  TensorView k = {};
  TensorView k_sf = {};
  TensorView weights = {};
  TensorView k_start = {};
  TensorView k_end = {};
  TensorView page_table = {};
  TensorView indices = {};
  TensorView values = {};
  TensorView workspace = {};
  std::optional<int64_t> topk = {};  // must be given
  Order order = Order::index;
  int64_t page_size = 64;
  bool relative = false;
  bool save_values = false;
};
TESSERA_API void mqa_topk(const MqaTopk& call, Stream stream);
TESSERA_API TensorView workspace_of(const MqaTopk& call);

/// the keys of a paged cache with the best scores of each query, exactly
///
///   q                e4m3 [B, n, h, D]            # the last n tokens of each request
///   cache            u8 [P, bytes] rows           # pages of page_size * D codes, then page_size scales of f32: index_fp8
///   weights          f32 [B*n, h] rows
///   lengths          i32 [B, n]                   values 0 .. max_len
///   page_table       i32 [B, Q] rows
///   out_page_table?  i32 [R, V] rows              # of the cache that is read by the indices
///   -> indices       i32 [B*n, topk]
///   -> values?       f32 [B*n, topk]              iff save_values
///   workspace        f32 [elements()]
///   param  max_len int >= 0
///   param  topk int 1..4096
///   param  order {index, value} = index
///   param  page_size int = 64
///   param  out_page_size int = 64
///   param  save_values bool = false
///   need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
///   need   1 <= page_size <= 1048576
///   limit  topk <= 4096 "so many keys of a row are not supported"
///   limit  max_len <= 1073741824 "so many columns are not supported"
///   limit  B * n * h <= 2130706431 on q "so many queries are not supported"
struct PagedMqaTopk {
  TensorView q = {};
  TensorView cache = {};
  TensorView weights = {};
  TensorView lengths = {};
  TensorView page_table = {};
  TensorView out_page_table = {};
  TensorView indices = {};
  TensorView values = {};
  TensorView workspace = {};
  std::optional<int64_t> max_len = {};  // must be given
  std::optional<int64_t> topk = {};  // must be given
  Order order = Order::index;
  int64_t page_size = 64;
  int64_t out_page_size = 64;
  bool save_values = false;
};
TESSERA_API void paged_mqa_topk(const PagedMqaTopk& call, Stream stream);
TESSERA_API TensorView workspace_of(const PagedMqaTopk& call);

/// the blocks of keys with the best scores of each row, and that of its newest key
///
///   scores     f32/bf16 [B, L] rows
///   lengths    i32 [B]             values 0 .. L  # keys of a row
///   -> blocks  i32 [B, num_blocks]                # ascending, then -1
///   param  num_blocks int 1..4096 = 2048
///   param  block_size int = 8                     # keys of a block
///   limit  B <= 266338303 on scores "so many rows are not supported"
///   limit  num_blocks <= 4096 "so many blocks of a row are not supported"
struct CandidateBlocks {
  TensorView scores = {};
  TensorView lengths = {};
  TensorView blocks = {};
  int64_t num_blocks = 2048;
  int64_t block_size = 8;
};
TESSERA_API void candidate_blocks(const CandidateBlocks& call, Stream stream);

/// the keys with the best scores of each query of an indexer, and the best blocks of keys
///
///   q            e4m3 [S, h, D]
///   k            e4m3 [T, D] rows
///   k_sf         f32 [T]
///   weights      f32 [S, h] rows
///   k_start      i32 [S]               values 0 .. T
///   k_end        i32 [S]               values 0 .. T
///   page_table?  i32 [R, Q] rows  # S in R groups of as many; a group has a row of the table
///   -> indices   i32 [S, topk]
///   -> blocks    i32 [S, num_blocks]   # see candidate_blocks
///   -> values?   f32 [S, topk]         iff save_values
///   workspace    f32 [elements()]
///   param  topk int 1..4096
///   param  num_blocks int 1..4096 = 2048
///   param  block_size int = 8
///   param  order {index, value} = index
///   param  page_size int = 64
///   param  relative bool = false
///   param  save_values bool = false
///   need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
///   limit  topk <= 4096 "so many keys of a row are not supported"
///   limit  num_blocks <= 4096 "so many blocks of a row are not supported"
///   limit  S * h <= 2130706431 on q "so many queries are not supported"
///   limit  T <= 2130706431 on k "so many keys are not supported"
struct MqaTopkBlocks {
  TensorView q = {};
  TensorView k = {};
  TensorView k_sf = {};
  TensorView weights = {};
  TensorView k_start = {};
  TensorView k_end = {};
  TensorView page_table = {};
  TensorView indices = {};
  TensorView blocks = {};
  TensorView values = {};
  TensorView workspace = {};
  std::optional<int64_t> topk = {};  // must be given
  int64_t num_blocks = 2048;
  int64_t block_size = 8;
  Order order = Order::index;
  int64_t page_size = 64;
  bool relative = false;
  bool save_values = false;
};
TESSERA_API void mqa_topk_blocks(const MqaTopkBlocks& call, Stream stream);
TESSERA_API TensorView workspace_of(const MqaTopkBlocks& call);

/// the keys of a paged cache with the best scores of each query, and the best blocks of keys
///
///   q                e4m3 [B, n, h, D]
///   cache            u8 [P, bytes] rows
///   weights          f32 [B*n, h] rows
///   lengths          i32 [B, n]                   values 0 .. max_len
///   page_table       i32 [B, Q] rows
///   out_page_table?  i32 [R, V] rows
///   -> indices       i32 [B*n, topk]
///   -> blocks        i32 [B*n, num_blocks]        # see candidate_blocks
///   -> values?       f32 [B*n, topk]              iff save_values
///   workspace        f32 [elements()]
///   param  max_len int >= 0
///   param  topk int 1..4096
///   param  num_blocks int 1..4096 = 2048
///   param  block_size int = 8
///   param  order {index, value} = index
///   param  page_size int = 64
///   param  out_page_size int = 64
///   param  save_values bool = false
///   need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
///   need   1 <= page_size <= 1048576
///   limit  topk <= 4096 "so many keys of a row are not supported"
///   limit  num_blocks <= 4096 "so many blocks of a row are not supported"
///   limit  max_len <= 1073741824 "so many columns are not supported"
///   limit  B * n * h <= 2130706431 on q "so many queries are not supported"
struct PagedMqaTopkBlocks {
  TensorView q = {};
  TensorView cache = {};
  TensorView weights = {};
  TensorView lengths = {};
  TensorView page_table = {};
  TensorView out_page_table = {};
  TensorView indices = {};
  TensorView blocks = {};
  TensorView values = {};
  TensorView workspace = {};
  std::optional<int64_t> max_len = {};  // must be given
  std::optional<int64_t> topk = {};  // must be given
  int64_t num_blocks = 2048;
  int64_t block_size = 8;
  Order order = Order::index;
  int64_t page_size = 64;
  int64_t out_page_size = 64;
  bool save_values = false;
};
TESSERA_API void paged_mqa_topk_blocks(const PagedMqaTopkBlocks& call, Stream stream);
TESSERA_API TensorView workspace_of(const PagedMqaTopkBlocks& call);

/// scores of the keys of chosen blocks for queries of several heads
///
///   q            e4m3 [S, h, D]
///   weights      f32 [S, h] rows
///   blocks       i32 [S, C] rows                      # of block_size keys; negative: none
///   k?           e4m3 [T, D] rows     iff not cache   # keys in rows, or in the pages of a cache
///   k_sf?        f32 [T]              iff not cache
///   k_start?     i32 [S]  values 0 .. T  iff not cache
///   k_end?       i32 [S]  values 0 .. T  iff not cache
///   cache?       u8 [P, bytes] rows                   # pages of page_size * D codes, then page_size scales of f32: index_fp8
///   lengths?     i32 [S]              iff cache
///   page_table?  i32 [B, Q] rows      iff cache       # S in B groups of as many; a group has a row of the table
///   -> logits    f32 [S, C*block_size] rows         # -inf for a key that the row does not see
///   param  block_size int = 8
///   param  page_size int = 64
///   param  format {index_fp8} = index_fp8
///   need   1 <= page_size <= 1048576
///   limit  S * h <= 2130706431 on q "so many queries are not supported"
///   limit  C * block_size <= 1073741824 on blocks "so many columns are not supported"
struct SparseMqaLogits {
  TensorView q = {};
  TensorView weights = {};
  TensorView blocks = {};
  TensorView k = {};
  TensorView k_sf = {};
  TensorView k_start = {};
  TensorView k_end = {};
  TensorView cache = {};
  TensorView lengths = {};
  TensorView page_table = {};
  TensorView logits = {};
  int64_t block_size = 8;
  int64_t page_size = 64;
  Format format = Format::index_fp8;
};
TESSERA_API void sparse_mqa_logits(const SparseMqaLogits& call, Stream stream);

/// the keys with the best scores among those of chosen blocks, exactly
///
///   q                e4m3 [S, h, D]
///   weights          f32 [S, h] rows
///   blocks           i32 [S, C] rows                      # of block_size keys, each once; negative: none
///   k?               e4m3 [T, D] rows     iff not cache   # keys in rows, or in the pages of a cache
///   k_sf?            f32 [T]              iff not cache
///   k_start?         i32 [S]  values 0 .. T  iff not cache
///   k_end?           i32 [S]  values 0 .. T  iff not cache
///   cache?           u8 [P, bytes] rows
///   lengths?         i32 [S]              iff cache
///   page_table?      i32 [B, Q] rows      iff cache       # S in B groups of as many; a group has a row of the table
///   out_page_table?  i32 [R, V] rows                      # of the cache that is read by the indices, S in R groups
///   -> indices       i32 [S, topk]
///   workspace        f32 [elements()]
///   param  topk int 1..4096
///   param  order {index, value} = index
///   param  block_size int = 8
///   param  page_size int = 64
///   param  out_page_size int = 64
///   param  relative bool = false
///   param  format {index_fp8} = index_fp8
///   need   1 <= page_size <= 1048576
///   need   V >= 1 if out_page_table on out_page_table "argument 'out_page_table' has no columns"
///   limit  topk <= 4096 "so many keys of a row are not supported"
///   limit  C <= 4096 on blocks "so many blocks of a row are not supported"
///   limit  S * h <= 2130706431 on q "so many queries are not supported"
///   limit  S <= 266338303 on q "so many rows are not supported"
struct SparseMqaTopk {
  TensorView q = {};
  TensorView weights = {};
  TensorView blocks = {};
  TensorView k = {};
  TensorView k_sf = {};
  TensorView k_start = {};
  TensorView k_end = {};
  TensorView cache = {};
  TensorView lengths = {};
  TensorView page_table = {};
  TensorView out_page_table = {};
  TensorView indices = {};
  TensorView workspace = {};
  std::optional<int64_t> topk = {};  // must be given
  Order order = Order::index;
  int64_t block_size = 8;
  int64_t page_size = 64;
  int64_t out_page_size = 64;
  bool relative = false;
  Format format = Format::index_fp8;
};
TESSERA_API void sparse_mqa_topk(const SparseMqaTopk& call, Stream stream);
TESSERA_API TensorView workspace_of(const SparseMqaTopk& call);

/// softmax(scale * q k^T) v of each head, and its log of the sum of exponentials
///
///   q           bf16/f16 [B, Sq, h, dk] rows
///   k           as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
///   v           as q [B, Sk, g, dv] rows
///   q_lengths?  i32 [B]                       values 0 .. Sq
///   k_lengths?  i32 [B]                       values 0 .. Sk
///   sink?       f32 [h]                       # exp(sink) is added to the sum of a row, not to lse
///   -> out      as q [B, Sq, h, dv]
///   -> lse      f32 [B, h, Sq]
///   param  scale float = none
///   param  causal bool = false
///   param  window_left, window_right int >= -1 = -1
///   param  softcap float >= 0 = 0
///   param  split_len int >= 0 = 0
///   need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
///   need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
///   limit  Sq <= 536870912 on q "so many rows are not supported"
///   limit  Sk <= 536870912 on k "so many rows are not supported"
///   limit  B * h * ceil(Sq / 64) <= 2147483647 on q "so many rows are not supported"
struct AttentionFwd {
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView q_lengths = {};
  TensorView k_lengths = {};
  TensorView sink = {};
  TensorView out = {};
  TensorView lse = {};
  std::optional<double> scale = {};
  bool causal = false;
  int64_t window_left = -1;
  int64_t window_right = -1;
  double softcap = 0;
  int64_t split_len = 0;
};
TESSERA_API void attention_fwd(const AttentionFwd& call, Stream stream);

/// attention_fwd of requests that lie one behind the other
///
///   q       bf16/f16 [Tq, h, dk] rows
///   k       as q [Tk, g, dk] rows      # heads of q share those of k and v in groups of h / g
///   v       as q [Tk, g, dv] rows
///   cu_q    i32 [B+1]                  # where requests end in q, from 0 on
///   cu_k    i32 [B+1]                  # and in k and v
///   sink?   f32 [h]                    # exp(sink) is added to the sum of a row, not to lse
///   -> out  as q [Tq, h, dv]
///   -> lse  f32 [h, Tq]
///   param  scale float = none
///   param  causal bool = false
///   param  window_left, window_right int >= -1 = -1
///   param  softcap float >= 0 = 0
///   param  split_len int >= 0 = 0
///   need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
///   need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
///   limit  Tq <= 536870912 on q "so many rows are not supported"
///   limit  Tk <= 536870912 on k "so many rows are not supported"
///   limit  h * (ceil(Tq / 64) + B + 1) <= 2147483647 on q "so many rows are not supported"
struct AttentionVarlenFwd {
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView cu_q = {};
  TensorView cu_k = {};
  TensorView sink = {};
  TensorView out = {};
  TensorView lse = {};
  std::optional<double> scale = {};
  bool causal = false;
  int64_t window_left = -1;
  int64_t window_right = -1;
  double softcap = 0;
  int64_t split_len = 0;
};
TESSERA_API void attention_varlen_fwd(const AttentionVarlenFwd& call, Stream stream);

/// attention of the newest tokens of requests over a paged cache of keys and values
///
///   q            bf16/f16 [B, n, h, dk] rows        # the last n tokens of each request
///   k_cache      bf16/f16/e4m3 [P, ps, g, dk] rows  # pages of ps tokens; heads of q share those of k in groups of h / g
///   v_cache      as k_cache [P, ps, g, dv] rows
///   page_table  i32 [B, Q] rows                    # pages of a request; behind its length any value
///   lengths      i32 [B]                            values 0 .. Q * ps  # with the n new tokens
///   k_sf?        f32 [g]                            iff k_cache is e4m3
///   v_sf?        f32 [g]                            iff k_cache is e4m3
///   sink?        f32 [h]                            # exp(sink) is added to the sum of a row, not to lse
///   -> out       as q [B, n, h, dv]
///   -> lse       f32 [B, h, n]
///   workspace?   f32 [ceil(Q * ps / split_len), B * n * h, dv + 2]  iff Q * ps > split_len
///   param  scale float = none
///   param  causal bool = true
///   param  window_left int >= -1 = -1
///   param  softcap float = 0
///   param  split_len int = 1024
///   need   split_len >= 1 on split_len "parameter 'split_len' has a wrong value"
///   need   ps >= 1 on k_cache "argument 'k_cache' has pages without rows"
///   need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k_cache'"
///   limit  Q * ps <= 536870912 on page_table "so many keys of a request are not supported"
///   limit  split_len <= 1073741824 on split_len "so large a part is not supported"
///   limit  B * n * h * ceil(Q * ps / 64) <= 2147483647 on q "so many rows and keys are not supported"
struct AttentionDecode {
  TensorView q = {};
  TensorView k_cache = {};
  TensorView v_cache = {};
  TensorView page_table = {};
  TensorView lengths = {};
  TensorView k_sf = {};
  TensorView v_sf = {};
  TensorView sink = {};
  TensorView out = {};
  TensorView lse = {};
  TensorView workspace = {};
  std::optional<double> scale = {};
  bool causal = true;
  int64_t window_left = -1;
  double softcap = 0;
  int64_t split_len = 1024;
};
TESSERA_API void attention_decode(const AttentionDecode& call, Stream stream);
TESSERA_API TensorView workspace_of(const AttentionDecode& call);

/// gradients of attention_fwd
///
///   grad_out           bf16/f16 [B, Sq, h, dv] rows  # as q
///   q                  bf16/f16 [B, Sq, h, dk] rows
///   k                  as q [B, Sk, g, dk] rows      # heads of q share those of k and v in groups of h / g
///   v                  as q [B, Sk, g, dv] rows
///   out                as q [B, Sq, h, dv] rows      # what attention_fwd gave
///   lse                f32 [B, h, Sq]                # the same
///   q_lengths?         i32 [B]                       values 0 .. Sq
///   k_lengths?         i32 [B]                       values 0 .. Sk
///   sink?              f32 [h]
///   grad_lse?          f32 [B, h, Sq]                # of lse, without sink
///   -> grad_q          as q [B, Sq, h, dk]
///   -> grad_k          as q [B, Sk, g, dk]
///   -> grad_v          as q [B, Sk, g, dv]
///   -> acc grad_sink?  f32 [h]                       iff sink
///   workspace          f32 [elements()]
///   param  scale float = none
///   param  causal bool = false
///   param  window_left, window_right int >= -1 = -1
///   param  softcap float >= 0 = 0
///   need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
///   need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
///   limit  Sq <= 536870912 on q "so many rows are not supported"
///   limit  Sk <= 536870912 on k "so many rows are not supported"
///   limit  B * h * ceil(Sq / 16) <= 2147483647 on q "so many rows are not supported"
///   limit  B * h * ceil(Sk / 32) <= 2147483647 on k "so many rows are not supported"
///   limit  B * Sk * g <= 2130706431 on k "so many rows are not supported"
struct AttentionBwd {
  TensorView grad_out = {};
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView out = {};
  TensorView lse = {};
  TensorView q_lengths = {};
  TensorView k_lengths = {};
  TensorView sink = {};
  TensorView grad_lse = {};
  TensorView grad_q = {};
  TensorView grad_k = {};
  TensorView grad_v = {};
  TensorView grad_sink = {};
  TensorView workspace = {};
  std::optional<double> scale = {};
  bool causal = false;
  int64_t window_left = -1;
  int64_t window_right = -1;
  double softcap = 0;
};
TESSERA_API void attention_bwd(const AttentionBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const AttentionBwd& call);

/// gradients of attention_varlen_fwd
///
///   grad_out           bf16/f16 [Tq, h, dv] rows  # as q
///   q                  bf16/f16 [Tq, h, dk] rows
///   k                  as q [Tk, g, dk] rows      # heads of q share those of k and v in groups of h / g
///   v                  as q [Tk, g, dv] rows
///   out                as q [Tq, h, dv] rows      # what attention_varlen_fwd gave
///   lse                f32 [h, Tq]                # the same
///   cu_q               i32 [B+1]                  # where requests end in q, from 0 on
///   cu_k               i32 [B+1]                  # and in k and v
///   sink?              f32 [h]
///   grad_lse?          f32 [h, Tq]                # of lse, without sink
///   -> grad_q          as q [Tq, h, dk]
///   -> grad_k          as q [Tk, g, dk]
///   -> grad_v          as q [Tk, g, dv]
///   -> acc grad_sink?  f32 [h]                    iff sink
///   workspace          f32 [elements()]
///   param  scale float = none
///   param  causal bool = false
///   param  window_left, window_right int >= -1 = -1
///   param  softcap float >= 0 = 0
///   need   h % g = 0 on q "the heads of 'q' are no multiple of those of 'k'"
///   need   window_right <= 0 if causal on window_right "parameter 'window_right' goes without causal"
///   limit  Tq <= 536870912 on q "so many rows are not supported"
///   limit  Tk <= 536870912 on k "so many rows are not supported"
///   limit  h * (ceil(Tq / 16) + B + 1) <= 2147483647 on q "so many rows are not supported"
///   limit  h * (ceil(Tk / 32) + B + 1) <= 2147483647 on k "so many rows are not supported"
///   limit  Tk * g <= 2130706431 on k "so many rows are not supported"
struct AttentionVarlenBwd {
  TensorView grad_out = {};
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView out = {};
  TensorView lse = {};
  TensorView cu_q = {};
  TensorView cu_k = {};
  TensorView sink = {};
  TensorView grad_lse = {};
  TensorView grad_q = {};
  TensorView grad_k = {};
  TensorView grad_v = {};
  TensorView grad_sink = {};
  TensorView workspace = {};
  std::optional<double> scale = {};
  bool causal = false;
  int64_t window_left = -1;
  int64_t window_right = -1;
  double softcap = 0;
};
TESSERA_API void attention_varlen_bwd(const AttentionVarlenBwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const AttentionVarlenBwd& call);

/// latent attention of the newest tokens of requests over a paged cache
///
///   q            bf16 [B, n, h, 576] rows    # the last n tokens of each request
///   cache        bf16 [P, ps, 576] rows      # pages of ps tokens; the first 512 channels are the value
///   page_table   i32 [B, Q] rows             # pages of a request; behind its length any value
///   lengths      i32 [B]                     values 0 .. Q * ps  # with the n new tokens
///   -> out       out_dtype [B, n, h, 512] align 16
///   -> lse       f32 [B, h, n]
///   workspace?   f32 [ceil(Q * ps / split_len), B * n * h, 514] align 16  iff Q * ps > split_len
///   param  sm_scale float
///   param  causal bool = false
///   param  split_len int = 4096
///   param  out_dtype {bf16, f32} = bf16
///   need   split_len >= 1 on split_len "parameter 'split_len' has a wrong value"
///   need   ps >= 1 on cache "argument 'cache' has pages without rows"
///   limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
///   limit  h <= 128 on q "so many heads are not supported"
///   limit  Q * ps <= 536870912 on page_table "so many keys of a request are not supported"
///   limit  split_len <= 1073741824 on split_len "so large a part is not supported"
///   limit  B * n * h * ceil(Q * ps / 64) <= 2147483647 on q "so many rows and keys are not supported"
struct MlaDecode {
  TensorView q = {};
  TensorView cache = {};
  TensorView page_table = {};
  TensorView lengths = {};
  TensorView out = {};
  TensorView lse = {};
  TensorView workspace = {};
  std::optional<double> sm_scale = {};  // must be given
  bool causal = false;
  int64_t split_len = 4096;
  DType out_dtype = DType::bf16;
};
TESSERA_API void mla_decode(const MlaDecode& call, Stream stream);
TESSERA_API TensorView workspace_of(const MlaDecode& call);

/// the output of rows whose keys were attended to in parts
///
///   partial      f32 [Z, R, 512] align 16    # not divided by their sums
///   partial_max  f32 [Z, R]                  # the largest scores, times sm_scale log2 e
///   partial_sum  f32 [Z, R]
///   attn_sink?   f32 [num_heads]             # exp(sink) is added to the sum of a row, not to lse
///   -> out       out_dtype [R, 512] align 16
///   -> lse       f32 [R]
///   param  num_heads int
///   param  out_dtype {bf16, f32} = bf16
///   need   num_heads >= 1
///   need   R % num_heads = 0 on num_heads "the rows of 'partial' are no multiple of 'num_heads'"
///   limit  R * Z <= 2147483647 on partial "so many parts are not supported"
struct MlaCombine {
  TensorView partial = {};
  TensorView partial_max = {};
  TensorView partial_sum = {};
  TensorView attn_sink = {};
  TensorView out = {};
  TensorView lse = {};
  std::optional<int64_t> num_heads = {};  // must be given
  DType out_dtype = DType::bf16;
};
TESSERA_API void mla_combine(const MlaCombine& call, Stream stream);

/// latent attention of each token to the keys that its indices choose
///
///   q             bf16 [S, h, d] rows
///   kv            bf16 [T, d] rows           # the first 512 channels are the value
///   indices       i32 [S, k] rows            # rows of kv; others, as -1, are none
///   topk_length?  i32 [S]                    values 0 .. k  # indices of a token that count
///   attn_sink?    f32 [h]                    # exp(sink) is added to the sum of a row, not to lse
///   q_scale?      f32 [S, h]                 # a factor of the scores of a row
///   -> out         out_dtype [S, h, 512] align 16
///   -> max_logits  f32 [S, h]
///   -> lse         f32 [S, h]
///   param  sm_scale float
///   param  out_dtype {bf16, f32} = bf16
///   limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
///   limit  h <= 128 on q "so many heads are not supported"
///   limit  k <= 1048576 on indices "so many indices of a token are not supported"
///   limit  S * h * ceil(k / 64) <= 2147483647 on q "so many rows and keys are not supported"
struct SparseMlaFwd {
  TensorView q = {};
  TensorView kv = {};
  TensorView indices = {};
  TensorView topk_length = {};
  TensorView attn_sink = {};
  TensorView q_scale = {};
  TensorView out = {};
  TensorView max_logits = {};
  TensorView lse = {};
  std::optional<double> sm_scale = {};  // must be given
  DType out_dtype = DType::bf16;
};
TESSERA_API void sparse_mla_fwd(const SparseMlaFwd& call, Stream stream);

/// latent attention of tokens to the slots of a quantised cache that indices choose
///
///   q               bf16 [B, n, h, d] rows
///   cache           u8 [blocks, bytes] rows     # of kv_store; the first 512 channels are the value
///   indices         i32 [B, n, k] rows          # slots: block * page_size + place in the block; others, as -1, are none
///   topk_length?    i32 [B]                     values 0 .. k  # indices of a token that count
///   extra_cache?    u8 [extra_blocks, extra_bytes] rows
///   extra_indices?  i32 [B, n, k2] rows         iff extra_cache  # slots of extra_cache
///   extra_length?   i32 [B]                     values 0 .. k2
///   attn_sink?      f32 [h]                     # exp(sink) is added to the sum of a row, not to lse
///   q_scale?        f32 [B, n, h]               # a factor of the scores of a row
///   -> out          out_dtype [B, n, h, 512] align 16
///   -> lse          f32 [B, h, n]
///   workspace?      f32 [parts(), B * n * h, 514] align 16  iff parts() > 1
///   param  format {v32_fp8, v4_fp8, v41_fp8}
///   param  page_size int = 64
///   param  extra_format {none, v4_fp8, v41_fp8, v41_fp4} = none  # none: as format
///   param  extra_page_size int = 64
///   param  cache_order {planes, rows} = planes  # of v41_fp8, v41_fp4
///   param  sm_scale float
///   param  num_splits int 1..32 = 1
///   param  out_dtype {bf16, f32} = bf16
///   need   blocks >= 1 on cache "argument 'cache' has no rows"
///   need   extra_blocks >= 1 if extra_cache on extra_cache "argument 'extra_cache' has no rows"
///   need   extra_cache if extra_length on extra_length "argument 'extra_length' goes with 'extra_cache'"
///   need   extra_cache if extra_format on extra_format "parameter 'extra_format' goes with 'extra_cache'"
///   limit  h % 8 = 0 on q "the heads of 'q' are no multiple of 8"
///   limit  h <= 128 on q "so many heads are not supported"
///   limit  k <= 1048576 on indices "so many indices of a token are not supported"
///   limit  k2 <= 1048576 if extra_cache on extra_indices "so many indices of a token are not supported"
///   limit  B * n * h * list_blocks() <= 2147483647 on q "so many rows and keys are not supported"
struct SparseMlaDecode {
  TensorView q = {};
  TensorView cache = {};
  TensorView indices = {};
  TensorView topk_length = {};
  TensorView extra_cache = {};
  TensorView extra_indices = {};
  TensorView extra_length = {};
  TensorView attn_sink = {};
  TensorView q_scale = {};
  TensorView out = {};
  TensorView lse = {};
  TensorView workspace = {};
  std::optional<Format> format = {};  // must be given
  int64_t page_size = 64;
  std::optional<ExtraFormat> extra_format = {};
  int64_t extra_page_size = 64;
  CacheOrder cache_order = CacheOrder::planes;
  std::optional<double> sm_scale = {};  // must be given
  int64_t num_splits = 1;
  DType out_dtype = DType::bf16;
};
TESSERA_API void sparse_mla_decode(const SparseMlaDecode& call, Stream stream);
TESSERA_API TensorView workspace_of(const SparseMlaDecode& call);

/// short causal convolution of each channel, and its state
///
///   x                bf16/f16/f32 [B, S, C] rows
///   weight           bf16/f16/f32 [C, W]       # the oldest input first
///   bias?            as weight [C]
///   initial_state?   as x [B, C, W-1]          # inputs before the first token, the oldest first; absent: +0
///   read_slots?      i32 [B]                   # of 'pool'; -1: +0; absent: request b has slot b
///   write_slots?     i32 [B]                   # -1: the state is not written
///   -> out           as x [B, S, C]
///   -> final_state?  as x [B, C, W-1]          iff output_final_state
///   -> inout pool?   as x [N, C, W-1] any1     # states of requests, in place of the other two
///   param  activation {none, silu} = none
///   param  output_final_state bool = false
///   need   W >= 2 on weight "argument 'weight' has too few taps"
///   limit  W <= 8 on weight "filters of so many taps are not supported"
///   need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
///   need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
///   need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
///   need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
///   need   N >= 1 if pool on pool "argument 'pool' has no slots"
///   need   N >= B if pool and not (read_slots and write_slots) on pool
///   |      "argument 'pool' has fewer slots than requests"
///   limit  B * ceil(S / 32) * ceil(C / 32) <= 2147483647 on x "so many rows are not supported"
struct CausalConv1dFwd {
  TensorView x = {};
  TensorView weight = {};
  TensorView bias = {};
  TensorView initial_state = {};
  TensorView read_slots = {};
  TensorView write_slots = {};
  TensorView out = {};
  TensorView final_state = {};
  TensorView pool = {};
  std::optional<Activation> activation = {};
  bool output_final_state = false;
};
TESSERA_API void causal_conv1d_fwd(const CausalConv1dFwd& call, Stream stream);

/// short causal convolution of the newest tokens, on a pool of states
///
///   x               bf16/f16/f32 [B, n, C] rows
///   weight          bf16/f16/f32 [C, W]       # the oldest input first
///   bias?           as weight [C]
///   read_slots      i32 [B]                   # -1: the row is padding, out +0
///   write_slots     i32 [B, m?]               # of the state after the last token; m = n: after each; -1: not written
///   -> out          as x [B, n, C]
///   -> inout pool   as x [N, C, W-1] any1     # the last inputs of requests, the oldest first
///   param  activation {none, silu} = none
///   need   n >= 1 on x "argument 'x' has no tokens"
///   limit  n <= 16 on x "so many tokens are not supported"
///   need   W >= 2 on weight "argument 'weight' has too few taps"
///   limit  W <= 8 on weight "filters of so many taps are not supported"
///   need   N >= 1 on pool "argument 'pool' has no slots"
///   limit  B * ceil(C / 32) <= 2147483647 on x "so many rows are not supported"
struct CausalConv1dUpdate {
  TensorView x = {};
  TensorView weight = {};
  TensorView bias = {};
  TensorView read_slots = {};
  TensorView write_slots = {};
  TensorView out = {};
  TensorView pool = {};
  std::optional<Activation> activation = {};
};
TESSERA_API void causal_conv1d_update(const CausalConv1dUpdate& call, Stream stream);

/// root mean square norm of rows, times an activated gate
///
///   x        bf16/f16/f32 [T.., d] rows
///   z        as x [T.., d] rows          # the gate
///   weight   f32/bf16 [d]
///   -> out   as x [T.., d]
///   param  eps float = 1e-6
///   param  activation {silu, sigmoid} = silu
///   need   d >= 1 on x "argument 'x' has no columns"
///   need   d % 8 = 0 on x "a row has the wrong number of columns"
///   limit  d <= 8192 on x "rows this long are not supported"
struct RmsnormGatedFwd {
  TensorView x = {};
  TensorView z = {};
  TensorView weight = {};
  TensorView out = {};
  double eps = 1e-06;
  Activation activation = Activation::silu;
};
TESSERA_API void rmsnorm_gated_fwd(const RmsnormGatedFwd& call, Stream stream);

/// the gated delta rule over whole requests, and their states
///
///   q                bf16/f16 [B, S, h, dk] rows
///   k                as q [B, S, h, dk] rows         # heads of v share those of k in groups of hv / h
///   v                as q [B, S, hv, dv] rows
///   g                f32 [B, S, hv] rows             # natural log of the decay
///   beta             f32/bf16 [B, S, hv] rows
///   lengths?         i32 [B]                         # tokens behind them are padding, out +0
///   initial_state?   f32 [B, hv, dk, dv]             # absent: +0
///   read_slots?      i32 [B]                         # of 'pool'; -1: +0; absent: request b has slot b
///   write_slots?     i32 [B]                         # -1: the state is not written
///   -> out           as q [B, S, hv, dv]
///   -> final_state?  f32 [B, hv, dk, dv]             iff output_final_state
///   -> inout pool?   f32/bf16 [N, hv, dk, dv] any1   # states of requests, in place of the other two
///   workspace        f32 [elements()] align 16
///   param  scale float = none                        # none: dk^-0.5
///   param  qk_norm bool = false                      # q and k are divided by their lengths
///   param  norm_eps float = 1e-6
///   param  segment int >= 0 = 0
///   param  output_final_state bool = false
///   need   h >= 1 on q "argument 'q' has no heads"
///   need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
///   need   segment % 64 = 0 on segment "parameter 'segment' is no multiple of 64"
///   limit  dk in {64, 128} on q "heads of this extent are not supported"
///   limit  dv in {64, 128} on v "heads of this extent are not supported"
///   need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
///   need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
///   need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
///   need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
///   need   N >= 1 if pool on pool "argument 'pool' has no slots"
///   need   N >= B if pool and not (read_slots and write_slots) on pool
///   |      "argument 'pool' has fewer slots than requests"
///   limit  B * hv <= 536870912 on q "so many rows are not supported"
///   limit  S <= 536870912 on q "so many rows are not supported"
struct GatedDeltaFwd {
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView g = {};
  TensorView beta = {};
  TensorView lengths = {};
  TensorView initial_state = {};
  TensorView read_slots = {};
  TensorView write_slots = {};
  TensorView out = {};
  TensorView final_state = {};
  TensorView pool = {};
  TensorView workspace = {};
  std::optional<double> scale = {};
  bool qk_norm = false;
  double norm_eps = 1e-06;
  int64_t segment = 0;
  bool output_final_state = false;
};
TESSERA_API void gated_delta_fwd(const GatedDeltaFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const GatedDeltaFwd& call);

/// gated_delta_fwd of requests that lie one behind the other
///
///   q                bf16/f16 [T, h, dk] rows
///   k                as q [T, h, dk] rows            # heads of v share those of k in groups of hv / h
///   v                as q [T, hv, dv] rows
///   g                f32 [T, hv] rows                # natural log of the decay
///   beta             f32/bf16 [T, hv] rows
///   cu_seqlens       i32 [B+1]                       # where requests end, from 0 on; rows after the last: out +0
///   initial_state?   f32 [B, hv, dk, dv]             # absent: +0
///   read_slots?      i32 [B]                         # of 'pool'; -1: +0; absent: request b has slot b
///   write_slots?     i32 [B]                         # -1: the state is not written
///   -> out           as q [T, hv, dv]
///   -> final_state?  f32 [B, hv, dk, dv]             iff output_final_state
///   -> inout pool?   f32/bf16 [N, hv, dk, dv] any1   # states of requests, in place of the other two
///   workspace        f32 [elements()] align 16
///   param  scale float = none                        # none: dk^-0.5
///   param  qk_norm bool = false                      # q and k are divided by their lengths
///   param  norm_eps float = 1e-6
///   param  segment int >= 0 = 0
///   param  output_final_state bool = false
///   need   h >= 1 on q "argument 'q' has no heads"
///   need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
///   need   segment % 64 = 0 on segment "parameter 'segment' is no multiple of 64"
///   limit  dk in {64, 128} on q "heads of this extent are not supported"
///   limit  dv in {64, 128} on v "heads of this extent are not supported"
///   need   not initial_state if pool on initial_state "states come from 'initial_state' or from 'pool'"
///   need   not output_final_state if pool on output_final_state "states go to 'final_state' or to 'pool'"
///   need   pool if read_slots on read_slots "'read_slots' needs 'pool'"
///   need   pool if write_slots on write_slots "'write_slots' needs 'pool'"
///   need   N >= 1 if pool on pool "argument 'pool' has no slots"
///   need   N >= B if pool and not (read_slots and write_slots) on pool
///   |      "argument 'pool' has fewer slots than requests"
///   limit  B * hv <= 536870912 on q "so many rows are not supported"
///   limit  T <= 536870912 on q "so many rows are not supported"
///   limit  hv * (ceil(T / 64) + B + 1) <= 1073741823 on q "so many rows are not supported"
struct GatedDeltaVarlenFwd {
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView g = {};
  TensorView beta = {};
  TensorView cu_seqlens = {};
  TensorView initial_state = {};
  TensorView read_slots = {};
  TensorView write_slots = {};
  TensorView out = {};
  TensorView final_state = {};
  TensorView pool = {};
  TensorView workspace = {};
  std::optional<double> scale = {};
  bool qk_norm = false;
  double norm_eps = 1e-06;
  int64_t segment = 0;
  bool output_final_state = false;
};
TESSERA_API void gated_delta_varlen_fwd(const GatedDeltaVarlenFwd& call, Stream stream);
TESSERA_API TensorView workspace_of(const GatedDeltaVarlenFwd& call);

/// the gated delta rule of the newest tokens, on a pool of states
///
///   q              bf16/f16 [B, n, h, dk] rows
///   k              as q [B, n, h, dk] rows           # heads of v share those of k in groups of hv / h
///   v              as q [B, n, hv, dv] rows
///   g              f32 [B, n, hv] rows               # natural log of the decay
///   beta           f32/bf16 [B, n, hv] rows
///   read_slots     i32 [B]                           # -1: the row is padding, out +0
///   write_slots    i32 [B, m?]                       # of the state after the last token; m = n: after each; -1: not written
///   -> out         as q [B, n, hv, dv]
///   -> inout pool  f32/bf16 [N, hv, dk, dv] any1     # either dimension of a state may be contiguous
///   param  scale float = none                        # none: dk^-0.5
///   param  qk_norm bool = false                      # q and k are divided by their lengths
///   param  norm_eps float = 1e-6
///   need   n >= 1 on q "argument 'q' has no tokens"
///   limit  n <= 16 on q "so many tokens are not supported"
///   need   h >= 1 on q "argument 'q' has no heads"
///   need   hv % h = 0 on v "the heads of 'v' are no multiple of those of 'k'"
///   limit  dk in {64, 128} on q "heads of this extent are not supported"
///   limit  dv in {64, 128} on v "heads of this extent are not supported"
///   need   N >= 1 on pool "argument 'pool' has no slots"
///   limit  B * hv <= 536870912 on q "so many rows are not supported"
struct GatedDeltaDecode {
  TensorView q = {};
  TensorView k = {};
  TensorView v = {};
  TensorView g = {};
  TensorView beta = {};
  TensorView read_slots = {};
  TensorView write_slots = {};
  TensorView out = {};
  TensorView pool = {};
  std::optional<double> scale = {};
  bool qk_norm = false;
  double norm_eps = 1e-06;
};
TESSERA_API void gated_delta_decode(const GatedDeltaDecode& call, Stream stream);

}  // namespace tessera::kernels
