#include "kernels/moe/parts/mapping_tensors.h"

#include "kernels/moe/parts/mapping_values.h"

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
  k_.unrolled(most, [&](Value i) {
    auto pair = k_.let("pair", first_ + i * 32);
    (*ids_)(i) = i64(-1);
    k_.if_(i < rounds_ && pair < end_, [&] { (*ids_)(i) = (*topk_idx_)(pair).unchecked(); });
  });
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
