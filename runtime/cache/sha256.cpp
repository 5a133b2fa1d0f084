#include "runtime/cache/sha256.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "dsl/base/error.h"

namespace tessera::runtime {

Digest sha256(std::string_view bytes) {
  Digest digest{};
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  TESSERA_CHECK(done == 1, "SHA-256 is not available");
  return digest;
}

Digest hmac_sha256(std::string_view secret, std::string_view bytes) {
  Digest digest{};
  unsigned size = 0;
  const auto* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                          reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                          digest.data(), &size);
  TESSERA_CHECK(done && size == digest.size(), "HMAC-SHA256 is not available");
  return digest;
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
