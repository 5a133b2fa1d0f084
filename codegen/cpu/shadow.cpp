#include "codegen/cpu/shadow.h"

#include <bit>

namespace tessera::codegen::cpu {

SharedShadow::SharedShadow(int64_t bytes, const BarrierClock& clock, int granule)
    : shift_(std::countr_zero(static_cast<unsigned>(granule))),
      cells_(static_cast<size_t>((bytes + granule - 1) / granule)),
      in_flight_(cells_.size(), 0),
      clock_(clock) {}

bool SharedShadow::initialised(int64_t byte) const {
  return cells_[place(byte)].write.epoch >= first_epoch_;
}

bool SharedShadow::races(const Mark& mark, int thread, int lanes) const {
  if (!same_block(mark, thread)) return mark.epoch >= clock_.of_cluster();
  if (mark.epoch != clock_.of_thread(thread)) return false;
  const int warp = thread / kWarp;
  if (mark.thread / kWarp != warp) return true;
  if (mark.warp_epoch != clock_.of_warp(warp)) return false;
  return mark.thread != thread || mark.other >= 0 || lanes > 1;
}

SharedShadow::Mark SharedShadow::mark(int thread, int statement, int lanes) const {
  return {.epoch = clock_.of_thread(thread),
          .warp_epoch = clock_.of_warp(thread / kWarp),
          .thread = static_cast<int16_t>(thread),
          .other = static_cast<int16_t>(lanes > 1 ? thread + 1 : -1),
          .statement = statement};
}

Conflict SharedShadow::conflict(const Mark& mark, int thread, const char* how) {
  return {.thread = mark.thread != thread || mark.other < 0 ? mark.thread : mark.other,
          .statement = mark.statement,
          .how = how};
}

void SharedShadow::note(WarpMarks& marks, int thread, int statement) const {
  Mark fresh = mark(thread, statement);
  Mark& first = marks[0];
  Mark& second = marks[1];
  const auto in_warp = [&](const Mark& old) {
    return old.epoch == fresh.epoch && old.thread / kWarp == thread / kWarp;
  };
  // What conflicts with a mark from before a barrier of the block conflicts with the fresh one, too.
  const auto is_passed = [&](const Mark& old) {
    return old.epoch < (same_block(old, thread) ? fresh.epoch : clock_.of_cluster());
  };
  const bool both_of_another = !same_block(first, thread) &&
                               first.thread / kThreadsPerBlock == second.thread / kThreadsPerBlock;
  Mark* const place = in_warp(first)      ? &first
                      : in_warp(second)   ? &second
                      : is_passed(first)  ? &first
                      : is_passed(second) ? &second
                      : both_of_another   ? &first
                                          : nullptr;
  if (place == nullptr) return;
  const bool same_warp_epoch = in_warp(*place) && place->warp_epoch == fresh.warp_epoch;
  if (same_warp_epoch) fresh.other = place->thread != thread ? place->thread : place->other;
  *place = fresh;
}

std::optional<Conflict> SharedShadow::find(const WarpMarks& marks, int thread, const char* how,
                                           int lanes) const {
  for (const Mark& mark : marks) {
    if (races(mark, thread, lanes)) return conflict(mark, thread, how);
  }
  return std::nullopt;
}

std::optional<Conflict> SharedShadow::read(int64_t byte, int thread, int statement) {
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  note(cell.reads, thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  return atomics_.empty() ? std::nullopt : find(atomics_[at], thread, "changed atomically");
}

std::optional<Conflict> SharedShadow::write(int64_t byte, int thread, int statement, int lanes) {
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  std::optional<Conflict> found = find(cell.reads, thread, "read", lanes);
  if (races(cell.write, thread, lanes)) found = conflict(cell.write, thread, "written");
  if (!found && !atomics_.empty()) found = find(atomics_[at], thread, "changed atomically", lanes);
  cell.write = mark(thread, statement, lanes);
  return found;
}

std::optional<Conflict> SharedShadow::atomic(int64_t byte, int thread, int statement) {
  if (atomics_.empty()) atomics_.resize(cells_.size());
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  note(atomics_[at], thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  return find(cell.reads, thread, "read");
}

int64_t SharedShadow::append() {
  cells_.emplace_back();
  in_flight_.push_back(0);
  if (!atomics_.empty()) atomics_.emplace_back();
  return bytes() - granule();
}

void SharedShadow::clear() {
  cells_.clear();
  in_flight_.clear();
  atomics_.clear();
}

void GlobalShadow::start_block() {
  if (places_.empty()) return;
  places_.clear();
  shadow_.clear();
}

int64_t GlobalShadow::place(const std::byte* element) {
  const auto [at, is_new] = places_.try_emplace(element, shadow_.bytes());
  if (is_new) shadow_.append();
  return at->second;
}

}  // namespace tessera::codegen::cpu
