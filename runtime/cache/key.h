#pragma once
// The disk key: SHA-256 over named, length-prefixed fields in the order of their addition. Lengths
// instead of separators keep different lists of fields apart.

#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// Bump by hand when the meaning of a field or the container changes. Also names a folder of the
/// cache.
inline constexpr int kCacheSchema = 2;

struct KeyField {
  std::string name;
  std::string value;  // verbatim if short and printable, else "sha256:..."
  friend bool operator==(const KeyField&, const KeyField&) = default;
};

struct CacheKey {
  std::string hex;               // 64 digits
  std::vector<KeyField> fields;  // stored in the entry, to explain a recompile
  friend bool operator==(const CacheKey&, const CacheKey&) = default;
};

/// The two keys of a kernel.
struct KernelKey {
  CacheKey kernel;  // op, target, code and Spec or text: the index of bundles
  CacheKey entry;   // and the compiler: the index of folders. No hex if the compiler is unknown
};

/// Example: CacheKey key = KeyBuilder().add("op", "transpose").add("target", "sm_90a").finish();
class TESSERA_API KeyBuilder {
 public:
  KeyBuilder();  // adds the schema
  KeyBuilder& add(std::string_view name, std::string_view value);
  CacheKey finish() const;

 private:
  std::string bytes_;
  std::vector<KeyField> fields_;
};

}  // namespace tessera::runtime
