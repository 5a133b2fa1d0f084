#pragma once
// A file that appears whole or not at all. It has no name until it is committed, so neither an error
// nor a signal, kill -9 included, leaves a part of it behind.

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::tools {

/// Replaces or creates a file on commit(). The file keeps the mode of the one it replaces, and its
/// owner and group where that is allowed; other hard links keep the old contents. A symbolic link
/// is followed, a dangling one too.
///
/// The constructor opens the folder for writing, so a command tries its output before it works.
/// Throws Error (argument) naming the path and the reason when the file cannot be created, written
/// or put in place; whatever stood at `path` is as it was then.
///
/// NOTE: a file system without O_TMPFILE (NFS, FUSE) needs a temporary name from the first write()
/// to commit(); a signal in between leaves `.tessera-<8 hex>.tmp`.
///
///   AtomicFile file("out.json");
///   file.write(text);
///   file.commit();
class AtomicFile {
 public:
  /// `withheld`: permission bits that the file does not get.
  explicit AtomicFile(const std::string& path, mode_t withheld = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Flushes to the disk and gives the file its name. Without it the destructor drops the file.
  void commit();

 private:
  [[noreturn]] void fail(std::string_view action) const;
  void open_named();
  /// Those of the file that is replaced.
  void keep_permissions() const;
  void put_in_place();

  std::string path_;       // as given, for messages
  std::string target_;     // symbolic links resolved
  std::string folder_;     // of target_
  std::string temporary_;  // empty while the file has no name
  mode_t withheld_;
  int descriptor_ = -1;
};

}  // namespace tessera::tools
