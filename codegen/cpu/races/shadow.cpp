#include "codegen/cpu/races/shadow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tessera::codegen::cpu {

SharedShadow::SharedShadow(int64_t bytes, const WarpClocks& clocks, bool parts_meet, int granule)
    : shift_(std::countr_zero(static_cast<unsigned>(granule))),
      writes_(static_cast<size_t>((bytes + granule - 1) / granule)),
      in_flight_(writes_.size(), 0),
      clocks_(clocks),
      parts_meet_(parts_meet) {}

void SharedShadow::start_block() {
  start_ = clocks_.start();
  more_reads_.clear();
  more_atomics_.clear();
  more_writes_.clear();
}

bool SharedShadow::initialised(int64_t byte, const Array& array) const {
  const size_t at = place(byte);
  const bool is_of_another = !written_for_.empty() && written_for_[at] != &array;
  return writes_[at].time >= start_ && !is_of_another;
}

void SharedShadow::write_for(int64_t byte, const Array& array) {
  if (written_for_.empty()) written_for_.resize(writes_.size());
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
  if (reads_.empty()) reads_.resize(writes_.size());
  const size_t at = place(byte);
  const Mark& write = writes_[at];
  note(reads_[at], more_reads_, at, thread, statement);
  if (races(write, thread)) return conflict(write, thread, "written");
  if (atomics_.empty()) return std::nullopt;
  return find(atomics_[at], more_atomics_, at, thread, "changed atomically");
}

std::optional<Conflict> SharedShadow::write(int64_t byte, int thread, int statement, int lanes,
                                            bool is_same) {
  const size_t at = place(byte);
  Mark& write = writes_[at];
  std::optional<Conflict> found;
  if (!reads_.empty()) found = find(reads_[at], more_reads_, at, thread, "read", lanes);
  const bool is_second = races(write, thread, lanes);
  if (!is_same) {
    if (is_second) found = conflict(write, thread, "written");
    if (!more_writes_.empty()) {
      if (!found) found = find({}, more_writes_, at, thread, "written", lanes);
      more_writes_.erase(at);
    }
  }
  if (!found && !atomics_.empty()) {
    found = find(atomics_[at], more_atomics_, at, thread, "changed atomically", lanes);
  }
  const Mark before = std::exchange(write, mark(thread, statement, lanes));
  if (!is_same || !is_second) return found;
  if (before.thread / kWarp == thread / kWarp) {
    write.other = before.thread != thread ? before.thread : before.other;
  } else {
    std::vector<Mark>& others = more_writes_[at];
    std::erase_if(others,
                  [&](const Mark& old) { return old.thread / kWarp == before.thread / kWarp; });
    others.push_back(before);
  }
  return found;
}

std::optional<Conflict> SharedShadow::atomic(int64_t byte, int thread, int statement) {
  if (atomics_.empty()) atomics_.resize(writes_.size());
  const size_t at = place(byte);
  const Mark& write = writes_[at];
  note(atomics_[at], more_atomics_, at, thread, statement);
  if (races(write, thread)) return conflict(write, thread, "written");
  if (reads_.empty()) return std::nullopt;
  return find(reads_[at], more_reads_, at, thread, "read");
}

void SharedShadow::append(int64_t granules) {
  const size_t size = writes_.size() + static_cast<size_t>(granules);
  writes_.resize(size);
  if (!reads_.empty()) reads_.resize(size);
  if (!atomics_.empty()) atomics_.resize(size);
}

void SharedShadow::clear() {
  writes_.clear();
  reads_.clear();
  atomics_.clear();
  more_reads_.clear();
  more_atomics_.clear();
  more_writes_.clear();
}

}  // namespace tessera::codegen::cpu
