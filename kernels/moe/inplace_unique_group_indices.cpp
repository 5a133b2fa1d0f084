// inplace_unique_group_indices: keeps the first occurrence of each group in a token, sets repeats
// to -1.
//
// Method   one thread per token. It loads vectors of up to 16 bytes together, keeps one bit per
//          group already seen, and stores only changed ids. Longer rows come in parts. A few bytes
//          per token: the bound is the latency of one load, the chain of bits and one store.
// Maths    none
// Tuned    H100: 2.6 us for 21783 tokens of 8; 128 threads per block.

#include <limits>
#include <numeric>

#include "kernels/checks/value_check.h"
#include "kernels/moe/parts/row_parts.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t num_topk;
  int32_t words;  // of 64 groups
  int32_t align;  // bytes, at most 16
};

constexpr int64_t kThreads = 128;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  OpBuilder k(inplace_unique_group_indices_op, {{"K", s.num_topk}});
  auto tokens = k.extent("T");
  auto group_indices = k.tensor("group_indices", {.align = s.align});
  auto num_groups = k.param("num_groups");
  auto at = k.launch({ceil_div(tokens, kThreads)}, {.threads = kThreads});
  const moe::RowParts row(k, s.num_topk, std::gcd(s.num_topk, s.align / 8));

  auto token = k.let("token", at.x * kThreads + k.thread());
  k.if_(token < tokens, [&] {
    auto seen = k.local(DType::u64, {s.words}, "seen");
    k.unrolled(s.words, [&](Value word) { seen(word) = cast(DType::u64, 0); });
    auto held = k.local(DType::i64, {row.held()}, "held");
    row.each_part([&](const Value& first) {
      row.each_vector([&](const Value& i) { held(i) = group_indices(token, first + i); });
      k.unrolled(row.held(), [&](Value i) {
        Value group = held(i);
        k.report_unless(group < i64(num_groups), out_of_range("group_indices"));
        auto known = k.let("known", group >= 0 && group < i64(num_groups));
        auto bit = k.let("bit", cast(DType::u64, 1) << u32(group & 63));
        auto again = k.var(DType::boolean, false, "again");
        k.unrolled(s.words, [&](Value word) {
          auto here = known && group >> 6 == i64(word);
          again = Value(again) || (here && (seen(word) & bit) != cast(DType::u64, 0));
          seen(word) = select(here, seen(word) | bit, seen(word));
        });
        k.if_(again, [&] { group_indices(token, first + i) = i64(-1); });
      });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  go.add(build, Spec{c.i32("K"), c["num_groups"] > 64 ? 2 : 1, c.align({"group_indices"})});
}

/// Negative ids name no group.
void check_values(const Call& c) {
  require_values(c.check(), "group_indices", c.given("group_indices"),
                 std::numeric_limits<int64_t>::min(), c["num_groups"] - 1);
}

/// Every fourth slot is empty; the others cycle through the groups, so that a token has repeats.
int64_t group_of(const Case& c, int64_t i) {
  return i % 4 == 3 ? int64_t{-1} : i * 7919 / 5 % c["num_groups"];
}

/// Every id is read; the number of stores depends on the values.
int64_t bytes(const Case& c) {
  return 8 * c["T"] * c["K"];
}

}  // namespace

const Op inplace_unique_group_indices_op{
    .name = "inplace_unique_group_indices",
    .family = "moe",
    .purpose = "keeps the first of each group of a token, -1 for the others",
    .signature = R"(
      -> inout group_indices  i64 [T, K]
      param  num_groups int 1..128
    )",
    .launches = launches,
    .check_values = check_values,
    .examples = R"(
      T=300 K=8 num_groups=8; T=129 K=6 num_groups=72; T=130 K=9 num_groups=16; T=3 K=130 num_groups=128)",
    .bench = R"(
      T=8091 K=2 num_groups=8; T=10170 K=2 num_groups=8; T=21783 K=8 num_groups=8
      T=32500 K=8 num_groups=8; T=1 K=8 num_groups=32; T=128 K=8 num_groups=32)",
    .values = {{"group_indices", group_of}},
    .bytes = bytes};

}  // namespace tessera::kernels
