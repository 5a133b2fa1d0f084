#pragma once
// Regular files that somebody else made: no FIFO is waited for and no device is read without end.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::tools {

/// An open file whose size is fixed when it is opened. Throws Error (argument) naming the path when
/// it cannot be opened or read, or is not a regular file.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  int64_t size() const { return size_; }
  /// Bytes from `offset` on, exactly as many as `into` holds.
  void read(int64_t offset, std::span<std::byte> into) const;

 private:
  void close();

  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

/// The whole of a text file of at most `most` bytes; a longer one is an Error (argument) too.
std::string read_text_file(const std::string& path, int64_t most);

}  // namespace tessera::tools
