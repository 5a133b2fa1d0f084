// Vector clocks, sparse: a release of a place (the element that an atomic changes) has a number, and a thread "knows" so
// many releases of each place. An access is ordered before another if the later thread knows a release that the earlier
// one made behind its access.
//
//   the literature            here
//   release sequence          Place::releases counts those of a place; Release keeps who made it, and when
//   vector clock              Known: of each place the number of releases that are known
//   clock of a thread         Moment: the time of the cluster (its releases so far) and the two times of the warp
//   join at an acquire        add(): the greater number of each place
//
// A release is an acq_rel atomic that wrote: it gets the next number of its place, notes the moment and all accesses of
// other warps that are ordered before it (`before`), and leaves at the place everything that its thread knows, so that
// knowledge is transitive. An acquire is an acq_rel atomic whose old value is used: its thread then knows all releases of the
// place so far, and what was left there.
//
// Knowledge of a thread spreads in its cluster by the order of WarpClocks. Acquires are therefore kept by thread with the
// moment of each, and for_each_known() takes those that are ordered before `here`; a barrier of the cluster moves all of
// them to Cluster::known and forgets the moments. Acquires of one thread between two barriers of its warp look alike to
// others and are one entry.
//
// covers(known, earlier): a known release of the same cluster is at or behind `earlier`. Three cases, as in is_ordered():
// the same thread compares the time of the cluster, the same warp the time of its lanes, other warps ask WarpClocks.

#include "codegen/cpu/races/block_order.h"

#include <algorithm>

namespace tessera::codegen::cpu {

BlockOrder::Moment BlockOrder::moment(const Here& here) const {
  const auto found = clusters_.find(here.cluster);
  return {.block = here.block,
          .cluster = here.cluster,
          .thread = here.thread,
          .time = found == clusters_.end() ? Cluster().time : found->second.time,
          .warp_time = here.clocks->time(here.warp()),
          .lanes_time = here.clocks->lanes_time(here.warp())};
}

void BlockOrder::barrier(int64_t cluster) {
  Cluster& c = clusters_[cluster];
  for (const auto& [thread, acquires] : c.acquires) add(c.known, acquires.back().known);
  c.acquires.clear();
}

void BlockOrder::atomic(const Here& here, const std::byte* place, bool acquires, bool releases) {
  Place& p = places_[place];
  Cluster& cluster = clusters_[here.cluster];
  if (acquires) {
    std::vector<Acquire>& own = cluster.acquires[here.thread];
    const Moment now = moment(here);
    // To others all acquires between two barriers of the warp are one.
    if (own.empty() || own.back().at.warp_time != now.warp_time ||
        own.back().at.lanes_time != now.lanes_time) {
      own.push_back({now, own.empty() ? Known() : own.back().known});
    }
    add(own.back().known, p.known);
    own.back().known[place] = p.releases;
  }
  if (!releases) return;
  for_each_known(cluster, here, [&](const Known& known) { add(p.known, known); });
  Release release{p.releases++, moment(here), {}};
  here.clocks->look(here.warp(), release.before);
  p.by_cluster[here.cluster].push_back(std::move(release));
  ++cluster.time;
}

bool BlockOrder::is_before(const Moment& earlier, const Here& here) const {
  const auto found = clusters_.find(here.cluster);
  if (found == clusters_.end()) return false;
  bool result = false;
  for_each_known(found->second, here, [&](const Known& known) {
    result = result || covers(known, earlier, *here.clocks);
  });
  return result;
}

void BlockOrder::add(Known& into, const Known& more) {
  for (const auto& [place, count] : more) {
    size_t& known = into[place];
    known = std::max(known, count);
  }
}

/// True if what a thread of the same cluster did comes before what this one does.
bool BlockOrder::is_ordered(const Moment& earlier, const Here& here) {
  if (earlier.thread == here.thread) return true;
  if (earlier.warp() == here.warp()) {
    return earlier.lanes_time < here.clocks->lanes_time(here.warp());
  }
  return here.clocks->is_before(earlier.warp(), earlier.warp_time, here.warp());
}

template <class Fn>
void BlockOrder::for_each_known(const Cluster& cluster, const Here& here, const Fn& fn) {
  fn(cluster.known);
  for (const auto& [thread, acquires] : cluster.acquires) {
    const auto last = std::find_if(acquires.rbegin(), acquires.rend(), [&](const Acquire& acquire) {
      return is_ordered(acquire.at, here);
    });
    if (last != acquires.rend()) fn(last->known);
  }
}

bool BlockOrder::covers(const Known& known, const Moment& earlier, const WarpClocks& clocks) const {
  const auto precedes = [&](const Release& release) {
    if (earlier.thread == release.at.thread) return earlier.time <= release.at.time;
    if (earlier.warp() == release.at.warp()) return earlier.lanes_time < release.at.lanes_time;
    return clocks.is_part(earlier.warp(), earlier.warp_time, release.before);
  };
  return std::any_of(known.begin(), known.end(), [&](const auto& entry) {
    const Place& place = places_.at(entry.first);
    const auto found = place.by_cluster.find(earlier.cluster);
    if (found == place.by_cluster.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](const Release& release) {
      return release.number < entry.second && precedes(release);
    });
  });
}

}  // namespace tessera::codegen::cpu
