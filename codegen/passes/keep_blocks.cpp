#include "codegen/passes/keep_blocks.h"

#include "codegen/passes/walk.h"

namespace tessera::codegen {
namespace {

bool reaches_other_blocks(const Stmt& outer) {
  bool reaches = false;
  const auto look = [&](const Stmt& stmt) {
    for_each_access(stmt, [&](const Access& access, bool) {
      reaches = reaches || access.array->space == ArraySpace::cluster;
    });
  };
  look(outer);
  if (const auto* loop = std::get_if<For>(&outer.node)) walk(loop->body, look);
  if (const auto* branch = std::get_if<If>(&outer.node)) {
    walk(branch->then, look);
    walk(branch->otherwise, look);
  }
  return reaches;
}

}  // namespace

void keep_blocks(Program& program) {
  Body& body = program.body;
  size_t behind = body.size();  // the last access
  while (behind > 0 && !reaches_other_blocks(body[behind - 1])) {
    const auto* barrier = std::get_if<Barrier>(&body[behind - 1].node);
    if (barrier != nullptr && barrier->scope == BarrierScope::cluster) return;
    --behind;
  }
  if (behind == 0) return;
  const SourceLoc loc = body[behind - 1].loc;
  if (behind == body.size()) {
    body.push_back({Barrier{0, BarrierScope::cluster}, loc});
    return;
  }
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(behind),
              {Barrier{0, BarrierScope::cluster_arrive}, loc});
  body.push_back({Barrier{0, BarrierScope::cluster_wait}, loc});
}

}  // namespace tessera::codegen
