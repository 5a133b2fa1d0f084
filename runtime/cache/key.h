#pragma once
// The disk key: SHA-256 over named, length-prefixed fields in the order they are added. No
// separator, so no two different lists of fields share their bytes.

#include <string>
#include <string_view>
#include <vector>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// Bumped by hand when the meaning of a field or the container changes. Also a folder of the cache.
inline constexpr int kCacheSchema = 2;

struct KeyField {
  std::string name;
  std::string value;  // as it is if short and printable, else "sha256:..."
  friend bool operator==(const KeyField&, const KeyField&) = default;
};

struct CacheKey {
  std::string hex;               // 64 digits
  std::vector<KeyField> fields;  // kept in the entry: answers "why did it recompile"
  friend bool operator==(const CacheKey&, const CacheKey&) = default;
};

/// A kernel's two names.
struct KernelKey {
  CacheKey kernel;  // op, target, code and Spec or text: bundles are indexed by it
  CacheKey entry;  // and the compiler: folders are indexed by it. No hex: the compiler is not known
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
