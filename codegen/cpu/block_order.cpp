#include "codegen/cpu/block_order.h"

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
