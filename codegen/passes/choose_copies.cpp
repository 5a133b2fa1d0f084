#include "codegen/passes/choose_copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "codegen/analysis/common_values.h"
#include "codegen/analysis/disjoint_parts.h"
#include "codegen/analysis/index_form.h"
#include "codegen/passes/copy_sides.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/error.h"

namespace tessera::codegen {
namespace {

constexpr int kWarpSize = 32;
constexpr size_t kMostDimensions = 5;
constexpr int64_t kMostExtent = 256;  // of a box
constexpr int64_t kPieceBytes = 16;   // what addresses, strides and rows are multiples of
constexpr int64_t kTargetBytes = 128;
constexpr size_t kMostMaps = 16;  // of a kernel, 128 bytes each

/// As the author wrote it.
const ir::Expr& without_cast(const ir::Expr& e) {
  return e->op == ir::Op::cast ? e->args[0] : e;
}

/// For other targets ptxas takes it and warns that it may be slow.
bool has_multicast(Target target) {
  return target.letter != 0 && (target.major == 9 || target.major == 10);
}

/// A condition that is not proved.
struct Obstacle {
  std::string expected, got;
};

class Chooser {
 public:
  Chooser(const ir::Kernel& kernel, Target target, std::vector<std::string>& notes)
      : kernel_(kernel), target_(target), notes_(notes), in_cluster_(kernel.cluster) {
    look(kernel.body);
  }

  /// Who come to a body together.
  struct Together {
    bool block = true;    // all threads of the block
    bool cluster = true;  // all threads of the cluster, in the same rounds of the loops around
  };
  void choose(ir::Body& body, Together outer) {
    for (ir::Stmt& stmt : body) {
      in_block_.note(stmt);
      in_cluster_.note(stmt);
      if (const auto* begun = std::get_if<ir::Pointer>(&stmt.node))
        roles_[begun->buffer->id] = role_;
      const auto* loop = std::get_if<ir::Loop>(&stmt.node);
      if (loop != nullptr && leaves_apart(loop->body)) outer.cluster = false;
      Together inside = outer;
      const auto* branch = std::get_if<ir::If>(&stmt.node);
      if (branch != nullptr) {
        inside.block = inside.block && in_block_.is_common(branch->condition);
        inside.cluster = inside.cluster && in_cluster_.is_common(branch->condition);
      }
      if (loop != nullptr) {
        inside.block = inside.block && loop->kind != ir::LoopKind::parallel;
        inside.cluster = inside.cluster && in_cluster_.has_common_rounds(*loop);
      }
      const std::set<const ir::Var*> loops = loops_;
      if (loop != nullptr) loops_.insert(loop->vars[0].get());
      const auto* turn = std::get_if<ir::RingTurn>(&stmt.node);
      const bool fills = turn != nullptr && turn->fills;
      if (fills) filled_.insert(turn->ring);
      for_each_body(stmt, [&](ir::Body& inner) {
        math_.enter_scope();
        const bool is_then = branch != nullptr && &inner == &branch->then;
        if (has_stores_ && is_then) math_.add_fact(branch->condition);
        const ir::Body* const outer_role = role_;
        if (std::holds_alternative<ir::Roles>(stmt.node)) role_ = &inner;
        choose(inner, inside);
        role_ = outer_role;
        math_.leave_scope();
      });
      if (fills) filled_.erase(turn->ring);
      loops_ = loops;
      if (auto* copy = std::get_if<ir::Copy>(&stmt.node)) choose(*copy, outer, stmt.loc);
    }
  }

 private:
  /// What copies need to know of other statements.
  void look(const ir::Body& body) {
    for (const ir::Stmt& stmt : body) {
      for_each_binding(stmt, [&](const ir::VarRef& var, const ir::Expr* value) {
        if (value != nullptr && is_integer(var->type)) math_.define(var, *value);
      });
      const auto* gemm = std::get_if<ir::Gemm>(&stmt.node);
      if (gemm != nullptr && gemm->instruction == ir::Instruction::wgmma) {
        for (const ir::Region* region : {&gemm->a, &gemm->b}) {
          operands_.insert(storage_of(*region->buffer).id);
        }
      }
      const auto* copy = std::get_if<ir::Copy>(&stmt.node);
      if (copy != nullptr && copy->adds) ++num_adds_[copy->to.buffer->id];
      has_stores_ |= copy != nullptr && (copy->adds || copy->engine == ir::Engine::tensor);
      has_roles_ = has_roles_ || std::holds_alternative<ir::Roles>(stmt.node);
      for_each_body(stmt, [&](const ir::Body& inner) { look(inner); });
    }
  }

  /// True if the blocks of a cluster may leave a loop with this body in different rounds.
  bool leaves_apart(const ir::Body& body) const {
    return std::any_of(body.begin(), body.end(), [&](const ir::Stmt& stmt) {
      return any_in(stmt, [&](const ir::Stmt& inner) {
        const auto* leave = std::get_if<ir::Break>(&inner.node);
        return leave != nullptr && !in_cluster_.is_common(leave->condition);
      });
    });
  }

  void choose(ir::Copy& copy, Together together, SourceLoc loc) {
    const bool is_automatic = copy.engine != ir::Engine::tensor;
    if (is_automatic && !copy.adds) return;
    const Sides sides = sides_of(copy);
    const std::string what =
        fmt::format("{}: {} {} -> {}", to_string(loc), copy.adds ? "copy_add" : "copy",
                    copy.from.buffer->name, copy.to.buffer->name);
    if (copy.adds && is_float(copy.to.buffer->dtype) && !adds_once(copy.to)) {
      note(what + ": COPY_ADD_ORDER: an element may get several additions, in any order");
    }
    // A pipelined loop issues it ahead, or it fills a ring.
    const bool is_plain = !sides.stores && copy.mode != ir::CopyMode::async_if_possible;
    Obstacle obstacle = find_obstacle(copy, sides, together.block);
    if (is_plain && obstacle.got.empty()) {
      obstacle = {"a copy that a pipelined loop issues ahead, or that fills a ring",
                  "one that threads wait for"};
    }
    const bool is_possible = obstacle.got.empty();
    if (!is_possible && !is_automatic) refuse(copy, sides, std::move(obstacle), loc);
    const char* const instead = copy.adds ? "atomics" : sides.stores ? "stores" : "pieces";
    const bool is_written = sides.tensor.buffer->map != nullptr;
    if (target_.major < 9 || (is_written && target_.letter == 0)) {
      const char* const lack = target_.major < 9 ? "has no tensor copies" : "writes no tensor maps";
      if (target_.major > 0) note(fmt::format("{}: {}: the target {}", what, instead, lack));
    } else if (!is_possible) {
      note(fmt::format("{}: {}: expected {}, got {}", what, instead, obstacle.expected,
                       obstacle.got));
    } else {
      (sides.stores ? copy.to : copy.from).terms.tensor = true;
      note(fmt::format(
          "{}: tensor {} of {}{}", what,
          copy.adds      ? "additions"
          : sides.stores ? "stores"
                         : "copies",
          fmt::join(box_of(sides), " x "),
          sides.stores ? std::string() : choose_multicast(copy, together.cluster, loc)));
    }
  }

  /// What to say of it.
  std::string choose_multicast(ir::Copy& copy, bool is_in_step, SourceLoc loc) const {
    if (kernel_.cluster == 1 && copy.multicast != ir::Multicast::required) return {};
    if (copy.multicast == ir::Multicast::never) return {};
    const bool is_vouched = copy.multicast == ir::Multicast::required;
    const Obstacle obstacle = find_in_cluster(copy, is_in_step, is_vouched);
    if (obstacle.got.empty()) {
      copy.from.terms.multicast = true;
      return fmt::format(", a part from each of {} blocks into all", kernel_.cluster);
    }
    if (is_vouched && has_multicast(target_)) refuse(copy, sides_of(copy), obstacle, loc);
    return fmt::format(", no multicast: {}, not {}", obstacle.got, obstacle.expected);
  }

  /// What is in the way of a copy into all blocks of the cluster.
  Obstacle find_in_cluster(const ir::Copy& copy, bool is_in_step, bool is_vouched) const {
    const int64_t blocks = kernel_.cluster;
    if (!has_multicast(target_)) return {"sm_90a or sm_100a", "another target"};
    if (blocks == 1) return {"a launch with clusters", "blocks by themselves"};
    if (copy.to.buffer->ring < 0) return {"a fill of a ring", "another copy"};
    if (!is_vouched && !is_in_step) {
      return {"a copy that all blocks of the cluster come to",
              "a condition or a loop that may differ between them"};
    }
    for (const ir::Expr& offset : copy.from.offsets) {
      if (is_vouched || in_cluster_.is_common(offset)) continue;
      return {"coordinates that are the same in all blocks", ir::to_string(offset)};
    }
    const std::vector<int64_t> box = box_of(sides_of(copy));
    const auto outer = std::find_if(box.begin(), box.end(), [](int64_t e) { return e > 1; });
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < box.size(); ++d) rows *= box[d];
    const bool has_parts = outer + 1 < box.end() && *outer % blocks == 0 && rows / blocks % 8 == 0;
    if (has_parts) return {};
    return {fmt::format("a tile of {} parts of multiples of 8 rows", blocks),
            fmt::format("{}", fmt::join(box, " x "))};
  }

  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
      notes_.push_back(std::move(text));
    }
  }

  [[noreturn]] void refuse(const ir::Copy& copy, const Sides& sides, Obstacle obstacle,
                           SourceLoc loc) const {
    throw Error({.kind = ErrorKind::program,
                 .op = kernel_.name,
                 .what = fmt::format("'{}' cannot be copied to '{}' by tensor copies",
                                     copy.from.buffer->name, copy.to.buffer->name),
                 .argument = sides.tensor.buffer->name,
                 .expected = std::move(obstacle.expected),
                 .got = std::move(obstacle.got),
                 .hint = copy.token >= 0 ? "use k.copy"
                                         : "leave the engine to the compiler: Engine::automatic",
                 .code = "COPY_ENGINE",
                 .loc = loc});
  }

  /// True if no element of the part gets two additions.
  bool adds_once(const ir::Region& part) const {
    return num_adds_.at(part.buffer->id) == 1 && are_parts_disjoint(kernel_, math_, loops_, part);
  }

  /// The first condition that is not proved; without words if all are.
  Obstacle find_obstacle(const ir::Copy& copy, const Sides& sides, bool is_uniform) {
    const ir::Buffer &tensor = *sides.tensor.buffer, &tile = *sides.tile.buffer;
    if (kernel_.threads % kWarpSize != 0) {
      return {"a block of whole warps", fmt::format("{} threads", kernel_.threads)};
    }
    if (!is_uniform) {
      return {"a copy that all threads come to", "a condition that may differ between threads"};
    }
    if (tile.space != ir::Space::shared) {
      return {"a shared tile", fmt::format("a {}", ir::name(tile.space))};
    }
    if (sides.stores && filled_.contains(storage_of(tile).ring)) {
      return {"a take of the ring", "a fill"};
    }
    if (!sides.stores && has_roles_ && tile.ring < 0) {
      return {"a fill of a ring, in a kernel with roles", "another copy"};
    }
    if (Obstacle obstacle = find_in_tensor(sides); !obstacle.got.empty()) return obstacle;
    if (tensor.dtype != tile.dtype) {
      return {fmt::format("a tile of {}", name(tensor.dtype)), std::string(name(tile.dtype))};
    }
    if (bits(tensor.dtype) % 8 != 0) {
      return {"elements of whole bytes", std::string(name(tensor.dtype))};
    }
    if (copy.outside) return {"zero outside of the tensor", "another value"};
    if (sides.tensor.terms.cache != ir::CacheHint::none) {
      return {"no hint for the caches", std::string(ir::name(sides.tensor.terms.cache))};
    }
    if (copy.from.terms.bulk) return {"either", "bulk()"};
    for (const auto& find :
         {&Chooser::find_in_shape, &Chooser::find_in_strides, &Chooser::find_in_coordinates}) {
      if (Obstacle obstacle = (this->*find)(sides); !obstacle.got.empty()) return obstacle;
    }
    maps_.insert({tensor.id, box_of(sides)});
    if (maps_.size() > kMostMaps) {
      return {fmt::format("at most {} tensor maps in a kernel", kMostMaps), "one more"};
    }
    return {};
  }

  /// Of the tensor's part in the kernel.
  Obstacle find_in_tensor(const Sides& sides) const {
    const ir::Buffer& tensor = *sides.tensor.buffer;
    if (tensor.address && (sides.stores || !tensor.map)) {
      return {sides.stores ? "a tensor of the call" : "a tensor of the call, or memory for its map",
              "one at an address of run time"};
    }
    if (tensor.map && roles_.at(tensor.id) != role_) {
      return {"tensor_at in the role that copies", "tensor_at before the roles"};
    }
    if (sides.stores && tensor.may_alias) {
      return {"a tensor that shares its memory with no other", "one that may alias another"};
    }
    if (!sides.stores && (tensor.is_output || tensor.may_alias)) {
      return {"a tensor that the kernel does not write",
              tensor.is_output ? "an output" : "one that may be the memory of an output"};
    }
    if (tensor.optional) return {"a tensor that is always given", "an optional one"};
    return {};
  }

  /// Of the box and the tile.
  Obstacle find_in_shape(const Sides& sides) {
    const ir::Buffer& tile = *sides.tile.buffer;
    if (tile.alias_of) return {"a tile of its own", "a reshaped view"};
    for (size_t d = 0; d < tile.shape.size(); ++d) {
      const bool is_version = static_cast<int>(d) < tile.num_version_dims;
      const ir::Expr& extent = sides.tile.extents[d];
      if (is_version && !extent && in_block_.is_common(sides.tile.offsets[d])) continue;
      if (!extent || extent->integer != tile.shape[d]->integer ||
          !ir::is_constant(sides.tile.offsets[d], 0)) {
        return {"a whole shared tile", fmt::format("a part of '{}'", tile.name)};
      }
    }
    for (const ir::Region* region : {&sides.tensor, &sides.tile}) {
      if (std::is_sorted(region->order.begin(), region->order.end())) continue;
      return {"dimensions in the order of the tensor", "a transposed view"};
    }
    const std::vector<int64_t> box = box_of(sides);
    if (box.size() > kMostDimensions) {
      return {"a tensor of at most 5 dimensions", fmt::format("{}", box.size())};
    }
    const auto too_large =
        std::find_if(box.begin(), box.end(), [](int64_t e) { return e > kMostExtent; });
    if (too_large != box.end()) {
      return {"extents of the tile of at most 256", fmt::format("{}", *too_large)};
    }
    const int64_t size = bits(tile.dtype) / 8;
    if (!sides.tensor.extents.back() || box.back() * size % kPieceBytes != 0) {
      return {"rows of the tile of multiples of 16 bytes",
              fmt::format("{} x {}", box.back(), name(tile.dtype))};
    }
    int64_t bytes = size;
    for (const int64_t extent : box) bytes *= extent;
    if (tile.num_version_dims > 0 && bytes % kTargetBytes != 0) {
      return {"a tile of a multiple of 128 bytes", fmt::format("{} bytes", bytes)};
    }
    const int64_t rows = bytes / size / box.back();
    if (operands_.contains(storage_of(tile).id) && rows % 8 != 0) {
      return {"a multiple of 8 rows of an operand", fmt::format("{} rows", rows)};
    }
    return {};
  }

  /// Of the tensor's memory.
  Obstacle find_in_strides(const Sides& sides) {
    const ir::Buffer& tensor = *sides.tensor.buffer;
    if (tensor.align % kPieceBytes != 0) {
      return {"a declared alignment of 16 bytes", fmt::format("{}", tensor.align)};
    }
    if (!ir::is_constant(tensor.strides.back(), 1)) {
      return {"a last stride of 1", ir::to_string(tensor.strides.back())};
    }
    const int64_t size = bits(tensor.dtype) / 8;
    for (size_t d = 0; d + 1 < tensor.strides.size(); ++d) {
      if (math_.divisor(tensor.strides[d]) * size % kPieceBytes == 0) continue;
      return {fmt::format("strides of multiples of 16 bytes: declare multiple_of {}",
                          kPieceBytes / size),
              fmt::format("stride {} of dimension {}",
                          ir::to_string(without_cast(tensor.strides[d])), d)};
    }
    return {};
  }

  /// Of the box's place in the tensor.
  Obstacle find_in_coordinates(const Sides& sides) {
    const std::vector<int64_t> box = box_of(sides);
    for (size_t d = 0; d < box.size(); ++d) {
      const ir::Expr& offset = sides.tensor.offsets[d];
      if (offset->type != DType::i32) {
        return {"coordinates of i32",
                fmt::format("{} {}", name(offset->type), ir::to_string(offset))};
      }
      if (!in_block_.is_common(offset)) {
        return {"coordinates that are the same for all threads", ir::to_string(offset)};
      }
      // A store at a negative coordinate faults. At a multiple of the box it is wholly outside, and skipped.
      if (sides.stores && !math_.non_negative(offset) && math_.divisor(offset) % box[d] != 0) {
        return {fmt::format("dimension {} from 0 or a multiple of {} on", d, box[d]),
                ir::to_string(offset)};
      }
    }
    const ir::Expr& last = sides.tensor.offsets.back();
    const int64_t size = bits(sides.tensor.buffer->dtype) / 8;
    if (math_.divisor(last) * size % kPieceBytes != 0) {
      return {"a first column at a multiple of 16 bytes", ir::to_string(last)};
    }
    return {};
  }

  const ir::Kernel& kernel_;
  const Target target_;
  std::vector<std::string>& notes_;
  IndexMath math_;
  bool has_roles_ = false, has_stores_ = false;
  std::set<int> operands_;  // of wgmma, by id of the storage
  CommonValues in_block_{1}, in_cluster_;
  std::set<const ir::Var*> loops_;                       // indices around the statement
  std::set<int> filled_;                                 // rings that the statement fills
  const ir::Body* role_ = nullptr;                       // around the statement
  std::map<int, const ir::Body*> roles_;                 // in which tensors at an address begin
  std::map<int, int> num_adds_;                          // copies that add, by tensor
  std::set<std::pair<int, std::vector<int64_t>>> maps_;  // tensor and box
};

}  // namespace

void choose_copies(ir::Kernel& kernel, Target target, std::vector<std::string>& notes) {
  Chooser(kernel, target, notes).choose(kernel.body, {});
}

}  // namespace tessera::codegen
