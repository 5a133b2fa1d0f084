#include "dsl/layout/swizzle.h"

#include <fmt/format.h>

#include "dsl/base/error.h"
#include "dsl/layout/reject.h"

namespace tessera::layout {
namespace {

constexpr int64_t kChunkBits = 128;
constexpr int64_t kMaxMask = (1 << 16) - 1;  // far above any row

Swizzle checked(const char* op, const Swizzle& swizzle) {
  if (swizzle.mask < 0 || swizzle.mask > kMaxMask || (swizzle.mask & (swizzle.mask + 1)) != 0) {
    reject(op, "mask", "is not one less than a power of two",
           fmt::format("0, 1, 3, 7, ... {}", kMaxMask), fmt::format("{}", swizzle.mask));
  }
  if (swizzle.shift < 0 || swizzle.shift > 30) {
    reject(op, "shift", "is out of range", "0 .. 30", fmt::format("{}", swizzle.shift));
  }
  if (swizzle.rotation < 0 || (swizzle.rotation > 0 && swizzle.mask >> swizzle.rotation == 0)) {
    reject(op, "rotation", "is no place of a bit of the mask",
           fmt::format("the place of a bit of {}", swizzle.mask),
           fmt::format("{}", swizzle.rotation));
  }
  if (swizzle.columns % swizzle.panel != 0) {
    reject(op, "columns", "is not a whole number of panels",
           fmt::format("a multiple of {}", swizzle.panel), fmt::format("{}", swizzle.columns));
  }
  const int64_t group = swizzle.mask + 1;  // chunks that the xor permutes
  if (swizzle.panel % (group * swizzle.chunk) != 0) {
    reject(op, "columns", "is not a whole number of swizzle groups",
           fmt::format("a multiple of {} ({} chunks of 16 bytes)", group * swizzle.chunk, group),
           fmt::format("{}", swizzle.panel));
  }
  return swizzle;
}

int64_t chunk_elements(const char* op, int64_t element_bits) {
  if (element_bits < 1 || kChunkBits % element_bits != 0) {
    reject(op, "element_bits", "does not divide 16 bytes", "a divisor of 128",
           fmt::format("{}", element_bits));
  }
  return kChunkBits / element_bits;
}

/// Its own inverse: the mask keeps chunks inside their group.
int64_t swapped_chunk(const Swizzle& swizzle, int64_t row, int64_t chunk) {
  const int64_t group = swizzle.mask + 1;
  const int64_t turn = int64_t{1} << swizzle.rotation;
  const int64_t bits = (row >> swizzle.shift) & swizzle.mask;
  return chunk ^ (bits * turn % group + bits * turn / group);
}

}  // namespace

Swizzle plain_rows(int64_t rows, int64_t columns, int64_t pitch) {
  check_shape("plain_rows", {rows, columns});
  if (pitch < columns) {
    reject("plain_rows", "pitch", "is shorter than a row", fmt::format("from {} up", columns),
           fmt::format("{}", pitch));
  }
  return {.rows = rows, .columns = columns, .panel = columns, .pitch = pitch};
}

Swizzle xor_swizzle(int64_t rows, int64_t columns, int64_t element_bits, int shift, int64_t mask,
                    int rotation) {
  check_shape("xor_swizzle", {rows, columns});
  const int64_t chunk = chunk_elements("xor_swizzle", element_bits);
  return checked("xor_swizzle", {rows, columns, chunk, columns, columns, shift, mask, rotation});
}

Swizzle swizzle_mode(int64_t rows, int64_t columns, int64_t element_bits, SwizzleMode mode) {
  check_shape("swizzle_mode", {rows, columns});
  const int64_t chunk = chunk_elements("swizzle_mode", element_bits);
  const int64_t panel = static_cast<int64_t>(mode) * 8 / element_bits;
  // Eight rows are 8, 4 or 2 lines of 128 bytes: the rows of one line have the same xor.
  const int shift = mode == SwizzleMode::bytes_128 ? 0 : mode == SwizzleMode::bytes_64 ? 1 : 2;
  return checked("swizzle_mode", {rows, columns, chunk, panel, panel, shift, panel / chunk - 1, 0});
}

int64_t offset(const Swizzle& swizzle, int64_t row, int64_t column) {
  TESSERA_CHECK(row >= 0 && row < swizzle.rows && column >= 0 && column < swizzle.columns,
                fmt::format("swizzle offset of ({}, {}) in a {} x {} tile", row, column,
                            swizzle.rows, swizzle.columns));
  const int64_t in_panel = column % swizzle.panel;
  const int64_t chunk = swapped_chunk(swizzle, row, in_panel / swizzle.chunk);
  return (column / swizzle.panel * swizzle.rows + row) * swizzle.pitch + chunk * swizzle.chunk +
         in_panel % swizzle.chunk;
}

TilePoint point_at(const Swizzle& swizzle, int64_t offset) {
  const int64_t line = offset / swizzle.pitch;  // panel rows count across panels
  const int64_t in_panel = offset % swizzle.pitch;
  TESSERA_CHECK(
      offset >= 0 && offset < swizzle.size() && in_panel < swizzle.panel,
      fmt::format("swizzle point at {} in a {} x {} tile", offset, swizzle.rows, swizzle.columns));
  const int64_t row = line % swizzle.rows;
  const int64_t chunk = swapped_chunk(swizzle, row, in_panel / swizzle.chunk);
  return {row,
          line / swizzle.rows * swizzle.panel + chunk * swizzle.chunk + in_panel % swizzle.chunk};
}

std::string to_string(const Swizzle& swizzle) {
  std::string text = fmt::format("rows {} elements apart", swizzle.pitch);
  if (swizzle.mask > 0) {
    const std::string row =
        swizzle.shift > 0 ? fmt::format("(row >> {})", swizzle.shift) : std::string("row");
    text = fmt::format("16-byte chunks exchanged by xor {} % {}", row, swizzle.mask + 1);
    if (swizzle.rotation > 0) text += fmt::format(", rotated by {}", swizzle.rotation);
  }
  if (swizzle.panel < swizzle.columns) {
    text += fmt::format(", in panels of {} columns", swizzle.panel);
  }
  return text;
}

}  // namespace tessera::layout
