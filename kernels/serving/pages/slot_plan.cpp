// slot_plan: the slots of new tokens in the window pool and in the pools of compressed entries.
//
// Dtypes   i32
// Method   one thread per request; the bound is the latency of two dependent loads and the stores.
// Maths    window: slot of entry p. Ratio m: slot of entry p / m where p is the last position of its
//          window, p % m = m - 1; -1 elsewhere. A padding token has none.

#include <string>
#include <vector>

#include "kernels/registry/all_ops.h"
#include "kernels/serving/pages/parts/page_place.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t has_c4, has_c128;
};

constexpr int kThreads = 128;

/// A pool of entries that stand for `ratio` tokens each.
struct Pool {
  int64_t ratio;
  const char *pages, *slot, *page_size;
  const char* columns;  // the extent
};

constexpr Pool kWindow = {1, "window_pages", "window_slot", "window_page_size", "Q0"};
constexpr Pool kC4 = {4, "c4_pages", "c4_slot", "c4_page_size", "Q1"};
constexpr Pool kC128 = {128, "c128_pages", "c128_slot", "c128_page_size", "Q2"};

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(slot_plan_op, {});
  auto batch = k.extent("B");
  auto positions = k.tensor("positions");
  struct Declared {
    Pool pool;
    serving::PageTable table;
    Ref slot;
  };
  std::vector<Declared> pools;
  const auto declare = [&](const Pool& pool) {
    const Value columns = k.extent(pool.columns);
    const Ref pages = k.tensor(pool.pages), slot = k.tensor(pool.slot);
    const Value page_size = k.scalar(pool.page_size, DType::i32);
    pools.push_back({pool, {pool.pages, pages, columns, page_size}, slot});
  };
  declare(kWindow);
  if (s.has_c4 != 0) declare(kC4);
  if (s.has_c128 != 0) declare(kC128);
  auto at = k.launch({ceil_div(batch, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto request = k.let("request", at.x * kThreads + k.thread());
  k.wait_for_previous_kernel();
  k.if_(request < batch, [&] {
    auto position = k.let("position", positions(request).unchecked());
    k.report_unless(position >= -1, out_of_range("positions"));
    for (const Declared& one : pools) {
      const auto ratio = static_cast<int32_t>(one.pool.ratio);
      auto slot = k.var(DType::i32, -1, "slot_in_pool");
      k.if_(position >= 0 && position % ratio == ratio - 1,
            [&] { slot = serving::slot_of(k, one.table, "positions", request, position / ratio); });
      one.slot(request) = slot;
    }
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.has("c4_pages") ? 1 : 0, c.has("c128_pages") ? 1 : 0});
}

void require_slots(const Call& c) {
  const TensorView& positions = c.given("positions");
  if (!values_are_checked(positions)) return;
  require_values(c.check(), "positions", positions, -1, INT32_MAX);
  for (const Pool& pool : {kWindow, kC4, kC128}) {
    if (!c.has(pool.pages)) continue;
    for (int64_t b = 0; b < positions.size(); ++b) {
      const int64_t position = integer_at(positions, b);
      if (position < 0 || position % pool.ratio != pool.ratio - 1) continue;
      serving::require_page(c, pool.pages, c[pool.page_size],
                            {"positions", position, Dims{b}, b, pool.ratio});
    }
  }
}

void check(const Call& c) {
  for (const Pool& pool : {kWindow, kC4, kC128}) {
    if (!c.has(pool.pages)) continue;
    const int64_t size = c[pool.page_size];
    c.need(size >= 1 && size <= 1073741824, pool.page_size,
           std::string("parameter '") + pool.page_size + "' is out of range", "1 .. 1073741824",
           std::to_string(size));
    c.need(c[pool.columns] >= 1, pool.pages,
           std::string("argument '") + pool.pages + "' has no columns", "at least one column",
           to_string(c.given(pool.pages)));
  }
}

}  // namespace

const Op slot_plan_op{
    .name = "slot_plan",
    .family = "serving",
    .purpose = "the slots of new tokens in the window pool and the pools of compressed entries",
    .signature = R"(
      positions        i32 [B]             # -1: padding
      window_pages     i32 [B, Q0] rows    # negative: no page
      c4_pages?        i32 [B, Q1] rows
      c128_pages?      i32 [B, Q2] rows
      -> window_slot   i32 [B]
      -> c4_slot?      i32 [B]             iff c4_pages
      -> c128_slot?    i32 [B]             iff c128_pages
      param  window_page_size int
      param  c4_page_size int = 64
      param  c128_page_size int = 64
      limit  B <= 2130706431
    )",
    .launches = launches,
    .check = check,
    .check_values = require_slots,
    .examples = R"(
      B=300 Q0=9 Q1=9 Q2=2 window_page_size=128 c4_pages=given c128_pages=given c4_page_size=32 c128_page_size=4
      B=5 Q0=3 window_page_size=500; B=9 Q0=30 Q1=9 window_page_size=37 c4_pages=given window_pages.strides=40,1)",
    .bench = R"(
      B=1 Q0=4096 Q1=1024 Q2=64 window_page_size=64 c4_pages=given c128_pages=given
      B=256 Q0=4096 Q1=1024 Q2=64 window_page_size=64 c4_pages=given c128_pages=given)",
    .values = {{"positions", [](const Case&, int64_t b) { return b * 4 % 1100 - 1; }},
               {"window_pages", [](const Case&, int64_t i) { return i * 104729 % 1000 - 1; }},
               {"c4_pages", [](const Case&, int64_t i) { return i * 7919 % 1000; }},
               {"c128_pages", [](const Case&, int64_t i) { return i * 31 % 1000; }}}};

}  // namespace tessera::kernels
