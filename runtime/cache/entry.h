#pragma once
// One cache file: a header with one digest per section, then the sections. The reader trusts
// nothing.
//
//   offset  size
//        0     8   "TESSERA\n"
//        8     4   schema (all integers little-endian)
//       12     4   number of sections, 3
//       16    48   per section: size (8), SHA-256 (32), kind (4), 1 in signed files, else 0 (4)
//      160    32   SHA-256 of the 160 bytes before, or their HMAC under the site's secret (site_key.h)
//      192         manifest (JSON), cubin, source, one after the other, nothing behind them

#include <optional>
#include <string>
#include <string_view>

#include "runtime/cache/key.h"
#include "runtime/image.h"

namespace tessera::runtime {

/// Returns the bytes of a cache file, signed if there is a secret.
std::string encode_entry(const CacheKey& key, const Image& image, const std::string& secret = {});

/// Returns the image in `bytes`, or nothing with a `reason` ("truncated", "section cubin has the
/// wrong digest", "holds another key", ...). Work is bounded for any input. Never throws.
std::optional<Image> decode_entry(std::string_view bytes, const CacheKey& key, std::string& reason,
                                  const std::string& secret = {});

/// The same for any key.
struct Entry {
  CacheKey key;
  Image image;
};
std::optional<Entry> decode_entry(std::string_view bytes, std::string& reason,
                                  const std::string& secret = {});

/// True if the file claims to be signed. A reader without the secret needs this to tell it from a
/// damaged one.
bool is_signed(std::string_view bytes);

}  // namespace tessera::runtime
