#pragma once
// Accesses that other threads may not see yet at a point of the program: the state of
// insert_barriers.

#include <cstdint>
#include <deque>
#include <vector>

#include "codegen/analysis/footprint.h"

namespace tessera::codegen {

/// An access since the last barrier.
struct PendingAccess {
  FootprintRef access;
  bool after_warp_barrier = false;

  bool operator==(const PendingAccess& other) const {
    return access == other.access && after_warp_barrier == other.after_warp_barrier;
  }
};

class PendingAccesses {
 public:
  const std::vector<PendingAccess>& all() const { return pending_; }

  /// Adds an access. One in flight becomes pending when a wait completes it.
  void add(const FootprintRef& access);
  void block_barrier() { pending_.clear(); }
  void warp_barrier();
  void commit();
  void wait(int groups_in_flight);
  /// Any access in flight may complete here or go on.
  void wait_at_mbarrier();
  /// The mbarriers of a ring order all accesses to its tiles.
  void wait_at_ring(int ring);
  /// Either this state or the other.
  void merge(const PendingAccesses& other);

 private:
  void insert(const PendingAccess& access);
  void land(const std::vector<FootprintRef>& group);

  std::vector<PendingAccess> pending_;
  std::vector<FootprintRef> open_;                // asynchronous copies since the last commit
  std::deque<std::vector<FootprintRef>> groups_;  // committed, oldest first
  bool ambiguous_ = false;  // paths with different numbers of groups have joined
};

}  // namespace tessera::codegen
