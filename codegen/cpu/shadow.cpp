#include "codegen/cpu/shadow.h"

#include <algorithm>
#include <bit>

namespace tessera::codegen::cpu {

SharedShadow::SharedShadow(int64_t bytes, const WarpClocks& clocks, bool parts_meet, int granule)
    : shift_(std::countr_zero(static_cast<unsigned>(granule))),
      cells_(static_cast<size_t>((bytes + granule - 1) / granule)),
      in_flight_(cells_.size(), 0),
      clocks_(clocks),
      parts_meet_(parts_meet) {}

void SharedShadow::start_block() {
  start_ = clocks_.start();
  more_reads_.clear();
  more_atomics_.clear();
}

bool SharedShadow::initialised(int64_t byte, const Array& array) const {
  const size_t at = place(byte);
  const bool is_of_another = !written_for_.empty() && written_for_[at] != &array;
  return cells_[at].write.time >= start_ && !is_of_another;
}

void SharedShadow::write_for(int64_t byte, const Array& array) {
  if (written_for_.empty()) written_for_.resize(cells_.size());
  written_for_[place(byte)] = &array;
}

bool SharedShadow::races(const Mark& mark, int thread, int lanes) const {
  const int warp = thread / kWarp, other = mark.thread / kWarp;
  if (other != warp) return !clocks_.is_before(other, mark.time, warp);
  if (mark.lanes_time != clocks_.lanes_time(warp)) return false;
  return mark.thread != thread || mark.other >= 0 || lanes > 1;
}

SharedShadow::Mark SharedShadow::mark(int thread, int statement, int lanes) const {
  return {.time = clocks_.time(thread / kWarp),
          .lanes_time = clocks_.lanes_time(thread / kWarp),
          .thread = static_cast<int16_t>(thread),
          .other = static_cast<int16_t>(lanes > 1 ? thread + 1 : -1),
          .statement = statement};
}

Conflict SharedShadow::conflict(const Mark& mark, int thread, const char* how) {
  return {.thread = mark.thread != thread || mark.other < 0 ? mark.thread : mark.other,
          .statement = mark.statement,
          .how = how};
}

void SharedShadow::note(WarpMarks& marks, MoreMarks& more, size_t place, int thread,
                        int statement) {
  const int warp = thread / kWarp;
  Mark fresh = mark(thread, statement);
  Mark& first = marks[0];
  Mark& second = marks[1];
  const auto in_warp = [&](const Mark& old) { return old.time != 0 && old.thread / kWarp == warp; };
  // An access that conflicts with a mark ordered before the new one also conflicts with the new
  // one.
  const auto is_passed = [&](const Mark& old) {
    return clocks_.is_before(old.thread / kWarp, old.time, warp);
  };
  const bool both_of_another = !parts_meet_ && !same_block(first, thread) &&
                               first.thread / kThreadsPerBlock == second.thread / kThreadsPerBlock;
  Mark* at = in_warp(first)      ? &first
             : in_warp(second)   ? &second
             : is_passed(first)  ? &first
             : is_passed(second) ? &second
             : both_of_another   ? &first
                                 : nullptr;
  if (at == nullptr) {
    if (!parts_meet_) return;
    std::vector<Mark>& others = more[place];
    auto found = std::find_if(others.begin(), others.end(), in_warp);
    if (found == others.end()) found = std::find_if(others.begin(), others.end(), is_passed);
    if (found == others.end()) found = others.insert(found, Mark());
    at = &*found;
  }
  const bool same_lanes_time = in_warp(*at) && at->lanes_time == fresh.lanes_time;
  if (same_lanes_time) fresh.other = at->thread != thread ? at->thread : at->other;
  *at = fresh;
}

std::optional<Conflict> SharedShadow::find(const WarpMarks& marks, const MoreMarks& more,
                                           size_t place, int thread, const char* how,
                                           int lanes) const {
  for (const Mark& mark : marks) {
    if (races(mark, thread, lanes)) return conflict(mark, thread, how);
  }
  if (more.empty()) return std::nullopt;
  const auto others = more.find(place);
  if (others == more.end()) return std::nullopt;
  for (const Mark& mark : others->second) {
    if (races(mark, thread, lanes)) return conflict(mark, thread, how);
  }
  return std::nullopt;
}

std::optional<Conflict> SharedShadow::read(int64_t byte, int thread, int statement) {
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  note(cell.reads, more_reads_, at, thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  if (atomics_.empty()) return std::nullopt;
  return find(atomics_[at], more_atomics_, at, thread, "changed atomically");
}

std::optional<Conflict> SharedShadow::write(int64_t byte, int thread, int statement, int lanes) {
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  std::optional<Conflict> found = find(cell.reads, more_reads_, at, thread, "read", lanes);
  if (races(cell.write, thread, lanes)) found = conflict(cell.write, thread, "written");
  if (!found && !atomics_.empty()) {
    found = find(atomics_[at], more_atomics_, at, thread, "changed atomically", lanes);
  }
  cell.write = mark(thread, statement, lanes);
  return found;
}

std::optional<Conflict> SharedShadow::atomic(int64_t byte, int thread, int statement) {
  if (atomics_.empty()) atomics_.resize(cells_.size());
  const size_t at = place(byte);
  Cell& cell = cells_[at];
  note(atomics_[at], more_atomics_, at, thread, statement);
  if (races(cell.write, thread)) return conflict(cell.write, thread, "written");
  return find(cell.reads, more_reads_, at, thread, "read");
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
  more_reads_.clear();
  more_atomics_.clear();
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
