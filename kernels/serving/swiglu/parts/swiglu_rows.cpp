#include "kernels/serving/swiglu/parts/swiglu_rows.h"

namespace tessera::kernels::serving {

using namespace dsl;

SwigluRows::SwigluRows(Builder& k, const SwigluForm& form, const Value& positions)
    : k_(k), positions_(positions) {
  if (form.has_experts) experts_.emplace(k);
  if (form.has_weights) weights_ = k.input("topk_weights", DType::f32, {positions}, {.align = 4});
  if (form.has_factor) factor_ = k.scalar("routed_scaling_factor", DType::f32);
  if (form.has_clamp) clamp_ = k.scalar("clamp_value", DType::f32);
}

void SwigluRows::launch(int64_t threads, int64_t at_once) {
  threads_ = threads;
  rows_per_block_ = k_.scalar("rows_per_block", DType::i32);
  auto at = k_.launch({(positions_ + rows_per_block_ - 1) / rows_per_block_},
                      {.threads = static_cast<int>(threads),
                       .min_blocks_per_sm = static_cast<int>(at_once / threads)});
  k_.let_next_kernel_start();
  block_ = at.x;
}

void SwigluRows::start() {
  const int64_t warps = threads_ / 32;
  first_ = k_.let("first", block_ * rows_per_block_);
  rows_ = k_.let("rows", min(rows_per_block_, positions_ - first_));
  k_.wait_for_previous_kernel();
  if (!experts_) return;
  owned_ =
      k_.shared(DType::boolean, {warps}, "owned_rows");  // warp w finds out about row first + w
  k_.if_(k_.warp() < rows_, [&] {
    const Value is_owned = experts_->owned(first_ + k_.warp());
    k_.if_(k_.lane() == 0, [&] { (*owned_)(k_.warp()) = is_owned; });
  });
  k_.if_(block_ == 0, [&] { experts_->report(positions_, static_cast<int>(threads_)); });
}

void SwigluRows::each(const std::function<void(const Value& position, const Value& valid)>& body) {
  k_.serial(0, rows_, [&](Value row) {
    auto position = k_.let("position", first_ + row);
    auto valid = k_.let("valid", owned_ ? Value((*owned_)(row)) : k_.lane() >= 0);
    body(position, valid);
  });
}

Value SwigluRows::weight(const Value& position) const {
  const Value given = (*weights_)(position).unchecked();
  return scaled(given);
}

}  // namespace tessera::kernels::serving
