#pragma once
// The layout of a tile in shared memory: consecutive rows, optionally padded, optionally cut into
// panels, and optionally swizzled. An xor swizzle permutes the 16-byte chunks of a row by row number, so
// that the same column of consecutive rows falls into different banks.

#include <cstdint>
#include <string>

#include "dsl/base/api.h"

namespace tessera::layout {

/// A rows x columns tile in shared memory, cut into panels of `panel` columns that are stored one
/// after the other. Rows of a panel are `pitch` elements apart. The swizzle moves chunk c of row r
/// to place c ^ e(r), where e(r) = (r >> shift) & mask with its bits rotated left by `rotation`. All
/// counts are in elements.
struct Swizzle {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t chunk = 1;  // elements per 16 bytes
  int64_t panel = 1;  // columns per panel
  int64_t pitch = 1;  // distance of a panel's rows: `panel`, or more with padding
  int shift = 0;
  int64_t mask = 0;  // 0: no chunk moves
  int rotation = 0;
  friend bool operator==(const Swizzle&, const Swizzle&) = default;

  int64_t size() const { return columns / panel * rows * pitch; }  // padding included
};

/// Bytes per panel row of the hardware swizzle modes, the same for TMA and wgmma.
enum class SwizzleMode : int { bytes_32 = 32, bytes_64 = 64, bytes_128 = 128 };

/// Plain rows, `pitch` elements apart.
///
/// Errors:  Error of kind `program` if an extent is below 1, or the pitch below a row.
/// Example: plain_rows(64, 100, 104)   // four elements of padding after each row
TESSERA_API Swizzle plain_rows(int64_t rows, int64_t columns, int64_t pitch);

/// The general xor swizzle, one panel as wide as the tile.
///
/// Errors:  Error of kind `program` if an extent is below 1, a row is no whole number of groups of
///          mask + 1 chunks, mask + 1 is no power of two, or the rotation is no place of a bit of it.
/// Example: xor_swizzle(64, 128, 16, 0, 7)   // 64 x 128 halves: chunk ^ (row % 8)
TESSERA_API Swizzle xor_swizzle(int64_t rows, int64_t columns, int64_t element_bits, int shift,
                                int64_t mask, int rotation = 0);

/// A hardware mode: chunk ^ (row % 8), ^ (row % 8 / 2) or ^ (row % 8 / 4) in panels 128, 64 or 32
/// bytes wide. Eight consecutive rows of a chunk column fall into eight different 16-byte bank
/// groups.
///
/// Errors:  as above; the panel has to divide the tile.
/// Example: swizzle_mode(64, 64, 16, SwizzleMode::bytes_128)
TESSERA_API Swizzle swizzle_mode(int64_t rows, int64_t columns, int64_t element_bits,
                                 SwizzleMode mode);

/// Element offset of (row, column): offset(swizzle_mode(64, 64, 16, SwizzleMode::bytes_128), 5, 19)
/// is 379. Within the tile.
TESSERA_API int64_t offset(const Swizzle& swizzle, int64_t row, int64_t column);

struct TilePoint {
  int64_t row = 0;
  int64_t column = 0;
  friend bool operator==(const TilePoint&, const TilePoint&) = default;
};

/// The inverse of offset(). Padding has no point.
TESSERA_API TilePoint point_at(const Swizzle& swizzle, int64_t offset);

/// "rows 64 elements apart", "16-byte chunks exchanged by xor row % 8", ".., in panels of 64 columns".
TESSERA_API std::string to_string(const Swizzle& swizzle);

}  // namespace tessera::layout
