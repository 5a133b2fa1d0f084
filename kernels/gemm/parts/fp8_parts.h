#pragma once
// The tensors of the products of block-scaled 8-bit floats, and what is done with a tile of them.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/parts/fp8_kernel.h"
#include "kernels/gemm/parts/group_tiles.h"

namespace tessera::kernels::gemm {

/// The tiles that a step of k reads: e4m3 [rows, 128] and [columns, 128], f32 [rows] and [1].
struct StepTiles {
  dsl::Ref a, b, a_scales, b_scale;
};

class Fp8Parts {
 public:
  /// Declares the tensors.
  Fp8Parts(dsl::Builder& k, const Fp8Spec& s);

  /// The tiles of all matrices; of masked groups, as if all rows counted.
  dsl::Value tiles_down() const { return slabs_ * ceil_div(m_, s_.tile.rows); }
  dsl::Value tiles_across() const { return ceil_div(n_, s_.tile.columns); }
  /// Steps of k.
  dsl::Value steps() const { return ceil_div(depth_, s_.tile.step); }
  /// The block and the number of blocks of the launch, which comes before each_tile().
  void run_on(const dsl::Value& block, const dsl::Value& blocks) {
    block_ = block, blocks_ = blocks;
  }
  /// Calls body(place) for each tile of the block, in the same order in every role.
  void each_tile(const std::function<void(const GroupTile&)>& body);
  /// Declares the tiles of a step: make(dtype, shape, name) returns one.
  using MakeTile = std::function<dsl::Ref(DType, std::vector<int64_t>, const char*)>;
  StepTiles tiles(const MakeTile& make) const;
  /// Copies a step.
  void load(const GroupTile& at, const dsl::Value& step, const StepTiles& tiles);
  /// A tile in shared memory, so that whole rows are written; none for f32, whose threads write 8 bytes.
  std::optional<dsl::Ref> staging();
  void write(const GroupTile& at, const dsl::Ref& sum, const std::optional<dsl::Ref>& through);

 private:
  /// Each tile once for each group that its rows name, ascending.
  void each_tile_of_ids(const std::function<void(const GroupTile&)>& body);
  /// True if m_indices names groups.
  bool has_ids() const { return s_.groups == Groups::by_rows || s_.groups == Groups::by_ids; }
  /// The group of the kRowsOfGroup rows around a tile.
  struct RowGroup {
    dsl::Value group, exists;  // exists: one of b
  };
  RowGroup group_of(const dsl::Value& row);
  /// True if all rows of a tile are written. Asked when it is stored: an answer kept from before the product would cost
  /// registers all along.
  dsl::Value is_whole(const GroupTile& at);
  /// The ids of the kRowsOfGroup rows around `row`, each lane's own, -1 beyond the last row.
  std::vector<dsl::Value> ids_around(const dsl::Value& row, std::vector<dsl::Value>& exist);
  /// The same of `count` rows from `first` on.
  std::vector<dsl::Value> ids_from(const dsl::Value& first, int32_t count,
                                   std::vector<dsl::Value>& exist);
  /// True if holds(i) for each id of each lane.
  dsl::Value of_all_ids(size_t ids, const std::function<dsl::Value(size_t i)>& holds);
  DType out_dtype() const { return s_.is_f32 != 0 ? DType::f32 : DType::bf16; }
  dsl::Ref matrices(const std::string& name, DType dtype, std::vector<dsl::Arg> shape, int vector);
  dsl::Ref scales(const std::string& name, std::vector<dsl::Arg> shape);

  dsl::Builder& k_;
  const Fp8Spec s_;
  dsl::Value block_, blocks_, m_, n_, depth_, slabs_ = dsl::i32(1), groups_ = dsl::i32(1);
  std::optional<dsl::Ref> a_, b_, a_sf_, b_sf_, m_indices_, out_;
  std::optional<GroupTiles> group_tiles_;
};

}  // namespace tessera::kernels::gemm
