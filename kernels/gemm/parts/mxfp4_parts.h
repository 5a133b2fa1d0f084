#pragma once
// The tensors of the products with MXFP4 weights, and what is done with a tile of them.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/parts/group_tiles.h"
#include "kernels/gemm/parts/mxfp4_kernel.h"

namespace tessera::kernels::gemm {

/// The tiles that a step of k reads.
struct MxStep {
  dsl::Ref words;                    // the codes as tensor copies write them: boxes of kBoxWords
  Mxfp4Tile b;                       // codes and shifts, of as many tiles as the tile has 64 rows
  dsl::Ref a;                        // [columns, step]
  std::optional<dsl::Ref> a_scales;  // f32 or u32 [columns, scales of a step or words of them]
};

class Mxfp4Parts {
 public:
  /// Declares the tensors.
  Mxfp4Parts(dsl::Builder& k, const Mxfp4Spec& s);

  /// Blocks to launch, if so many run at once.
  dsl::Value blocks(const dsl::Value& at_once) const;
  void run_on(const dsl::Value& block, const dsl::Value& blocks) {
    block_ = block, blocks_ = blocks;
  }
  /// Steps of k.
  dsl::Value steps() const { return ceil_div(depth_, s_.tile.step); }
  /// Calls body(place) for each tile of the block, in the same order in every role.
  void each_tile(const std::function<void(const GroupTile&)>& body);
  /// Declares the tiles of a step: make(dtype, shape, name) returns one.
  using MakeTile = std::function<dsl::Ref(DType, std::vector<int64_t>, const char*)>;
  MxStep tiles(const MakeTile& make) const;
  /// Copies a step.
  void load(const GroupTile& at, const dsl::Value& step, const MxStep& tiles);
  /// Loads the scales of the rows of b for the block of k that step `step` is, where blocks have scales, into f32 [rows].
  void load_row_scales(const GroupTile& at, const dsl::Value& step, const dsl::Ref& into);
  /// Columns of k from the beginning of a step to the end of the matrix.
  dsl::Value depth_from(const dsl::Value& step) const { return depth_ - step * s_.tile.step; }
  /// A tile of out in shared memory, so that whole rows are written.
  dsl::Ref staging();
  /// Ends the sums, [rows of b, rows of a], and writes the rows of a that count.
  void write(const GroupTile& at, const dsl::Ref& sum, const dsl::Ref& through);

 private:
  void declare_groups();
  void each_aligned_tile(const std::function<void(const GroupTile&)>& body);
  /// The group that rows begin .. end - 1 have, -1 if none or one that b lacks.
  dsl::Value group_of(const dsl::Value& begin, const dsl::Value& end);
  /// Tiles of rows, at most.
  dsl::Value tiles_down() const;
  dsl::Value tiles_across() const { return ceil_div(n_, s_.tile.rows); }
  int64_t tile_words() const { return tile_bytes(s_.operand) / 4; }
  int64_t scales_of_step() const { return s_.tile.step / s_.scaled; }
  dsl::Ref strided(const std::string& name, DType dtype, std::vector<dsl::Arg> shape, int vector);
  DType out_dtype() const { return s_.is_f32 != 0 ? DType::f32 : DType::bf16; }

  dsl::Builder& k_;
  const Mxfp4Spec s_;
  dsl::Value block_, blocks_, m_, n_, depth_, alignment_;
  dsl::Value slabs_ = dsl::i32(1), groups_ = dsl::i32(1);
  std::optional<dsl::Ref> a_, a_sf_, b_, b_shift_, b_sf_, bias_, m_indices_, out_;
  std::optional<GroupTiles> group_tiles_;
};

}  // namespace tessera::kernels::gemm
