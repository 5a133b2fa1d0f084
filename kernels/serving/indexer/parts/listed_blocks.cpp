// A list that ascends, with -1 behind, is copied: candidate_blocks writes such lists. Others are sorted in shared memory,
// where equal ids become neighbours.

#include "kernels/serving/indexer/parts/listed_blocks.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "kernels/serving/parts/value_sort.h"

namespace tessera::kernels::serving {

using namespace dsl;

ir::Kernel build_listed(const ListedSpec& s) {
  constexpr int kThreads = 256;
  const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint32_t>(s.blocks)));
  Builder k("listed_blocks");
  auto rows = k.dim("rows");
  auto blocks = k.input("blocks", DType::i32, {rows, s.blocks},
                        {.strides = {k.stride("blocks_stride"), 1}, .align = 4});
  auto listed = k.output("listed", DType::i32, {rows, s.blocks}, {.align = 4});
  auto at = k.launch({rows}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto list = k.shared(DType::u64, {size}, "list");
  auto is_unordered = k.shared(DType::i32, {1}, "is_unordered");
  k.if_(k.thread() == 0, [&] { is_unordered(0) = 0; });
  k.wait_for_previous_kernel();
  // -1 as u32 is the largest id.
  k.parallel({size}, [&](Value i) {
    auto id = k.var(DType::i32, -1, "id");
    k.if_(i < s.blocks, [&] { id = max(blocks(at.x, min(i, s.blocks - 1)), -1); });
    list(i) = cast(DType::u64, reinterpret(DType::u32, Value(id)));
  });
  const auto is_none = [](const Value& id) { return id == cast(DType::u64, 0xFFFFFFFFLL); };
  k.parallel({size}, [&](Value i) {
    Value before = list(max(i - 1, 0)), here = list(i);
    k.if_(i > 0 && before >= here && !is_none(here), [&] { k.atomic_max(is_unordered(0), 1); });
  });
  k.if_(k.uniform(is_unordered(0)) == 1, [&] { sort_ascending(k, list, size); });
  k.parallel({size}, [&](Value i) {
    Value before = list(max(i - 1, 0)), here = list(i);
    auto is_again = k.let("is_again", i > 0 && before == here && !is_none(here));
    k.report_unless(!is_again, "argument 'blocks' names a block twice");
    k.if_(i < s.blocks, [&] {
      listed(at.x, i) = select(is_again, -1, reinterpret(DType::i32, cast(DType::u32, here)));
    });
  });
  return k.finish();
}

namespace {

ir::Kernel filled(const PadSpec& s, const char* tensor, DType dtype, const Arg& value) {
  constexpr int kThreads = 128;
  Builder k(std::string("no_") + tensor);
  auto rows = k.dim("rows");
  auto out = k.output(tensor, dtype, {rows, s.columns}, {.align = 4});
  auto at = k.launch({rows}, {.threads = kThreads});
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  k.serial(
      k.thread(), i32(s.columns), [&](Value place) { out(at.x, place) = value; }, kThreads);
  return k.finish();
}

}  // namespace

ir::Kernel build_no_indices(const PadSpec& s) {
  return filled(s, "indices", DType::i32, -1);
}

ir::Kernel build_no_values(const PadSpec& s) {
  return filled(s, "values", DType::f32, -std::numeric_limits<float>::infinity());
}

}  // namespace tessera::kernels::serving
