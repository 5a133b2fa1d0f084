#include "codegen/cpu/shadow.h"

namespace tessera::codegen::cpu {

SharedShadow::SharedShadow(int64_t bytes, int threads)
    : cells_(static_cast<size_t>(bytes)),
      in_flight_(static_cast<size_t>(bytes), 0),
      warp_epochs_(static_cast<size_t>((threads + kWarp - 1) / kWarp), 0) {}

void SharedShadow::start_block() {
  ++epoch_;
  first_epoch_ = epoch_;
}

bool SharedShadow::initialised(int64_t byte) const {
  return cells_[static_cast<size_t>(byte)].write.epoch >= first_epoch_;
}

bool SharedShadow::races(const Mark& mark, int thread) const {
  if (mark.epoch != epoch_) return false;
  const int warp = thread / kWarp;
  if (mark.thread / kWarp != warp) return true;
  if (mark.warp_epoch != warp_epochs_[static_cast<size_t>(warp)]) return false;
  return mark.thread != thread || mark.other >= 0;
}

SharedShadow::Mark SharedShadow::mark(int thread, int statement) const {
  return {.epoch = epoch_,
          .warp_epoch = warp_epochs_[static_cast<size_t>(thread / kWarp)],
          .thread = static_cast<int16_t>(thread),
          .other = -1,
          .statement = statement};
}

Conflict SharedShadow::conflict(const Mark& mark, int thread, const char* how) {
  return {.thread = mark.thread != thread ? mark.thread : mark.other,
          .statement = mark.statement,
          .how = how};
}

void SharedShadow::note(WarpMarks& marks, int thread, int statement) const {
  Mark fresh = mark(thread, statement);
  // Replaces the mark of the same warp, else one that a block barrier has made irrelevant, else
  // nothing.
  Mark* place = nullptr;
  for (Mark& old : marks) {
    if (old.epoch == epoch_ && old.thread / kWarp == thread / kWarp) {
      place = &old;
      break;
    }
    if (old.epoch != epoch_ && place == nullptr) place = &old;
  }
  if (place == nullptr) return;
  const bool same_warp_epoch = place->epoch == epoch_ && place->warp_epoch == fresh.warp_epoch;
  if (same_warp_epoch) fresh.other = place->thread != thread ? place->thread : place->other;
  *place = fresh;
}

std::optional<Conflict> SharedShadow::find(const WarpMarks& marks, int thread,
                                           const char* how) const {
  for (const Mark& mark : marks) {
    if (races(mark, thread)) return conflict(mark, thread, how);
  }
  return std::nullopt;
}

std::optional<Conflict> SharedShadow::read(int64_t byte, int thread, int statement) {
  const auto at = static_cast<size_t>(byte);
  Cell& cell = cells_[at];
  note(cell.reads, thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  return atomics_.empty() ? std::nullopt : find(atomics_[at], thread, "changed atomically");
}

std::optional<Conflict> SharedShadow::write(int64_t byte, int thread, int statement) {
  const auto at = static_cast<size_t>(byte);
  Cell& cell = cells_[at];
  std::optional<Conflict> found = find(cell.reads, thread, "read");
  if (races(cell.write, thread)) found = conflict(cell.write, thread, "written");
  if (!found && !atomics_.empty()) found = find(atomics_[at], thread, "changed atomically");
  cell.write = mark(thread, statement);
  return found;
}

std::optional<Conflict> SharedShadow::atomic(int64_t byte, int thread, int statement) {
  if (atomics_.empty()) atomics_.resize(cells_.size());
  const auto at = static_cast<size_t>(byte);
  Cell& cell = cells_[at];
  note(atomics_[at], thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  return find(cell.reads, thread, "read");
}

}  // namespace tessera::codegen::cpu
