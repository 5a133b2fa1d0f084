#pragma once
// Opening libraries at run time, behind a table so that tests can stand in for the system.

#include <functional>
#include <optional>
#include <string>

namespace tessera::runtime {

/// Libraries are never closed: the driver may be gone before static destructors run.
struct LibraryLoader {
  /// Opens by path or by name; null and a reason in `error` on failure.
  std::function<void*(const std::string& path, std::string& error)> open;
  /// Only if the process has it mapped already.
  std::function<void*(const std::string& name)> open_mapped;
  /// Null if there is no such symbol.
  std::function<void*(void* library, const char* symbol)> symbol;
  /// Path of the file which `address` belongs to; empty if unknown.
  std::function<std::string(const void* address)> path_of;
};

/// dlopen, dlsym, dladdr.
const LibraryLoader& system_loader();

/// The GNU build id of the mapped image which holds `address`, in hex; empty if it has none.
std::string build_id_of(const void* address);

/// What identifies the code of an image: its build id, else the SHA-256 of its file. Empty if
/// neither can be had.
std::string image_identity(const void* address);

}  // namespace tessera::runtime
