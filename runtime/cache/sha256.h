#pragma once
// SHA-256 of bytes in memory.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::runtime {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view secret, std::string_view bytes);
/// Compares in constant time.
bool is_same(const Digest& a, std::string_view b);
std::string to_hex(const Digest& digest);  // 64 lower-case digits

}  // namespace tessera::runtime
