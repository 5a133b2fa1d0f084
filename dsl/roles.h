#pragma once
// Roles of the warps of a block, and the rings between them: see Builder::roles and Builder::ring.

#include <functional>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "dsl/value.h"

namespace tessera::dsl {

class Builder;

/// One role of Builder::roles: some warps of the block, and what they do. Exactly one of `warps` and
/// `warpgroups` (of four warps) is positive.
struct Role {
  std::string name;
  int warps = 0, warpgroups = 0;
  /// Registers of each thread, on sm_90a: a multiple of 8 from 24 to 256; 0 = as launched. The role takes whole
  /// groups of four warps then.
  int registers = 0;
  std::function<void()> body = nullptr;
};

struct RingOptions {
  int stages = 2;  // filled ahead of the role that takes them
};

/// Stages of shared tiles that one role fills and others take, made by Builder::ring. The fills of a ring
/// are taken in their order, by each role that takes from it.
class TESSERA_API Ring {
 public:
  /// A tile of the ring: each stage has one. In a fill or a take it stands for that of the stage.
  /// RING_OUTSIDE elsewhere. Errors: SHAPE, NAME, SMEM_LIMIT.
  Ref shared(DType dtype, std::vector<int64_t> shape, std::string name = "tile",
             SourceLoc loc = SourceLoc::here());
  /// Waits until the next stage is empty, runs `body`, and hands the stage over once all that it has
  /// copied and stored is there: copies from global memory go on while the role fills other stages.
  /// All threads of one role (RING_ROLE); RING_NESTED inside another turn of the ring.
  void fill(const std::function<void()>& body, SourceLoc loc = SourceLoc::here());
  /// Waits until the next stage is filled, runs `body`, and gives the stage back. RING_WRITE if the body
  /// writes to a tile of the ring; else as fill().
  void take(const std::function<void()>& body, SourceLoc loc = SourceLoc::here());

 private:
  friend class Builder;
  Ring(Builder& builder, int number) : builder_(&builder), number_(number) {}
  void turn(bool fills, const std::function<void()>& body, SourceLoc loc);

  Builder* builder_;
  int number_;  // in ir::Kernel::rings
};

}  // namespace tessera::dsl
