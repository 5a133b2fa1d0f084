#pragma once
// The secret of a site. Where one is given, entries carry an HMAC under it and others are misses:
// who can write the cache but not read the secret cannot make a kernel run. Without one, digests
// protect against accidents only.

#include <string>

namespace tessera::runtime {

/// The secret in a file: 16 to 4096 bytes, owned by this user or root, for others neither readable
/// nor writable (0600 or 0640). Empty, and in `problem` why, if it cannot be used.
std::string read_site_key(const std::string& path, std::string& problem);

}  // namespace tessera::runtime
