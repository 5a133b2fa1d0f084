#include "codegen/analysis/shared_lifetimes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/uniform.h"
#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

/// True if threads of a block may exit at different times.
bool threads_leave_apart(const Program& program) {
  const UniformValues uniform(program);
  const auto leaves = [](const Stmt& stmt) { return has_order(stmt, Order::Kind::leave); };
  return std::any_of(program.body.begin(), program.body.end(), [&](const Stmt& stmt) {
    const auto* leave = std::get_if<Return>(&stmt.node);
    return leave != nullptr ? !uniform(leave->condition) : any_in(stmt, leaves);
  });
}

class LifetimeFinder {
 public:
  explicit LifetimeFinder(const Program& program)
      : end_(program.body.size()), forever_(threads_leave_apart(program)) {
    for (; step_ < end_; ++step_) {
      walk_stmt(program.body[step_], [&](const Stmt& stmt) { use(stmt); });
      await(program.body[step_]);
    }
    for (auto& [array, lifetime] : lifetimes_) {
      const auto copied = is_open_.find(array);
      if (copied == is_open_.end() || lifetime.last == end_) continue;
      if (!copied->second) lifetime.ends_if_awaited = lifetime.last;
      lifetime.last = end_;
    }
  }

  std::map<const Array*, Lifetime> take() { return std::move(lifetimes_); }

 private:
  void use(const Stmt& stmt) {
    for_each_declaration(stmt, [&](const ArrayRef& view) {
      // Other blocks may access it at any time.
      if (view->mine) lifetimes_[view->mine.get()] = {0, end_};
    });
    for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
      const Array* array = effect.access.array.get();
      if (array->space != ArraySpace::shared) return;
      Lifetime& lifetime = lifetimes_.try_emplace(array, Lifetime{step_, step_}).first->second;
      lifetime.last = std::max(lifetime.last, step_);
      // place_store_waits lets nothing write the memory that a tensor store reads.
      const bool is_copied = effect.in_flight && effect.writes;
      if (is_copied && effect.is_grouped) is_open_[array] = true;
      const bool never_ends = is_copied && !effect.is_grouped;
      if (forever_ || never_ends || stmt.manual_sync) lifetime = {0, end_};
    });
    if (!has_order(stmt, Order::Kind::commit, Work::copies)) return;
    for (auto& [array, open] : is_open_) open = false;
  }

  /// After an outermost wait for all groups nothing is in flight.
  void await(const Stmt& stmt) {
    if (!has_order(stmt, Order{Order::Kind::await, Group::thread, 0})) return;
    for (const auto& [array, open] : is_open_) {
      Lifetime& lifetime = lifetimes_.at(array);
      lifetime.last = std::max(lifetime.last, step_);
    }
    std::erase_if(is_open_, [](const auto& copied) { return !copied.second; });
  }

  const size_t end_;
  const bool forever_;
  size_t step_ = 0;
  std::map<const Array*, Lifetime> lifetimes_;
  std::map<const Array*, bool> is_open_;  // of what copies in flight write: no group has them yet
};

}  // namespace

std::map<const Array*, Lifetime> shared_lifetimes(const Program& program) {
  return LifetimeFinder(program).take();
}

std::string meeting_in_arena(const Program& program) {
  const std::map<const Array*, Lifetime> lifetimes = shared_lifetimes(program);
  for (const ArrayRef& a : program.shared) {
    for (const ArrayRef& b : program.shared) {
      if (a == b) break;
      const auto one = lifetimes.find(a.get()), other = lifetimes.find(b.get());
      const bool are_used = one != lifetimes.end() && other != lifetimes.end();
      if (are_used && overlap(*a, *b) && one->second.meets(other->second)) {
        return fmt::format("'{}' and '{}'", b->name, a->name);
      }
    }
  }
  return {};
}

}  // namespace tessera::codegen
