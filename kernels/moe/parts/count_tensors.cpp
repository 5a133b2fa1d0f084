#include "kernels/moe/parts/count_tensors.h"

#include <string>
#include <vector>

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

std::string kernel_name(const CountSpec& s) {
  const std::string op = s.is_fraction ? "aux_fi" : "group_count";
  if (s.phase == CountPhase::chunk) return op + "_chunks";
  return s.phase == CountPhase::total ? op + "_total" : op;
}

}  // namespace

CountTensors::CountTensors(const CountSpec& s) : s_(s), k_(kernel_name(s)) {
  const bool is_total = s.phase == CountPhase::total;
  if (s.has_ids && !is_total) {
    slots_ = k_.dim("slots", {.multiple_of = s.vector});
    ids_ = k_.input("ids", DType::i64, {slots_}, {.align = s.vector * int64_t{8}});
  }
  if (s.phase == CountPhase::chunk || is_total) {
    chunks_ = k_.dim("chunks");
    const std::vector<Arg> shape = {s.num_groups, chunks_};
    partials_ = is_total ? k_.input("partials", DType::i32, shape, {.align = 4})
                         : k_.output("partials", DType::i32, shape, {.align = 4});
  }
  if (s.phase != CountPhase::chunk) {
    out_ = k_.output("out", s.is_fraction ? DType::f32 : DType::i32, {s.num_groups}, {.align = 4});
    if (s.is_fraction && s.has_ids) expected_ = k_.scalar("expected", DType::f32);
  }
}

void CountTensors::store(const Value& group, const Value& count) const {
  if (!s_.is_fraction) {
    (*out_)(group) = count;
  } else if (!s_.has_ids) {
    (*out_)(group) = 0.0f;
  } else {
    (*out_)(group) = f32(i64(count) * i64(s_.num_groups)) / expected_;
  }
}

}  // namespace tessera::kernels::moe
