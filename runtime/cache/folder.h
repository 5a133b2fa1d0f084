#pragma once
// File-system steps of the disk cache and of the folders for dumps and overrides: folders are opened,
// judged by their descriptor and used by descriptor from then on; files are read whole into memory
// (never mapped) and appear in one step. No symbolic link is followed and no pipe waited for. A write
// that fails is an error text, never a signal.

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

/// A folder, or why there is none.
struct Folder {
  Descriptor fd;
  CacheTrust trust = CacheTrust::user;  // of all below it
  std::string problem;  // "is writable by group or others (mode 0777)"; empty if fd is open
  bool missing = false;
};

enum class Missing { leave, create };

/// Opens the cache root `path` if it can be trusted: an absolute path to a real directory (no
/// symbolic link as last component), owned by this user or by root, not writable by group or
/// others. Created folders have mode 0700. With CacheTrust::group also those that belong to a group
/// of this user and are writable by it; created folders have mode 0770 then, and files 0640.
Folder open_root(const std::string& path, Missing missing, CacheTrust trust = CacheTrust::user);

/// The same for a folder inside an opened one. `name` is one component.
Folder open_inside(const Folder& parent, const std::string& name, Missing missing);

/// Opens a folder that the user named for files of his own (dumps), whoever else can write it, and
/// makes it if it is missing. The last component may not be a symbolic link.
Folder open_output_folder(const std::string& path);

inline constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

/// A file's bytes, or why it cannot be used. `seen` is what was there, for clear_place.
struct FileBytes {
  std::optional<std::string> bytes;
  std::string problem;
  bool missing = false;
  struct stat seen = {};
};
FileBytes read_file(const Folder& folder, const std::string& name,
                    int64_t max_bytes = kMaxFileBytes);

/// The bytes of a regular file that the user named, whoever owns it; links are followed.
FileBytes read_named_file(const std::string& path, int64_t max_bytes);

/// Opens a file by path for reading, under the same conditions. `problem` says why not.
Descriptor open_file(const std::string& path, CacheTrust trust, std::string& problem);

/// Whether the path, or what exists of it, is on a network or user-space file system. Nothing is
/// done differently there; it explains slow starts.
bool is_on_network(const std::string& path);

/// Names in a folder, without "." and "..", in no order. Nothing if they cannot be read to the end.
std::optional<std::vector<std::string>> names_in(const Folder& folder);

/// Makes `name` appear with all of `bytes` or not at all. `staging` is a folder on the same file
/// system. An existing file stays as it is and counts as success: whoever came first had the same
/// content. Returns an error text or "".
std::string publish_file(const Folder& staging, const Folder& folder, const std::string& name,
                         std::string_view bytes);

/// The same for a file that replaces what has its name. Its mode is left to the umask.
std::string replace_file(const Folder& folder, const std::string& name, std::string_view bytes);

/// Removes what is still the thing that was read. False if it stays.
bool remove_if_unchanged(const Folder& folder, const std::string& name, const struct stat& seen);

/// Removes the entry that was read; a folder that is not empty is renamed. Returns a note for the
/// warning, or "".
std::string clear_place(const Folder& folder, const std::string& name, const struct stat& seen);

/// Whether a file being written has this name until it is whole: "tessera-<host>-<pid>-<32 digits>".
bool is_staged_name(std::string_view name);

/// Removes staged files of crashed writers, an hour old or more, a bounded number of them.
void sweep_stale_files(const Folder& staging);

}  // namespace tessera::runtime
