#include "kernels/mhc/parts/normed_input.h"

#include <algorithm>

#include "kernels/mhc/parts/mix_sequences.h"

namespace tessera::kernels::mhc {

using namespace dsl;
using serving::kRowRun;
using serving::NormRow;

namespace {

constexpr int64_t kBf16 = 2;  // bytes

}  // namespace

RowTile NormedInput::tile(int64_t hidden) {
  const serving::RowTile tile = serving::pick_row_tile(hidden, {.shares_blocks = true});
  return {tile.rows, hidden, 1, tile.block_threads()};
}

NormedInput::NormedInput(Builder& k, const MixSpec& s, const Value& tokens)
    : k_(k),
      streams_(s.streams),
      hidden_(s.hidden),
      width_(std::min<int64_t>(kRowRun, s.align / kBf16)),
      tokens_(tokens),
      out_(k, s.norm, tokens, "rms_eps") {}

void NormedInput::load(const Ref& residual, const Value& first_token) {
  row_.emplace(k_, hidden_, serving::pick_row_tile(hidden_, {.shares_blocks = true}));
  token_ = k_.let("token", first_token + row_->row());
  valid_ = k_.let("valid", token_ < tokens_);
  for (int64_t i = 0; i < streams_; ++i) {
    held_.push_back(row_->local(DType::bf16, "stream"));
    row_->clear(held_.back());
  }
  k_.if_(valid_, [&] {
    for (int64_t step = 0; step < row_->tile().steps; ++step) {
      row_->in_row(step, [&](const Value& column) {
        for (int64_t i = 0; i < streams_; ++i) {
          row_->load(residual(token_, i), column, held_[static_cast<size_t>(i)](step), width_);
        }
      });
    }
  });
  out_.load_weight(*row_);
}

void NormedInput::store(const Ref& mixes, const std::optional<Ref>& layer_input) {
  std::vector<Value> weights;
  for (int64_t i = 0; i < streams_; ++i) {
    weights.push_back(k_.let("weight", mixes(row_->row(), i)));
  }
  auto n = row_->local(DType::bf16, "n");
  for (int64_t step = 0; step < row_->tile().steps; ++step) {
    k_.unrolled(kRowRun, [&](Value i) {
      std::vector<Value> values;
      for (const Ref& stream : held_) values.push_back(f32(stream(step, i)));
      n(step, i) = cast(DType::bf16, apply_pre_mix(weights, values));
    });
    if (!layer_input) continue;
    row_->in_row(step, [&](const Value& column) {
      k_.if_(valid_, [&] { row_->store(n(step), (*layer_input)(token_), column, width_); });
    });
  }
  out_.store(*row_, token_, valid_, n);
}

}  // namespace tessera::kernels::mhc
