#include "runtime/cache/entry.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/cache/little_endian.h"
#include "runtime/cache/manifest.h"
#include "runtime/cache/sha256.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kEntryMagic = "TESSERA\n";
constexpr std::array<std::string_view, 3> kSections = {"manifest", "cubin", "source"};
constexpr size_t kPrefixBytes = 16;
constexpr size_t kSectionBytes = 48;
constexpr size_t kSignedOffset = 44;  // in a section's row
constexpr size_t kTableEnd = kPrefixBytes + kSections.size() * kSectionBytes;
constexpr size_t kEntryHeaderBytes = kTableEnd + sizeof(Digest);

std::string_view as_text(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// True for the ELF header of a cubin: magic, 64 bits, little-endian, EM_CUDA. The digest is the
// real check.
bool looks_like_cubin(std::string_view cubin) {
  constexpr uint16_t kElfMachineCuda = 190;
  return cubin.size() >= 64 &&
         cubin.substr(0, 6) == std::string_view(
                                   "\x7F"
                                   "ELF\x02\x01",
                                   6) &&
         read_integer<uint16_t>(cubin, 18) == kElfMachineCuda;
}

// Returns the bytes after the header: its digest, or its signature.
Digest seal_of(std::string_view header, const std::string& secret) {
  return secret.empty() ? sha256(header) : hmac_sha256(secret, header);
}

// Returns the payloads of the sections, or nothing and the reason.
std::optional<std::array<std::string_view, 3>> split(std::string_view bytes, std::string& reason,
                                                     const std::string& secret) {
  if (bytes.size() < kEntryHeaderBytes) return reason = "truncated", std::nullopt;
  if (bytes.substr(0, kEntryMagic.size()) != kEntryMagic)
    return reason = "not a cache entry", std::nullopt;
  const Digest seal = seal_of(bytes.substr(0, kTableEnd), secret);
  if (!is_same(seal, bytes.substr(kTableEnd, sizeof(Digest)))) {
    reason = !secret.empty() ? "it is not signed by this site"
             : is_signed(bytes)
                 ? "it is signed, and this process has no secret (TESSERA_CACHE_KEY_FILE)"
                 : "the header has the wrong digest";
    return std::nullopt;
  }
  const auto schema = read_integer<uint32_t>(bytes, 8);
  const auto count = read_integer<uint32_t>(bytes, 12);
  if (schema != kCacheSchema || count != kSections.size()) {
    return reason = fmt::format("schema {} with {} sections", schema, count), std::nullopt;
  }
  std::array<std::string_view, 3> sections;
  std::string_view rest = bytes.substr(kEntryHeaderBytes);
  for (size_t i = 0; i < sections.size(); ++i) {
    const size_t row = kPrefixBytes + i * kSectionBytes;
    const auto size = read_integer<uint64_t>(bytes, row);
    if (size > rest.size()) return reason = "truncated", std::nullopt;
    sections.at(i) = rest.substr(0, size);
    rest.remove_prefix(size);
    if (bytes.substr(row + 8, sizeof(Digest)) != as_text(sha256(sections.at(i)))) {
      reason = fmt::format("section {} has the wrong digest", kSections.at(i));
      return std::nullopt;
    }
  }
  if (!rest.empty()) return reason = "bytes after the last section", std::nullopt;
  return sections;
}

}  // namespace

std::string encode_entry(const CacheKey& key, const Image& image, const std::string& secret) {
  const std::string manifest = encode_manifest(key, image);
  const std::array<std::string_view, 3> sections = {manifest, image.cubin, image.source};
  std::string bytes(kEntryMagic);
  append_integer(bytes, uint32_t{kCacheSchema});
  append_integer(bytes, static_cast<uint32_t>(sections.size()));
  for (size_t i = 0; i < sections.size(); ++i) {
    append_integer(bytes, uint64_t{sections.at(i).size()});
    bytes += as_text(sha256(sections.at(i)));
    append_integer(bytes, static_cast<uint32_t>(i));
    append_integer(bytes, uint32_t{secret.empty() ? 0U : 1U});
  }
  bytes += as_text(seal_of(bytes, secret));
  for (const std::string_view section : sections) bytes += section;
  return bytes;
}

std::optional<Entry> decode_entry(std::string_view bytes, std::string& reason,
                                  const std::string& secret) {
  const auto sections = split(bytes, reason, secret);
  if (!sections) return std::nullopt;
  const auto& [manifest_text, cubin, source] = *sections;
  auto manifest = decode_manifest(manifest_text);
  if (!manifest) return reason = "the manifest cannot be read", std::nullopt;
  Entry entry{std::move(manifest->key), std::move(manifest->image)};
  if (!looks_like_cubin(cubin)) return reason = "holds no CUDA binary", std::nullopt;
  entry.image.cubin = cubin;
  entry.image.source = source;
  entry.image.key = entry.key;
  return entry;
}

std::optional<Image> decode_entry(std::string_view bytes, const CacheKey& key, std::string& reason,
                                  const std::string& secret) {
  auto entry = decode_entry(bytes, reason, secret);
  if (!entry) return std::nullopt;
  if (entry->key != key) return reason = "holds another key", std::nullopt;
  return std::move(entry->image);
}

// Every row carries the flag, so that one flipped bit cannot make a damaged file look signed.
bool is_signed(std::string_view bytes) {
  if (bytes.size() < kEntryHeaderBytes || bytes.substr(0, kEntryMagic.size()) != kEntryMagic)
    return false;
  for (size_t i = 0; i < kSections.size(); ++i) {
    const size_t row = kPrefixBytes + i * kSectionBytes;
    if (read_integer<uint32_t>(bytes, row + kSignedOffset) != 1) return false;
  }
  return true;
}

}  // namespace tessera::runtime
