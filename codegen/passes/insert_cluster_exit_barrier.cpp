#include "codegen/passes/insert_cluster_exit_barrier.h"

#include "codegen/thread_ir/walk.h"

namespace tessera::codegen {
namespace {

bool reaches_other_blocks(const Stmt& stmt) {
  bool reaches = false;
  for_each_memory_effect(stmt, [&](const MemoryEffect& effect) {
    reaches = reaches || effect.of_cluster || effect.access.array->space == ArraySpace::cluster;
  });
  return reaches;
}

bool is_cluster_barrier(const Stmt& stmt) {
  return any_order(stmt, [](const Order& order) {
    return order == Order{Order::Kind::barrier, Group::cluster};
  });
}

}  // namespace

void insert_cluster_exit_barrier(Program& program) {
  Body& body = program.body;
  size_t end = body.size();  // the statement after the last access
  bool meets = false;        // a later loop or branch waits for the cluster
  while (end > 0 && !any_in(body[end - 1], reaches_other_blocks)) {
    if (is_cluster_barrier(body[end - 1])) return;
    meets = meets || any_in(body[end - 1], is_cluster_barrier);
    --end;
  }
  if (end == 0) return;
  const SourceLoc loc = body[end - 1].loc;
  // There must be no other arrival between an arrival and its wait.
  if (end == body.size() || meets) {
    body.push_back({Barrier{BarrierScope::cluster}, loc});
    return;
  }
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(end),
              {Barrier{BarrierScope::cluster_arrive}, loc});
  body.push_back({Barrier{BarrierScope::cluster_wait}, loc});
}

}  // namespace tessera::codegen
