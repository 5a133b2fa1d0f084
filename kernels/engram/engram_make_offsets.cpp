// engram_make_offsets: the first row of each hashed embedding table, for engram_hash.
//
// Method   one block per layer scans the sizes in runs of 256 and carries the sum to the next run; a
//          model has 16 tables per layer. Few bytes: the bound is the latency of a load, a scan and
//          a store.
// Maths    exclusive prefix sum mod 2^32
// Tuned    few bytes; never measured.

#include "dsl/builder.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kThreads = 256;

struct Spec {
  int32_t unused = 0;  // one kernel for all calls
};

ir::Kernel build(const Spec&) {
  using namespace dsl;
  Builder k("engram_make_offsets");
  auto layers = k.dim("layers"), tables = k.dim("tables");
  auto sizes = k.input("vocab_sizes", DType::i32, {layers, tables}, {.align = 4});
  auto offsets = k.output("offsets", DType::i32, {layers, tables}, {.align = 4});
  auto at = k.launch({layers}, {.threads = kThreads});

  auto sums = k.shared(DType::u32, {kThreads}, "sums");
  auto before = k.var(DType::u32, 0, "before");  // sum of the earlier runs
  k.serial(0, ceil_div(tables, kThreads), [&](Value run) {
    auto table = k.let("table", run * kThreads + k.thread());
    auto size = k.let("size", u32(sizes(at.x, table)));  // 0 past the last table
    sums(k.thread()) = size;
    k.scan_sum(sums, sums, Axis(0));
    offsets(at.x, table) = i32(before + sums(k.thread()) - size);
    before += sums(kThreads - 1);
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  TensorView sizes = c.tensor("vocab_sizes");
  sizes.shape = {c["L"], (c["N"] - 1) * c["J"]};
  sizes.strides = row_major_strides(sizes.shape);
  go.add(build, Spec{}, {.tensors = {{"vocab_sizes", sizes}}});
}

}  // namespace

const Op engram_make_offsets_op{
    .name = "engram_make_offsets",
    .family = "engram",
    .purpose = "first rows of the hashed embedding tables, from their sizes",
    .signature = R"(
      vocab_sizes  i32 [L, N-1, J]
      -> offsets   i32 [L, (N-1)*J]
      limit        (N-1)*J <= 2130706431 on vocab_sizes "so many tables are not supported"
    )",
    .launches = launches,
    .examples = "L=2 N=3 J=8; L=3 N=12 J=41",
    .bench = "L=2 N=3 J=8; L=64 N=3 J=8; L=2 N=3 J=1024",
    .values = {{"vocab_sizes", [](const Case&, int64_t i) { return 100'003 + i * 9973; }}}};

}  // namespace tessera::kernels
