// TileLowering: roles, and the turns of rings.
//
// A ring has two mbarriers for each stage. `full` ends a phase when a stage is filled: each warp of the role that
// fills arrives once what its lanes have stored is done, and each thread once the pieces that it copies are
// there. `empty` ends one when all warps of all roles that take have read: of all blocks of the cluster if a fill
// copies into all of them, since a block then fills when all can be filled. Use n of a stage, counted from 0,
// waits for phase n of `full` in a take, and for phase n - 1 of `empty` in a fill. Each role counts its own
// turns, in two registers for each ring; in one where there is one stage.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "codegen/lowering/tile_lowering.h"
#include "codegen/products/atoms.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

/// An element of an array, which is one mbarrier or one register.
Access element(const ArrayRef& array, const Expr& index) {
  Access access;
  access.array = array;
  access.offset = index;
  if (array->space == ArraySpace::shared) access.indices = {index};
  return access;
}

std::shared_ptr<Array> mbarriers(int ring, Array::RingPart part, int stages, SourceLoc loc) {
  auto array = std::make_shared<Array>();
  array->name = part == Array::RingPart::full ? "full" : "empty";
  array->dtype = DType::u64;
  array->space = ArraySpace::shared;
  array->size = stages;
  array->shape = {ir::index(stages)};
  array->ring = ring;
  array->ring_part = part;
  array->loc = loc;
  return array;
}

/// The engines that carry out the copies of the fills of a ring.
struct FillEngines {
  bool tensor = false, bulk = false, pieces = false, stores = false;
  bool multicast = false;    // some tensor copies
  std::set<int> by_threads;  // ids of the tiles that pieces and stores write
  std::set<int> by_engine;   // ids of the tiles that tensor and bulk copies write
};

std::string to_string(const FillEngines& copies) {
  std::vector<const char*> words;
  if (copies.tensor) words.push_back("by tensor copies");
  if (copies.bulk) words.push_back("in bulk");
  if (copies.pieces) words.push_back("in pieces");
  if (copies.stores) words.push_back("by stores");
  return fmt::format("{}", fmt::join(words, " and "));
}

void collect_engines(const ir::Body& body, FillEngines& copies) {
  for (const ir::Stmt& stmt : body) {
    const ir::CopyPlan* const plan = plan_of(stmt);
    if (plan != nullptr && plan->engine != ir::Engine::threads) {
      (plan->engine == ir::Engine::tensor ? copies.tensor
       : plan->engine == ir::Engine::bulk ? copies.bulk
                                          : copies.pieces) = true;
      copies.multicast = copies.multicast || plan->multicast == ir::Multicast::required;
      (is_by_engine(*plan) ? copies.by_engine : copies.by_threads)
          .insert(storage_of(*target_of(stmt)).id);
      continue;
    }
    if (const auto* store = std::get_if<ir::ElementStore>(&stmt.node)) {
      copies.stores = true;
      copies.by_threads.insert(storage_of(*store->buffer).id);
    }
    for_each_body(stmt, [&](const ir::Body& inner) { collect_engines(inner, copies); });
  }
}

/// Adds the ids of the tiles that tensor cores and tensor stores read themselves.
void collect_operands(const ir::Body& body, std::set<int>& operands) {
  for (const ir::Stmt& stmt : body) {
    any_in(stmt, [&](const ir::Stmt& inner) {
      const auto* gemm = std::get_if<ir::Gemm>(&inner.node);
      if (gemm != nullptr) add_tiles_read(*gemm, operands);
      const auto* copy = std::get_if<ir::Copy>(&inner.node);
      if (copy != nullptr) operands.insert(storage_of(*copy->from.buffer).id);
      return false;
    });
  }
}

bool share_any(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int id) { return b.contains(id); });
}

/// Calls fn(turn, role) for all turns of rings.
template <class Fn>
void for_each_turn(const ir::Kernel& kernel, const Fn& fn) {
  for (const ir::Stmt& stmt : kernel.body) {
    const auto* roles = std::get_if<ir::Roles>(&stmt.node);
    if (roles == nullptr) continue;
    for (const ir::Roles::Role& role : roles->roles) {
      for (const ir::Stmt& inner : role.body) {
        any_in(inner, [&](const ir::Stmt& one) {
          if (const auto* turn = std::get_if<ir::RingTurn>(&one.node)) fn(*turn, role);
          return false;
        });
      }
    }
  }
}

/// Bytes of one stage.
int64_t bytes_of(const ir::Ring& ring) {
  int64_t sum = 0;
  for (const ir::BufferRef& tile : ring.tiles) {
    int64_t elements = 1;
    for (const Expr& extent : tile->shape) elements *= extent->integer;
    sum += elements * bits(tile->dtype) / 8;
  }
  return sum;
}

}  // namespace

void TileLowering::plan_rings() {
  struct Parts {
    std::shared_ptr<Array> full, empty;
    std::string fills, takes;  // roles
    FillEngines copies;
    std::set<int> operands;  // of products and tensor stores
  };
  std::vector<Parts> parts;
  for (size_t i = 0; i < kernel_.rings.size(); ++i) {
    const ir::Ring& ring = kernel_.rings[i];
    const auto make = [&](Array::RingPart part) {
      return mbarriers(static_cast<int>(i), part, ring.stages, ring.loc);
    };
    parts.push_back({make(Array::RingPart::full), make(Array::RingPart::empty), {}, {}, {}, {}});
  }
  rings_.resize(parts.size());
  for_each_turn(kernel_, [&](const ir::RingTurn& turn, const ir::Roles::Role& role) {
    Parts& part = parts[static_cast<size_t>(turn.ring)];
    std::string& roles = turn.fills ? part.fills : part.takes;
    const std::string name = fmt::format("'{}'", role.name);
    const bool is_new = roles.find(name) == std::string::npos;
    Array& mbarriers = turn.fills ? *part.full : *part.empty;
    if (is_new) {
      roles += (roles.empty() ? "" : ", ") + name;
      mbarriers.arrivals += role.count / kThreadsPerWarp;
    }
    if (!turn.fills) return collect_operands(turn.body, part.operands);
    const bool had_pieces = part.copies.pieces;
    collect_engines(turn.body, part.copies);
    if (part.copies.pieces && !had_pieces) mbarriers.arrivals += role.count;
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    const Parts& part = parts[i];
    if (part.full->arrivals == 0) continue;  // no role uses it
    result_.program.shared.push_back(part.full);
    result_.program.shared.push_back(part.empty);
    if (part.copies.multicast) {
      rings_[i].blocks = kernel_.cluster;
      part.empty->arrivals *= kernel_.cluster;
    }
    rings_[i].full = part.full;
    rings_[i].empty = part.empty;
    rings_[i].has_pieces = part.copies.pieces;
    rings_[i].fences_takes = share_any(part.copies.by_threads, part.operands);
    rings_[i].fences_fills = share_any(part.copies.by_threads, part.copies.by_engine);
    result_.rings.push_back(fmt::format(
        "{}: ring {}: {} stages of {} bytes, filled by '{}' {}{}, taken by {}; {} arrivals fill a "
        "stage, {} empty it",
        to_string(kernel_.rings[i].loc), i, kernel_.rings[i].stages, bytes_of(kernel_.rings[i]),
        part.fills.substr(1, part.fills.size() - 2), to_string(part.copies),
        part.copies.multicast ? fmt::format(" of {} blocks together", kernel_.cluster) : "",
        part.takes, part.full->arrivals, part.empty->arrivals));
  }
}

void TileLowering::init_rings(SourceLoc loc) {
  when(ir::binary(ir::Op::eq, thread(), ir::index(0)), loc, [&] {
    for (const RingState& ring : rings_) {
      for (const ArrayRef& array : {ring.full, ring.empty}) {
        if (!array) continue;
        Access all = element(array, ir::index(0));
        all.width = static_cast<int>(array->size);
        emit({MbarrierInit{all}, loc});
      }
    }
    emit({Fence{Fence::Of::shared}, loc});
  });
}

void TileLowering::lower(const ir::Roles& roles, SourceLoc loc) {
  const bool has_rings = std::any_of(rings_.begin(), rings_.end(),
                                     [](const RingState& ring) { return ring.full != nullptr; });
  if (has_rings) init_rings(loc);
  // The stores of all threads are done, and so are the mbarriers of the blocks that fill together.
  const bool meets_cluster = std::any_of(rings_.begin(), rings_.end(),
                                         [](const RingState& ring) { return ring.blocks > 1; });
  emit({Barrier{meets_cluster ? BarrierScope::cluster : BarrierScope::block}, loc});
  const ThreadGroup block = group_;
  const VarRef of_block = thread_;
  RoleBodies node;
  for (const ir::Roles::Role& role : roles.roles) {
    role_ = static_cast<int>(&role - roles.roles.data());
    group_ = {role.first, role.count};
    thread_ = role.thread;
    result_.roles.push_back(fmt::format(
        "{}: role '{}': warps {} to {}{}", to_string(role.loc), role.name,
        role.first / kThreadsPerWarp, group_.end() / kThreadsPerWarp - 1,
        role.registers > 0 ? fmt::format(", {} registers of {} at launch", role.registers,
                                         registers_at_launch(kernel_.threads))
                           : ""));
    RoleBodies::Role lowered;
    lowered.name = role.name;
    lowered.threads = group_;
    lowered.thread = role.thread;
    lowered.registers = role.registers;
    lowered.body = nested([&] {
      for (size_t i = 0; i < rings_.size(); ++i) {
        if (!rings_[i].full) continue;
        rings_[i].stage = nullptr;
        if (kernel_.rings[i].stages > 1) {
          const auto stage = std::make_shared<Array>(
              *new_registers(fmt::format("stage_{}", i), DType::i32, 1, kernel_.rings[i].loc));
          stage->ring_part = Array::RingPart::stage;
          rings_[i].stage = stage;
          emit({Declare{rings_[i].stage, true}, loc});
        }
        rings_[i].round =
            new_registers(fmt::format("round_{}", i), DType::i32, 1, kernel_.rings[i].loc);
        emit({Declare{rings_[i].round, true}, loc});
      }
      lower_body(role.body);
    });
    node.roles.push_back(std::move(lowered));
  }
  role_ = -1;
  group_ = block;
  thread_ = of_block;
  emit({std::move(node), loc});
}

VarRef TileLowering::read_counter(const ArrayRef& counter, VarRef into, SourceLoc loc) {
  Load load;
  load.from = element(counter, ir::index(0));
  load.var = into;
  emit({load, loc});
  return into;
}

void TileLowering::lower(const ir::RingTurn& turn, SourceLoc loc) {
  RingState& ring = rings_[static_cast<size_t>(turn.ring)];
  emit({Comment{fmt::format("{} ring {}", turn.fills ? "fill" : "take", turn.ring)}, loc});
  const VarRef round = new_var("round", DType::i32, ir::VarKind::value, ir::index(0));
  // A single stage needs no counter.
  if (!ring.stage) emit({Let{turn.stage, ir::index(0)}, loc});
  const Expr stage = ir::var(ring.stage ? read_counter(ring.stage, turn.stage, loc) : turn.stage);
  const Expr rounds = ir::var(read_counter(ring.round, round, loc));
  const auto wait = [&](MbarrierWait node) {
    // Its mark is the last one: codegen/lower.cpp.
    const int mark = 2 * static_cast<int>(kernel_.marks.size()) - 2;
    if (kernel_.marked_block) emit({Print{kernel_.marks.back(), {}, mark}, loc});
    emit({std::move(node), loc});
    if (kernel_.marked_block) emit({Print{kernel_.marks.back(), {}, mark + 1}, loc});
  };
  if (turn.fills) {
    wait({element(ring.empty, stage), rounds - ir::index(1), ring.blocks > 1});
    // Before the copy engine writes where the thread itself has written in an earlier turn.
    if (ring.fences_fills) emit({Fence{Fence::Of::shared}, loc});
    ring.filled = element(ring.full, stage);
  } else {
    wait({element(ring.full, stage), rounds});
    // Pieces are there when others know it, so those who read fence them.
    if (ring.fences_takes) emit({Fence{Fence::Of::shared}, loc});
  }
  lower_body(turn.body);
  if (turn.fills) {
    if (ring.has_pieces) emit({MbarrierArrive{.at = ring.filled, .after_copies = true}, loc});
  }
  emit({MbarrierArrive{.at = element(turn.fills ? ring.full : ring.empty, stage),
                       .of_warp_at = turn.fills ? 1 : ring.blocks},
        loc});
  const auto store = [&](const ArrayRef& counter, Expr value) {
    Store node;
    node.to = element(counter, ir::index(0));
    node.value = std::move(value);
    emit({std::move(node), loc});
  };
  if (!ring.stage) return store(ring.round, rounds + ir::index(1));
  const Expr next = stage + ir::index(1);
  const Expr is_last =
      ir::binary(ir::Op::eq, next, ir::index(kernel_.rings[static_cast<size_t>(turn.ring)].stages));
  store(ring.stage, ir::select(is_last, ir::index(0), next));
  store(ring.round, ir::select(is_last, rounds + ir::index(1), rounds));
}

}  // namespace tessera::codegen
