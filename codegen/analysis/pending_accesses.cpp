#include "codegen/analysis/pending_accesses.h"

#include <algorithm>
#include <utility>

namespace tessera::codegen {
namespace {

template <class T>
void insert_new(std::vector<T>& into, const T& item) {
  if (std::find(into.begin(), into.end(), item) == into.end()) into.push_back(item);
}

}  // namespace

void PendingAccesses::insert(const PendingAccess& access) {
  insert_new(pending_, access);
}

void PendingAccesses::add(const FootprintRef& access) {
  if (access->in_flight) {
    insert_new(open_, access);
  } else {
    insert({access, false});
  }
}

void PendingAccesses::warp_barrier() {
  std::vector<PendingAccess> before = std::move(pending_);
  pending_.clear();
  for (const PendingAccess& access : before) insert({access.access, true});
}

void PendingAccesses::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void PendingAccesses::land(const std::vector<FootprintRef>& group) {
  for (const FootprintRef& access : group) insert({access, false});
}

void PendingAccesses::wait(int groups_in_flight) {
  if (ambiguous_) {
    for (const auto& group : groups_) land(group);
    if (groups_in_flight > 0) return;
    groups_.clear();
    ambiguous_ = false;
  }
  const auto kept = static_cast<size_t>(groups_in_flight);
  for (; groups_.size() > kept; groups_.pop_front()) land(groups_.front());
}

void PendingAccesses::wait_at_mbarrier() {
  land(open_);
  for (const auto& group : groups_) land(group);
}

void PendingAccesses::wait_at_ring(int ring) {
  const auto is_ordered = [&](const FootprintRef& access) { return access->array->ring == ring; };
  std::erase_if(pending_, [&](const PendingAccess& p) { return is_ordered(p.access); });
  std::erase_if(open_, is_ordered);
}

void PendingAccesses::merge(const PendingAccesses& other) {
  for (const PendingAccess& access : other.pending_) insert(access);
  for (const FootprintRef& access : other.open_) insert_new(open_, access);
  ambiguous_ = ambiguous_ || other.ambiguous_ || groups_.size() != other.groups_.size();
  // Aligns the newest groups of both.
  while (groups_.size() < other.groups_.size()) groups_.emplace_front();
  const size_t first = groups_.size() - other.groups_.size();
  for (size_t i = 0; i < other.groups_.size(); ++i) {
    for (const FootprintRef& access : other.groups_[i]) insert_new(groups_[first + i], access);
  }
}

}  // namespace tessera::codegen
