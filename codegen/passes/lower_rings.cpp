#include "codegen/passes/lower_rings.h"

#include <map>
#include <memory>

#include "codegen/tile_ir/effects.h"

namespace tessera::codegen {
namespace {

/// True if the copy fills the tile with bits of global memory.
bool fills_by_bits(const ir::Copy& copy) {
  return copy.from.buffer->space == ir::Space::global &&
         copy.from.buffer->dtype == copy.to.buffer->dtype && !copy.outside &&
         storage_of(*copy.to.buffer).ring >= 0;
}
bool fills_by_rows(const ir::Loop& loop) {
  return loop.plan && load_of(loop).buffer->space == ir::Space::global &&
         storage_of(*store_of(loop).buffer).ring >= 0;
}

class RingStages {
 public:
  explicit RingStages(ir::Kernel& kernel) : kernel_(kernel) {}

  void visit(ir::Body& body) {
    for (ir::Stmt& stmt : body) {
      auto* const turn = std::get_if<ir::RingTurn>(&stmt.node);
      if (turn != nullptr) {
        if (turn->fills) copy_ahead(turn->body);
        use_stage(*turn);
      }
      for_each_body(stmt, [&](ir::Body& inner) { visit(inner); });
    }
  }

 private:
  /// The role that takes awaits the copies of a fill.
  static void copy_ahead(ir::Body& body) {
    for (ir::Stmt& stmt : body) {
      auto* const copy = std::get_if<ir::Copy>(&stmt.node);
      if (copy != nullptr && fills_by_bits(*copy)) copy->plan.when = ir::CopyTime::ahead;
      auto* const loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && fills_by_rows(*loop)) loop->plan->when = ir::CopyTime::ahead;
      for_each_body(stmt, [](ir::Body& inner) { copy_ahead(inner); });
    }
  }

  /// The buffer with its stages; null if it is not of this ring.
  ir::BufferRef staged(const ir::BufferRef& buffer, int ring) {
    if (storage_of(*buffer).ring != ring) return nullptr;
    ir::BufferRef& known = staged_[buffer->id];
    if (known) return known;
    auto fresh = std::make_shared<ir::Buffer>(*buffer);
    fresh->id = kernel_.num_buffers++;
    fresh->shape.insert(fresh->shape.begin(),
                        ir::index(kernel_.rings[static_cast<size_t>(ring)].stages));
    ++fresh->num_version_dims;
    fresh->ring = ring;
    if (buffer->alias_of) fresh->alias_of = staged(buffer->alias_of, ring);
    known = fresh;
    return fresh;
  }

  void use_stage(ir::RingTurn& turn) {
    const ir::Expr stage = ir::var(turn.stage);
    BufferMove move;
    move.region = [&](ir::Region& region) {
      const ir::BufferRef fresh = unmoved(region.buffer, turn.ring);
      if (!fresh) return;
      region.buffer = fresh;
      region.offsets.insert(region.offsets.begin(), stage);
      region.extents.insert(region.extents.begin(), ir::Expr());
      for (int& dimension : region.order) ++dimension;
    };
    move.element = [&](ir::BufferRef& buffer, std::vector<ir::Expr>& indices) {
      const ir::BufferRef fresh = unmoved(buffer, turn.ring);
      if (!fresh) return;
      buffer = fresh;
      indices.insert(indices.begin(), stage);
    };
    move_buffers(turn.body, move);
  }
  ir::BufferRef unmoved(const ir::BufferRef& buffer, int ring) {
    return is_staged(*buffer) ? nullptr : staged(buffer, ring);
  }
  bool is_staged(const ir::Buffer& buffer) const {
    for (const auto& [id, fresh] : staged_) {
      if (fresh->id == buffer.id) return true;
    }
    return false;
  }

  ir::Kernel& kernel_;
  std::map<int, ir::BufferRef> staged_;  // by id of the author's buffer
};

}  // namespace

void lower_rings(ir::Kernel& kernel) {
  if (!kernel.rings.empty()) RingStages(kernel).visit(kernel.body);
}

}  // namespace tessera::codegen
