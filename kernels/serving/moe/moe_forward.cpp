// moe_forward: a layer of experts: the rows of the tokens' experts, two products with a gated activation between, and their
// sums.
//
// Method   moe_plan; rows cast to e4m3 or copied; a grouped product (psum); the gated activation; a grouped product;
//          combine_reduce. The products are gemm_fp8_grouped or, of packed MXFP4 weights, gemm_mxfp4_grouped. The counts
//          stay on the device; nothing waits for it, so a call can be captured, and one capture serves every num_tokens.
//          Products by psum need no padding: the rows of experts follow each other.
// Maths    that of the parts; the first product is rounded to bf16
// Measured one H200, e4m3, 256 experts of 4096 x 2048, 6 per token: 1 token 114 us, 64 1571 (97 % of the copy rate), 1024 1676,
//          8192 4018; MXFP4 59, 994 (86 %), 8192 4985; with rows of bf16 64 tokens 1960

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/gemm/parts/mxfp4_codes.h"
#include "kernels/moe/parts/expand_kernel.h"
#include "kernels/moe/parts/mapping_values.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/chain.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kAlignment = 1;
constexpr int64_t kBlock = 128;            // rows and columns of an e4m3 weight that share a scale
constexpr const char* kAbsent = "absent";  // a tensor that no call has

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

Params with(Params params, const Params& more) {
  params.insert(more.begin(), more.end());
  return params;
}

/// expand_to_fused of rows that may have gaps.
const Op gather_rows_op{.name = "moe_gather_rows",
                        .family = "serving",
                        .purpose = "rows of tokens to the positions of their experts",
                        .signature = R"(
      x                  bf16 [T, H] rows
      token_topk_to_pos  i32 [T, K]
      pos_to_expert      i32 [P]
      -> out             bf16 [P, H] align 16
    )",
                        .launches = moe::add_expand};

class Layer {
 public:
  explicit Layer(Chain& chain)
      : chain_(chain),
        c_(chain.call()),
        rows_(c_["T"] * c_["K"]),
        is_packed_(c_.given("w13").dtype == DType::u8),
        is_bf16_(c_.word("activation") == "bf16"),
        weighs_sums_(c_.word("weights_at") == "combine"),
        cast_{{"sf_layout", std::string("col_major_tma")}},
        product_{{"alignment", kAlignment}} {
    if (!is_bf16_) product_["a_sf_layout"] = cast_["sf_layout"];
  }

  void add() {
    chain_.add(moe_plan_op, {{"topk_weights", weighs_sums_ ? kAbsent : "topk_weights"}},
               {{"num_experts", c_["E"]}, {"alignment", kAlignment}});
    gather();
    chain_.allocate("mid", DType::bf16, {rows_, 2 * c_["I"]});
    multiply({{"b", "w13"}, {"b_sf", "w13_sf"}, {"b_shift", "w13_shift"}, {"out", "mid"}});
    activate();
    chain_.allocate("y", DType::bf16, {rows_, c_["H"]});
    multiply({{"a", "act"},
              {"a_sf", is_bf16_ ? kAbsent : "act_sf"},
              {"b", "w2"},
              {"b_sf", "w2_sf"},
              {"b_shift", "w2_shift"},
              {"out", "y"}});
    chain_.add(combine_reduce_op, {{"x", "y"},
                                   {"pos", "pair_to_pos"},
                                   {"topk_weights", weighs_sums_ ? "topk_weights" : kAbsent}});
  }

 private:
  /// Writes the rows of the experts' tokens to `a`.
  void gather() {
    const Params topk = {{"num_topk", std::max<int64_t>(c_["K"], 1)}, {"fill_padding", false}};
    if (!is_bf16_) {
      return chain_.add(moe_gather_cast_op, {{"out", "a"}, {"out_sf", "a_sf"}}, with(cast_, topk));
    }
    chain_.add(
        gather_rows_op,
        {{"token_topk_to_pos", "pair_to_pos"}, {"pos_to_expert", "pos_to_pair"}, {"out", "a"}});
  }
  void multiply(std::initializer_list<Chain::Name> names) {
    chain_.add(is_packed_ ? gemm_mxfp4_grouped_op : gemm_fp8_grouped_op, names, product_);
  }
  /// Writes the activation of `mid`, weighted, to `act`.
  void activate() {
    const char* weights = weighs_sums_ ? kAbsent : "row_weights";
    if (is_bf16_) {
      return chain_.add(swiglu_fwd_op, {{"x", "mid"}, {"topk_weights", weights}, {"out", "act"}},
                        {{"out_dtype", std::string("bf16")}, {"alignment", kAlignment}});
    }
    const double none = std::numeric_limits<double>::infinity();
    const double clamp =
        c_.has_value("swiglu_clamp_value") ? c_.number("swiglu_clamp_value") : none;
    chain_.add(swiglu_psum_cast_op,
               {{"x", "mid"}, {"topk_weights", weights}, {"out", "act"}, {"out_sf", "act_sf"}},
               with(cast_, {{"alignment", kAlignment}, {"swiglu_clamp_value", clamp}}));
  }

  Chain& chain_;
  const Call& c_;
  const int64_t rows_;  // of any ids, without padding
  const bool is_packed_, is_bf16_, weighs_sums_;
  Params cast_, product_;
};

void parts(Chain& chain) {
  Layer(chain).add();
}

int64_t elements(const Call& c) {
  return chained_elements(c, parts);
}

void launches(const Call& c, Launches& go) {
  launch_chain(c, go, parts);
}

/// Half of the rows of the first product. 0 where the shapes are wrong, which `check` reports.
int64_t inner(const Call& c) {
  const TensorView& by_row = c.given(c.given("w13").dtype == DType::u8 ? "w13_sf" : "w13");
  return by_row.rank() < 2 ? 0 : by_row.shape[1] / 2;
}

/// Extents of the weights of a product, [rows, columns] for each expert.
struct Weights {
  std::string_view name;
  int64_t rows, columns;
  std::string formula;  // of an e4m3 matrix
};

void check_weights(const Call& c, const Weights& w) {
  const std::string name(w.name), scales = name + "_sf";
  const int64_t experts = c["E"], blocks = ceil_div(w.columns, kBlock);
  const auto need = [&](const std::string& tensor, const Dims& shape, const std::string& formula) {
    const TensorView& got = c.given(tensor);
    c.need(got.shape == shape, tensor, fmt::format("argument '{}' has the wrong shape", tensor),
           fmt::format("{} = {}   (I = {})", to_string(shape), formula, c["I"]), to_string(got));
  };
  c.need(c.given(name).dtype == c.given("w13").dtype, name,
         fmt::format("argument '{}' has the wrong dtype", name), "that of 'w13'",
         to_string(c.given(name)));
  if (c.given(name).dtype != DType::u8) {
    need(name, {experts, w.rows, w.columns}, w.formula);
    return need(scales, {experts, ceil_div(w.rows, kBlock), blocks}, "a scale for each 128 x 128");
  }
  const bool is_bf16 = c.word("activation") == "bf16";
  const auto operand = is_bf16 ? gemm::Mxfp4Operand::bf16 : gemm::Mxfp4Operand::e4m3;
  need(name,
       {experts, ceil_div(w.rows, gemm::kMxRows), ceil_div(w.columns, gemm::tile_depth(operand)),
        gemm::tile_bytes(operand)},
       fmt::format("mxfp4_prepack of {} for {}", w.formula, is_bf16 ? "bf16" : "e4m3"));
  if (is_bf16 || c.given(scales).rank() == 2) {
    return need(scales, {experts, w.rows}, "a scale for each row");
  }
  need(scales, {experts, w.rows, blocks}, "a scale for each row and 128 columns");
}

void check(const Call& c) {
  check_weights(c, {"w13", 2 * c["I"], c["H"], "[E, 2I, H]"});
  check_weights(c, {"w2", c["H"], c["I"], "[E, H, I]"});
}

/// Bytes of a matrix of an expert with its scales.
int64_t weight_bytes(const Case& c, int64_t rows, int64_t columns, bool by_block) {
  if (c.dtype_word("w13") != "u8") return rows * columns;
  const int64_t row = columns / 2 + columns / 32 + 4 * (by_block ? ceil_div(columns, kBlock) : 1);
  return rows * row;
}

/// The matrices of the experts that have a token, and the rows of tokens.
int64_t least_bytes(const Case& c) {
  const int64_t hidden = c["H"], inner = c["I"], pairs = c["T"] * c["K"];
  const int64_t experts = std::min(c["E"], pairs);
  const int64_t weights = weight_bytes(c, 2 * inner, hidden, c.find("F1").has_value()) +
                          weight_bytes(c, hidden, inner, c.find("F2").has_value());
  return experts * weights + c["T"] * hidden * (c.has("base") ? 6 : 4) + 12 * pairs;
}

// Extents of the weights of a case; of e4m3 they follow from H and I.
bool is_packed(const Case& c) {
  return c.dtype_word("w13") == "u8";
}
int64_t tile_depth(const Case& c) {
  const bool is_bf16 = std::get<std::string>(c.params().at("activation")) == "bf16";
  return gemm::tile_depth(is_bf16 ? gemm::Mxfp4Operand::bf16 : gemm::Mxfp4Operand::e4m3);
}
int64_t row_extent(const Case& c, int64_t rows) {
  return is_packed(c) ? ceil_div(rows, gemm::kMxRows) : rows;
}
int64_t depth_extent(const Case& c, int64_t columns) {
  return is_packed(c) ? ceil_div(columns, tile_depth(c)) : columns;
}
int64_t scale_rows(const Case& c, int64_t rows) {
  return is_packed(c) ? rows : ceil_div(rows, kBlock);
}
/// Scales of rows alone unless the case says F1 and F2.
int64_t scale_columns(const Case& c, int64_t columns) {
  return is_packed(c) ? kNoExtent : ceil_div(columns, kBlock);
}
int64_t tile_bytes(const Case& c) {
  return is_packed(c) ? 32 * tile_depth(c) : kNoExtent;
}

}  // namespace

const Op moe_forward_op{
    .name = "moe_forward",
    .family = "serving",
    .purpose =
        "a layer of experts: two products of e4m3 or MXFP4 weights, a gated activation between",
    .signature = R"(
      x             bf16 [T, H] rows
      topk_idx      i32/i64 [T, K]                              # an expert, or -1
      topk_weights  f32 [T, K]
      w13           e4m3/u8 [E, N1, D1, S1?]                    # [E, 2I, H], gate, then up; u8: by mxfp4_prepack
      w13_sf        f32 [E, R1, F1?]                            # [E, 2I/128, H/128]; or by mxfp4_prepack
      w2            e4m3/u8 [E, N2, D2, S2?]                    # [E, H, I]; u8: by mxfp4_prepack
      w2_sf         f32 [E, R2, F2?]                            # [E, H/128, I/128]; or by mxfp4_prepack
      w13_shift?    u8 [E, ceil(2I/64), ceil(H/128), 64, 4]    iff w13 is u8
      w2_shift?     u8 [E, ceil(H/64), ceil(I/128), 64, 4]     iff w13 is u8
      base?         bf16 [T, H] rows                            # such as a shared expert's result: is added
      num_tokens?   i32 [1]                                     # tokens from here on are 0
      -> out        bf16 [T, H] align 16
      workspace     f32 [elements()]
      param  activation {e4m3, bf16} = e4m3                     # the dtype of rows in the products
      param  num_per_channels {32, 128} = 128                   # columns of a scale of e4m3 rows
      param  round_sf bool = false
      param  swiglu_clamp_value float = none                    # a value of bf16
      param  weights_at {l1, combine} = l1                      # of the activation, or of the sums
      let    I = inner()
      need   H >= 1 on x "argument 'x' has no columns"
      need   H % 128 = 0 and I % 128 = 0 if w13 is e4m3 on w2 "the sizes of 'w2' are no multiples of 128"
      need   H % 32 = 0 and I % 32 = 0 if w13 is u8 on w2 "the sizes of 'w2' are no multiples of 32"
      need   1 <= E <= 1024 and I >= 1 on w13 "'w13' has no rows, or the wrong number of experts"
      need   activation = e4m3 and num_per_channels = 128 if w13 is e4m3 on activation
      |      "e4m3 weights take rows of e4m3 with scales of 128 columns"
      need   swiglu_clamp_value > 0 if swiglu_clamp_value != none
      limit  T * K <= 16777216 on topk_idx "'topk_idx' has too many pairs"
      bucket T * K at 2049, 65537                               # moe_plan
      bucket T * K / E at 65                                    # gemm_fp8_grouped
      bucket ceil(T * K / E) at 6, 12, 22, 44, 86               # gemm_mxfp4_grouped
      bucket T * K * I at 1048577, 2097153                      # swiglu_psum_cast
      bucket T at 1024                                          # combine_reduce
    )",
    .launches = launches,
    .check = check,
    .check_values = moe::require_ids,
    .functions = {{"elements", elements}, {"inner", inner}},
    .examples = R"(
      T=5 K=2 E=4 H=256 I=128 topk_idx=i64 base=given num_tokens=given
      T=9 K=3 E=6 H=128 I=256 topk_idx=i32 weights_at=combine swiglu_clamp_value=10 round_sf=true
      T=9 K=2 E=3 H=160 I=96 w13=u8 w2=u8 F1=2 F2=1 base=given; T=7 K=2 E=3 H=128 I=64 w13=u8 w2=u8 activation=bf16)",
    .bench = R"(
      T=1 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=64 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=1024 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=8192 K=6 E=256 H=4096 I=2048 topk_idx=i64 swiglu_clamp_value=10
      T=1 K=6 E=256 H=4096 I=2048 w13=u8 w2=u8 F1=32 F2=16 topk_idx=i64 swiglu_clamp_value=10
      T=64 K=6 E=256 H=4096 I=2048 w13=u8 w2=u8 F1=32 F2=16 topk_idx=i64 swiglu_clamp_value=10
      T=8192 K=6 E=256 H=4096 I=2048 w13=u8 w2=u8 F1=32 F2=16 topk_idx=i64 swiglu_clamp_value=10
      T=64 K=6 E=256 H=4096 I=2048 w13=u8 w2=u8 topk_idx=i64 activation=bf16 swiglu_clamp_value=10)",
    .case_words = {{"N1", [](const Case& c) { return row_extent(c, 2 * c["I"]); }},
                   {"D1", [](const Case& c) { return depth_extent(c, c["H"]); }},
                   {"S1", tile_bytes},
                   {"R1", [](const Case& c) { return scale_rows(c, 2 * c["I"]); }},
                   {"F1", [](const Case& c) { return scale_columns(c, c["H"]); }},
                   {"N2", [](const Case& c) { return row_extent(c, c["H"]); }},
                   {"D2", [](const Case& c) { return depth_extent(c, c["I"]); }},
                   {"S2", tile_bytes},
                   {"R2", [](const Case& c) { return scale_rows(c, c["H"]); }},
                   {"F2", [](const Case& c) { return scale_columns(c, c["I"]); }}},
    .values = {{"topk_idx", [](const Case& c, int64_t pair) { return pair % c["E"]; }},
               {"num_tokens", [](const Case& c, int64_t) { return c["T"] - 1; }}},
    .bytes = least_bytes};

}  // namespace tessera::kernels
