#pragma once
// Which thread of a group touches which element of a shared array, found by enumerating the threads
// and the loops around an access.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "codegen/analysis/thread_values.h"
#include "codegen/thread_ir/effects.h"

namespace tessera::codegen {

struct Footprint {
  static constexpr int16_t kNobody = -1;
  static constexpr int16_t kSeveral = -2;

  ArrayRef array;
  bool writes = false;
  bool atomic = false;
  bool in_flight = false;    // completes at a wait
  bool manual_sync = false;  // the author's barriers order it
  // One entry per run of elements from `first` on: kNobody, kSeveral or the index. All other runs
  // are kNobody.
  std::vector<int16_t> thread, warp;
  size_t first = 0;
  size_t end() const { return first + thread.size(); }
  SourceLoc loc;
  size_t number = 0;  // among the footprints of one analysis
};
using FootprintRef = std::shared_ptr<const Footprint>;

/// True if the shared arrays overlap in the arena.
bool overlap(const Array& a, const Array& b);

/// The group of threads that must be ordered between two accesses, where different threads touch an
/// element and one of them writes. `thread`: no such element. `warp`: always threads of one warp. Else
/// `block`: all of the group that makes the accesses, also for different arrays in the same memory.
Group order_needed(const Footprint& a, const Footprint& b);

/// The rounds of a loop whose index has the remainder `phase` modulo `period`.
struct Rounds {
  const For* loop = nullptr;
  int64_t period = 1, phase = 0;
};

class Footprints {
 public:
  explicit Footprints(const Program& program);

  const ThreadValues& values() const { return values_; }
  /// The footprint of one access of the threads of `group` under `predicates`, over these rounds of the
  /// loops around it. An access that cannot be evaluated may touch anything. Equal queries return the
  /// same object.
  FootprintRef of(const Stmt& stmt, const MemoryEffect& effect, const ThreadGroup& group,
                  const std::vector<Rounds>& loops, const std::vector<Expr>& predicates);

 private:
  struct Visit;
  std::vector<Rounds> steering(const Access& access, const std::vector<Rounds>& loops,
                               const std::vector<Expr>& predicates) const;
  /// The ids of all Vars that determine `e`.
  const std::set<int>& vars_of(const Expr& e) const;
  bool enumerate(size_t depth, Visit& visit);
  bool touch(Visit& visit);

  ThreadValues values_;
  std::map<const Array*, int64_t> run_;  // elements that are always accessed together
  std::map<std::vector<int64_t>, FootprintRef> known_;
  mutable std::map<const ir::Node*, std::set<int>> vars_;
  std::vector<int16_t> thread_, warp_;  // scratch of of(), one per run; all kNobody between calls
};

}  // namespace tessera::codegen
