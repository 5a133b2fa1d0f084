// compress_plan: plans the windows and writes of a batch's new tokens.
//
// Method   the begin and end of a request determine its number of windows and writes; every block scans
//          these counts over the requests in shared memory. Then one thread per row finds its request by
//          binary search. Few bytes: the bound is the latency of a load, a scan, the search and two
//          loads of pages.
// Maths    none

#include <bit>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/parts/compress_tables.h"
#include "kernels/serving/parts/compress_values.h"
#include "kernels/signature/case.h"

namespace tessera::kernels {
namespace {

using namespace dsl;
using serving::CompressSpec;

constexpr int kThreads = 512;

struct PlanSpec {
  CompressSpec tables;
  int32_t has_windows, has_writes;  // rows of the two plans
};

class Plan {
 public:
  explicit Plan(const PlanSpec& spec)
      : s_(spec.tables),
        slots_(serving::window_slots(s_.ratio)),
        k_("compress_plan"),
        batch_(k_.dim("batch")),
        num_windows_(spec.has_windows ? k_.dim("num_windows") : i32(0)),
        num_writes_(spec.has_writes ? k_.dim("num_writes") : i32(0)),
        start_(k_.input("start", DType::i32, {batch_}, {.align = 4})),
        row_start_(k_.input("row_start", DType::i32, {k_.dim("row_ends")}, {.align = 4})),
        tables_(k_, s_, batch_),
        counts_(k_.output("counts", DType::i32, {2}, {.align = 4})),
        rollback_(k_.scalar("max_rollback", DType::i32)) {
    if (spec.has_windows) plan_ = k_.output("plan", DType::i32, {num_windows_, 8}, {.align = 4});
    if (spec.has_writes) {
      write_plan_ = k_.output("write_plan", DType::i32, {num_writes_, 2}, {.align = 4});
    }
  }

  ir::Kernel build() {
    // Rows of writes begin in a new block. One block counts if there are no rows at all.
    auto blocks = ceil_div(num_windows_, kThreads);
    const bool has_rows = plan_ || write_plan_;
    auto at = k_.launch({has_rows ? blocks + ceil_div(num_writes_, kThreads) : i32(1)},
                        {.threads = kThreads});
    windows_through_ = k_.shared(DType::i32, {s_.capacity}, "windows_through");
    writes_through_ = k_.shared(DType::i32, {s_.capacity}, "writes_through");
    k_.let_next_kernel_start();
    auto is_window = k_.let("is_window", at.x < blocks);
    k_.wait_for_previous_kernel();
    count_requests(at.x == 0);
    auto windows = k_.let("windows", (*windows_through_)(s_.capacity - 1));
    auto writes = k_.let("writes", (*writes_through_)(s_.capacity - 1));
    k_.if_(at.x == 0 && k_.thread() == 0, [&] {
      k_.report_unless(windows <= num_windows_, "parameter 'num_windows' is too small");
      k_.report_unless(writes <= num_writes_, "parameter 'num_writes' is too small");
      counts_(0) = windows;
      counts_(1) = writes;
    });
    auto first = k_.let("first", select(is_window, 0, blocks));
    auto row = k_.let("row_of_plan", (at.x - first) * kThreads + k_.thread());
    if (plan_) k_.if_(is_window && row < num_windows_, [&] { write_window(row, windows); });
    if (write_plan_) k_.if_(!is_window && row < num_writes_, [&] { write_store(row, writes); });
    return k_.finish();
  }

 private:
  struct Request {
    Value start, end, first_row;  // of its new tokens; empty if out of range
    Value begins, ascends;        // false: its start, or its rows, are out of range
    Value kept, first_kept;       // new tokens that are stored in any case
    Value tails_before, tails;    // page tails: below start; of new tokens that are not kept
  };

  Value tails_below(const Value& end) {
    auto page = tables_.state_page_size();
    return end / page * 4 + max(end % page - (page - 4), 0);
  }

  Request request(const Value& b) {
    Request r;
    auto first = k_.let("first_row", row_start_(b).unchecked());
    auto last = k_.let("last_row", row_start_(b + 1).unchecked());
    auto given = k_.let("given_start", start_(b).unchecked());
    r.ascends = k_.let("ascends", first >= 0 && last >= first);
    r.begins = k_.let("begins", given >= 0 && i64(given) + i64(last) - i64(first) <= INT32_MAX);
    auto known = k_.let("known", r.ascends && r.begins);
    r.first_row = first;
    r.start = k_.let("start", select(known, given, 0));
    r.end = k_.let("end", select(known, given + (last - first), 0));
    auto settled = max(r.end - rollback_, 0) / s_.ratio * s_.ratio;
    r.kept = k_.let("kept", max(settled - (s_.ratio == 4 ? 4 : 0), 0));
    r.first_kept = k_.let("first_kept", min(max(r.kept, r.start), r.end));
    r.tails_before = r.tails = i32(0);
    if (s_.ratio == 4 && s_.has_pages != 0) {
      r.tails_before = k_.let("tails_before", tails_below(r.start));
      r.tails = k_.let("tails", tails_below(r.first_kept) - r.tails_before);
    }
    return r;
  }

  void count_requests(const Value& reports) {
    k_.parallel({s_.capacity}, [&](Value b) {
      auto windows = k_.var(DType::i32, 0, "windows"), writes = k_.var(DType::i32, 0, "writes");
      k_.if_(b < batch_, [&] {
        const Request r = request(b);
        k_.report_unless(!reports || r.begins, out_of_range("start"));
        k_.report_unless(!reports || (r.ascends && (b > 0 || r.first_row == 0)),
                         out_of_range("row_start"));
        windows = r.end / s_.ratio - r.start / s_.ratio;
        writes = r.tails + r.end - r.first_kept;
      });
      (*windows_through_)(b) = windows;
      (*writes_through_)(b) = writes;
    });
    k_.scan_sum(*windows_through_, *windows_through_, Axis(0));
    k_.scan_sum(*writes_through_, *writes_through_, Axis(0));
  }

  /// The first request that ends after `row`.
  Value request_of(const Ref& through, const Value& row) {
    auto low = k_.var(DType::i32, 0, "low");
    for (int step = s_.capacity / 2; step > 0; step /= 2) {
      low = low + select(through(low + (step - 1)) <= row, step, 0);
    }
    return k_.let("b", low);
  }

  Value before(const Ref& through, const Value& b) {
    return select(b > 0, through(max(b - 1, 0)), 0);
  }

  void write_window(const Value& index, const Value& windows) {
    auto row = k_.local(DType::i32, {8}, "fields");
    k_.unrolled(8, [&](Value i) { row(i) = i32(-1); });
    k_.if_(index < windows, [&] {
      auto b = request_of(*windows_through_, index);
      const Request r = request(b);
      auto nth = index - before(*windows_through_, b);
      auto window = k_.let("window", r.start / s_.ratio + nth);
      auto last = k_.let("last", window * s_.ratio + (s_.ratio - 1));
      auto taken = i32(static_cast<int32_t>(slots_ - 1)) - (last - r.start);
      auto from_state = k_.let("from_state", min(max(taken, 0), i32(static_cast<int32_t>(slots_))));
      auto own = k_.let("own", tables_.slot(b, window * s_.ratio));
      auto fits = k_.var(DType::boolean,
                         own >= 0 || from_state <= static_cast<int32_t>(slots_ - s_.ratio), "fits");
      auto older = k_.var(DType::i32, -1, "older");
      if (s_.ratio == 4) {
        k_.if_(window > 0 && from_state > 0, [&] {
          older = tables_.slot(b, window * 4 - 4);
          fits = Value(fits) && older >= 0;
        });
      }
      k_.report_unless(fits, tables_.no_slot());
      auto has_location = k_.let("has_location", tables_.has_location(window));
      k_.report_unless(has_location, serving::kNoLocation);
      k_.if_(fits && has_location, [&] {
        row(0) = r.first_row + (last - r.start);
        row(1) = last;
        row(2) = from_state;
        row(3) = older;
        row(4) = own;
        row(5) = tables_.location(b, window);
        row(6) = b;
        row(7) = tables_.page_size();
      });
    });
    k_.unrolled(8, [&](Value i) { (*plan_)(index, i) = row(i); });
  }

  void write_store(const Value& index, const Value& writes) {
    auto row = k_.var(DType::i32, -1, "stored_row"), slot = k_.var(DType::i32, -1, "stored_slot");
    k_.if_(index < writes, [&] {
      auto b = request_of(*writes_through_, index);
      const Request r = request(b);
      auto nth = k_.let("nth", index - before(*writes_through_, b));
      Value position = r.first_kept + (nth - r.tails);
      if (s_.ratio == 4 && s_.has_pages != 0) {
        auto page = tables_.state_page_size();
        auto tail = r.tails_before + nth;
        auto of_tail = tail / 4 * page + (page - 4) + tail % 4;
        position = select(nth < r.tails, of_tail, position);
      }
      position = k_.let("position", position);
      auto where = k_.let("where", tables_.slot(b, position));
      k_.report_unless(where >= 0, tables_.no_slot());
      k_.if_(where >= 0, [&] {
        row = r.first_row + (position - r.start);
        slot = where;
      });
    });
    (*write_plan_)(index, 0) = row;
    (*write_plan_)(index, 1) = slot;
  }

  const CompressSpec s_;
  const int64_t slots_;
  Builder k_;
  Value batch_, num_windows_, num_writes_;
  Ref start_, row_start_;
  serving::CompressTables tables_;
  Ref counts_;
  Value rollback_;
  std::optional<Ref> plan_, write_plan_;
  std::optional<Ref> windows_through_, writes_through_;  // inclusive sums over the requests
};

ir::Kernel build(const PlanSpec& s) {
  return Plan(s).build();
}

struct EmptySpec {
  int32_t has_windows, has_writes;
};

/// The plan of no requests: every row is unused.
ir::Kernel build_empty(const EmptySpec& s) {
  Builder k("compress_empty_plan");
  const Value windows = s.has_windows ? k.dim("num_windows") : i32(0);
  const Value writes = s.has_writes ? k.dim("num_writes") : i32(0);
  auto counts = k.output("counts", DType::i32, {2}, {.align = 4});
  std::optional<Ref> plan, write_plan;
  if (s.has_windows) plan = k.output("plan", DType::i32, {windows, 8}, {.align = 4});
  if (s.has_writes) write_plan = k.output("write_plan", DType::i32, {writes, 2}, {.align = 4});
  k.launch({1}, {.threads = kThreads});
  k.if_(k.thread() < 2, [&] { counts(k.thread()) = 0; });
  const auto clear = [&](const Ref& rows_of, const Value& rows, int64_t columns) {
    k.serial(
        k.thread(), rows,
        [&](Value row) { k.unrolled(columns, [&](Value i) { rows_of(row, i) = -1; }); }, kThreads);
  };
  if (plan) clear(*plan, windows, 8);
  if (write_plan) clear(*write_plan, writes, 2);
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  if (c["B"] == 0) {
    return go.add(build_empty, EmptySpec{c["num_windows"] > 0, c["num_writes"] > 0}, {}, "empty");
  }
  const auto requests = static_cast<uint64_t>(c["B"]);
  const int32_t capacity = requests <= 64 ? 64 : static_cast<int32_t>(std::bit_ceil(requests));
  go.add(build,
         PlanSpec{serving::compress_spec(c, capacity), c["num_windows"] > 0, c["num_writes"] > 0});
}

}  // namespace

const Op compress_plan_op{
    .name = "compress_plan",
    .family = "serving",
    .purpose = "windows and writes of the new tokens of a batch, for the KV compressor",
    .signature = R"(
      start          i32 [B]          # length of each request before the call
      row_start      i32 [B+1]        # rows of its new tokens
      state_slot?    i32 [B]          # the ring of each request
      state_pages?   i32 [B, S] rows  # or the rings of its pages
      page_table?    i32 [B, Q] rows  # of the compressed cache
      -> plan        i32 [num_windows, 8]
      -> write_plan  i32 [num_writes, 2]
      -> counts      i32 [2]          # windows and writes that are needed
      param  ratio {4, 128}
      param  num_windows, num_writes int >= 0
      param  ring int
      param  max_rollback int = 0
      param  state_page_size int = 0
      param  page_size int = 64
      need   1 <= page_size <= 2147483647
      need   S >= 1 if state_pages on state_pages "argument 'state_pages' has no columns"
      need   Q >= 1 if page_table on page_table "argument 'page_table' has no columns"
      limit  B <= 8192 on start "so many requests are not supported"
    )",
    .launches = launches,
    .check = serving::require_rings,
    .check_values = serving::require_plan_slots,
    .examples = R"(
      B=5 ratio=4 ring=8 num_windows=40 num_writes=60 state_slot=given page_table=given Q=20
      B=70 ratio=128 ring=128 num_windows=60 num_writes=9000 state_page_size=256 state_pages=given S=20)",
    .bench = R"(
      B=64 ratio=4 ring=8 num_windows=32768 num_writes=512 state_slot=given page_table=given Q=2000
      B=64 ratio=128 ring=128 num_windows=1024 num_writes=8192 state_slot=given page_table=given Q=100)",
    .values = {{"start", [](const Case&, int64_t b) { return b * 37 % 500; }},
               {"row_start", [](const Case&, int64_t b) { return b * 29; }},
               {"state_slot", [](const Case&, int64_t b) { return b; }},
               {"state_pages", [](const Case&, int64_t i) { return i; }},
               {"page_table", [](const Case&, int64_t i) { return i; }}}};

}  // namespace tessera::kernels
