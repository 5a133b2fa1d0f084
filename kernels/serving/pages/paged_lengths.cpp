// paged_lengths: lengths of compressed caches and their blocks.
//
// Dtypes   i32
// Method   one thread per request; the bound is the latency of one load and one store.
// Maths    compressed = length / ratio, blocks = ceil(compressed / page_size)

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
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
  OpBuilder k(paged_lengths_op, {});
  auto batch = k.extent("B");
  auto lengths = k.tensor("lengths"), compressed = k.tensor("compressed");
  auto blocks = k.tensor("blocks");
  auto ratio = k.param("ratio"), page_size = k.param("page_size");
  auto at = k.launch({ceil_div(batch, s.threads)}, {.threads = s.threads});
  k.let_next_kernel_start();
  auto request = k.let("request", at.x * s.threads + k.thread());
  k.wait_for_previous_kernel();
  k.if_(request < batch, [&] {
    auto length = k.let("length", lengths(request).unchecked());
    k.report_unless(length >= 0, out_of_range("lengths"));
    auto entries = k.let("entries", max(length, 0) / ratio);
    compressed(request) = entries;
    blocks(request) = entries / page_size + select(entries % page_size > 0, 1, 0);
  });
  return k.finish();
}

void launches(const Call&, Launches& go) {
  go.add(build, Spec{.threads = 128});
}

}  // namespace

const Op paged_lengths_op{
    .name = "paged_lengths",
    .family = "serving",
    .purpose = "lengths of compressed caches and the pages that they fill",
    .signature = R"(
      lengths        i32 [B]               values 0 .. 2147483647
      -> compressed  i32 [B]
      -> blocks      i32 [B]
      param  ratio int
      param  page_size int
      need   1 <= ratio <= 2147483647
      need   1 <= page_size <= 2147483647
      limit  B <= 2130706431
    )",
    .launches = launches,
    .examples = "B=300 ratio=4 page_size=64; B=7 ratio=128 page_size=1",
    .bench = "B=1 ratio=4 page_size=64; B=256 ratio=4 page_size=64; B=4096 ratio=128 page_size=64",
    .values = {{"lengths", [](const Case&, int64_t i) { return i * 7919 % 100000; }}}};

}  // namespace tessera::kernels
