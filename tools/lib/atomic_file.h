#pragma once
// A file that appears whole or not at all: written under a temporary name in the same folder, then
// renamed.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tools {

/// Throws Error (argument) naming the path and the reason when the file cannot be created, written
/// or renamed; the temporary file is gone then, and whatever stood at `path` is as it was.
///
///   AtomicFile file("out.json");
///   file.write(text);
///   file.commit();
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes to the disk and renames. Without it the destructor removes the temporary file.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view action) const;

  std::string path_;    // as given, for messages
  std::string target_;  // symbolic links resolved
  std::string temporary_;
  int descriptor_ = -1;
};

}  // namespace tessera::tools
