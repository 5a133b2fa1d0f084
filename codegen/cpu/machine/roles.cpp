// Machine: roles and named barriers.
//
// The block has one cursor (position in the code, masks), each role one more over its warps. The block's cursor runs until
// its instructions part into roles (Stop::roles); then the cursors of the roles take turns, each until it ends or until an
// instruction says that it has to wait (Stop::waiting). A waiting instruction has changed nothing and is tried again in the
// cursor's next turn. Rounds of turns go on while any cursor made progress. When none does, either all have ended, and the
// block's cursor goes on after the roles; or the cluster or grid is asked whether another block can run; or nobody can:
// that is the DEADLOCK, told with the state of every cursor.
//
// With a schedule (ExecuteOptions::schedule) the order of the turns is shuffled before each round by a generator of its
// own, so that a run can be repeated; without one the roles take turns as they are declared.
//
// A named barrier counts the threads that have come. Those that wait stay at it, a cursor with its round in
// `awaited_round`; those that only arrive go on. The thread that completes the count frees all of them, and the round is
// over: the next use begins at 0. The clocks of the warps that wait are joined.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "codegen/cpu/machine/machine.h"
#include "dsl/base/error.h"

namespace tessera::codegen::cpu {
namespace {

std::string name_of(const Cursor& cursor) {
  return cursor.name.empty() ? "the block" : fmt::format("'{}'", cursor.name);
}

}  // namespace

void Machine::make_cursors(uint8_t* lanes, int64_t mask_bytes) {
  const auto add = [&](std::string name, ThreadGroup threads) {
    Cursor& cursor = cursors_.emplace_back();
    cursor.name = std::move(name);
    cursor.threads = threads;
    for (int depth = 0; depth <= code_.mask_depth; ++depth, lanes += mask_bytes) {
      cursor.masks.push_back({.lanes = lanes});
    }
  };
  add("", {0, code_.threads});
  for (const RoleCode& role : code_.roles) add(role.name, role.threads);
  for (size_t i = 1; i < cursors_.size(); ++i) turns_.push_back(&cursors_[i]);
  cursor_ = &cursors_[0];
  Mask& all = cursor_->masks[0];
  all.end = all.count = code_.threads;
  std::memset(all.lanes, 1, static_cast<size_t>(code_.threads));
}

bool Machine::run(Cursor& cursor) {
  cursor_ = &cursor;
  went_on_ = false;
  const Stop stop = execute(code_.block);
  cursor.waits = stop == Stop::waiting;
  if (stop == Stop::roles) begin_roles();
  return went_on_;
}

void Machine::begin_roles() {
  const Mask& all = cursors_[0].masks[0];
  for (size_t i = 0; i < code_.roles.size(); ++i) {
    const RoleCode& role = code_.roles[i];
    Cursor& cursor = cursors_[i + 1];
    cursor.next = static_cast<size_t>(role.begin);
    cursor.end = static_cast<size_t>(role.end);
    cursor.depth = 0;
    cursor.waits = false;
    cursor.awaited_round = -1;
    cursor.awaits = -1;
    Mask& mask = cursor.masks[0];
    mask.begin = role.threads.first;
    mask.end = role.threads.end();
    std::copy(all.lanes + mask.begin, all.lanes + mask.end, mask.lanes + mask.begin);
    mask.count =
        static_cast<int>(std::count(mask.lanes + mask.begin, mask.lanes + mask.end, uint8_t{1}));
    while (mask.begin < mask.end && mask.lanes[mask.begin] == 0) ++mask.begin;
    while (mask.end > mask.begin && mask.lanes[mask.end - 1] == 0) --mask.end;
    if (mask.count == 0) cursor.next = cursor.end;
  }
  std::sort(turns_.begin(), turns_.end());
  random_ = launch_.schedule + static_cast<uint32_t>(block_number_);
  are_roles_running_ = true;
  went_on_ = true;
}

bool Machine::run_roles() {
  bool went_on = false;
  for (bool again = true; again;) {
    again = false;
    if (launch_.schedule != 0) shuffle_roles();
    for (Cursor* cursor : turns_) {
      if (!cursor->has_ended() && run(*cursor)) again = went_on = true;
    }
  }
  const bool have_ended = std::all_of(cursors_.begin() + 1, cursors_.end(),
                                      [](const Cursor& cursor) { return cursor.has_ended(); });
  if (have_ended) end_roles();
  return went_on || have_ended;
}

void Machine::shuffle_roles() {
  for (size_t left = turns_.size(); left > 1; --left) {
    random_ = random_ * 1664525 + 1013904223;
    std::swap(turns_[left - 1], turns_[(random_ >> 16) % left]);
  }
}

void Machine::end_roles() {
  are_roles_running_ = false;
  cursor_ = &cursors_[0];
  if (!code_.checked) return;
  for (size_t id = 1; id < named_barriers_.size(); ++id) {
    const NamedBarrier& state = named_barriers_[id];
    if (state.arrived == 0) continue;
    Instr instr{};
    instr.statement = state.statement;
    trap(instr, 0,
         {.code = "ROLE_BARRIER",
          .what = fmt::format("the roles end while named barrier {} waits for threads", id),
          .expected = fmt::format("{} threads", state.expected),
          .got = fmt::format("{} threads", state.arrived)});
  }
}

bool Machine::named_barrier(const Instr& instr) {
  const Barrier& barrier = code_.named_barriers[static_cast<size_t>(instr.index)];
  NamedBarrier& state = named_barriers_[static_cast<size_t>(barrier.id)];
  if (cursor_->awaited_round < 0) {
    if (launch_.count && barrier.scope == BarrierScope::named) ++counts_.barriers;
    if (barrier.scope == BarrierScope::named) cursor_->awaited_round = state.rounds;
    arrive(instr, barrier);
    if (barrier.scope == BarrierScope::named_arrive) return true;
    went_on_ = true;
  }
  if (state.rounds == cursor_->awaited_round) return false;
  cursor_->awaited_round = -1;
  steps_.go_on_at(mask(), state.ended_at);
  return true;
}

/// Counts the active threads in; the last arrivals end the round.
void Machine::arrive(const Instr& instr, const Barrier& barrier) {
  NamedBarrier& state = named_barriers_[static_cast<size_t>(barrier.id)];
  if (code_.checked) check_arrival(instr, barrier);
  if (state.arrived == 0) {
    state.expected = barrier.threads;
    state.statement = instr.statement;
  }
  state.arrived += mask().count;
  state.step = std::max(state.step, last_step());
  WarpClocks& clocks = neighbours_.clocks;
  if (code_.checked) {
    for_each_active_warp(mask(), [&](int warp) {
      const int number = rank_ * kWarpsPerBlock + warp;
      state.arrivals.push_back({number, clocks.time(number), instr.statement});
      clocks.release(number, state.clock);
      if (barrier.scope == BarrierScope::named) state.waiting.push_back(number);
    });
  }
  if (state.arrived < state.expected) return;
  for (const int warp : state.waiting) {
    clocks.acquire(warp, state.clock);
    clocks.warp_barrier(warp);
  }
  state.before = std::move(state.arrivals);
  state.arrivals.clear();
  state.waiting.clear();
  state.clock.clear();
  state.arrived = 0;
  state.ended_at = state.step;
  ++state.rounds;
}

/// Traps unless the active threads are whole warps, fit in the count, and come after all arrivals of
/// the previous round.
void Machine::check_arrival(const Instr& instr, const Barrier& barrier) const {
  const NamedBarrier& state = named_barriers_[static_cast<size_t>(barrier.id)];
  const Mask& active = mask();
  const auto refuse = [&](int lane, std::string what, std::string expected, std::string got,
                          int32_t related) {
    trap(instr, lane,
         {.code = "ROLE_BARRIER",
          .what = fmt::format("named barrier {} {}", barrier.id, what),
          .expected = std::move(expected),
          .got = std::move(got),
          .related = related});
  };
  for_each_active_warp(active, [&](int warp) {
    const int first = warp * kWarpSize, end = std::min(first + kWarpSize, code_.threads);
    const auto count = std::count(active.lanes + first, active.lanes + end, uint8_t{1});
    if (count == end - first) return;
    refuse(first, fmt::format("is reached by a part of warp {}", warp),
           fmt::format("all {} threads of the warp", end - first), fmt::format("{}", count), 0);
  });
  if (state.arrived > 0 && state.expected != barrier.threads) {
    refuse(active.begin, "has two counts at one meeting", fmt::format("{} threads", state.expected),
           fmt::format("{} threads", barrier.threads), state.statement);
  }
  if (state.arrived + active.count > barrier.threads) {
    refuse(active.begin, "is met by more threads than it counts",
           fmt::format("{} threads", barrier.threads),
           fmt::format("{} threads", state.arrived + active.count),
           state.arrived > 0 ? state.statement : 0);
  }
  for_each_active_warp(active, [&](int warp) {
    const int number = rank_ * kWarpsPerBlock + warp;
    for (const NamedBarrier::Arrival& other : state.arrivals) {
      if (other.warp != number) continue;
      refuse(warp * kWarpSize, fmt::format("is met twice by warp {} before the others come", warp),
             "once per meeting", "twice", other.statement);
    }
    for (const NamedBarrier::Arrival& other : state.before) {
      if (other.warp == number || neighbours_.clocks.is_before(other.warp, other.time, number)) {
        continue;
      }
      refuse(warp * kWarpSize,
             fmt::format("is met again while warp {} may not have come to the meeting before",
                         other.warp % kWarpsPerBlock),
             "an order between the two meetings", "none", other.statement);
    }
  });
}

std::string Machine::state_of(const Cursor& cursor) const {
  if (cursor.has_ended()) return fmt::format("{} has ended", name_of(cursor));
  const Instr& instr = next_of(cursor);
  std::string wait = "waits";
  if (instr.code == Code::named_barrier) {
    const Barrier& barrier = code_.named_barriers[static_cast<size_t>(instr.index)];
    const NamedBarrier& state = named_barriers_[static_cast<size_t>(barrier.id)];
    wait = fmt::format("waits at named barrier {}, where {} of {} threads have come", barrier.id,
                       state.arrived, state.expected);
  }
  if (instr.code == Code::mbarrier_wait) wait = awaited_phase(instr, cursor.mask());
  const SourceLoc& loc = code_.locs[static_cast<size_t>(instr.statement)];
  return fmt::format("{}{} {}", name_of(cursor),
                     loc.known() ? fmt::format(" ({})", to_string(loc)) : "", wait);
}

void Machine::trap_deadlock() {
  if (!are_roles_running_) {
    cursor_ = &cursors_[0];
    if (next_of(*cursor_).code == Code::mbarrier_wait) trap_endless_phase(next_of(*cursor_));
  }
  std::vector<std::string> states;
  std::vector<const Cursor*> waiting;
  const auto add = [&](const Cursor& cursor) {
    states.push_back(state_of(cursor));
    if (!cursor.has_ended()) waiting.push_back(&cursor);
  };
  if (are_roles_running_) {
    std::for_each(cursors_.begin() + 1, cursors_.end(), add);
  } else {
    add(cursors_[0]);
  }
  TESSERA_CHECK(!waiting.empty(), "a deadlock of threads that wait");
  trap(next_of(*waiting.front()), waiting.front()->threads.first,
       {.code = "DEADLOCK",
        .what = fmt::format("no thread of the block can go on: {}", fmt::join(states, "; ")),
        .related = waiting.size() > 1 ? next_of(*waiting[1]).statement : 0});
}

}  // namespace tessera::codegen::cpu
