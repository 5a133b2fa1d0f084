// gather_pages: the slots of logical entries by a page table.
//
// Dtypes   i32
// Method   one thread per index. A few bytes per index: the bound is the latency of two dependent loads.
// Maths    page_table[row, index / page_size] * page_size + index % page_size

#include "kernels/registry/all_ops.h"
#include "kernels/serving/pages/parts/page_place.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t threads;
};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(gather_pages_op, {});
  auto rows = k.extent("R"), per_row = k.extent("k"), columns = k.extent("Q");
  auto indices = k.tensor("indices"), page_table = k.tensor("page_table"), out = k.tensor("out");
  auto page_size = k.param("page_size");
  auto at = k.launch({ceil_div(rows * per_row, s.threads)}, {.threads = s.threads});
  k.let_next_kernel_start();
  auto item = k.let("item", at.x * s.threads + k.thread());
  auto row = k.let("row", item / per_row), place = k.let("place", item % per_row);
  k.wait_for_previous_kernel();
  k.if_(item < rows * per_row, [&] {
    auto index = k.let("index", indices(row, place).unchecked());
    auto slot = k.var(DType::i32, -1, "found");
    k.if_(index >= 0, [&] {
      slot = serving::slot_of(k, {"page_table", page_table, columns, page_size}, "indices", row,
                              index);
    });
    out(row, place).unchecked() = slot;
  });
  return k.finish();
}

void launches(const Call&, Launches& go) {
  go.add(build, Spec{.threads = 256});
}

void require_pages(const Call& c) {
  const TensorView& indices = c.given("indices");
  if (!values_are_checked(indices)) return;
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = integer_at(indices, i);
    if (index < 0) continue;
    serving::require_page(c, "page_table", c["page_size"],
                          {"indices", index, Dims{i / c["k"], i % c["k"]}, i / c["k"], 1});
  }
}

}  // namespace

const Op gather_pages_op{
    .name = "gather_pages",
    .family = "serving",
    .purpose = "the slots of logical entries by a page table",
    .signature = R"(
      indices     i32 [R, k] rows          # negative: none
      page_table  i32 [R, Q] rows          # negative: no page
      -> out      i32 [R, k]
      param  page_size int
      need   1 <= page_size <= 1073741824
      need   Q >= 1 on page_table "argument 'page_table' has no columns"
      limit  R * k <= 2130706431 "so many indices are not supported"
    )",
    .launches = launches,
    .check_values = require_pages,
    .examples = R"(
      R=9 k=40 Q=8 page_size=64; R=3 k=5 Q=2 page_size=7 indices.strides=8,1 page_table.strides=3,1)",
    .bench = R"(
      R=1 k=512 Q=4096 page_size=64; R=64 k=512 Q=4096 page_size=64; R=256 k=2048 Q=4096 page_size=64)",
    .values = {
        {"indices", [](const Case& c, int64_t i) { return i * 7919 % (c["Q"] * c["page_size"]); }},
        {"page_table", [](const Case&, int64_t i) { return i * 104729 % 1000 - 1; }}}};

}  // namespace tessera::kernels
