// Adds up the counts of all chunks, one warp per group. PDL launches it while the previous kernel
// runs.

#include "kernels/moe/parts/count_tensors.h"

namespace tessera::kernels::moe {
namespace {

using namespace dsl;

constexpr int kWarps = 8;             // groups per block
constexpr int64_t kPartsPerLane = 4;  // loaded at once

class CountTotal : CountTensors {
 public:
  explicit CountTotal(const CountSpec& s) : CountTensors(s) {}

  ir::Kernel build() {
    auto at = k_.launch({(s_.num_groups + kWarps - 1) / kWarps}, {.threads = kWarps * 32});
    k_.wait_for_previous_kernel();
    auto group = k_.let("group", at.x * kWarps + k_.warp());
    k_.if_(group < s_.num_groups, [&] {
      auto mine = k_.var(DType::i32, 0, "mine");
      constexpr int64_t kTogether = 32 * kPartsPerLane;
      k_.serial(0, ceil_div(chunks_, kTogether), [&](Value round) {
        k_.unrolled(kPartsPerLane, [&](Value i) {
          auto chunk = k_.let("chunk", round * kTogether + i * 32 + k_.lane());
          k_.if_(chunk < chunks_, [&] { mine += (*partials_)(group, chunk); });
        });
      });
      auto total = k_.let("total", k_.warp_sum(mine));
      k_.if_(k_.lane() == 0, [&] { store(group, total); });
    });
    return k_.finish();
  }
};

}  // namespace

ir::Kernel build_count_total(const CountSpec& s) {
  return CountTotal(s).build();
}

}  // namespace tessera::kernels::moe
