#include "kernels/serving/norm/parts/norm_output.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {

using namespace dsl;

namespace {

/// Columns per store of a 16-byte aligned output.
int64_t store_width(DType dtype) {
  return std::min<int64_t>(kRowRun, 16 / bytes(dtype));
}

}  // namespace

NormOutputSpec norm_output_spec(const Call& c, DType dtype) {
  const int64_t most = 16 / bytes(dtype);
  NormOutputSpec s{};
  s.dtype = dtype;
  s.hidden = c.i32("H");
  s.has_weight = c.has("weight");
  s.has_scale = c.number("out_scale") != 1;
  s.weight_width =
      static_cast<int8_t>(s.has_weight ? common_vector(c.tensor("weight"), most) : most);
  return s;
}

void set_cast(NormOutputSpec& s, const Call& c) {
  s.group = static_cast<int16_t>(c["num_per_channels"]);
  s.sf_layout = sf_layout_of(c.params(), "sf_layout");
  s.round_sf = c.flag("round_sf");
  s.save_bf16 = c.flag("save_bf16");
}

NormOutput::NormOutput(Builder& k, const NormOutputSpec& s, const Value& tokens,
                       const std::string& eps)
    : k_(k), s_(s), tokens_(tokens) {
  if (s.has_weight) {
    weight_ =
        k.input("weight", s.dtype, {s.hidden}, {.align = int64_t{bytes(s.dtype)} * s.weight_width});
  }
  if (s.save_rstd) rstd_ = k.output("rstd", DType::f32, {tokens}, {.align = 4});
  eps_ = k.scalar(eps, DType::f32);
  if (s.has_scale) out_scale_ = k.scalar("out_scale", DType::f32);
  if (s.group > 0) scales_.emplace(k, s.sf_layout, tokens, num_blocks(s.hidden, s.group));
  out_ = k.output("out", s.group > 0 ? DType::e4m3 : s.dtype, {tokens, s.hidden});
  if (s.save_bf16) rounded_ = k.output("out_bf16", DType::bf16, {tokens, s.hidden});
  if (!s.has_mega) return;
  auto mega_rows = k.dim("mega_rows");
  mega_ = k.output("mega_moe_sf", DType::u8, {s.hidden / 128, mega_rows, 4}, {.align = 4});
  mega_block_ = k.scalar("mega_moe_block_m", DType::i32);
}

void NormOutput::load_weight(const NormRow& row) {
  if (!weight_) return;
  w_ = row.local(s_.dtype, "w");
  row.load_all(*weight_, *w_, s_.weight_width);
}

void NormOutput::store(const NormRow& row, const Value& token, const Value& valid,
                       const Ref& n) const {
  // The weights of a step are loaded a step ahead: after a store they could not be.
  std::vector<Ref> weights;
  const auto load_weight = [&](int64_t step) {
    if (!weight_ || w_ || step == row.tile().steps) return;
    weights.push_back(k_.local(s_.dtype, {kRowRun}, "w"));
    row.load_step(*weight_, step, weights.back(), s_.weight_width);
  };
  load_weight(0);
  const Value squares = row.sum([&](int64_t step, const Value& i) {
    auto value = f32(n(step, i));
    return std::pair(value, value);
  });
  auto r = k_.let("r", 1.0f / sqrt(squares / static_cast<float>(s_.hidden) + eps_));
  if (rstd_) k_.if_(valid && row.thread() == 0, [&] { (*rstd_)(token).unchecked() = r; });
  for (int64_t step = 0; step < row.tile().steps; ++step) {
    load_weight(step + 1);
    std::optional<Ref> w;
    if (weight_) w.emplace(w_ ? Ref((*w_)(step)) : weights[static_cast<size_t>(step)]);
    k_.vectorized(kRowRun, [&](Value i) {
      Value scale = s_.has_scale ? out_scale_ : Value();
      if (w) scale = s_.has_scale ? f32((*w)(i)) * out_scale_ : f32((*w)(i));
      auto normed = f32(n(step, i)) * r;
      n(step, i) = cast(s_.dtype, w || s_.has_scale ? normed * scale : normed);
    });
    if (scales_) {
      store_codes(row, token, valid, step, n(step));
      continue;
    }
    row.in_row(step, [&](const Value& column) {
      k_.if_(valid, [&] {
        row.store(n(step), (*out_)(token), column, store_width(s_.dtype));
        if (rounded_) row.store(n(step), (*rounded_)(token), column, kRowRun);
      });
    });
  }
  if (scales_) fill_word(row, token);
}

/// Casts the run of `step`, z [8] of the dtype of the row; 0 beyond the row.
void NormOutput::store_codes(const NormRow& row, const Value& token, const Value& valid,
                             int64_t step, const Ref& z) const {
  auto amax = k_.var(DType::f32, 0.0f, "amax");
  k_.unrolled(kRowRun, [&](Value i) { amax = max(amax, abs(f32(z(i)))); });
  amax = select(valid, amax, 0.0f);
  const int threads = static_cast<int>(s_.group / kRowRun);
  for (int distance = 1; distance < threads; distance *= 2) {
    const Value other = k_.shuffle_xor(amax, distance);
    amax = max(amax, other);
  }
  const ScaleFactor scale = scale_factor(k_, kE4m3, amax, s_.round_sf);
  auto inverse = k_.let("inverse", scale.inverse);
  row.in_row(step, [&](const Value& column) {
    k_.if_(valid, [&] {
      auto codes = k_.local(DType::e4m3, {kRowRun}, "codes");
      k_.vectorized(kRowRun, [&](Value i) { codes(i) = cast(DType::e4m3, f32(z(i)) * inverse); });
      row.store(codes, (*out_)(token), column, kRowRun);
      if (rounded_) row.store(z, (*rounded_)(token), column, kRowRun);
    });
    k_.if_(row.thread() % threads == 0, [&] {
      auto group = k_.let("group", column / i32(s_.group));
      scales_->store(token, group, scale);
      if (mega_) k_.if_(valid, [&] { store_mega(token, group, scale); });
    });
  });
}

void NormOutput::store_mega(const Value& token, const Value& group,
                            const ScaleFactor& scale) const {
  const Value block = *mega_block_;
  auto padded = (block + (kMegaTile - 1)) / kMegaTile * kMegaTile;
  auto i = k_.let("token_of_block", token % block);
  auto place =
      i64(token / block) * padded + i / kMegaTile * kMegaTile + i % 32 * 4 + i % kMegaTile / 32;
  (*mega_)(group / 4, place, group % 4) = cast(DType::u8, scale.exponent);
}

/// Stores the unused bytes of the last word of packed scales.
void NormOutput::fill_word(const NormRow& row, const Value& token) const {
  const int64_t groups = num_blocks(s_.hidden, s_.group),
                unused = num_blocks(groups, 4) * 4 - groups;
  if (s_.sf_layout != SfLayout::packed_ue8m0 || groups == 1 || unused == 0) return;
  k_.if_(row.thread() < unused, [&] {
    scales_->store(token, groups + row.thread(), {f32(0.0f), f32(0.0f), u32(0)});
  });
}

}  // namespace tessera::kernels::serving
