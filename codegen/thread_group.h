#pragma once
// Threads of a block that work together: the whole block, or one role.

namespace tessera::codegen {

inline constexpr int kThreadsPerWarp = 32;
/// Named barriers have ids 1 .. 15; id 0 is the barrier of the block.
inline constexpr int kMaxNamedBarriers = 15;

/// Threads [first, first + count) of a block.
///
///   ThreadGroup{32, 64}.end();  // 96
struct ThreadGroup {
  int first = 0, count = 0;

  int end() const { return first + count; }
  /// Number of warps, the last one possibly partial.
  int num_warps() const { return (count + kThreadsPerWarp - 1) / kThreadsPerWarp; }
  bool is_whole_warps() const {
    return first % kThreadsPerWarp == 0 && count % kThreadsPerWarp == 0;
  }
  bool meets(const ThreadGroup& other) const { return first < other.end() && other.first < end(); }
  bool operator==(const ThreadGroup&) const = default;
};

}  // namespace tessera::codegen
