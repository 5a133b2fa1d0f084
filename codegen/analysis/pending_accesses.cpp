#include "codegen/analysis/pending_accesses.h"

#include <algorithm>
#include <utility>

namespace tessera::codegen {
namespace {

template <class T>
void insert_new(std::vector<T>& into, const T& item) {
  if (std::find(into.begin(), into.end(), item) == into.end()) into.push_back(item);
}

/// States that join mostly begin with the same accesses.
template <class T>
void merge_new(std::vector<T>& into, const std::vector<T>& from) {
  for (size_t i = 0; i < from.size(); ++i) {
    if (i >= into.size() || !(into[i] == from[i])) insert_new(into, from[i]);
  }
}

}  // namespace

void PendingAccesses::insert(const PendingAccess& access) {
  insert_new(pending_, access);
}

void PendingAccesses::add(const FootprintRef& access) {
  if (access->in_flight) {
    insert_new((access->writes ? copies_ : stores_).open, access);
  } else {
    insert({access, false});
  }
}

void PendingAccesses::take(const Order& order, bool is_one_warp) {
  switch (order.kind) {
    case Order::Kind::commit:
      return copies_.commit();
    case Order::Kind::await:
      return wait(copies_, order.pending);
    case Order::Kind::commit_stores:
      return stores_.commit();
    case Order::Kind::await_stores:
      return wait(stores_, order.pending);
    case Order::Kind::wait:
      return wait_at_mbarrier();
    default:
      if (order.group == Group::warp && !is_one_warp) return warp_barrier();
      return block_barrier();
  }
}

void PendingAccesses::warp_barrier() {
  std::vector<PendingAccess> before = std::move(pending_);
  pending_.clear();
  for (const PendingAccess& access : before) insert({access.access, true});
}

void PendingAccesses::InFlight::commit() {
  groups.push_back(std::move(open));
  open.clear();
}

void PendingAccesses::land(const std::vector<FootprintRef>& group) {
  for (const FootprintRef& access : group) insert({access, false});
}

void PendingAccesses::wait(InFlight& accesses, int groups_in_flight) {
  if (accesses.ambiguous) {
    for (const auto& group : accesses.groups) land(group);
    if (groups_in_flight > 0) return;
    accesses.groups.clear();
    accesses.ambiguous = false;
  }
  const auto kept = static_cast<size_t>(groups_in_flight);
  for (; accesses.groups.size() > kept; accesses.groups.pop_front()) land(accesses.groups.front());
}

void PendingAccesses::wait_at_mbarrier() {
  land(copies_.open);
  for (const auto& group : copies_.groups) land(group);
}

void PendingAccesses::wait_at_ring(int ring) {
  const auto is_ordered = [&](const FootprintRef& access) { return access->array->ring == ring; };
  std::erase_if(pending_, [&](const PendingAccess& p) { return is_ordered(p.access); });
  std::erase_if(copies_.open, is_ordered);
  std::erase_if(stores_.open, is_ordered);
}

void PendingAccesses::InFlight::merge(const InFlight& other) {
  merge_new(open, other.open);
  ambiguous = ambiguous || other.ambiguous || groups.size() != other.groups.size();
  // Aligns the newest groups of both.
  while (groups.size() < other.groups.size()) groups.emplace_front();
  const size_t first = groups.size() - other.groups.size();
  for (size_t i = 0; i < other.groups.size(); ++i) merge_new(groups[first + i], other.groups[i]);
}

void PendingAccesses::merge(const PendingAccesses& other) {
  merge_new(pending_, other.pending_);
  copies_.merge(other.copies_);
  stores_.merge(other.stores_);
}

}  // namespace tessera::codegen
