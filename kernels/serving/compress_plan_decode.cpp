// compress_plan_decode: plans one new token per request.
//
// Method   one thread per request reads its slots and its location from the tables. Few bytes: the
//          bound is the latency of two loads and one store.
// Maths    none

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_tables.h"
#include "kernels/serving/parts/compress_values.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

constexpr int kThreads = 128;

ir::Kernel build(const serving::CompressSpec& s) {
  using namespace dsl;
  Builder k("compress_plan_decode");
  auto batch = k.dim("batch");
  auto positions = k.input("positions", DType::i32, {batch}, {.align = 4});
  const serving::CompressTables tables(k, s, batch);
  auto plan = k.output("plan", DType::i32, {batch, 8}, {.align = 4});
  auto at = k.launch({ceil_div(batch, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto b = k.let("b", at.x * kThreads + k.thread());
  k.wait_for_previous_kernel();
  k.if_(b < batch, [&] {
    auto p = k.let("p", positions(b));
    k.report_unless(p >= -1, out_of_range("positions"));
    auto row = k.local(DType::i32, {8}, "row");
    k.unrolled(8, [&](Value i) { row(i) = i32(-1); });
    k.if_(p >= 0, [&] {
      auto window = k.let("window", p / s.ratio);
      auto emits = k.let("emits", p % s.ratio == s.ratio - 1);
      auto own = tables.slot(b, window * s.ratio);
      k.report_unless(own >= 0, tables.no_slot());
      k.if_(own >= 0, [&] {
        row(0) = b;
        row(1) = p;
        row(2) = i32(static_cast<int32_t>(serving::window_slots(s.ratio)));
        auto is_whole = k.var(DType::boolean, true, "is_whole");
        if (s.ratio == 4) {
          k.if_(window > 0, [&] {
            auto older = tables.slot(b, window * 4 - 4);
            k.report_unless(older >= 0 || !emits, tables.no_slot());
            row(3) = older;
            is_whole = older >= 0;
          });
        }
        row(4) = own;
        k.if_(emits && is_whole, [&] {
          k.report_unless(tables.has_location(window), serving::kNoLocation);
          row(5) = tables.location(b, window);
        });
        row(6) = b;
        row(7) = tables.page_size();
      });
    });
    k.unrolled(8, [&](Value i) { plan(b, i) = row(i); });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, serving::compress_spec(c, 0));
}

}  // namespace

const Op compress_plan_decode_op{
    .name = "compress_plan_decode",
    .family = "serving",
    .purpose = "slots and windows of one new token of each request, for the KV compressor",
    .signature = R"(
      positions     i32 [B]          # -1: padding
      state_slot?   i32 [B]          # the ring of each request
      state_pages?  i32 [B, S] rows  # or the rings of its pages
      page_table?   i32 [B, Q] rows  # of the compressed cache
      -> plan       i32 [B, 8]
      param  ratio {4, 128}
      param  ring int
      param  max_rollback int = 0
      param  state_page_size int = 0
      param  page_size int = 64
      need   1 <= page_size <= 2147483647
      need   S >= 1 if state_pages on state_pages "argument 'state_pages' has no columns"
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
    )",
    .launches = launches,
    .check = serving::require_rings,
    .check_values = serving::require_decode_slots,
    .examples = R"(
      B=65 ratio=4 ring=8 state_slot=given page_table=given Q=20
      B=33 ratio=128 ring=128 state_page_size=256 state_pages=given S=20)",
    .bench = R"(
      B=1 ratio=4 ring=8 state_slot=given page_table=given Q=2000; B=1024 ratio=4 ring=8 state_slot=given page_table=given Q=2000
      B=256 ratio=128 ring=128 state_page_size=256 state_pages=given S=512 page_table=given Q=16)",
    .values = {{"positions", [](const Case&, int64_t b) { return b * 37 % 5000 - 1; }},
               {"state_slot", [](const Case&, int64_t b) { return b; }},
               {"state_pages", [](const Case&, int64_t i) { return i; }},
               {"page_table", [](const Case&, int64_t i) { return i; }}}};

}  // namespace tessera::kernels
