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
};

/// Accesses of one analysis in the order of their first insertion, each once.
class PendingList {
 public:
  const std::vector<PendingAccess>& all() const { return all_; }
  void insert(const PendingAccess& access);
  void insert(const PendingList& other);
  /// Removes the accesses to tiles of the ring.
  void remove_ring(int ring);

 private:
  std::vector<PendingAccess> all_;
  std::vector<bool> has_;  // by the footprint's number, before and after a barrier of its warp
};

class PendingAccesses {
 public:
  const std::vector<PendingAccess>& all() const { return pending_.all(); }

  /// Adds an access. One in flight becomes pending when a wait completes it.
  void add(const FootprintRef& access);
  /// Takes the order of a statement of all threads, which are one warp if `is_one_warp`.
  void take(const Order& order, bool is_one_warp);
  /// The mbarriers of a ring order all accesses to its tiles.
  void wait_at_ring(int ring);
  /// Either this state or the other.
  void merge(const PendingAccesses& other);

 private:
  /// Accesses in flight that one kind of commit closes.
  struct InFlight {
    PendingList open;                // since the last commit
    std::deque<PendingList> groups;  // committed, oldest first; one list if ambiguous
    bool ambiguous = false;          // paths with different numbers of groups have joined

    void commit();
    void join_groups();
    void merge(const InFlight& other);
  };
  void block_barrier() { pending_ = {}; }
  void warp_barrier();
  void wait(InFlight& accesses, int groups_in_flight);
  /// Any copy in flight may complete here or go on.
  void wait_at_mbarrier();

  PendingList pending_;
  InFlight copies_, stores_;  // into shared memory, and what tensor stores read there
};

}  // namespace tessera::codegen
