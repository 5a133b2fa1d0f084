#include "codegen/passes/count_async_groups.h"

#include <algorithm>
#include <map>

#include "codegen/analysis/round_count.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

/// By group: the fewest commits since its own commit.
using Since = std::map<int, int64_t>;

void count(ir::Body& body, Since& since);

void count_loop(ir::Loop& loop, Since& since) {
  // Every round adds as many commits as the first, so the first round has the fewest.
  Since round = since;
  count(loop.body, round);
  const ir::Expr& end = loop.extents[0];
  if (!ir::is_constant(loop.begin) || !ir::is_constant(end) || !ir::is_constant(loop.step)) return;
  if (ends_early(loop)) return;
  const int64_t step = loop.step->integer;
  constexpr int64_t kMany = int64_t{1} << 32;  // more than any wait leaves in flight
  const int64_t rounds = std::min(kMany, round_count(loop.begin->integer, end->integer, step));
  for (auto& [group, commits] : since) commits += rounds * (round.at(group) - commits);
}

void count(ir::Body& body, Since& since) {
  for (ir::Stmt& stmt : body) {
    if (const auto* commit = std::get_if<ir::AsyncCommit>(&stmt.node)) {
      for (auto& [group, commits] : since) ++commits;
      if (commit->group >= 0) since[commit->group] = 0;
    } else if (auto* wait = std::get_if<ir::AsyncWait>(&stmt.node)) {
      if (wait->group < 0) continue;
      const auto found = since.find(wait->group);
      TESSERA_CHECK(found != since.end(), "a wait for a group of copies that is not in scope");
      wait->pending = static_cast<int>(std::min<int64_t>(found->second, 1 << 20));
      wait->group = -1;
    } else if (auto* loop = std::get_if<ir::Loop>(&stmt.node)) {
      if (loop->kind != ir::LoopKind::parallel) count_loop(*loop, since);
    } else if (auto* branch = std::get_if<ir::If>(&stmt.node)) {
      Since otherwise = since;
      Since then = since;
      count(branch->then, then);
      count(branch->otherwise, otherwise);
      for (auto& [group, commits] : since) {
        commits = std::min(then.at(group), otherwise.at(group));
      }
    } else if (auto* turn = std::get_if<ir::RingTurn>(&stmt.node)) {
      count(turn->body, since);
    } else if (auto* roles = std::get_if<ir::Roles>(&stmt.node)) {
      for (ir::Roles::Role& role : roles->roles) {
        Since of_role = since;
        count(role.body, of_role);
      }
    }
  }
}

}  // namespace

void count_async_groups(ir::Body& body) {
  Since since;
  count(body, since);
}

}  // namespace tessera::codegen
