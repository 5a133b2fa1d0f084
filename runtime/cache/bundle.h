#pragma once
// Many kernels compiled ahead of time in one read-only file. Its index does not depend on the
// compiler, so a program that finds its kernels here needs none.
//
//   offset  size
//        0     8   "TESSERAB"
//        8     4   schema (all integers little-endian)
//       12     4   number of kernels N
//       16    32   SHA-256 of the index
//       48         index: N rows, sorted, of kernel key (32), offset (8), size (8)
//                  then the kernels, each as in a cache file (entry.h)

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cache/entry.h"
#include "runtime/cache/folder.h"

namespace tessera::runtime {

/// True for a cache root that is a bundle: a file, or a path that ends in .tsb and is missing. No
/// folder is made where a bundle was expected.
bool is_bundle_path(const std::string& path);

/// An opened bundle. open() verifies the index, find() and at() verify each kernel.
class Bundle {
 public:
  /// Returns nothing, with the reason in `problem`, if the file is damaged or not trusted. With a
  /// `secret`, the kernels must be signed under it.
  static std::optional<Bundle> open(const std::string& path, CacheTrust trust, std::string& problem,
                                    const std::string& secret = {});

  size_t size() const { return rows_.size(); }
  bool contains(const CacheKey& kernel) const;
  /// Returns nothing if the kernel is not in the bundle; nothing and a `problem` if its bytes are
  /// damaged.
  std::optional<Image> find(const CacheKey& kernel, std::string& problem) const;
  /// Returns row `idx` of the index, for listings, with the kernel's size in the file.
  std::optional<Entry> at(size_t idx, std::string& problem) const;
  int64_t bytes_at(size_t idx) const { return static_cast<int64_t>(rows_.at(idx).size); }

 private:
  struct Row {
    std::array<char, 32> kernel;
    uint64_t offset = 0, size = 0;
  };
  const Row* row_of(const CacheKey& kernel) const;

  Descriptor fd_;
  std::vector<Row> rows_;
  std::string secret_;
};

struct BundleItem {
  CacheKey kernel;    // KernelKey::kernel
  std::string bytes;  // encode_entry
};

/// Returns the bytes of a bundle. The first of several items of one kernel wins. The order of the
/// items does not change the bytes.
std::string encode_bundle(std::vector<BundleItem> items);

/// True if `entry` is an entry of `kernel`, whichever compiler made it.
bool is_entry_of(const Entry& entry, const CacheKey& kernel);

}  // namespace tessera::runtime
