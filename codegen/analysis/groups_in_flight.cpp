#include "codegen/analysis/groups_in_flight.h"

#include <algorithm>

#include "codegen/analysis/round_count.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMostRounds = 16;  // loops up to this length are followed round by round

GroupsInFlight either(GroupsInFlight a, GroupsInFlight b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}

/// The number of rounds of a loop if that is a small constant, else -1.
int64_t rounds_of(const Stmt& stmt) {
  const auto* loop = std::get_if<For>(&stmt.node);
  const bool is_known = loop != nullptr && break_of(*loop) == nullptr &&
                        ir::is_constant(loop->begin) && ir::is_constant(loop->end) &&
                        ir::is_constant(loop->step);
  if (!is_known) return -1;
  const int64_t step = loop->step->integer;
  const int64_t rounds = round_count(loop->begin->integer, loop->end->integer, step);
  return rounds <= kMostRounds ? rounds : -1;
}

/// The groups in flight after any of the bodies of a statement.
GroupsInFlight after_bodies(const Stmt& stmt, GroupsInFlight before, int limit) {
  bool any = false;
  GroupsInFlight result = before;
  for_each_body(stmt, [&](const Body& inner) {
    const GroupsInFlight after = groups_after(inner, before, limit);
    result = any ? either(result, after) : after;
    any = true;
  });
  return result;
}

}  // namespace

GroupsInFlight groups_inside(const Stmt& stmt, GroupsInFlight before, int limit) {
  if (!repeats(stmt)) return before;
  GroupsInFlight inside = before, now = before;
  // Both bounds move monotonically and stay between 0 and the limit.
  const int64_t rounds = rounds_of(stmt);
  for (int64_t round = 1; rounds < 0 || round < rounds; ++round) {
    now = after_bodies(stmt, rounds < 0 ? inside : now, limit);
    const GroupsInFlight wider = either(inside, now);
    if (rounds < 0 && wider == inside) break;
    inside = wider;
  }
  return inside;
}

GroupsInFlight groups_after(const Stmt& stmt, GroupsInFlight before, int limit) {
  if (repeats(stmt)) {
    const int64_t rounds = rounds_of(stmt);
    if (rounds < 0) return groups_inside(stmt, before, limit);
    for (int64_t round = 0; round < rounds; ++round) before = after_bodies(stmt, before, limit);
    return before;
  }
  GroupsInFlight result = after_bodies(stmt, before, limit);
  any_order(stmt, [&](const Order& order) {
    if (order.work != Work::copies) return false;
    if (order.kind == Order::Kind::commit) {
      result = {std::min(result.least + 1, limit), std::min(result.most + 1, limit)};
    } else if (order.kind == Order::Kind::await) {
      result = {std::min(result.least, order.pending), std::min(result.most, order.pending)};
    }
    return false;
  });
  return result;
}

GroupsInFlight groups_after(const Body& body, GroupsInFlight before, int limit) {
  for (const Stmt& stmt : body) before = groups_after(stmt, before, limit);
  return before;
}

}  // namespace tessera::codegen
