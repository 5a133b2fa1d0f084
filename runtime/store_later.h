#pragma once
// Delays writes to the disk cache until after the launch.

#include <functional>
#include <vector>

namespace tessera::runtime {

/// While one lives, its thread delays writes of compiled kernels to disk until it ends: no launch waits for a
/// slow disk.
class StoreLater {
 public:
  StoreLater();
  ~StoreLater();
  StoreLater(const StoreLater&) = delete;
  StoreLater& operator=(const StoreLater&) = delete;

  /// Runs `store` when the innermost StoreLater of this thread ends; immediately if there is none.
  static void run(std::function<void()> store);

 private:
  StoreLater* const outer_;
  std::vector<std::function<void()>> stores_;
};

}  // namespace tessera::runtime
