#include "kernels/serving/parts/cache_format.h"

#include <algorithm>
#include <set>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {
namespace {

using Order = CacheLayout::Order;

constexpr int64_t kMostTokens = 1 << 20;            // of a block
constexpr int64_t kMostChannels = 1024;             // of an entry in bf16
constexpr int64_t kChannelMultiple = 64;            // likewise
constexpr QuantFormat kV41Fp4 = {6.0f, 0x1.8p-7f};  // 6 * 2^-9: the least scale is that of e4m3

constexpr CacheLayout kLayouts[] = {
    {"", 0, DType::bf16, 0, 0, DType::u8, 0, {}, false, Order::planes, 1, 16},  // none
    {"bf16", 0, DType::bf16, 0, 0, DType::u8, 0, {}, false, Order::planes, 1, 16},
    {"v32_fp8", 576, DType::e4m3, 512, 128, DType::f32, 16, kE4m3, true, Order::rows, 1, 8},
    {"v4_fp8", 512, DType::e4m3, 448, 64, DType::u8, 8, kE4m3, true, Order::planes, 576, 16},
    {"v41_fp8", 512, DType::e4m3, 512, 32, DType::u8, 16, kE4m3, true, Order::either, 1, 16},
    {"v41_fp4", 512, DType::e2m1, 512, 16, DType::e4m3, 32, kV41Fp4, false, Order::either, 1, 16},
    {"index_fp8", 128, DType::e4m3, 128, 128, DType::f32, 4, kE4m3, false, Order::planes, 1, 16},
    {"index_fp4", 128, DType::e2m1, 128, 32, DType::u8, 4, kE2m1, true, Order::either, 1, 16},
};

/// Views the cache with elements of another dtype.
TensorView seen_as(const TensorView& cache, DType dtype) {
  const auto elements = [&](int64_t count) { return count * bits(cache.dtype) / bits(dtype); };
  return {cache.data, dtype, Dims{cache.shape[0], elements(cache.shape[1])},
          Dims{elements(step(cache, 0)), 1}, cache.device};
}

}  // namespace

CacheLayout cache_layout(CacheKind kind) {
  CacheLayout layout = kLayouts[static_cast<size_t>(kind.format)];
  if (layout.order == Order::either) layout.order = kind.in_rows ? Order::rows : Order::planes;
  return layout;
}

int64_t block_bytes(CacheKind kind, int64_t channels, int64_t page_size) {
  if (kind.format == CacheFormat::bf16) return channels;
  const CacheLayout l = cache_layout(kind);
  const int64_t bytes = (l.pitch() + (l.in_rows() ? 0 : l.scale_bytes)) * page_size;
  return (bytes + l.block_multiple - 1) / l.block_multiple * l.block_multiple;
}

CacheFormat cache_format(std::string_view word) {
  const auto* found = std::find_if(std::begin(kLayouts), std::end(kLayouts),
                                   [&](const CacheLayout& layout) { return layout.word == word; });
  return static_cast<CacheFormat>(found - std::begin(kLayouts));
}

CacheKind cache_kind(const Call& c, const std::string& prefix) {
  const std::string_view own = c.word(prefix + "format");
  return {cache_format(own.empty() ? c.word("format") : own),
          c.find("cache_order") && c.word("cache_order") == "rows"};
}

void require_cache(const Call& c, int64_t channels, const std::string& prefix) {
  const CacheKind kind = cache_kind(c, prefix);
  const CacheLayout layout = cache_layout(kind);
  const std::string word(layout.word), cache_name = prefix + "cache";
  const std::string format = prefix + "format", page = prefix + "page_size";
  const bool is_plain = kind.format == CacheFormat::bf16;
  const int64_t page_size = c[page];
  const TensorView& cache = c.given(cache_name);
  const bool fits = is_plain ? channels >= kChannelMultiple && channels <= kMostChannels &&
                                   channels % kChannelMultiple == 0
                             : channels == layout.channels;
  c.need(fits, format, "parameter '" + format + "' does not go with the channels",
         (is_plain ? "a multiple of 64 channels, at most 1024, for "
                   : std::to_string(layout.channels) + " channels for ") +
             word,
         std::to_string(channels));
  const bool has_order =
      kLayouts[static_cast<size_t>(kind.format)].order == Order::either || !kind.in_rows;
  c.need(has_order, "cache_order", "parameter 'cache_order' does not go with the format",
         "the default for " + word, "rows");
  c.need(page_size >= 1 && page_size <= kMostTokens, page,
         "parameter '" + page + "' is out of range", "1 .. " + std::to_string(kMostTokens),
         std::to_string(page_size));
  const std::string argument = "argument '" + cache_name + "' has the wrong ";
  c.need(cache.dtype == (is_plain ? DType::bf16 : DType::u8), cache_name, argument + "dtype",
         (is_plain ? "bf16 for " : "u8 for ") + word, to_string(cache));
  const int64_t bytes = block_bytes(kind, channels, page_size);
  c.need(cache.shape[1] == bytes, cache_name, argument + "shape",
         "[.., " + std::to_string(bytes) + "] for " + word, to_string(cache));
  const int64_t multiple = is_plain ? layout.stride_multiple / 2 : layout.stride_multiple;
  c.need(cache.shape[0] <= 1 || cache.strides[0] % multiple == 0, cache_name, argument + "strides",
         "a row stride that is a multiple of " + std::to_string(multiple), to_string(cache));
}

int64_t cache_slots(const Call& c) {
  const bool is_plain = cache_kind(c).format == CacheFormat::bf16;
  return c["blocks"] * (is_plain ? 1 : c["page_size"]);
}

void require_locations(const Call& c, bool once) {
  const TensorView& locations = c.given("loc");
  if (!values_are_checked(locations)) return;
  const int64_t slots = cache_slots(c);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < locations.size(); ++i) {
    const int64_t slot = integer_at(locations, i);
    if (slot < 0) continue;
    const auto need = [&](bool condition, const std::string& expected) {
      c.need(condition, "loc", out_of_range("loc"), expected,
             std::to_string(slot) + " at " + to_string(Dims{i}));
    };
    need(slot < slots, "-1, or 0 .. " + std::to_string(slots - 1));
    if (once) need(seen.insert(slot).second, "each slot once");
  }
}

DType code_dtype(const CacheLayout& layout, bool is_raw) {
  return is_raw && bits(layout.codes) == 4 ? DType::e4m3 : layout.codes;
}

std::vector<Args::Tensor> cache_tensors(const Call& c, const std::string& prefix,
                                        const CacheViews& views) {
  const TensorView& cache = c.given(prefix + "cache");
  const CacheLayout layout = cache_layout(cache_kind(c, prefix));
  const auto seen = [&](const char* part, DType dtype) {
    return Args::Tensor{views.prefix + part, seen_as(cache, dtype)};
  };
  std::vector<Args::Tensor> tensors = {seen("cache", code_dtype(layout, views.is_raw))};
  if (layout.scale_bytes == 0) return tensors;
  if (layout.bf16_bytes() > 0) tensors.push_back(seen("cache_rotated", DType::bf16));
  tensors.push_back(seen("cache_scales", views.is_raw ? DType::u32 : layout.scale));
  return tensors;
}

}  // namespace tessera::kernels::serving
