// The CUDA of what orders threads and asynchronous work: barriers, groups, waits and fences.

#include <fmt/format.h>

#include "codegen/cuda/emitter.h"

namespace tessera::codegen::cuda {

void Emitter::print(const Barrier& barrier) {
  switch (barrier.scope) {
    case BarrierScope::warp:
      return out_.line("__syncwarp();");
    case BarrierScope::named:
    case BarrierScope::named_arrive: {
      const bool waits = barrier.scope == BarrierScope::named;
      return out_.line(fmt::format("{}<{}, {}>();",
                                   expressions_.call(waits ? "named_barrier" : "arrive_at_barrier"),
                                   barrier.id, barrier.threads));
    }
    case BarrierScope::block:
      return out_.line("__syncthreads();");
    case BarrierScope::cluster:
      return out_.line(expressions_.call("sync_cluster") + "();");
    case BarrierScope::cluster_arrive:
      return out_.line(expressions_.call("arrive_cluster") + "();");
    case BarrierScope::cluster_wait:
      return out_.line(expressions_.call("wait_cluster") + "();");
    case BarrierScope::grid:
      return out_.line(fmt::format("{}({});", expressions_.call("sync_grid"), grid_barrier_));
  }
}

void Emitter::print(const Commit& commit) {
  switch (commit.work) {
    case Work::copies:
      return out_.line(expressions_.call("commit_copies") + "();");
    case Work::stores:
      return out_.line(expressions_.call("commit_stores") + "();");
    case Work::products:
      return commit_products();
  }
}

void Emitter::print(const Await& wait) {
  const auto until = [&](const char* function) {
    out_.line(fmt::format("{}<{}>();", expressions_.call(function), wait.pending));
  };
  switch (wait.work) {
    case Work::copies:
      return until("wait_for_copies");
    case Work::stores:
      return until(wait.of_reads ? "wait_for_store_reads" : "wait_for_stores");
    case Work::products:
      return await_products(wait);
  }
}

void Emitter::print(const Fence& fence) {
  switch (fence.of) {
    case Fence::Of::shared:
      // Stores to another block's memory are fenced for its bulk copies.
      return out_.line(
          expressions_.call(program_.cluster > 1 ? "fence_proxy_of_cluster" : "fence_proxy") +
          "();");
    case Fence::Of::global:
      return out_.line(expressions_.call("fence_proxy_of_all") + "();");
    case Fence::Of::registers:
      return fence_products(fence);
  }
}

}  // namespace tessera::codegen::cuda
