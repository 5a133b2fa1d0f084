#pragma once
// A folder for temporary files that only this user can read.

#include <string>

namespace tessera::tools {

/// Made in the system's folder for temporary files, removed with all that is in it at the end.
class PrivateFolder {
 public:
  /// Throws a load error if it cannot be made.
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tessera::tools
