#pragma once
// The secret of a site. With a secret, entries carry an HMAC and unsigned entries are misses: an
// attacker who can write the cache but not read the secret cannot run a kernel. Without one,
// digests protect against accidents only.

#include <string>

namespace tessera::runtime {

/// Reads the secret from a file: 16 to 4096 bytes, owned by this user or root, neither readable nor
/// writable by others (0600 or 0640). Returns "" with the reason in `problem` if it cannot be used.
std::string read_site_key(const std::string& path, std::string& problem);

}  // namespace tessera::runtime
