#include "codegen/cpu/block_order.h"

#include <algorithm>

namespace tessera::codegen::cpu {

BlockOrder::Moment BlockOrder::moment(int64_t block, int thread) const {
  const auto found = blocks_.find(block);
  return {block, found == blocks_.end() ? Block().time : found->second.time, thread};
}

void BlockOrder::barrier(int64_t block) {
  Block& b = blocks_[block];
  for (const auto& [thread, known] : b.acquired) add(b.known, known);
  b.acquired.clear();
  b.barrier_time = ++b.time;
}

void BlockOrder::atomic(int64_t block, int thread, const std::byte* place, bool acquires,
                        bool releases) {
  if (acquires) acquire(blocks_[block].acquired[thread], place);
  if (releases) release(block, thread, place);
}

void BlockOrder::cluster_barrier(int64_t first, int64_t count) {
  const void* const place = &blocks_[first];  // a key for the cluster: no element has this address
  for (int64_t block = first; block < first + count; ++block) {
    barrier(block);
    release(block, 0, place);
  }
  for (int64_t block = first; block < first + count; ++block) acquire(blocks_[block].known, place);
}

bool BlockOrder::is_before(const Moment& earlier, int64_t block, int thread) const {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return false;
  if (covers(found->second.known, earlier)) return true;
  const auto own = found->second.acquired.find(thread);
  return own != found->second.acquired.end() && covers(own->second, earlier);
}

void BlockOrder::add(Known& into, const Known& more) {
  for (const auto& [place, count] : more) {
    size_t& known = into[place];
    known = std::max(known, count);
  }
}

void BlockOrder::acquire(Known& into, const void* place) {
  const Place& p = places_[place];
  add(into, p.known);
  into[place] = p.releases;
}

void BlockOrder::release(int64_t block, int thread, const void* place) {
  Block& b = blocks_[block];
  Place& p = places_[place];
  add(p.known, b.known);
  const auto own = b.acquired.find(thread);
  if (own != b.acquired.end()) add(p.known, own->second);
  p.by_block[block].push_back({p.releases++, b.barrier_time, b.time++, thread});
}

bool BlockOrder::covers(const Known& known, const Moment& earlier) const {
  return std::any_of(known.begin(), known.end(), [&](const auto& entry) {
    const Place& place = places_.at(entry.first);
    const auto found = place.by_block.find(earlier.block);
    if (found == place.by_block.end()) return false;
    return std::any_of(found->second.begin(), found->second.end(), [&](const Release& release) {
      return release.number < entry.second &&
             (earlier.time < release.barrier_time ||
              (earlier.thread == release.thread && earlier.time <= release.time));
    });
  });
}

}  // namespace tessera::codegen::cpu
