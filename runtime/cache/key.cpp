#include "runtime/cache/key.h"

#include <algorithm>
#include <cstdint>

#include "runtime/cache/little_endian.h"
#include "runtime/cache/sha256.h"

namespace tessera::runtime {
namespace {

constexpr size_t kMaxShownValue = 200;  // longer values (sources) are stored as digests

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

KeyBuilder::KeyBuilder() {
  add("schema", std::to_string(kCacheSchema));
}

KeyBuilder& KeyBuilder::add(std::string_view name, std::string_view value) {
  for (const std::string_view part : {name, value}) {
    append_integer(bytes_, uint64_t{part.size()});
    bytes_ += part;
  }
  const bool shown = value.size() <= kMaxShownValue && is_printable(value);
  fields_.push_back(
      {std::string(name), shown ? std::string(value) : "sha256:" + to_hex(sha256(value))});
  return *this;
}

CacheKey KeyBuilder::finish() const {
  return {to_hex(sha256(bytes_)), fields_};
}

}  // namespace tessera::runtime
