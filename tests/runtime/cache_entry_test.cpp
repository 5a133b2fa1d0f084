// The container of a cache entry: what was written comes back, anything else is refused with a
// reason.

#include <string>

#include "runtime/cache/entry.h"
#include "runtime/cache/manifest.h"
#include "runtime/cache/sha256.h"
#include "tests/runtime/sample_image.h"
#include "tests/support/catch.h"

using namespace tessera;
using namespace tessera::runtime;
using test::sample_image;
using test::sample_key;

namespace {

std::string refusal(std::string_view bytes, const CacheKey& key = sample_key()) {
  std::string reason;
  const auto image = decode_entry(bytes, key, reason);
  return image ? "accepted" : reason;
}

// The container around a manifest of our choice, with right digests.
std::string with_manifest(const std::string& from, const std::string& to) {
  std::string bytes = encode_entry(sample_key(), sample_image());
  const std::string old = encode_manifest(sample_key(), sample_image());
  std::string changed = old;
  const size_t at = changed.find(from);
  REQUIRE(at != std::string::npos);
  changed.replace(at, from.size(), to);
  bytes.replace(bytes.find(old), old.size(), changed);
  const auto put_digest = [&](size_t offset, std::string_view of) {
    const Digest digest = sha256(of);
    for (size_t i = 0; i < digest.size(); ++i) bytes[offset + i] = static_cast<char>(digest.at(i));
  };
  for (size_t i = 0; i < 8; ++i) {
    bytes[16 + i] = static_cast<char>((changed.size() >> (8 * i)) & 0xFF);
  }
  put_digest(24, changed);
  put_digest(160, std::string_view(bytes).substr(0, 160));
  return bytes;
}

}  // namespace

TEST_CASE("SHA-256 is the standard's") {
  CHECK(to_hex(sha256("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(to_hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("an entry gives back what went in") {
  const Image image = sample_image();
  std::string reason;
  const auto back = decode_entry(encode_entry(sample_key(), image), sample_key(), reason);
  REQUIRE(back);
  CHECK(back->op == image.op);
  CHECK(back->entry == image.entry);
  CHECK(back->target == image.target);
  CHECK(back->threads == 256);
  CHECK(back->shared_bytes == 1024);
  CHECK(back->resources == image.resources);
  CHECK(back->cubin == image.cubin);
  CHECK(back->source == image.source);
  CHECK(back->log == image.log);
  CHECK(back->compiler == image.compiler);
  REQUIRE(back->params.size() == 3);
  CHECK(back->params[0].name == "x");
  CHECK(back->params[0].is_pointer);
  CHECK(back->params[0].dtype == DType::bf16);
  CHECK_FALSE(back->params[1].is_pointer);
  CHECK_FALSE(back->params[1].map);
  CHECK(back->params[2].map == TensorMapParam{0, {64, 32}, 64});
}

TEST_CASE("an entry keeps a map of no tensor, which the kernel completes") {
  Image image = sample_image();
  image.params[2].map->tensor = TensorMapParam::kNoTensor;
  std::string reason;
  const auto back = decode_entry(encode_entry(sample_key(), image), sample_key(), reason);
  REQUIRE(back);
  CHECK(back->params.at(2).map == TensorMapParam{TensorMapParam::kNoTensor, {64, 32}, 64});
}

TEST_CASE("an entry that is truncated at any length is refused") {
  const std::string bytes = encode_entry(sample_key(), sample_image());
  for (size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    CHECK(refusal(std::string_view(bytes).substr(0, length)) == "truncated");
  }
  CHECK(refusal(bytes + "x") == "bytes after the last section");
}

TEST_CASE("an entry with any bit flipped is refused") {
  const std::string bytes = encode_entry(sample_key(), sample_image());
  REQUIRE(refusal(bytes) == "accepted");
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      if (refusal(changed) == "accepted") FAIL("byte " << i << " bit " << bit);
    }
  }
}

TEST_CASE("the reason for a refusal names the section") {
  const std::string bytes = encode_entry(sample_key(), sample_image());
  const auto flipped = [&](size_t at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    return refusal(changed);
  };
  CHECK(flipped(0) == "not a cache entry");
  CHECK(flipped(20) == "the header has the wrong digest");
  CHECK(flipped(200) == "section manifest has the wrong digest");
  CHECK(flipped(bytes.find("the code")) == "section cubin has the wrong digest");
  CHECK(flipped(bytes.size() - 1) == "section source has the wrong digest");
}

TEST_CASE("an entry for another key is refused") {
  const std::string bytes = encode_entry(sample_key(), sample_image());
  CHECK(refusal(bytes, sample_key("other")) == "holds another key");
}

TEST_CASE("an entry without a CUDA binary is refused") {
  Image image = sample_image();
  image.cubin = "not an ELF";
  CHECK(refusal(encode_entry(sample_key(), image)) == "holds no CUDA binary");
}

TEST_CASE("a manifest is refused if a value is missing, of another type or out of range") {
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": 128")) == "accepted");
  const std::string broken = "the manifest cannot be read";
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": 0")) == broken);
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": 1025")) == broken);
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": \"256\"")) == broken);
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": 2.5")) == broken);
  CHECK(refusal(with_manifest("\"threads\"", "\"thread\"")) == broken);
  CHECK(refusal(with_manifest("\"shared_bytes\": 1024", "\"shared_bytes\": -1")) == broken);
  CHECK(refusal(with_manifest("\"shared_bytes\": 1024",
                              "\"shared_bytes\": 18446744073709551615")) == broken);
  CHECK(refusal(with_manifest("sm_90a", "sm_90z")) == broken);
  CHECK(refusal(with_manifest("scale_kernel", "scale kernel")) == broken);
  CHECK(refusal(with_manifest("bf16", "bf17")) == broken);
  CHECK(refusal(with_manifest("\"pointer\": true", "\"pointer\": 1")) == broken);
  CHECK(refusal(with_manifest("{", "")) == broken);
  CHECK(refusal(with_manifest("\"threads\": 256", "\"threads\": [[[[[[[[1]]]]]]]]")) == broken);
}

TEST_CASE("keys are sensitive to every field and to where it ends") {
  const auto key = [](std::string_view a, std::string_view b) {
    return KeyBuilder().add("a", a).add("b", b).finish().hex;
  };
  CHECK(key("1", "2") == key("1", "2"));
  CHECK(key("1", "2") != key("2", "1"));
  CHECK(key("12", "") != key("1", "2"));
  CHECK(key("", "12") != key("1", "2"));
  CHECK(KeyBuilder().add("ab", "c").finish().hex != KeyBuilder().add("a", "bc").finish().hex);
  CHECK(KeyBuilder().add("a", "").finish().hex != KeyBuilder().finish().hex);
  const CacheKey shown =
      KeyBuilder().add("short", "x").add("bytes", std::string("\0\1", 2)).finish();
  REQUIRE(shown.fields.size() == 3);
  CHECK(shown.fields[0] == KeyField{"schema", "2"});
  CHECK(shown.fields[1] == KeyField{"short", "x"});
  CHECK(shown.fields[2].value.substr(0, 7) == "sha256:");
}

TEST_CASE("identifiers are what may reach a path or a CUDA text") {
  CHECK(is_identifier("per_token_cast"));
  CHECK(is_identifier("_x9"));
  CHECK_FALSE(is_identifier(""));
  CHECK_FALSE(is_identifier("9x"));
  CHECK_FALSE(is_identifier("../x"));
  CHECK_FALSE(is_identifier("a b"));
  CHECK(is_identifier(std::string(64, 'a')));
  CHECK_FALSE(is_identifier(std::string(65, 'a')));
}
