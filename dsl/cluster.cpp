// Builder: clusters and distributed shared memory (DSMEM).

#include <fmt/format.h>

#include "dsl/base/target_facts.h"
#include "dsl/builder.h"
#include "dsl/recorder.h"

namespace tessera::dsl {
void check_cluster(const Recorder& recorder, const std::vector<Arg>& grid, int cluster,
                   SourceLoc loc) {
  if (cluster < 1 || cluster > kMaxCluster) {
    recorder.fail("CLUSTER", "the size of a cluster is out of range", loc,
                  fmt::format("1 .. {} blocks", kMaxCluster), fmt::format("{}", cluster));
  }
  const ir::Expr blocks = grid[0].value().expr();
  if (ir::is_constant(blocks) && blocks->integer % cluster != 0) {
    recorder.fail("CLUSTER", "the first extent of the grid is no multiple of the cluster", loc,
                  fmt::format("a multiple of {}", cluster), fmt::format("{}", blocks->integer),
                  "round it up; surplus blocks must still reach every sync_cluster");
  }
}

Value Builder::cluster_rank() const {
  const ir::Kernel& kernel = recorder_->kernel;
  if (!recorder_->launched) recorder_->fail("NO_LAUNCH", "cluster_rank() before launch()", {});
  return Value(recorder_.get(), ir::var(kernel.blocks[0])) % kernel.cluster;
}

void Builder::sync_cluster(SourceLoc loc) {
  if (recorder_->launched && recorder_->kernel.cluster == 1) {
    recorder_->fail("CLUSTER", "sync_cluster() in a launch without clusters", loc,
                    ".cluster = 2 or more in the launch", "1", "use k.sync()");
  }
  recorder_->add({ir::Sync{ir::SyncKind::cluster}, loc});
}

Ref Builder::of_block(const Ref& mine, Arg rank, SourceLoc loc) {
  Recorder& r = *recorder_;
  const ir::Buffer& buffer = *mine.region().buffer;
  const int cluster = r.kernel.cluster;
  if (buffer.space != ir::Space::shared) {
    r.fail("CLUSTER", fmt::format("'{}' has no counterpart in another block", buffer.name), loc,
           "a shared buffer", std::string(name(buffer.space)));
  }
  if (r.launched && cluster == 1) {
    r.fail("CLUSTER",
           fmt::format("'{}' of another block in a launch without clusters", buffer.name), loc,
           ".cluster = 2 or more in the launch", "1");
  }
  if (buffer.ring >= 0) {
    r.fail(
        "RING_REMOTE",
        fmt::format("'{}' is a tile of a ring, of which another block has stages of its own",
                    buffer.name),
        loc, "a shared tile that is of no ring", "a tile of a ring",
        "nothing orders accesses of two blocks to a stage: fill the ring of this block from global "
        "memory, or exchange a tile of k.shared between two k.sync_cluster before the roles",
        buffer.loc);
  }
  ir::Buffer view = buffer;
  view.space = ir::Space::cluster;
  view.block = rank.as(DType::i32, &r).expr();
  view.alias_of = buffer.alias_of ? buffer.alias_of : mine.region().buffer;
  view.loc = loc;
  if (ir::is_constant(view.block) && (view.block->integer < 0 || view.block->integer >= cluster)) {
    r.fail("CLUSTER", fmt::format("'{}' of a block that the cluster does not have", buffer.name),
           loc, fmt::format("a rank from 0 to {}", cluster - 1),
           fmt::format("{}", view.block->integer));
  }
  r.check_in_scope(view.block, loc);
  ir::Region region = mine.region();
  region.buffer = r.new_buffer(std::move(view)).region().buffer;
  r.add({ir::Pointer{region.buffer}, loc});
  return Ref(&r, std::move(region));
}

}  // namespace tessera::dsl
