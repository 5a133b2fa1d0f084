#include "runtime/cache/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "dsl/base/error.h"

namespace tessera::runtime {

Digest sha256(std::string_view bytes) {
  Digest digest{};
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  TESSERA_CHECK(done == 1, "SHA-256 is not available");
  return digest;
}

std::string to_hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tessera::runtime
