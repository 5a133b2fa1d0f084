#pragma once
// Opens libraries at run time through a table of functions, which tests replace.

#include <functional>
#include <optional>
#include <string>

#include "dsl/base/api.h"

namespace tessera::runtime {

/// Libraries are never closed: the driver may unload before static destructors run.
struct LibraryLoader {
  /// Opens by path or by name; null and a reason in `error` on failure.
  std::function<void*(const std::string& path, std::string& error)> open;
  /// Opens the library only if the process has mapped it already; else null.
  std::function<void*(const std::string& name)> open_mapped;
  /// Null if there is no such symbol.
  std::function<void*(void* library, const char* symbol)> symbol;
  /// Path of an opened library's file.
  std::function<std::string(void* library)> path_of;
  /// The identity of its code, see image_identity.
  std::function<std::string(void* library)> identity_of;
  /// The same for a library that is not opened: nothing if there is no such file, "" if it has no
  /// build id.
  std::function<std::optional<std::string>(const std::string& path)> identity_of_file;
};

/// dlopen, dlsym, dlinfo.
TESSERA_API const LibraryLoader& system_loader();

/// Identifies the code of the mapped image that holds `address`: "build-id 65be0d...", else "sha256
/// ..." of its file. "" if neither can be had.
TESSERA_API std::string image_identity(const void* address);

}  // namespace tessera::runtime
