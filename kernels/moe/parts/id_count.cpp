#include "kernels/moe/parts/id_count.h"

#include <numeric>

#include "kernels/moe/parts/count_kernels.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels::moe {
namespace {

int64_t num_chunks(int64_t slots) {
  return (slots + kIdsPerChunk - 1) / kIdsPerChunk;
}

}  // namespace

void count_ids(const Call& c, Launches& go, const char* ids) {
  const int64_t slots = c.given(ids).size(), groups = c["groups"];
  const bool is_fraction = c.dtype("out") == DType::f32;
  Args args{.tensors = {{"ids", reshaped(c.given(ids), {slots})}}};
  if (slots > kMaxBlockIds) {
    args.tensors.push_back(
        {"partials", reshaped(c.given("workspace"), {groups, num_chunks(slots)})});
  }
  if (is_fraction) {
    args.scalars.push_back(
        {"expected", double{static_cast<float>(c["T"] * int64_t{c.i32("num_aux_topk")})}});
  }
  const auto spec = [&](CountPhase phase) {
    return CountSpec{c.i32("groups"), phase, slots > 0, is_fraction,
                     static_cast<uint8_t>(std::gcd(c.i32("K"), c.align({ids}) / 8))};
  };
  if (slots <= kMaxBlockIds) return go.add(build_count, spec(CountPhase::block), args);
  go.add(build_count, spec(CountPhase::chunk), args);
  go.add(build_count_total, spec(CountPhase::total), args);
}

int64_t count_elements(const Call& c) {
  const int64_t slots = c["T"] * c["K"];
  return slots <= kMaxBlockIds ? 0 : c["groups"] * num_chunks(slots);
}

int64_t spread_id(int64_t slot, int64_t num_groups) {
  return slot % 8 == 7 ? int64_t{-1} : slot * 7919 / 3 % num_groups;
}

}  // namespace tessera::kernels::moe
