#pragma once
// Puts off the writes to the disk cache until the launch is made.

#include <functional>
#include <vector>

namespace tessera::runtime {

/// While one lives, its thread keeps compiled kernels on disk only when it ends: no launch waits for a slow disk.
class StoreLater {
 public:
  StoreLater();
  ~StoreLater();
  StoreLater(const StoreLater&) = delete;
  StoreLater& operator=(const StoreLater&) = delete;

  /// Runs `store` when the innermost StoreLater of this thread ends; now if there is none.
  static void run(std::function<void()> store);

 private:
  StoreLater* const outer_;
  std::vector<std::function<void()>> stores_;
};

}  // namespace tessera::runtime
