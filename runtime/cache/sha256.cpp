// Uses OpenSSL functions that touch only their own state. OpenSSL's newer interface reads tables
// that it frees at exit, while our threads may still run.

#define OPENSSL_SUPPRESS_DEPRECATED
#include "runtime/cache/sha256.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "dsl/base/error.h"

namespace tessera::runtime {
namespace {

constexpr size_t kBlockBytes = SHA256_CBLOCK;
using Block = std::array<uint8_t, kBlockBytes>;

Digest digest_of(std::string_view first, std::string_view second) {
  SHA256_CTX state;
  Digest digest{};
  const bool done = SHA256_Init(&state) == 1 &&
                    SHA256_Update(&state, first.data(), first.size()) == 1 &&
                    SHA256_Update(&state, second.data(), second.size()) == 1 &&
                    SHA256_Final(digest.data(), &state) == 1;
  TESSERA_CHECK(done, "SHA-256 is not available");
  return digest;
}

template <class Bytes>
std::string_view text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Digest sha256(std::string_view bytes) {
  return digest_of(bytes, {});
}

// RFC 2104.
Digest hmac_sha256(std::string_view secret, std::string_view bytes) {
  Block key{};
  const Digest short_key = sha256(secret);
  if (secret.size() > kBlockBytes) secret = text_of(short_key);
  std::copy(secret.begin(), secret.end(), key.begin());
  Block inner{}, outer{};
  for (size_t i = 0; i < kBlockBytes; ++i) {
    inner[i] = key[i] ^ 0x36;
    outer[i] = key[i] ^ 0x5C;
  }
  return digest_of(text_of(outer), text_of(digest_of(text_of(inner), bytes)));
}

bool is_same(const Digest& a, std::string_view b) {
  return b.size() == a.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tessera::runtime
