#pragma once
// The tensors of the products of block-scaled 8-bit floats, and what is done with a tile of them.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gemm/fp8_kernel.h"

namespace tessera::kernels::gemm {

/// A tile of out: matrix, first row, rows of the matrix that count; of b: matrix, tile of columns. is_whole: all rows of
/// the tile are written.
struct Place {
  dsl::Value slab, row, rows, group, across, is_whole;
};

/// What a step of k reads: e4m3 [rows, 128] and [columns, 128], f32 [rows] and [1].
struct StepTiles {
  dsl::Ref a, b, a_scales, b_scale;
};

class Fp8Parts {
 public:
  /// Declares the tensors.
  Fp8Parts(dsl::Builder& k, const Fp8Spec& s);

  /// The tiles that the blocks compute; of masked groups, columns of tiles.
  dsl::Value tiles_down() const;
  dsl::Value tiles_across() const { return ceil_div(n_, s_.tile.columns); }
  /// Steps of k.
  dsl::Value steps() const { return ceil_div(depth_, s_.tile.step); }
  /// Calls body(place) for each tile of the block, in the same order in every role.
  void each_tile(const std::function<void(const Place&)>& body);
  /// Declares the tiles of a step: make(dtype, shape, name) returns one.
  using MakeTile = std::function<dsl::Ref(DType, std::vector<int64_t>, const char*)>;
  StepTiles tiles(const MakeTile& make) const;
  /// Copies a step.
  void load(const Place& at, const dsl::Value& step, const StepTiles& tiles);
  /// A tile in shared memory, so that whole rows are written; none for f32, whose threads write 8 bytes.
  std::optional<dsl::Ref> staging();
  void write(const Place& at, const dsl::Ref& sum, const std::optional<dsl::Ref>& through);

 private:
  /// The group of the kRowsOfGroup rows around a tile.
  struct RowGroup {
    dsl::Value group, exists, is_whole;  // exists: one of b; is_whole: no row is without a group
  };
  RowGroup group_of(const dsl::Value& row);
  DType out_dtype() const { return s_.is_f32 != 0 ? DType::f32 : DType::bf16; }
  dsl::Ref matrices(const std::string& name, DType dtype, std::vector<dsl::Arg> shape, int vector);
  dsl::Ref scales(const std::string& name, std::vector<dsl::Arg> shape);

  dsl::Builder& k_;
  const Fp8Spec s_;
  dsl::Value m_, n_, depth_, slabs_ = dsl::i32(1), groups_ = dsl::i32(1);
  std::optional<dsl::Ref> a_, b_, a_sf_, b_sf_, m_indices_, masked_m_, out_;
};

}  // namespace tessera::kernels::gemm
