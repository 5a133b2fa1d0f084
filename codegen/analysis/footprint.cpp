// Footprints by enumeration: the offset of an access is evaluated for all threads of the group at once (ThreadValues keeps a
// column of values, one per thread), in every round of the loops that matter, and the owner of each element is noted: nobody,
// one thread, several. The same is kept for warps.
//
//   runs       elements that all accesses of an array take together count as one: 8 of bf16 by 16-byte accesses
//   steering   only loops whose index occurs in offset, guard or predicates, or in the bounds of such a loop, are enumerated:
//              a loop over tiles of global memory touches the same shared elements in every round
//   unknown    a loop with bounds of run time is enumerated over the phases of its index instead, modulo the period with which
//   bounds     it occurs in the offset (`tile[i % 2]` has two), all else of it unknown
//   guards     a thread whose guard or predicate is known and false does not touch; an unknown one does
//   limit      more than 2^18 points, or an offset that cannot be evaluated: any thread may touch any element
//
// Everything errs to one side: an element may have more owners than on the GPU, never fewer, so that a barrier may be
// superfluous, never missing. Equal queries give the same object: insert_barriers asks for each pair of accesses.
//
// A matrix access (ldmatrix) touches the rows that its lanes name and gives the elements to the whole warp; a box of the copy
// engine touches the panels of its swizzle.

#include "codegen/analysis/footprint.h"

#include <algorithm>
#include <limits>
#include <set>

#include "codegen/thread_ir/shared_matrix.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kMaxVisits = int64_t{1} << 18;

void note(int16_t& owner, int64_t who) {
  if (owner == Footprint::kNobody) {
    owner = static_cast<int16_t>(who);
  } else if (owner != who) {
    owner = Footprint::kSeveral;
  }
}

}  // namespace

bool overlap(const Array& a, const Array& b) {
  const auto end = [](const Array& array) {
    return array.shared_offset + (array.size * bits(array.dtype) + 7) / 8;
  };
  return a.shared_offset < end(b) && b.shared_offset < end(a);
}

Group order_needed(const Footprint& a, const Footprint& b) {
  if (!a.writes && !b.writes) return Group::thread;
  if (a.array != b.array) return overlap(*a.array, *b.array) ? Group::block : Group::thread;
  if (a.atomic && b.atomic) return Group::thread;
  Group result = Group::thread;
  for (size_t e = std::max(a.first, b.first); e < std::min(a.end(), b.end()); ++e) {
    const size_t in_a = e - a.first, in_b = e - b.first;
    const int16_t owner = a.thread[in_a], other = b.thread[in_b];
    if (owner == Footprint::kNobody || other == Footprint::kNobody) continue;
    if (owner != Footprint::kSeveral && owner == other) continue;
    const int16_t warp = a.warp[in_a];
    if (warp == Footprint::kSeveral || warp != b.warp[in_b]) return Group::block;
    result = Group::warp;
  }
  return result;
}

/// Calls fn(begin, width) for each run of consecutive elements of an access that begins at `first`.
template <class Fn>
void for_each_run(const MemoryEffect& effect, int64_t first, const Fn& fn) {
  const Access& access = effect.access;
  if (effect.matrix != nullptr) {
    for_each_chunk(*effect.matrix, first,
                   [&](const MatrixChunk& chunk) { fn(chunk.offset, access.width); });
  } else if (effect.box != nullptr) {
    const TensorMap& map = *effect.box;
    const auto& swizzle = access.array->swizzle;
    const int64_t columns = map.box.back(), rows = map.elements() / columns;
    const int64_t panel = swizzle ? std::min(columns, swizzle->panel) : columns;
    for (int64_t column = 0; column < columns; column += panel) {
      const int64_t before = swizzle ? column / panel * swizzle->rows * swizzle->pitch : 0;
      fn(first + before, rows * panel);
    }
  } else {
    fn(first, access.width);
  }
}

/// The enumeration of one access through the loops around it.
struct Footprints::Visit {
  const Access& access;
  const ThreadGroup& group;
  const std::vector<Rounds>& loops;
  const std::vector<Expr>& predicates;
  int64_t run;
  size_t size;                 // of the array, in runs
  bool by_warp;                // what one lane names, the whole warp receives
  const MemoryEffect& effect;  // that begins at the access
  int64_t points = 0;
  size_t first = std::numeric_limits<size_t>::max(), end = 0;  // bounds of the elements it touched
};

Footprints::Footprints(const Program& program) : values_(program.thread, program.threads) {
  std::set<int> several;  // values bound at more than one place
  walk(program.body, [&](const Stmt& stmt) {
    for_each_binding(stmt, [&](const VarRef& var, const Expr* value) {
      if (value == nullptr) return;
      const Expr* other = values_.definition(*var);
      if (other != nullptr && other->get() != value->get()) several.insert(var->id);
      values_.define(*var, *value);
    });
    if (const auto* bodies = std::get_if<RoleBodies>(&stmt.node)) {
      for (const RoleBodies::Role& role : bodies->roles) {
        if (!role.thread) continue;
        values_.define(*role.thread, ir::var(program.thread) - ir::index(role.threads.first));
      }
    }
    // A ring orders its stages: between two waits all accesses to its tiles are to one stage.
    const auto* const load = std::get_if<Load>(&stmt.node);
    if (load != nullptr && load->from.array->ring_part == Array::RingPart::stage) {
      values_.bind(*load->var, 0);
    }
    for_each_access(stmt, [&](const Access& access, bool) {
      if (access.array->space != ArraySpace::shared) return;
      const auto entry = run_.try_emplace(access.array.get(), access.width).first;
      entry->second = std::min<int64_t>(entry->second, access.width);
    });
  });
  for (const int id : several) values_.forget(id);
}

FootprintRef Footprints::of(const Stmt& stmt, const MemoryEffect& effect, const ThreadGroup& group,
                            const std::vector<Rounds>& loops, const std::vector<Expr>& predicates) {
  const Access& access = effect.access;
  const std::vector<Rounds> relevant = steering(access, loops, predicates);
  const bool by_warp = effect.by != Group::thread;
  // Node addresses are valid keys here: the program keeps its expressions alive.
  const auto address = [](const void* p) {
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(p));
  };
  std::vector<int64_t> key = {address(access.array.get()),
                              address(access.offset.get()),
                              address(access.guard.get()),
                              access.width,
                              effect.writes,
                              effect.atomic,
                              effect.in_flight,
                              stmt.manual_sync,
                              by_warp,
                              group.first,
                              group.count,
                              effect.matrix != nullptr ? effect.matrix->rows : 0,
                              effect.matrix != nullptr && effect.matrix->transposed,
                              effect.box != nullptr ? address(effect.box) : 0};
  for (const Rounds& rounds : relevant) {
    const For& loop = *rounds.loop;
    key.insert(key.end(), {loop.var->id, address(loop.begin.get()), address(loop.end.get()),
                           address(loop.step.get()), rounds.period, rounds.phase});
  }
  key.push_back(-1);
  for (const Expr& predicate : predicates) key.push_back(address(predicate.get()));
  FootprintRef& known = known_[key];
  if (known) return known;

  auto result = std::make_shared<Footprint>();
  result->array = access.array;
  result->writes = effect.writes;
  result->atomic = effect.atomic;
  result->in_flight = effect.in_flight;
  result->manual_sync = stmt.manual_sync;
  result->number = known_.size();
  result->loc = stmt.loc;
  const int64_t run = run_.at(access.array.get());
  const auto size = static_cast<size_t>((access.array->size + run - 1) / run);
  thread_.resize(std::max(thread_.size(), size), Footprint::kNobody);
  warp_.resize(thread_.size(), Footprint::kNobody);
  Visit visit{access, group, relevant, predicates, run, size, by_warp, effect};
  const bool exact = enumerate(0, visit);
  const size_t first = std::min(visit.first, visit.end);
  const auto take = [&](std::vector<int16_t>& all, std::vector<int16_t>& touched) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(visit.end);
    if (exact) touched.assign(begin, end);
    if (!exact) touched.assign(size, Footprint::kSeveral);
    std::fill(begin, end, Footprint::kNobody);
  };
  take(thread_, result->thread);
  take(warp_, result->warp);
  if (exact) result->first = first;
  for (const Rounds& rounds : relevant) values_.unbind(*rounds.loop->var);
  known = result;
  return known;
}

/// The loops that affect which elements an access touches. A serial loop over tiles of global
/// memory writes the same shared elements in every round, so it does not.
std::vector<Rounds> Footprints::steering(const Access& access, const std::vector<Rounds>& loops,
                                         const std::vector<Expr>& predicates) const {
  std::vector<const std::set<int>*> used = {&vars_of(access.offset)};
  if (access.guard) used.push_back(&vars_of(access.guard));
  for (const Expr& predicate : predicates) used.push_back(&vars_of(predicate));
  std::vector<Rounds> result;
  for (size_t i = loops.size(); i-- > 0;) {
    const For& loop = *loops[i].loop;
    if (std::none_of(used.begin(), used.end(),
                     [&](const std::set<int>* vars) { return vars->contains(loop.var->id); })) {
      continue;
    }
    for (const Expr& bound : {loop.begin, loop.end}) used.push_back(&vars_of(bound));
    result.insert(result.begin(), loops[i]);
  }
  return result;
}

const std::set<int>& Footprints::vars_of(const Expr& e) const {
  const auto [entry, is_new] = vars_.try_emplace(e.get());
  if (!is_new) return entry->second;
  std::vector<VarRef> open;
  ir::collect_vars(e, open);
  while (!open.empty()) {
    const VarRef var = open.back();
    open.pop_back();
    if (!entry->second.insert(var->id).second) continue;
    if (const Expr* value = values_.definition(*var)) ir::collect_vars(*value, open);
  }
  return entry->second;
}

/// Returns false if the access may touch any element.
bool Footprints::enumerate(size_t depth, Visit& visit) {
  if (depth == visit.loops.size()) return touch(visit);
  const Rounds& rounds = visit.loops[depth];
  const For& loop = *rounds.loop;
  const auto begin = values_.evaluate(loop.begin);
  const auto end = values_.evaluate(loop.end);
  const bool known =
      begin && end && begin->lanes.empty() && end->lanes.empty() && ir::is_constant(loop.step) &&
      loop.step->integer > 0 &&
      (end->value - begin->value) / loop.step->integer * visit.group.count <= kMaxVisits;
  bool exact = true;
  if (known) {
    for (int64_t i = begin->value; exact && i < end->value; i += loop.step->integer) {
      if ((i % rounds.period + rounds.period) % rounds.period != rounds.phase) continue;
      values_.bind(*loop.var, i);
      exact = enumerate(depth + 1, visit);
    }
  } else if (rounds.period > 1) {
    values_.bind_phase(*loop.var, rounds.phase, rounds.period);
    exact = enumerate(depth + 1, visit);
  } else {
    const int64_t period = period_of(visit.access.offset, *loop.var);
    for (int64_t phase = 0; exact && phase < period; ++phase) {
      values_.bind_phase(*loop.var, phase, period);
      exact = enumerate(depth + 1, visit);
    }
  }
  return exact;
}

bool Footprints::touch(Visit& visit) {
  visit.points += visit.group.count;
  if (visit.points > kMaxVisits) return false;
  const auto first = values_.evaluate(visit.access.offset);
  if (!first) return false;
  std::vector<ThreadColumn> conditions;
  for (const Expr& predicate : visit.predicates) {
    if (auto value = values_.evaluate(predicate)) conditions.push_back(std::move(*value));
  }
  if (visit.access.guard) {
    if (auto value = values_.evaluate(visit.access.guard)) conditions.push_back(std::move(*value));
  }
  const auto size = static_cast<int64_t>(visit.size);
  for (int thread = visit.group.first; thread < visit.group.end(); ++thread) {
    const auto t = static_cast<size_t>(thread);
    const bool active = std::all_of(conditions.begin(), conditions.end(),
                                    [&](const ThreadColumn& c) { return c.at(t) != 0; });
    // All lanes of a warp name the same matrix.
    if (!active || (visit.effect.matrix != nullptr && thread % kThreadsPerWarp != 0)) continue;
    if (first->at(t) < 0) continue;  // out of bounds: the checked executor's business
    for_each_run(visit.effect, first->at(t), [&](int64_t begin, int64_t width) {
      const int64_t last = std::min((begin + width - 1) / visit.run, size - 1);
      if (begin / visit.run > last) return;
      visit.first = std::min(visit.first, static_cast<size_t>(begin / visit.run));
      visit.end = std::max(visit.end, static_cast<size_t>(last + 1));
      for (int64_t e = begin / visit.run; e <= last; ++e) {
        const auto place = static_cast<size_t>(e);
        note(thread_[place], thread);
        if (visit.by_warp) thread_[place] = Footprint::kSeveral;
        note(warp_[place], thread / kThreadsPerWarp);
      }
    });
  }
  return true;
}

}  // namespace tessera::codegen
