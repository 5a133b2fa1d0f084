#pragma once
// Many compiled kernels in one read-only file, made ahead of time. Indexed by what a kernel is,
// without the compiler that made it, so a program that finds its kernels here needs no compiler.
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

/// An opened bundle. The index is verified when it is opened, a kernel when it is read.
class Bundle {
 public:
  /// Nothing, and in `problem` why, if the file is not a whole bundle or cannot be trusted. Its
  /// kernels must be signed under `secret`, if there is one.
  static std::optional<Bundle> open(const std::string& path, CacheTrust trust, std::string& problem,
                                    const std::string& secret = {});

  size_t size() const { return rows_.size(); }
  bool contains(const CacheKey& kernel) const;
  /// Nothing if it is not in the bundle; nothing and a `problem` if its bytes are damaged.
  std::optional<Image> find(const CacheKey& kernel, std::string& problem) const;
  /// The kernel at a place of the index, for listings, and its size in the file.
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

/// The bytes of a bundle. Of two items of one kernel the first is kept. The same items give the
/// same bytes in any order.
std::string encode_bundle(std::vector<BundleItem> items);

/// Whether `entry` is the entry of `kernel`, made by whatever compiler.
bool is_entry_of(const Entry& entry, const CacheKey& kernel);

}  // namespace tessera::runtime
