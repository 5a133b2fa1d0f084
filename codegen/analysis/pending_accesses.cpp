#include "codegen/analysis/pending_accesses.h"

#include <utility>

namespace tessera::codegen {

void PendingList::insert(const PendingAccess& access) {
  const size_t place = 2 * access.access->number + (access.after_warp_barrier ? 1 : 0);
  if (place >= has_.size()) has_.resize(place + 1);
  if (has_[place]) return;
  has_[place] = true;
  all_.push_back(access);
}

void PendingList::insert(const PendingList& other) {
  for (const PendingAccess& access : other.all_) insert(access);
}

void PendingList::remove_ring(int ring) {
  for (const PendingAccess& access : std::exchange(*this, {}).all_) {
    if (access.access->array->ring != ring) insert(access);
  }
}

void PendingAccesses::add(const FootprintRef& access) {
  PendingList& list = !access->in_flight ? pending_ : access->writes ? copies_.open : stores_.open;
  list.insert({access, false});
}

void PendingAccesses::take(const Order& order, bool is_one_warp) {
  InFlight& accesses = order.work == Work::stores ? stores_ : copies_;
  switch (order.kind) {
    case Order::Kind::commit:
      return accesses.commit();
    case Order::Kind::await:
      return wait(accesses, order.pending);
    case Order::Kind::wait:
      return wait_at_mbarrier();
    default:
      if (order.group == Group::warp && !is_one_warp) return warp_barrier();
      return block_barrier();
  }
}

void PendingAccesses::warp_barrier() {
  const PendingList before = std::exchange(pending_, {});
  for (const PendingAccess& access : before.all()) pending_.insert({access.access, true});
}

void PendingAccesses::InFlight::commit() {
  groups.push_back(std::exchange(open, {}));
  if (ambiguous) join_groups();
}

void PendingAccesses::InFlight::join_groups() {
  for (; groups.size() > 1; groups.erase(groups.begin() + 1)) groups[0].insert(groups[1]);
}

void PendingAccesses::wait(InFlight& accesses, int groups_in_flight) {
  if (accesses.ambiguous) {
    for (const PendingList& group : accesses.groups) pending_.insert(group);
    if (groups_in_flight > 0) return;
    accesses.groups.clear();
    accesses.ambiguous = false;
  }
  const auto kept = static_cast<size_t>(groups_in_flight);
  for (; accesses.groups.size() > kept; accesses.groups.pop_front()) {
    pending_.insert(accesses.groups.front());
  }
}

void PendingAccesses::wait_at_mbarrier() {
  pending_.insert(copies_.open);
  for (const PendingList& group : copies_.groups) pending_.insert(group);
}

void PendingAccesses::wait_at_ring(int ring) {
  for (PendingList* list : {&pending_, &copies_.open, &stores_.open}) list->remove_ring(ring);
}

void PendingAccesses::InFlight::merge(const InFlight& other) {
  open.insert(other.open);
  ambiguous = ambiguous || other.ambiguous || groups.size() != other.groups.size();
  if (ambiguous) {
    groups.insert(groups.end(), other.groups.begin(), other.groups.end());
    join_groups();
    return;
  }
  for (size_t i = 0; i < groups.size(); ++i) groups[i].insert(other.groups[i]);
}

void PendingAccesses::merge(const PendingAccesses& other) {
  pending_.insert(other.pending_);
  copies_.merge(other.copies_);
  stores_.merge(other.stores_);
}

}  // namespace tessera::codegen
