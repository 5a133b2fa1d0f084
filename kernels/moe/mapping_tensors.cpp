#include "kernels/moe/mapping_tensors.h"

namespace tessera::kernels::moe {

using namespace dsl;

MappingTensors::MappingTensors(const char* name, const MappingSpec& spec) : s_(spec), k_(name) {
  if (s_.has_pairs) {
    pairs_ = k_.dim("pairs");
    topk_idx_ = k_.input("topk_idx", DType::i64, {pairs_}, {.align = 8});
    token_topk_to_pos_ = output("token_topk_to_pos", pairs_);
  }
  positions_ = i32(0);
  if (s_.has_positions) {
    positions_ = k_.dim("positions");
    pos_to_expert_ = output("pos_to_expert", positions_);
    pos_to_token_ = output("pos_to_token", positions_);
    pos_to_token_topk_ = output("pos_to_token_topk", positions_);
  }
  expert_start_ = output("expert_start", i32(s_.experts));
  expert_end_ = output("expert_end", i32(s_.experts));
  num_tokens_per_expert_ = output("num_tokens_per_expert", i32(s_.experts));
  alignment_ = k_.scalar("alignment", DType::i32);
}

Ref MappingTensors::output(const char* name, const Value& extent) {
  return k_.output(name, DType::i32, {extent}, {.align = 4});
}

Value MappingTensors::aligned(const Value& size) const {
  return (size + alignment_ - 1) / alignment_ * alignment_;
}

Value MappingTensors::expert_of(const Value& id) const {
  return select(id >= 0 && id < s_.experts, i32(id), -1);
}

void MappingTensors::pad(const Value& first, const Value& end, int64_t step) {
  pad(first, end, i32(step));
}

void MappingTensors::pad(const Value& first, const Value& end, const Value& step) {
  if (!s_.has_positions) return;
  auto count = k_.let("count", max(end - first + step - 1, 0) / step);
  k_.serial(0, count, [&](Value i) {
    auto position = k_.let("position", first + i * step);
    (*pos_to_expert_)(position) = i32(-1);
    (*pos_to_token_)(position) = i32(-1);
    (*pos_to_token_topk_)(position) = i32(-1);
  });
}

void MappingTensors::place(const Value& pair, const Value& expert, const Value& position,
                           const Value& fits) {
  (*token_topk_to_pos_)(pair).unchecked() = select(fits, position, -1);
  if (!s_.has_positions) return;
  k_.if_(fits, [&] {
    (*pos_to_expert_)(position).unchecked() = expert;
    (*pos_to_token_)(position).unchecked() = pair / s_.topk;
    (*pos_to_token_topk_)(position).unchecked() = pair;
  });
}

}  // namespace tessera::kernels::moe
