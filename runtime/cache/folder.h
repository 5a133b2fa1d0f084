#pragma once
// File-system steps of the disk cache and of the folders for dumps and overrides. A folder is opened
// once, checked by its descriptor and used by that descriptor. Files are read whole into memory,
// never mapped, and appear atomically. No step follows a symbolic link or waits for a pipe. A failed
// write is an error text, never a signal.

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/options.h"

namespace tessera::runtime {

/// Owns a descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }

 private:
  int value_ = -1;
};

/// An opened folder, or the reason why it is not open.
struct Folder {
  Descriptor fd;
  CacheTrust trust = CacheTrust::user;  // of the folder and all below it
  std::string problem;  // "is writable by group or others (mode 0777)"; empty if fd is open
  bool missing = false;
};

enum class Missing { leave, create };

/// Opens the cache root `path` if it can be trusted: an absolute path to a real directory (the last
/// component is no symbolic link), owned by this user or root, writable by neither group nor
/// others. New folders get mode 0700. CacheTrust::group also trusts folders that one of this user's
/// groups owns and may write; new folders get mode 0770 then, and files 0640.
Folder open_root(const std::string& path, Missing missing, CacheTrust trust = CacheTrust::user);

/// Does the same for a folder inside an opened one. `name` is one component.
Folder open_inside(const Folder& parent, const std::string& name, Missing missing);

/// Opens a folder that the user named for output (dumps), whoever else can write to it. Makes it if
/// it is missing. The last component may not be a symbolic link.
Folder open_output_folder(const std::string& path);

inline constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

/// The bytes of a file, or why it cannot be used. `seen` is the file's stat, for clear_place.
struct FileBytes {
  std::optional<std::string> bytes;
  std::string problem;
  bool missing = false;   // a reader finds nothing: there is no file, or its handle stays stale
  bool is_stale = false;  // missing by ESTALE only: a network mount may still have the file
  struct stat seen = {};
};
FileBytes read_file(const Folder& folder, const std::string& name,
                    int64_t max_bytes = kMaxFileBytes);

/// Reads a regular file that the user named, whoever owns it. Follows links.
FileBytes read_named_file(const std::string& path, int64_t max_bytes);

/// Opens a file by path for reading, under the same conditions. `problem` says why not.
Descriptor open_file(const std::string& path, CacheTrust trust, std::string& problem);

/// Why no file can be made in a folder, or a missing folder where it should be; "" if one was made. It is removed
/// again. For diagnostics.
std::string why_not_writable(const std::string& path);

/// True if the path, or its existing part, is on a network or user-space file system. Only
/// diagnostics use it: it explains slow starts.
bool is_on_network(const std::string& path);

/// Returns the names in a folder without "." and "..", unordered; nothing if reading fails.
std::optional<std::vector<std::string>> names_in(const Folder& folder);

/// Makes `name` appear with all of `bytes` or not at all. `staging` is a folder on the same file
/// system. An existing file is kept and counts as success: equal names have equal contents. Returns
/// an error text or "".
std::string publish_file(const Folder& staging, const Folder& folder, const std::string& name,
                         std::string_view bytes);

/// Does the same but replaces an existing file. The file gets mode 0644 less the umask: read_file
/// trusts it whatever the umask is.
std::string replace_file(const Folder& folder, const std::string& name, std::string_view bytes);

/// Removes the file that was read, unless another one replaced it. False if it stays.
bool remove_if_unchanged(const Folder& folder, const std::string& name, const struct stat& seen);

/// Removes the entry that was read. Renames a folder in its place that is not empty. Returns a note
/// for the warning, or "".
std::string clear_place(const Folder& folder, const std::string& name, const struct stat& seen);

/// Locks an open file until it is closed. `unsupported`: the file system has no locks.
enum class FileLock { taken, held_by_another, unsupported };
FileLock lock_file(int fd);

/// True for the name of a file being written: "tessera-<host>-<pid>-<32 digits>".
bool is_staged_name(std::string_view name);

/// Removes a bounded number of staged files an hour old or more: their writers crashed.
void sweep_stale_files(const Folder& staging);

}  // namespace tessera::runtime
