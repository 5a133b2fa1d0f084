// Vector clocks, sparse: a release of an element (which an atomic changes) has a number, and a thread knows so many
// releases of each element. An access is ordered before another if the later thread knows a release that the earlier
// one made after its access.
//
//   release sequence          Element::releases counts those of an element; Release keeps who made it, and when
//   vector clock              VectorClock: for each element the number of releases that are known
//   epoch of an access        Epoch: the time of the cluster (its releases so far) and the two times of the warp
//   join at an acquire        join(): the greater number for each element
//
// A release is an acq_rel atomic that wrote: it gets the next number of its element, notes its epoch and all accesses of
// other warps that are ordered before it (`before`), and joins everything that its thread knows into the element's clock, so
// that knowledge is transitive. An acquire is an acq_rel atomic whose old value is used: its thread then knows all releases of
// the element so far, and the element's clock.
//
// Knowledge of a thread spreads in its cluster by the order of WarpClocks. Acquires are therefore kept by thread with the
// epoch of each, and for_each_clock() takes those that are ordered before the current thread; a barrier of the cluster moves
// all of them to Cluster::clock and forgets the epochs. Acquires of one thread between two barriers of its warp look alike to
// others and are one entry.
//
// covers(clock, earlier): a known release of the same cluster is at or after `earlier`. Three cases, as in is_ordered():
// the same thread compares the time of the cluster, the same warp the time of its lanes, other warps ask WarpClocks.

#include "codegen/cpu/races/block_order.h"

#include <algorithm>

namespace tessera::codegen::cpu {

BlockOrder::Epoch BlockOrder::epoch(const CurrentThread& current) const {
  const auto found = clusters_.find(current.cluster);
  return {.block = current.block,
          .cluster = current.cluster,
          .thread = current.thread,
          .time = found == clusters_.end() ? Cluster().time : found->second.time,
          .warp_time = current.clocks->time(current.warp()),
          .lanes_time = current.clocks->lanes_time(current.warp())};
}

void BlockOrder::barrier(int64_t cluster) {
  Cluster& c = clusters_[cluster];
  for (const auto& [thread, acquires] : c.acquires) join(c.clock, acquires.back().clock);
  c.acquires.clear();
}

void BlockOrder::atomic(const CurrentThread& current, const std::byte* address, bool acquires,
                        bool releases) {
  Element& element = elements_[address];
  Cluster& cluster = clusters_[current.cluster];
  if (acquires) {
    std::vector<Acquire>& own = cluster.acquires[current.thread];
    const Epoch now = epoch(current);
    // To others all acquires between two barriers of the warp are one.
    if (own.empty() || own.back().at.warp_time != now.warp_time ||
        own.back().at.lanes_time != now.lanes_time) {
      own.push_back({now, own.empty() ? VectorClock() : own.back().clock});
    }
    join(own.back().clock, element.clock);
    own.back().clock[address] = element.releases;
  }
  if (!releases) return;
  for_each_clock(cluster, current, [&](const VectorClock& clock) { join(element.clock, clock); });
  Release release{element.releases++, epoch(current), {}};
  current.clocks->copy_clock(current.warp(), release.before);
  element.by_cluster[current.cluster].push_back(std::move(release));
  ++cluster.time;
}

bool BlockOrder::is_before(const Epoch& earlier, const CurrentThread& current) const {
  const auto found = clusters_.find(current.cluster);
  if (found == clusters_.end()) return false;
  bool result = false;
  for_each_clock(found->second, current, [&](const VectorClock& clock) {
    result = result || covers(clock, earlier, *current.clocks);
  });
  return result;
}

void BlockOrder::join(VectorClock& into, const VectorClock& other) {
  for (const auto& [address, count] : other) {
    size_t& known = into[address];
    known = std::max(known, count);
  }
}

/// True if what a thread of the same cluster did comes before what this one does.
bool BlockOrder::is_ordered(const Epoch& earlier, const CurrentThread& current) {
  if (earlier.thread == current.thread) return true;
  if (earlier.warp() == current.warp()) {
    return earlier.lanes_time < current.clocks->lanes_time(current.warp());
  }
  return current.clocks->is_before(earlier.warp(), earlier.warp_time, current.warp());
}

template <class Fn>
void BlockOrder::for_each_clock(const Cluster& cluster, const CurrentThread& current,
                                const Fn& fn) {
  fn(cluster.clock);
  for (const auto& [thread, acquires] : cluster.acquires) {
    const auto last = std::find_if(acquires.rbegin(), acquires.rend(), [&](const Acquire& acquire) {
      return is_ordered(acquire.at, current);
    });
    if (last != acquires.rend()) fn(last->clock);
  }
}

bool BlockOrder::covers(const VectorClock& clock, const Epoch& earlier,
                        const WarpClocks& clocks) const {
  const auto precedes = [&](const Release& release) {
    if (earlier.thread == release.at.thread) return earlier.time <= release.at.time;
    if (earlier.warp() == release.at.warp()) return earlier.lanes_time < release.at.lanes_time;
    return clocks.is_covered(earlier.warp(), earlier.warp_time, release.before);
  };
  return std::any_of(clock.begin(), clock.end(), [&](const auto& entry) {
    const Element& element = elements_.at(entry.first);
    const auto found = element.by_cluster.find(earlier.cluster);
    if (found == element.by_cluster.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](const Release& release) {
      return release.number < entry.second && precedes(release);
    });
  });
}

}  // namespace tessera::codegen::cpu
