#include "runtime/cache/bundle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "runtime/cache/little_endian.h"
#include "runtime/cache/sha256.h"

namespace tessera::runtime {
namespace {

constexpr std::string_view kBundleMagic = "TESSERAB";
constexpr size_t kBundleHeaderBytes = 48;
constexpr size_t kRowBytes = 48;
constexpr uint64_t kMaxKernels = uint64_t{1} << 20;
constexpr uint64_t kMaxEntryBytes = uint64_t{256} << 20;

std::string read_at(int fd, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count =
        pread(fd, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

// Converts 64 hexadecimal digits to their 32 bytes.
std::array<char, 32> raw(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::array<char, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(digit(hex.at(2 * i)) * 16 + digit(hex.at(2 * i + 1)));
  }
  return bytes;
}

std::string_view text_of(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

bool is_bundle_path(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0) return S_ISREG(info.st_mode);
  return path.ends_with(".tsb");
}

std::optional<Bundle> Bundle::open(const std::string& path, CacheTrust trust, std::string& problem,
                                   const std::string& secret) {
  Bundle bundle;
  bundle.secret_ = secret;
  bundle.fd_ = open_file(path, trust, problem);
  if (!bundle.fd_) return std::nullopt;
  const std::string header = read_at(bundle.fd_.get(), 0, kBundleHeaderBytes);
  if (header.size() < kBundleHeaderBytes || header.substr(0, kBundleMagic.size()) != kBundleMagic) {
    return problem = "is not a bundle", std::nullopt;
  }
  if (const auto schema = read_integer<uint32_t>(header, 8); schema != kCacheSchema) {
    problem = fmt::format("has schema {}, needed is {}", schema, kCacheSchema);
    return std::nullopt;
  }
  const auto count = read_integer<uint32_t>(header, 12);
  if (count > kMaxKernels) return problem = "is damaged (index)", std::nullopt;
  const std::string index = read_at(bundle.fd_.get(), kBundleHeaderBytes, count * kRowBytes);
  if (index.size() != count * kRowBytes || header.substr(16) != text_of(sha256(index))) {
    return problem = "is damaged (index)", std::nullopt;
  }
  bundle.rows_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Row& row = bundle.rows_[i];
    std::memcpy(row.kernel.data(), index.data() + i * kRowBytes, row.kernel.size());
    row.offset = read_integer<uint64_t>(index, i * kRowBytes + 32);
    row.size = read_integer<uint64_t>(index, i * kRowBytes + 40);
  }
  return bundle;
}

const Bundle::Row* Bundle::row_of(const CacheKey& kernel) const {
  const std::array<char, 32> wanted = raw(kernel.hex);
  const auto less = [](const Row& row, const std::array<char, 32>& key) {
    return std::memcmp(row.kernel.data(), key.data(), key.size()) < 0;
  };
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), wanted, less);
  return found != rows_.end() && found->kernel == wanted ? &*found : nullptr;
}

bool Bundle::contains(const CacheKey& kernel) const {
  return row_of(kernel) != nullptr;
}

std::optional<Image> Bundle::find(const CacheKey& kernel, std::string& problem) const {
  const Row* row = row_of(kernel);
  if (!row) return std::nullopt;
  auto entry = at(static_cast<size_t>(row - rows_.data()), problem);
  if (!entry) return std::nullopt;
  if (!is_entry_of(*entry, kernel)) return problem = "holds another key", std::nullopt;
  return std::move(entry->image);
}

std::optional<Entry> Bundle::at(size_t idx, std::string& problem) const {
  const Row& row = rows_.at(idx);
  if (row.size > kMaxEntryBytes) return problem = "is too large", std::nullopt;
  return decode_entry(read_at(fd_.get(), row.offset, row.size), problem, secret_);
}

std::string encode_bundle(std::vector<BundleItem> items) {
  std::map<std::array<char, 32>, std::string> sorted;
  for (BundleItem& item : items) sorted.emplace(raw(item.kernel.hex), std::move(item.bytes));
  // std::array<char> compares signed chars; the index is sorted by unsigned bytes.
  std::vector<const decltype(sorted)::value_type*> rows;
  for (const auto& item : sorted) rows.push_back(&item);
  std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) {
    return std::memcmp(a->first.data(), b->first.data(), a->first.size()) < 0;
  });
  std::string index;
  uint64_t offset = kBundleHeaderBytes + rows.size() * kRowBytes;
  for (const auto* row : rows) {
    index.append(row->first.data(), row->first.size());
    append_integer(index, offset);
    append_integer(index, uint64_t{row->second.size()});
    offset += row->second.size();
  }
  std::string bytes(kBundleMagic);
  append_integer(bytes, uint32_t{kCacheSchema});
  append_integer(bytes, static_cast<uint32_t>(rows.size()));
  bytes += text_of(sha256(index));
  bytes += index;
  for (const auto* row : rows) bytes += row->second;
  return bytes;
}

bool is_entry_of(const Entry& entry, const CacheKey& kernel) {
  const std::vector<KeyField>& fields = entry.key.fields;
  return fields.size() >= kernel.fields.size() &&
         std::equal(kernel.fields.begin(), kernel.fields.end(), fields.begin());
}

}  // namespace tessera::runtime
