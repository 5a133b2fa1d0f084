// topk_plan: lists the rows of a batch that are too long for one block, for topk_select.
//
// Method   one block loops over the rows, 1024 at a time. Each warp counts its long rows by a ballot;
//          their places follow from the earlier warps. Few bytes: the bound is the latency of one load
//          per 1024 rows.
// Maths    none

#include <algorithm>
#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t has_rows;
};

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int64_t kLongRow = 32768;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("topk_plan");
  const Value rows = s.has_rows ? k.dim("batch") : i32(0);
  auto plan_rows = k.dim("plan_rows");
  std::optional<Ref> lengths;
  if (s.has_rows) lengths = k.input("lengths", DType::i32, {rows});
  auto plan = k.output("plan", DType::i32, {plan_rows, 2}, {.align = 4});
  auto threshold = k.scalar("threshold", DType::i32), most = k.scalar("max_length", DType::i32);
  k.launch({1}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto lane = k.let("lane", k.lane());
  auto counts = k.shared(DType::i32, {kWarps}, "counts");
  auto total = k.var(DType::i32, 0, "total");
  k.wait_for_previous_kernel();
  const auto list_rows = [&](Value first) {
    auto row = k.let("row", first + k.thread());
    auto given = k.let("given", (*lengths)(row));
    k.report_unless(row >= rows || (given >= 0 && given <= most), out_of_range("lengths"));
    auto length = k.let("length", min(given, most));
    auto is_long = k.let("is_long", row < rows && length > threshold);
    auto vote = k.let("vote", k.ballot(is_long));
    k.if_(lane == 0, [&] { counts(k.warp()) = i32(popcount(vote)); });
    auto of_warp = k.let("of_warp", counts(lane));
    auto before = k.let("before", k.warp_sum(select(lane < k.warp(), of_warp, 0)));
    auto lower = (cast(DType::u32, 1) << u32(lane)) - u32(1);
    auto place = k.let("place", total + before + i32(popcount(vote & lower)));
    k.if_(is_long, [&] {
      plan(place + 1, 0) = row;
      plan(place + 1, 1) = length;
    });
    total = total + k.warp_sum(of_warp);
  };
  if (s.has_rows) k.serial(0, rows, list_rows, kThreads);
  k.if_(k.thread() == 0, [&] {
    plan(0, 0) = threshold;
    plan(0, 1) = total;
  });
  auto end = k.let("end", total + 1 + k.thread());
  k.serial(
      end, plan_rows,
      [&](Value i) {
        plan(i, 0) = -1;
        plan(i, 1) = -1;
      },
      kThreads);
  return k.finish();
}

/// Rows up to this length take one block.
int64_t threshold(const Call& c) {
  return std::max(c["topk"], std::min(c["max_length"], kLongRow));
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c["B"] > 0}, {.scalars = {{"threshold", threshold(c)}}});
}

void check_values(const Call& c) {
  require_values(c.check(), "lengths", c.given("lengths"), 0, c["max_length"]);
}

}  // namespace

const Op topk_plan_op{
    .name = "topk_plan",
    .family = "serving",
    .purpose = "the rows of a batch that are too long for one block",
    .signature = R"(
      lengths  i32 [B]
      -> plan  i32 [B+1, 2]  # threshold and count, then number and length of each longer row, then -1
      param    topk int
      param    max_length int
      need     1 <= topk <= 2147483647
      need     0 <= max_length <= 2147483647
      limit    B <= 2130706430 on lengths
    )",
    .launches = launches,
    .check_values = check_values,
    .examples = "B=5 topk=512 max_length=262144; B=3000 topk=40 max_length=1048576",
    .bench = R"(
      B=1 topk=512 max_length=262144; B=64 topk=512 max_length=262144; B=4096 topk=2048 max_length=1048576)",
    .values = {
        {"lengths", [](const Case& c, int64_t b) { return b * 104729 % (c["max_length"] + 1); }}}};

}  // namespace tessera::kernels
