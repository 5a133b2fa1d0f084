#include "kernels/moe/parts/mapping_tensors.h"

#include "kernels/moe/parts/mapping_values.h"

namespace tessera::kernels::moe {

using namespace dsl;

MappingTensors::MappingTensors(const char* name, const MappingSpec& spec) : s_(spec), k_(name) {
  if (s_.has_pairs) declare_pairs();
  positions_ = i32(0);
  if (s_.has_positions) declare_positions();
  if (!s_.is_plan) expert_start_ = output("expert_start", i32(s_.experts));
  expert_end_ = output(s_.is_plan ? "psum" : "expert_end", i32(s_.experts));
  num_tokens_per_expert_ = output(s_.is_plan ? "counts" : "num_tokens_per_expert", i32(s_.experts));
  alignment_ = k_.scalar("alignment", DType::i32);
}

void MappingTensors::declare_pairs() {
  pairs_ = k_.dim("pairs");
  const DType ids = s_.has_narrow_ids ? DType::i32 : DType::i64;
  topk_idx_ = k_.input("topk_idx", ids, {pairs_}, {.align = bytes(ids)});
  if (s_.has_num_tokens) num_tokens_ = k_.input("num_tokens", DType::i32, {1}, {.align = 4});
  if (s_.has_weights && s_.has_positions) {
    weights_ = k_.input("topk_weights", DType::f32, {pairs_}, {.align = 4});
  }
  token_topk_to_pos_ = output(s_.is_plan ? "pair_to_pos" : "token_topk_to_pos", pairs_);
}

void MappingTensors::declare_positions() {
  positions_ = k_.dim("positions");
  if (!s_.is_plan || s_.saves_ids) {
    pos_to_expert_ = output(s_.is_plan ? "m_indices" : "pos_to_expert", positions_);
  }
  if (!s_.is_plan) pos_to_token_ = output("pos_to_token", positions_);
  pos_to_token_topk_ = output(s_.is_plan ? "pos_to_pair" : "pos_to_token_topk", positions_);
  if (s_.has_weights) {
    row_weights_ = k_.output("row_weights", DType::f32, {positions_}, {.align = 4});
  }
}

Ref MappingTensors::output(const char* name, const Value& extent) {
  return k_.output(name, DType::i32, {extent}, {.align = 4});
}

Value MappingTensors::aligned(const Value& size) const {
  return (size + alignment_ - 1) / alignment_ * alignment_;
}

Value MappingTensors::start_of(const Value& expert) const {
  if (!s_.is_plan) return (*expert_start_)(expert);
  return (*expert_end_)(expert) - (*num_tokens_per_expert_)(expert);
}

void MappingTensors::write_range(const Value& expert, const Value& end, const Value& padded,
                                 const Value& size) {
  if (!s_.is_plan) (*expert_start_)(expert) = end - padded;
  (*expert_end_)(expert) = s_.is_plan ? end - padded + size : end;
  k_.report_unless(end <= positions_, s_.is_plan ? kTooFewRows : kTooFewPositions);
  (*num_tokens_per_expert_)(expert) = s_.is_plan ? size : padded;
}

void MappingTensors::make_table(int warps) {
  warps_ = warps;
  table_ = k_.shared(DType::i32, {warps, s_.experts}, "table");
}

void MappingTensors::load_pairs(const Value& begin, const Value& end, const Value& rounds,
                                int64_t most) {
  most_ = most;
  rounds_ = rounds;
  end_ = end;
  first_ = k_.let("first", begin + k_.warp() * (rounds * 32) + k_.lane());
  ids_ = k_.local(DType::i64, {most}, "ids");
  auto counting = pairs_that_count(end_);
  k_.unrolled(most, [&](Value i) {
    auto pair = k_.let("pair", first_ + i * 32);
    (*ids_)(i) = i64(-1);
    k_.if_(i < rounds_ && pair < counting,
           [&] { (*ids_)(i) = i64((*topk_idx_)(pair).unchecked()); });
  });
}

Value MappingTensors::pairs_that_count(const Value& end) {
  if (!num_tokens_) return end;
  auto tokens = k_.let("tokens", min(max((*num_tokens_)(0), 0), pairs_ / s_.topk));
  return k_.let("counting", min(end, tokens * s_.topk));
}

Ref MappingTensors::lane_prefix_sum(const Value& value) {
  auto sum = k_.var(DType::i32, value, "sum");
  for (int delta = 1; delta < 32; delta *= 2) {
    auto lower = k_.let("lower", k_.shuffle_up(sum, delta));
    sum += select(k_.lane() >= delta, lower, 0);
  }
  return sum;
}

void MappingTensors::each_pair(const std::function<void(Value, Value)>& body) {
  k_.unrolled(most_, [&](Value i) {
    k_.if_(i < rounds_, [&] { body(i, k_.let("pair", first_ + i * 32)); });
  });
}

Value MappingTensors::expert_of(const Value& i) {
  const Value id = (*ids_)(i);
  k_.report_unless(id >= -1 && id < s_.experts, out_of_range("topk_idx"));
  return k_.let("expert", select(id >= 0 && id < s_.experts, i32(id), -1));
}

// numbered(i) = the expert of pair i + 1024 * the number of earlier pairs of that expert in the
// warp.
void MappingTensors::number_pairs() {
  numbered_ = k_.local(DType::i32, {most_}, "numbered");
  auto lower_lanes = k_.let("lower_lanes", (u32(1) << u32(k_.lane())) - 1);
  k_.manual_sync([&] {  // a warp reads and writes its own row of the table
    k_.unrolled((s_.experts + 31) / 32, [&](Value i) {
      auto column = k_.let("column", i * 32 + k_.lane());
      k_.if_(column < s_.experts, [&] { (*table_)(k_.warp(), column) = i32(0); });
    });
    k_.sync_warp();
    each_pair([&](const Value& i, const Value&) {
      auto expert = expert_of(i);
      auto same = k_.let("same", k_.match_any(expert));
      auto before = k_.let("before", i32(popcount(same & lower_lanes)));
      auto column = k_.let("column", max(expert, 0));
      auto seen = k_.let("seen", (*table_)(k_.warp(), column));
      k_.sync_warp();
      k_.if_(expert >= 0 && before == 0,
             [&] { (*table_)(k_.warp(), column) = seen + i32(popcount(same)); });
      k_.sync_warp();
      (*numbered_)(i) = select(expert >= 0, (seen + before) * 1024 + expert, -1);
    });
  });
}

void MappingTensors::sum_over_warps(const Value& expert, Ref& size) {
  auto counts = k_.local(DType::i32, {warps_}, "counts");
  k_.unrolled(warps_, [&](Value warp) { counts(warp) = (*table_)(warp, expert); });
  k_.unrolled(warps_, [&](Value warp) {
    (*table_)(warp, expert) = size;
    size += counts(warp);
  });
}

void MappingTensors::place_pairs(const Ref& starts) {
  each_pair([&](const Value& i, const Value& pair) {
    auto number = k_.let("number", (*numbered_)(i));
    auto expert = k_.let("expert", select(number >= 0, number & 1023, 0));
    auto position =
        k_.let("position", starts(expert) + (*table_)(k_.warp(), expert) + (number >> 10));
    k_.if_(pair < end_, [&] {
      place(pair, expert, position, k_.let("fits", number >= 0 && position < positions_));
    });
  });
}

void MappingTensors::pad(const Value& first, const Value& end, int64_t step) {
  pad(first, end, i32(step));
}

void MappingTensors::pad(const Value& first, const Value& end, const Value& step) {
  if (!s_.has_positions) return;
  auto count = k_.let("count", max(end - first + step - 1, 0) / step);
  k_.serial(0, count, [&](Value i) { pad_position(k_.let("position", first + i * step)); });
}

void MappingTensors::pad_position(const Value& position) {
  if (pos_to_expert_) (*pos_to_expert_)(position) = i32(-1);
  if (pos_to_token_) (*pos_to_token_)(position) = i32(-1);
  (*pos_to_token_topk_)(position) = i32(-1);
  if (row_weights_) (*row_weights_)(position) = 0.0f;
}

void MappingTensors::place(const Value& pair, const Value& expert, const Value& position,
                           const Value& fits) {
  (*token_topk_to_pos_)(pair).unchecked() = select(fits, position, -1);
  if (!s_.has_positions) return;
  k_.if_(fits, [&] {
    if (pos_to_expert_) (*pos_to_expert_)(position).unchecked() = expert;
    if (pos_to_token_) (*pos_to_token_)(position).unchecked() = pair / s_.topk;
    (*pos_to_token_topk_)(position).unchecked() = pair;
    if (row_weights_) (*row_weights_)(position).unchecked() = (*weights_)(pair).unchecked();
  });
}

}  // namespace tessera::kernels::moe
