#pragma once
// The JSON part of a cache entry: launch facts and the inputs of the key.

#include <optional>
#include <string>
#include <string_view>

#include "runtime/cache/key.h"
#include "runtime/image.h"

namespace tessera::runtime {

/// Encodes the key and all of the image except cubin and source.
std::string encode_manifest(const CacheKey& key, const Image& image);

struct Manifest {
  CacheKey key;
  Image image;  // cubin and source empty
};

/// Returns nothing if the text is no manifest or a value is out of range. Never throws.
std::optional<Manifest> decode_manifest(std::string_view text);

/// True for [A-Za-z_][A-Za-z0-9_]{0,63}: names that reach a path or a CUDA text.
bool is_identifier(std::string_view name);

}  // namespace tessera::runtime
