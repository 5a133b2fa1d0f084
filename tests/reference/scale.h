#pragma once
// Scale factors of the quantising ops: the value from an absolute maximum, and the three layouts of
// scale tensors.

#include <cstdint>
#include <string_view>

#include "tests/support/host_tensor.h"

namespace tessera::reference {

struct Scale {
  float sf = 0;          // dequantise multiplier
  float inv = 0;         // quantise multiplier
  uint8_t exponent = 0;  // the UE8M0 byte, only when rounded
};

/// Scale of a group whose largest magnitude is `amax` (>= 0, may be infinite), for `format` e4m3 or
/// e2m1. With `round_sf` it is the smallest power of two that is not below amax / max.
///
/// Example: scale_of(448, DType::e4m3, true) is {1, 1, 127}.
Scale scale_of(float amax, DType format, bool round_sf);
/// The same for a format given by its largest value; maxima below `floor` count as that.
Scale scale_of(float amax, float largest, float floor, bool round_sf);

enum class SfLayout : uint8_t { row_major, col_major_tma, packed_ue8m0 };
SfLayout sf_layout_of(std::string_view word);

/// Scales of `rows` x `cols` blocks: f32 or, packed, i32 [rows, ceil(cols / 4)]; storage, padding
/// included, is zero.
test::HostTensor make_scales(SfLayout layout, int64_t rows, int64_t cols);
/// Writes the scale of block (row, col) of a tensor from make_scales with `cols` columns of blocks.
void store_scale(test::HostTensor& scales, SfLayout layout, int64_t row, int64_t col,
                 const Scale& scale);
/// Reads the dequantise multiplier of block (row, col); a UE8M0 byte b is the float with bits b
/// << 23.
float load_scale(const test::HostTensor& scales, SfLayout layout, int64_t row, int64_t col);

}  // namespace tessera::reference
