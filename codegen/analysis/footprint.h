#pragma once
// Which thread of a group touches which element of a shared array: decided by enumerating the threads
// and the loops around an access.

#include <cstdint>
#include <map>
#include <memory>
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
  bool in_flight = false;    // done at a wait
  bool manual_sync = false;  // the author's barriers order it
  // By run of elements from `first` on: kNobody, kSeveral or the number. All others are kNobody's.
  std::vector<int16_t> thread, warp;
  size_t first = 0;
  size_t end() const { return first + thread.size(); }
  SourceLoc loc;
};
using FootprintRef = std::shared_ptr<const Footprint>;

/// True if the shared arrays have a part of the arena in common.
bool overlap(const Array& a, const Array& b);

/// The threads that need an order between two accesses, because different ones touch an element and one
/// of them writes: `thread` if there is no such element, `warp` if they always belong to one warp, else
/// `block`: all of the group that makes the accesses. Different arrays in the same memory: always
/// `block`.
Group order_needed(const Footprint& a, const Footprint& b);

/// Some rounds of a loop: those whose index has the remainder `phase` by `period`.
struct Rounds {
  const For* loop = nullptr;
  int64_t period = 1, phase = 0;
};

class Footprints {
 public:
  explicit Footprints(const Program& program);

  const ThreadValues& values() const { return values_; }
  /// The footprint of one access of the threads of `group` under `predicates`, over these rounds of the
  /// loops around it; what cannot be evaluated may be anything. The same object for the same question.
  FootprintRef of(const Stmt& stmt, const MemoryEffect& effect, const ThreadGroup& group,
                  const std::vector<Rounds>& loops, const std::vector<Expr>& predicates);

 private:
  struct Visit;
  std::vector<Rounds> steering(const Access& access, const std::vector<Rounds>& loops,
                               const std::vector<Expr>& predicates) const;
  bool enumerate(size_t depth, Visit& visit);
  bool touch(Visit& visit);

  ThreadValues values_;
  std::map<const Array*, int64_t> run_;  // elements that always go together
  std::map<std::vector<int64_t>, FootprintRef> known_;
  std::vector<int16_t> thread_, warp_;  // for of(), one per run; all kNobody between calls
};

}  // namespace tessera::codegen
