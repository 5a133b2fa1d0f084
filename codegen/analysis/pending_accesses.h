#pragma once
// Accesses that other threads may not see yet at a point of the program: the state of
// insert_barriers.

#include <cstdint>
#include <deque>
#include <vector>

#include "codegen/analysis/footprint.h"
#include "codegen/order.h"

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
  /// Of a statement of all threads, which are one warp if `is_one_warp`.
  void take(const Order& order, bool is_one_warp);
  /// The mbarriers of a ring order all accesses to its tiles.
  void wait_at_ring(int ring);
  /// Either this state or the other.
  void merge(const PendingAccesses& other);

 private:
  /// Accesses in flight that one kind of commit closes.
  struct InFlight {
    std::vector<FootprintRef> open;                // since the last commit
    std::deque<std::vector<FootprintRef>> groups;  // committed, oldest first
    bool ambiguous = false;  // paths with different numbers of groups have joined

    void commit();
    void merge(const InFlight& other);
  };
  void insert(const PendingAccess& access);
  void land(const std::vector<FootprintRef>& group);
  void block_barrier() { pending_.clear(); }
  void warp_barrier();
  void wait(InFlight& accesses, int groups_in_flight);
  /// Any copy in flight may complete here or go on.
  void wait_at_mbarrier();

  std::vector<PendingAccess> pending_;
  InFlight copies_, stores_;  // into shared memory, and what tensor stores read there
};

}  // namespace tessera::codegen
