#include "kernels/serving/cache/parts/cache_cases.h"

#include <algorithm>

#include "kernels/serving/parts/cache_format.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kApart = 7919;  // a prime: neighbours lie apart

std::string_view word_of(const Case& c, const char* param) {
  return std::get<std::string>(c.params().at(param));
}

CacheKind kind_of(const Case& c) {
  return {cache_format(word_of(c, "format")), word_of(c, "cache_order") == "rows"};
}

int64_t block_tokens(const Case& c) {
  return kind_of(c).format == CacheFormat::bf16 ? 1 : c["page_size"];
}

}  // namespace

int64_t cached_channels(const Case& c) {
  if (c.find("d")) return c["d"];
  const CacheKind kind = kind_of(c);
  return kind.format == CacheFormat::bf16 ? c["bytes"] : cache_layout(kind).channels;
}

int64_t cached_blocks(const Case& c) {
  const int64_t tokens = block_tokens(c);
  return (std::max<int64_t>(c["T"], 1) + tokens - 1) / tokens;
}

int64_t cached_bytes(const Case& c) {
  return block_bytes(kind_of(c), cached_channels(c), c["page_size"]);
}

int64_t cached_location(const Case& c, int64_t token) {
  return token * kApart % (cached_blocks(c) * block_tokens(c));
}

int64_t cached_position(const Case& c, int64_t token) {
  return token * kApart % c["angles"];
}

int64_t cached_token_bytes(const Case& c) {
  const CacheKind kind = kind_of(c);
  if (kind.format == CacheFormat::bf16) return 2 * cached_channels(c);
  const CacheLayout layout = cache_layout(kind);
  return layout.code_bytes() + layout.bf16_bytes() + layout.scale_bytes;
}

}  // namespace tessera::kernels::serving
