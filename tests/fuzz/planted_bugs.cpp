#include "tests/fuzz/planted_bugs.h"

#include <functional>
#include <iterator>
#include <vector>

#include "codegen/thread_ir/walk.h"

namespace tessera::test {
namespace {

using namespace codegen;

/// Calls fn(body) for every body, outer before inner.
void walk_bodies(Body& body, const std::function<void(Body&)>& fn) {
  fn(body);
  for (Stmt& stmt : body) {
    for_each_body(stmt, [&](Body& inner) { walk_bodies(inner, fn); });
  }
}

bool drop_barrier(Program& program, uint64_t choice) {
  const auto is_inserted = [](const Stmt& stmt) {
    const auto* barrier = std::get_if<Barrier>(&stmt.node);
    return barrier != nullptr && barrier->reason > 0;
  };
  std::vector<std::function<void()>> places;
  walk_bodies(program.body, [&](Body& body) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (!is_inserted(body[i])) continue;
      places.push_back([&body, i] { body.erase(body.begin() + static_cast<std::ptrdiff_t>(i)); });
    }
  });
  if (places.empty()) return false;
  places[choice % places.size()]();
  return true;
}

bool drop_guard(Program& program, uint64_t choice) {
  std::vector<Access*> guarded;
  walk(program.body, [&](Stmt& stmt) {
    for_each_access(stmt, [&](Access& access, bool) {
      if (access.guard) guarded.push_back(&access);
    });
  });
  if (guarded.empty()) return false;
  guarded[choice % guarded.size()]->guard = {};
  return true;
}

/// mine = sums[s]; other = mine of the lane beside; sums[s] = mine + other.
bool is_lane_step(const Body& body, size_t i) {
  if (i + 2 >= body.size()) return false;
  const auto* exchange = std::get_if<Collective>(&body[i + 1].node);
  return std::holds_alternative<Load>(body[i].node) && exchange != nullptr &&
         exchange->kind == ir::CollectiveKind::shuffle_xor &&
         std::holds_alternative<Store>(body[i + 2].node);
}

bool repeat_lane_step(Program& program, uint64_t choice) {
  std::vector<std::function<void()>> places;
  walk_bodies(program.body, [&](Body& body) {
    for (size_t i = 0; i < body.size(); ++i) {
      if (!is_lane_step(body, i)) continue;
      places.push_back([&program, &body, i] {
        auto index = std::make_shared<ir::Var>();
        index->name = "again";
        index->kind = ir::VarKind::loop;
        index->id = program.num_vars++;
        const auto begin = body.begin() + static_cast<std::ptrdiff_t>(i);
        For twice{index, ir::index(0), ir::index(2), ir::index(1), true, {begin, begin + 3}};
        *begin = {std::move(twice), body[i].loc};
        body.erase(begin + 1, begin + 3);
      });
    }
  });
  if (places.empty()) return false;
  places[choice % places.size()]();
  return true;
}

}  // namespace

std::string_view name(Bug bug) {
  switch (bug) {
    case Bug::none:
      return "no bug";
    case Bug::barrier_left_out:
      return "a barrier left out";
    case Bug::guard_left_out:
      return "a guard left out";
    case Bug::vector_too_wide:
      return "a vector too wide";
    case Bug::reduction_counts_twice:
      return "a reduction that counts twice";
    case Bug::extents_taken_for_small:
      return "extents taken for small";
  }
  return "?";
}

bool plant_before(Bug bug, ir::Kernel& kernel) {
  if (bug == Bug::extents_taken_for_small) {
    for (const ir::VarRef& dim : kernel.dims) const_cast<ir::Var&>(*dim).upper = ir::index(1001);
  }
  if (bug != Bug::vector_too_wide) return true;
  bool is_planted = false;
  // The objects are the kernel's own; only its handles are const.
  for (const ir::VarRef& dim : kernel.dims) {
    const_cast<ir::Var&>(*dim).multiple_of *= 2;
    is_planted = true;
  }
  for (const ir::BufferRef& tensor : kernel.tensors) {
    const_cast<ir::Buffer&>(*tensor).align *= 2;
  }
  return is_planted;
}

bool plant_after(Bug bug, Program& program, uint64_t choice) {
  switch (bug) {
    case Bug::barrier_left_out:
      return drop_barrier(program, choice);
    case Bug::guard_left_out:
      return drop_guard(program, choice);
    case Bug::reduction_counts_twice:
      return repeat_lane_step(program, choice);
    default:
      return true;
  }
}

}  // namespace tessera::test
