#pragma once
// The conditions of tensor copies and tensor stores. choose_copies asks for the first one that is not proved; each names its
// own remedy.

#include <map>
#include <set>
#include <string>

#include "codegen/analysis/common_values.h"
#include "codegen/analysis/index_form.h"
#include "codegen/passes/copy_sides.h"
#include "dsl/base/target.h"
#include "dsl/ir/tile.h"

namespace tessera::codegen {

/// A condition that is not proved; without words if all are.
struct Obstacle {
  std::string expected, got, remedy;
  bool found() const { return !got.empty(); }
};

/// A condition or a loop around a statement that not all threads, or not all blocks of the cluster, share.
struct Divergence {
  std::string cause;  // empty: all come
  SourceLoc loc;
};

/// Facts of the kernel, and of the place of the copy in it.
struct CopyFacts {
  CopyFacts(const ir::Kernel& k, Target t)
      : kernel(k), target(t), in_block(k, 1), in_cluster(k, k.cluster) {}

  const ir::Kernel& kernel;
  const Target target;
  IndexMath math;
  CommonValues in_block, in_cluster;
  bool has_roles = false;
  std::set<int> operands;                // that tensor cores read, by id of the storage
  std::set<int> filled;                  // rings that the statement fills
  const ir::Body* role = nullptr;        // around the statement
  std::map<int, const ir::Body*> begun;  // the role in which a tensor at an address begins
};

/// `in_block`: around the copy.
Obstacle find_obstacle(const CopyFacts& facts, const ir::Copy& copy, const Sides& sides,
                       const Divergence& in_block);

/// Finds why a copy cannot be multicast. `is_vouched`: the author promises one tile for all blocks.
Obstacle find_multicast_obstacle(const CopyFacts& facts, const ir::Copy& copy,
                                 const Divergence& in_cluster, bool is_vouched);

}  // namespace tessera::codegen
