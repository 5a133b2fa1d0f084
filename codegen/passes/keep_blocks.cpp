#include "codegen/passes/keep_blocks.h"

#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

/// True if `holds` is, for the statement or for one inside it.
template <class Predicate>
bool any_in(const Stmt& outer, const Predicate& holds) {
  bool found = holds(outer);
  const auto look = [&](const Stmt& stmt) { found = found || holds(stmt); };
  if (const auto* loop = std::get_if<For>(&outer.node)) walk(loop->body, look);
  if (const auto* branch = std::get_if<If>(&outer.node)) {
    walk(branch->then, look);
    walk(branch->otherwise, look);
  }
  return found;
}

bool reaches_other_blocks(const Stmt& stmt) {
  bool reaches = false;
  for_each_access(stmt, [&](const Access& access, bool) {
    reaches = reaches || access.array->space == ArraySpace::cluster;
  });
  return reaches;
}

bool is_cluster_barrier(const Stmt& stmt) {
  const auto* barrier = std::get_if<Barrier>(&stmt.node);
  return barrier != nullptr && barrier->scope == BarrierScope::cluster;
}

}  // namespace

void keep_blocks(Program& program) {
  Body& body = program.body;
  size_t behind = body.size();  // the last access
  bool meets = false;           // a loop or branch behind it waits for the cluster
  while (behind > 0 && !any_in(body[behind - 1], reaches_other_blocks)) {
    if (is_cluster_barrier(body[behind - 1])) return;
    meets = meets || any_in(body[behind - 1], is_cluster_barrier);
    --behind;
  }
  if (behind == 0) return;
  const SourceLoc loc = body[behind - 1].loc;
  // Between an arrival and its wait there is no other arrival.
  if (behind == body.size() || meets) {
    body.push_back({Barrier{0, BarrierScope::cluster}, loc});
    return;
  }
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(behind),
              {Barrier{0, BarrierScope::cluster_arrive}, loc});
  body.push_back({Barrier{0, BarrierScope::cluster_wait}, loc});
}

}  // namespace tessera::codegen
