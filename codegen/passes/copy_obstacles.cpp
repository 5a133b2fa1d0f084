#include "codegen/passes/copy_obstacles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/thread_ir/tensor_copy_rules.h"
#include "codegen/tile_ir/effects.h"
#include "dsl/base/target_facts.h"

namespace tessera::codegen {
namespace {

using namespace tensor_copy;

constexpr int kWarpThreads = 32;
constexpr int64_t kPanelBytes = 32;  // rows of the narrowest panel
constexpr int64_t kPatternRows = 8;  // of a swizzle

/// As the author wrote it.
const ir::Expr& without_cast(const ir::Expr& e) {
  return e->op == ir::Op::cast ? e->args[0] : e;
}

class ObstacleFinder {
 public:
  ObstacleFinder(const CopyFacts& facts, const ir::Copy& copy, const Sides& sides)
      : facts_(facts),
        copy_(copy),
        sides_(sides),
        tensor_(*sides.tensor.buffer),
        tile_(*sides.tile.buffer),
        box_(box_of(sides)),
        size_(bits(tile_.dtype) / 8) {}

  Obstacle find(const Divergence& in_block) const {
    if (Obstacle obstacle = of_place(in_block); obstacle.found()) return obstacle;
    for (const auto& part : {&ObstacleFinder::of_tensor, &ObstacleFinder::of_elements,
                             &ObstacleFinder::of_tile, &ObstacleFinder::of_extents,
                             &ObstacleFinder::of_strides, &ObstacleFinder::of_coordinates}) {
      if (Obstacle obstacle = (this->*part)(); obstacle.found()) return obstacle;
    }
    return {};
  }

 private:
  /// The remedy for a tensor or a tile that tensor copies and tensor stores cannot take.
  std::string without_engine() const {
    return sides_.stores ? "leave out the engine: threads store the tile"
                         : "copy by pieces: Engine::pieces";
  }

  Obstacle of_place(const Divergence& in_block) const {
    if (facts_.kernel.threads % kWarpThreads != 0) {
      return {"a block of whole warps", fmt::format("{} threads", facts_.kernel.threads),
              "launch a multiple of 32 threads"};
    }
    if (!in_block.cause.empty()) {
      return {"a copy that all threads come to",
              fmt::format("{}, which may differ between threads ({})", in_block.cause,
                          to_string(in_block.loc)),
              "copy outside of it, or vouch for the condition by k.uniform"};
    }
    if (tile_.space != ir::Space::shared) {
      return {"a shared tile", fmt::format("a {}", ir::name(tile_.space)),
              "copy it into a shared tile first"};
    }
    if (sides_.stores && facts_.filled.contains(storage_of(tile_).ring)) {
      return {"a take of the ring", "a fill", "store the tile in a take, in another role"};
    }
    if (!sides_.stores && facts_.has_roles && tile_.ring < 0) {
      return {"a fill of a ring, in a kernel with roles", "another copy",
              "declare the tile by ring.shared and copy into it in ring.fill"};
    }
    return {};
  }

  Obstacle of_tensor() const {
    if (tensor_.address && (sides_.stores || !tensor_.map)) {
      return {
          sides_.stores ? "a tensor of the call" : "a tensor of the call, or memory for its map",
          "one at an address of run time",
          sides_.stores ? without_engine() : "give k.tensor_at a place for the map: .map"};
    }
    if (tensor_.map && facts_.begun.at(tensor_.id) != facts_.role) {
      return {"tensor_at in the role that copies", "tensor_at before the roles",
              "call k.tensor_at in the role that copies"};
    }
    if (sides_.stores && tensor_.may_alias) {
      return {"a tensor that shares its memory with no other", "one that may alias another",
              "declare it without .may_alias, or leave out the engine: threads store the tile"};
    }
    if (!sides_.stores && (tensor_.is_output || tensor_.may_alias)) {
      return {"a tensor that the kernel does not write",
              tensor_.is_output ? "an output" : "one that may be the memory of an output",
              without_engine()};
    }
    if (tensor_.optional) {
      return {"a tensor that is always given", "an optional one",
              fmt::format("declare it without .optional, or {}", without_engine())};
    }
    return {};
  }

  Obstacle of_elements() const {
    if (tensor_.dtype != tile_.dtype) {
      return {fmt::format("a tile of {}", name(tensor_.dtype)), std::string(name(tile_.dtype)),
              fmt::format("declare the tile as {} and convert its elements where they are {}",
                          name(tensor_.dtype), sides_.stores ? "written" : "read")};
    }
    if (bits(tensor_.dtype) % 8 != 0) {
      return {"elements of whole bytes", std::string(name(tensor_.dtype)), without_engine()};
    }
    if (copy_.outside) {
      return {"zero outside of the tensor", "another value",
              "leave out .outside, or copy by pieces: Engine::pieces"};
    }
    if (sides_.tensor.terms.cache != ir::CacheHint::none) {
      return {"no hint for the caches", std::string(ir::name(sides_.tensor.terms.cache)),
              "leave out .cached"};
    }
    return {};
  }

  Obstacle of_tile() const {
    if (tile_.alias_of) {
      return {"a tile of its own", "a reshaped view", "copy the tile that it is a view of"};
    }
    for (size_t d = 0; d < tile_.shape.size(); ++d) {
      const bool is_version = static_cast<int>(d) < tile_.num_version_dims;
      const ir::Expr& extent = sides_.tile.extents[d];
      if (is_version && !extent && facts_.in_block.is_common(sides_.tile.offsets[d])) continue;
      const int64_t copied = extent ? extent->integer : 1;
      const bool is_whole =
          copied == tile_.shape[d]->integer && ir::is_constant(sides_.tile.offsets[d], 0);
      if (!is_whole && !is_run_of_rows(d)) {
        return {sides_.stores ? "a whole shared tile"
                              : "a whole shared tile, or rows of it in constant multiples of 8",
                fmt::format("a part of '{}'", tile_.name), "declare a shared tile for each part"};
      }
    }
    for (const ir::Region* region : {&sides_.tensor, &sides_.tile}) {
      if (std::is_sorted(region->order.begin(), region->order.end())) continue;
      return {"dimensions in the order of the tensor", "a transposed view",
              "copy without .transposed, and transpose the tile where it is used"};
    }
    return {};
  }

  /// True if the part of the tile along dimension d is rows that begin and end with a swizzle pattern.
  bool is_run_of_rows(size_t d) const {
    const ir::Expr &first = sides_.tile.offsets[d], &extent = sides_.tile.extents[d];
    const bool is_first_dimension = static_cast<int>(d) == tile_.num_version_dims;
    if (sides_.stores || !is_first_dimension || d + 1 == tile_.shape.size()) return false;
    int64_t rows = 1;  // of one index
    for (size_t i = d + 1; i + 1 < tile_.shape.size(); ++i) rows *= tile_.shape[i]->integer;
    const int64_t copied = extent ? extent->integer : 1;
    return ir::is_constant(first) && first->integer * rows % kPatternRows == 0 &&
           copied * rows % kPatternRows == 0;
  }

  Obstacle of_extents() const {
    if (box_.size() > kMaxDimensions) {
      return {fmt::format("a tensor of at most {} dimensions", kMaxDimensions),
              fmt::format("{}", box_.size()), "declare neighbouring dimensions as one"};
    }
    for (size_t d = 0; d + 1 < box_.size(); ++d) {
      if (box_[d] <= kMaxExtent) continue;
      return {fmt::format("at most {} elements along each dimension before the last", kMaxExtent),
              fmt::format("{} along dimension {}", box_[d], d),
              fmt::format("copy tiles of at most {}", kMaxExtent)};
    }
    if (!sides_.tensor.extents.back() || box_.back() * size_ % kPieceBytes != 0) {
      return {"rows of the tile of multiples of 16 bytes",
              fmt::format("{} x {}", box_.back(), name(tile_.dtype)),
              fmt::format("let the last extent be a multiple of {}", kPieceBytes / size_)};
    }
    int64_t bytes = size_;
    for (const int64_t extent : box_) bytes *= extent;
    const int64_t rows = bytes / size_ / box_.back();
    // Wider tiles lie in panels.
    const bool has_panels = rows % kPatternRows == 0 && box_.back() * size_ % kPanelBytes == 0;
    if (box_.back() > kMaxExtent && !has_panels) {
      return {fmt::format("a tile of at most {} columns, or a multiple of {} rows of a multiple of "
                          "{} columns",
                          kMaxExtent, kPatternRows, kPanelBytes / size_),
              fmt::format("{} x {}", rows, box_.back()),
              fmt::format("copy tiles of at most {} columns, or round the extents up", kMaxExtent)};
    }
    if (tile_.num_version_dims > 0 && bytes % kTargetBytes != 0) {
      return {"a tile of a multiple of 128 bytes", fmt::format("{} bytes", bytes),
              "round the extents of the tile up"};
    }
    if (facts_.operands.contains(storage_of(tile_).id) && rows % kPatternRows != 0) {
      return {"a multiple of 8 rows of an operand", fmt::format("{} rows", rows),
              "round the rows of the tile up to a multiple of 8"};
    }
    return {};
  }

  Obstacle of_strides() const {
    if (tensor_.align % kPieceBytes != 0) {
      return {"a declared alignment of 16 bytes", fmt::format("{}", tensor_.align),
              "declare the tensor with .align = 16"};
    }
    if (!ir::is_constant(tensor_.strides.back(), 1)) {
      return {"a last stride of 1", ir::to_string(tensor_.strides.back()), without_engine()};
    }
    for (size_t d = 0; d + 1 < tensor_.strides.size(); ++d) {
      if (facts_.math.divisor(tensor_.strides[d]) * size_ % kPieceBytes == 0) continue;
      const std::string stride = ir::to_string(without_cast(tensor_.strides[d]));
      return {"strides of multiples of 16 bytes",
              fmt::format("stride {} of dimension {}", stride, d),
              fmt::format("declare .multiple_of = {} for {}", kPieceBytes / size_, stride)};
    }
    return {};
  }

  /// Finds an obstacle in the coordinates of the box.
  Obstacle of_coordinates() const {
    for (size_t d = 0; d < box_.size(); ++d) {
      const ir::Expr& offset = sides_.tensor.offsets[d];
      if (offset->type != DType::i32) {
        return {"coordinates of i32",
                fmt::format("{} {}", name(offset->type), ir::to_string(offset)),
                "convert it: cast(DType::i32, value)"};
      }
      if (!facts_.in_block.is_common(offset)) {
        return {"coordinates that are the same for all threads", ir::to_string(offset),
                "vouch for it by k.uniform"};
      }
      // A store at a negative coordinate faults. At a multiple of the box it is wholly outside, and skipped.
      if (sides_.stores && !facts_.math.non_negative(offset) &&
          facts_.math.divisor(offset) % box_[d] != 0) {
        return {fmt::format("dimension {} from 0 or a multiple of {} on", d, box_[d]),
                ir::to_string(offset),
                fmt::format("store under k.if_({} >= 0, ..)", ir::to_string(offset))};
      }
    }
    const ir::Expr& last = sides_.tensor.offsets.back();
    if (facts_.math.divisor(last) * size_ % kPieceBytes != 0) {
      return {"a first column at a multiple of 16 bytes", ir::to_string(last),
              fmt::format("compute it as a multiple of {}: block * {}", kPieceBytes / size_,
                          kPieceBytes / size_)};
    }
    return {};
  }

  const CopyFacts& facts_;
  const ir::Copy& copy_;
  const Sides& sides_;
  const ir::Buffer& tensor_;
  const ir::Buffer& tile_;
  const std::vector<int64_t> box_;
  const int64_t size_;  // bytes of an element
};

}  // namespace

Obstacle find_obstacle(const CopyFacts& facts, const ir::Copy& copy, const Sides& sides,
                       const Divergence& in_block) {
  return ObstacleFinder(facts, copy, sides).find(in_block);
}

Obstacle find_multicast_obstacle(const CopyFacts& facts, const ir::Copy& copy,
                                 const Divergence& in_cluster, bool is_vouched) {
  const int64_t blocks = facts.kernel.cluster;
  if (!facts_of(facts.target).has_multicast) {
    return {"sm_90a or sm_100a", "another target", "leave out Multicast::required"};
  }
  if (blocks == 1) {
    return {"a launch with clusters", "blocks by themselves", "launch with .cluster = 2 or more"};
  }
  if (copy.to.buffer->ring < 0) {
    return {"a fill of a ring", "another copy",
            "declare the tile by ring.shared and copy into it in ring.fill"};
  }
  if (!is_vouched && !in_cluster.cause.empty()) {
    return {"a copy that all blocks of the cluster come to",
            "a condition or a loop that may differ between them",
            "vouch for it by Multicast::required"};
  }
  for (const ir::Expr& offset : copy.from.offsets) {
    if (is_vouched || facts.in_cluster.is_common(offset)) continue;
    return {"coordinates that are the same in all blocks", ir::to_string(offset),
            "vouch for them by Multicast::required"};
  }
  const std::vector<int64_t> box = box_of(sides_of(copy));
  const auto outer = std::find_if(box.begin(), box.end(), [](int64_t e) { return e > 1; });
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < box.size(); ++d) rows *= box[d];
  const bool has_parts =
      outer + 1 < box.end() && *outer % blocks == 0 && rows / blocks % kPatternRows == 0;
  if (has_parts) return {};
  return {fmt::format("a tile of {} parts of multiples of 8 rows", blocks),
          fmt::format("{}", fmt::join(box, " x ")),
          fmt::format("let the rows of the tile be a multiple of {}", blocks * kPatternRows)};
}

}  // namespace tessera::codegen
