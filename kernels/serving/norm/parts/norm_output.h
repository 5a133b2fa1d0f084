#pragma once
// The end of a norm: from a row in the registers of its threads to the outputs. norm_fwd,
// norm_fwd_and_per_token_cast and pre_big_fuse_and_norm share it, and so the bits.
//
// Maths    s = sum of squares in the order of norm_row.h; r = 1 / sqrt(s / hidden + eps), IEEE; y = (n * r) *
//          (weight * out_scale), each step rounded; out = round(y). A cast is that of per_token_cast on the
//          rounded y.

#include <optional>
#include <string>

#include "dsl/builder.h"
#include "kernels/quant/parts/scale_access.h"
#include "kernels/serving/norm/parts/norm_row.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels::serving {

inline constexpr int64_t kMegaTile = 128;  // rows of mega_moe_sf that are interleaved

/// Everything that the code of the outputs depends on.
struct NormOutputSpec {
  DType dtype;  // of the row, of weight, and of out without a cast
  SfLayout sf_layout;
  bool has_weight, save_rstd, round_sf, save_bf16, has_mega;
  bool has_scale;       // out_scale is not 1
  int8_t weight_width;  // columns per load of the weight
  uint8_t unused = 0;
  int16_t group;  // columns of a scale; 0: no cast
  int32_t hidden;
};

/// The Spec of a call with rows of that dtype, without a cast.
NormOutputSpec norm_output_spec(const Call& c, DType dtype);
/// Adds the cast of a call: num_per_channels, sf_layout, round_sf, save_bf16.
void set_cast(NormOutputSpec& s, const Call& c);

class NormOutput {
 public:
  /// Declares weight, rstd, out and the tensors of the cast, and the scalars `eps`, out_scale if it is not 1
  /// and, with mega_moe_sf, mega_moe_block_m.
  NormOutput(dsl::Builder& k, const NormOutputSpec& s, const dsl::Value& tokens,
             const std::string& eps);

  /// Rows of the outputs: the tokens, or the rows of the scales with their padding.
  const dsl::Value& rows() const { return scales_ ? scales_->rows() : tokens_; }
  /// Loads the weights of the thread's columns, for all rows of the block. Without it each row loads them where
  /// it multiplies with them: fewer registers, later.
  void load_weight(const NormRow& row);
  /// Norms `n` [steps, 8] of load_all, and stores the outputs if the token is `valid`; else scales of zeros.
  /// All threads of the block come together.
  void store(const NormRow& row, const dsl::Value& token, const dsl::Value& valid,
             const dsl::Ref& n) const;

 private:
  void store_codes(const NormRow& row, const dsl::Value& token, const dsl::Value& valid,
                   int64_t step, const dsl::Ref& z) const;
  void store_mega(const dsl::Value& token, const dsl::Value& group, const ScaleFactor& scale) const;
  void fill_word(const NormRow& row, const dsl::Value& token) const;

  dsl::Builder& k_;
  const NormOutputSpec s_;
  dsl::Value tokens_;
  dsl::Value eps_, out_scale_;
  std::optional<dsl::Ref> weight_, rstd_, out_, rounded_, mega_;
  std::optional<ScaleWriter> scales_;
  std::optional<dsl::Value> mega_block_;
  std::optional<dsl::Ref> w_;  // [steps, 8], in registers
};

}  // namespace tessera::kernels::serving
