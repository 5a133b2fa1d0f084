#pragma once
// The formats of KV caches, in one table: the bytes of a token, and how its channels are quantised.
//
// A cache has blocks of page_size tokens; a slot is block * page_size + offset. Format bf16 is plain: one row per slot.
// In the other formats a token has codes of 8 or 4 bits, a scale per group of codes and, behind the coded channels,
// channels in bf16: the rotated ones. Two orders of bytes follow from the table:
//
//   planes   codes, bf16 of token 0 | codes, bf16 of token 1 | .. | scales of 0 | scales of 1 | .. | padding
//   rows     codes, scales, bf16 of token 0 | codes, scales, bf16 of token 1 | ..
//
// v32_fp8 lies in rows, v4_fp8 and index_fp8 in planes, V4.1's formats and index_fp4 in either order. Example: v4_fp8 has
// 448 codes and 64 channels in bf16, 576 bytes, and 8 bytes of scales, of which the last one is 0. The kernels that store and load
// (cache_bytes.h), the checks of their ops and the sizes of cases all read this table.
//
// An op may read a second cache. Its arguments have the names of the first one's with a prefix, such as extra_cache.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/parts/scale_factor.h"
#include "kernels/signature/call.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels::serving {

enum class CacheFormat : uint8_t {
  none,
  bf16,
  v32_fp8,
  v4_fp8,
  v41_fp8,
  v41_fp4,
  index_fp8,
  index_fp4
};

/// A format in one order of bytes; plain bytes, for Specs.
struct CacheKind {
  CacheFormat format;
  bool in_rows;  // where the format leaves a choice
};

struct CacheLayout {
  enum class Order : uint8_t { planes, rows, either };

  std::string_view word;
  int64_t channels;      // 0: any number
  DType codes;           // bf16 where there are none
  int64_t coded, group;  // channels with a code; of them to a scale
  DType scale;           // f32; e4m3; u8: the exponent of a power of two
  int64_t scale_bytes;   // of a token
  QuantFormat quant;
  bool rounds;  // the scales are powers of two
  Order order;
  int64_t block_multiple, stride_multiple;  // bytes

  int64_t code_bytes() const { return coded * bits(codes) / 8; }
  int64_t bf16_bytes() const { return 2 * (channels - coded); }
  bool in_rows() const { return order == Order::rows; }
  /// From the codes of a token to those of the next one.
  int64_t pitch() const { return code_bytes() + bf16_bytes() + (in_rows() ? scale_bytes : 0); }
  int64_t bf16_at() const { return code_bytes() + (in_rows() ? scale_bytes : 0); }
  int64_t scales() const { return scale_bytes / bytes(scale); }
};

/// The row of the table, in the order of bytes of `kind`.
CacheLayout cache_layout(CacheKind kind);
/// Bytes of a block of `page_size` tokens; for bf16 the elements of a row.
int64_t block_bytes(CacheKind kind, int64_t channels, int64_t page_size);

/// The format of a word.
CacheFormat cache_format(std::string_view word);
/// The parameters `format` and, where the op has it, `cache_order`. A second cache without a format has that of the first.
CacheKind cache_kind(const Call& c, const std::string& prefix = "");

/// Checks the cache and its parameters for entries of so many channels.
void require_cache(const Call& c, int64_t channels, const std::string& prefix = "");
/// Slots of the call's cache.
int64_t cache_slots(const Call& c);
/// Requires that the values of `loc` are slots or negative, `once`: each slot at most once.
void require_locations(const Call& c, bool once);

/// The dtype in which codes are seen; raw ones of 4 bits two by two, as e4m3.
DType code_dtype(const CacheLayout& layout, bool is_raw);
struct CacheViews {
  bool is_raw = false;
  std::string prefix = "";  // of the names in the kernel
};
/// Views the cache as CacheBytes declares it.
std::vector<Args::Tensor> cache_tensors(const Call& c, const std::string& prefix = "",
                                        const CacheViews& views = {});

}  // namespace tessera::kernels::serving
