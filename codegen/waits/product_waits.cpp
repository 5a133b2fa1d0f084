#include "codegen/waits/product_waits.h"

#include <utility>

#include "codegen/thread_ir/walk.h"
#include "codegen/waits/place_waits.h"

namespace tessera::codegen {
namespace {

/// The statements that stand for an arrival of each warp: its lanes meet, and one arrives, or one for each block.
void expand_arrivals(Body& body, const VarRef& thread) {
  Body result;
  for (Stmt& stmt : body) {
    by_structure(
        stmt, [&](For& loop) { expand_arrivals(loop.body, thread); },
        [&](If& branch) {
          expand_arrivals(branch.then, thread);
          expand_arrivals(branch.otherwise, thread);
        },
        [&](RoleBodies& bodies) {
          for (RoleBodies::Role& role : bodies.roles) expand_arrivals(role.body, role.thread);
        });
    auto* const arrive = std::get_if<MbarrierArrive>(&stmt.node);
    if (arrive == nullptr || arrive->of_warp_at == 0) {
      result.push_back(std::move(stmt));
      continue;
    }
    const int blocks = std::exchange(arrive->of_warp_at, 0);
    const Expr lane = ir::var(thread) % ir::index(kThreadsPerWarp);
    const Expr arrives =
        blocks == 1 ? ir::binary(ir::Op::eq, lane, ir::index(0)) : lane < ir::index(blocks);
    if (blocks > 1) arrive->rank = lane;
    const SourceLoc loc = stmt.loc;
    const bool manual_sync = stmt.manual_sync;
    result.push_back({Barrier{BarrierScope::warp}, loc, manual_sync});
    result.push_back({If{arrives, {std::move(stmt)}, {}}, loc, manual_sync});
  }
  body = std::move(result);
}

}  // namespace

void place_product_waits(Program& program, std::vector<std::string>& notes) {
  delay_products(program, notes);
  sink_products(program, notes);
  expand_arrivals(program.body, program.thread);
}

}  // namespace tessera::codegen
