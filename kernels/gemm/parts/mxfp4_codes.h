#pragma once
// MXFP4 weights as the products read them: e2m1 codes in tiles of 64 rows, one shift byte per row and 32 of k.
//
// A tile holds 64 rows n by D of k, D = 128 for operands of e4m3 and 64 for bf16, as u32 words of eight codes. The
// words lie in the order in which the threads of wgmma m64 and of mma.sync m16 hold a left operand in registers: the
// weights are the rows of the product. Row i of a tile is row r = i % 16 of warp w = i / 16.
//
//   e4m3   q = j / 32, c = j % 32, lane = r % 8 * 4 + c % 16 / 4
//          word ((q / 2 * 128 + 32 w + lane) * 4 + q % 2 * 2 + r / 8, nibble c / 16 * 4 + c % 4
//   bf16   q = j / 16, c = j % 16, lane = r % 8 * 4 + c % 8 / 2
//          word (32 w + lane) * 4 + q, nibble r / 8 * 4 + c / 8 * 2 + c % 2
//
// The magnitude of nibble x lies in bits 4x to 4x + 2 of its word. The fourth bit of a nibble is not its sign: that of
// nibble x < 4 is bit 8x + 7, of x >= 4 bit 8 (x - 4) + 3. So word & 0x77777777 selects magnitudes by two byte
// permutations, and the signs of four bytes are word & 0x80808080 and (word << 4) & 0x80808080.
//
// For e4m3 the code of magnitude v stands for v * 2^(shift - 8), exactly, if its shift is at most 14; 15 is NaN, 16 to
// 19 are rounded (2^-9 to 2^-12 in place of 2^(shift - 8)), 20 and more are zeros. For bf16 it is v * 2^-shift up to
// 126; 255 is NaN, other shifts give zeros.

#include <cstdint>

#include "dsl/builder.h"

namespace tessera::kernels::gemm {

/// The dtype that codes are decoded to.
enum class Mxfp4Operand : int32_t { e4m3, bf16 };

inline constexpr int64_t kMxRows = 64;      // of a tile
inline constexpr int64_t kMxGroup = 32;     // of k that share a shift
inline constexpr int64_t kMxBlock = 128;    // of k whose shifts lie together
inline constexpr int64_t kMxThreads = 128;  // that hold a tile, 16 bytes of each half of it
inline constexpr uint32_t kMxNan = 15;      // shift of e4m3

/// Columns of k of a tile, and its bytes.
inline constexpr int64_t tile_depth(Mxfp4Operand operand) {
  return operand == Mxfp4Operand::e4m3 ? 128 : 64;
}
inline constexpr int64_t tile_bytes(Mxfp4Operand operand) {
  return 32 * tile_depth(operand);
}
inline constexpr DType operand_dtype(Mxfp4Operand operand) {
  return operand == Mxfp4Operand::e4m3 ? DType::e4m3 : DType::bf16;
}

/// The tables of magnitudes in shared memory: of e4m3 u32 [32, 2], the eight codes of each shift; of bf16 u32 [129, 4],
/// their low bytes and their high bytes for shifts 0 to 127 and for NaN. Made by all threads.
dsl::Ref magnitudes_of_shifts(dsl::Builder& k, Mxfp4Operand operand);

/// A tile of codes in shared memory, or several one below the other.
struct Mxfp4Tile {
  int64_t tiles;
  dsl::Ref words;   // u32 [tiles, tile_bytes / 4]
  dsl::Ref shifts;  // u32 [tiles, 64]: the bytes of a row and a block, the first of k lowest
};

/// Decodes to a fragment of e4m3, [64 * tiles, 128]. The shifts of groups from column `depth` of the tile on are not
/// read, so what lies there is finite.
void decode_e4m3(dsl::Builder& k, const Mxfp4Tile& tile, const dsl::Ref& magnitudes,
                 const dsl::Value& depth, const dsl::Ref& into);

/// Decodes tile number `number` along k to a fragment of bf16, [64 * tiles, 64]; `depth` as above.
void decode_bf16(dsl::Builder& k, const Mxfp4Tile& tile, const dsl::Ref& magnitudes,
                 const dsl::Value& number, const dsl::Value& depth, const dsl::Ref& into);

}  // namespace tessera::kernels::gemm
