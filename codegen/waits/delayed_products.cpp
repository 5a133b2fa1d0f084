#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "codegen/analysis/footprint.h"
#include "codegen/thread_ir/walk.h"
#include "codegen/waits/product_waits.h"

namespace tessera::codegen {
namespace {

constexpr size_t kMaxPending = 7;   // groups that a wait may leave in flight
constexpr int64_t kMaxPeriod = 24;  // rounds after which the versions of a tile repeat

bool has_product(const Stmt& stmt) {
  return any_in(stmt, is_of_product);
}

bool is_block_barrier(const Stmt& stmt) {
  return has_order(stmt, {Order::Kind::barrier, Group::block});
}

bool overlap(const Footprint& a, const Footprint& b) {
  if (a.array != b.array) return overlap(*a.array, *b.array);
  for (size_t e = std::max(a.first, b.first); e < std::min(a.end(), b.end()); ++e) {
    const bool both =
        a.thread[e - a.first] != Footprint::kNobody && b.thread[e - b.first] != Footprint::kNobody;
    if (both) return true;
  }
  return false;
}

/// A loop that may delay the waits for its products.
class Candidate {
 public:
  Candidate(Footprints& footprints, const ThreadGroup& group, const For& loop)
      : footprints_(footprints), group_(group), loop_(loop) {}

  /// Empty if the waits at these positions of the body may be for the previous round.
  std::string problem(const std::vector<size_t>& waits) {
    for (size_t i = 0; i < loop_.body.size(); ++i) {
      const Stmt& stmt = loop_.body[i];
      if (!is_of_product(stmt) && has_product(stmt)) return "a product stands in an inner loop";
    }
    if (waits.size() > kMaxPending) return "the loop computes too many products";
    std::set<const Array*> sums;
    for (const size_t wait : waits) {
      const Array& sum = *std::get<Await>(loop_.body[wait].node).sum.array;
      if (touches_registers(sum)) return fmt::format("the loop uses '{}'", sum.name);
      if (!sums.insert(&sum).second) return fmt::format("two products add to '{}'", sum.name);
    }
    for (const Stmt& stmt : loop_.body) {
      const auto* mma = std::get_if<Mma>(&stmt.node);
      if (mma == nullptr || !mma->is_of_group()) continue;
      if (!sums.contains(mma->c.array.get())) return "a product is awaited elsewhere";
      if (mma->a.array && touches_registers(*mma->a.array)) {
        return fmt::format("the loop writes '{}'", mma->a.array->name);
      }
    }
    if (!writes_come_after_a_barrier(waits.back())) return "no barrier before the next copies";
    return problem_of_operands();
  }

 private:
  /// By statements other than products.
  bool touches_registers(const Array& array) const {
    bool found = false;
    walk(loop_.body, [&](const Stmt& stmt) {
      if (has_product(stmt)) return;
      for_each_array(stmt, [&](const ArrayRef& other) { found = found || other.get() == &array; });
    });
    return found;
  }

  static bool writes_shared(const Stmt& stmt) {
    return any_in(stmt, [](const Stmt& inner) {
      bool writes = false;
      for_each_memory_effect(inner, [&](const MemoryEffect& effect) {
        writes = writes || (effect.writes && effect.access.array->space == ArraySpace::shared);
      });
      return writes;
    });
  }

  /// True if writes follow a barrier. A round overwrites what was read at least two rounds before;
  /// all threads have awaited that product in the round between, and reach a barrier after that wait
  /// and before the write.
  bool writes_come_after_a_barrier(size_t wait) const {
    const Body& body = loop_.body;
    const auto is_barrier = [](const Stmt& stmt) { return is_block_barrier(stmt); };
    const auto after_wait = body.begin() + static_cast<std::ptrdiff_t>(wait);
    if (std::any_of(after_wait, body.end(), is_barrier)) return true;
    const auto first_write = std::find_if(body.begin(), body.end(), writes_shared);
    return std::any_of(body.begin(), first_write, is_barrier);
  }

  struct Use {
    const Stmt* stmt;
    MemoryEffect effect;
    std::vector<Rounds> inner;  // loops between
  };
  void collect(const Stmt& stmt, std::vector<Rounds>& inner) {
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      if (effect.access.array->space != ArraySpace::shared) return;
      if (effect.matrix != nullptr) reads_.push_back({&stmt, effect, inner});
      if (effect.writes) writes_.push_back({&stmt, effect, inner});
    });
    by_structure(
        stmt,
        [&](const For& loop) {
          inner.push_back({&loop});
          for (const Stmt& next : loop.body) collect(next, inner);
          inner.pop_back();
        },
        [&](const If& branch) {
          for (const Stmt& next : branch.then) collect(next, inner);
          for (const Stmt& next : branch.otherwise) collect(next, inner);
        },
        [](const RoleBodies&) {});  // never in a loop
  }

  std::vector<FootprintRef> footprints_of(const std::vector<Use>& uses, int64_t period,
                                          int64_t phase) {
    std::vector<FootprintRef> result;
    for (const Use& use : uses) {
      std::vector<Rounds> loops = {{&loop_, period, phase}};
      loops.insert(loops.end(), use.inner.begin(), use.inner.end());
      result.push_back(footprints_.of(*use.stmt, use.effect, group_, loops, {}));
    }
    return result;
  }

  std::string problem_of_operands() {
    std::vector<Rounds> inner;
    for (const Stmt& stmt : loop_.body) collect(stmt, inner);
    int64_t period = 1;
    for (const auto* uses : {&reads_, &writes_}) {
      for (const Use& use : *uses) {
        period = std::lcm(period, period_of(use.effect.access.offset, *loop_.var));
      }
    }
    if (period > kMaxPeriod) return "its tiles have too many versions";
    for (int64_t phase = 0; phase < period; ++phase) {
      const auto written = footprints_of(writes_, period, phase);
      // The reads of this round, and of the previous one.
      for (const int64_t round : {phase, (phase + period - 1) % period}) {
        for (const FootprintRef& read : footprints_of(reads_, period, round)) {
          for (const FootprintRef& write : written) {
            if (overlap(*read, *write)) {
              return fmt::format("'{}' is overwritten too early", authors_name(*read->array));
            }
          }
        }
      }
    }
    return {};
  }

  Footprints& footprints_;
  const ThreadGroup group_;
  const For& loop_;
  std::vector<Use> reads_, writes_;
};

class WaitDelayer {
 public:
  WaitDelayer(const Program& program, std::vector<std::string>& notes)
      : footprints_(program), block_(program.block()), notes_(notes) {}

  void visit(Body& body) {
    for (size_t i = 0; i < body.size(); ++i) {
      for_each_body(body[i], [&](Body& inner) { visit(inner); });
      auto* loop = std::get_if<For>(&body[i].node);
      if (loop == nullptr || loop->unrolled || break_of(*loop) != nullptr) continue;
      const std::vector<size_t> waits = waits_of(loop->body);
      if (waits.empty()) continue;
      const std::string problem = Candidate(footprints_, block_, *loop).problem(waits);
      for (const size_t wait : waits) {
        notes_.push_back(fmt::format(
            "{}: {}", to_string(loop->body[wait].loc),
            problem.empty() ? "awaited one round later" : "awaited in its round: " + problem));
      }
      if (!problem.empty()) continue;
      delay(body, i, waits);
      i += 2 * waits.size();
    }
  }

 private:
  /// The sums stay in flight during the whole loop: they start before it and are available after
  /// it. A wait in the loop leaves as many groups in flight as a round has products.
  static void delay(Body& body, size_t at, const std::vector<size_t>& waits) {
    auto& loop = std::get<For>(body[at].node);
    Body fences, rest;
    for (const size_t at_wait : waits) {
      rest.push_back(loop.body[at_wait]);
      fences.push_back(loop.body[at_wait]);
      auto& wait = std::get<Await>(loop.body[at_wait].node);
      fences.back().node = Fence{Fence::Of::registers, wait.sum, wait.width};
      wait = {.work = Work::products, .pending = static_cast<int>(waits.size())};
    }
    for (Stmt& stmt : loop.body) {
      auto* fence = std::get_if<Fence>(&stmt.node);
      if (fence != nullptr && fence->of == Fence::Of::registers) *fence = {Fence::Of::registers};
    }
    const auto place = body.begin() + static_cast<std::ptrdiff_t>(at);
    const auto first = body.insert(place + 1, rest.begin(), rest.end());
    body.insert(first - 1, fences.begin(), fences.end());
  }

  /// The positions where a body waits for products.
  static std::vector<size_t> waits_of(const Body& body) {
    std::vector<size_t> result;
    for (size_t i = 0; i < body.size(); ++i) {
      if (is_product_wait(body[i])) result.push_back(i);
    }
    return result;
  }

  Footprints footprints_;
  const ThreadGroup block_;
  std::vector<std::string>& notes_;
};

}  // namespace

void delay_products(Program& program, std::vector<std::string>& notes) {
  const bool any = std::any_of(program.body.begin(), program.body.end(), has_product);
  if (any) WaitDelayer(program, notes).visit(program.body);
}

}  // namespace tessera::codegen
