// The kernels of attention_bwd around its products. The first computes for each row what no key changes: a of
// p = 2^fma(x, c, -a), delta = sum of dO O, and the share of a sink. The others add what the heads of a group gave, and the
// gradient of a sink.
//
// A warp sums a row: 4 columns to a lane, then neighbours at distance 1, 2, .. 16, then the halves of a row of 256. The
// gradient of a sink is summed in runs of 128 rows, one thread each; one thread adds the runs in order.

#include <algorithm>

#include "kernels/attention/parts/bwd_tensors.h"
#include "kernels/attention/parts/online_softmax.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr int64_t kRows = 16, kWarps = 4;                 // of a block
constexpr int64_t kColumns = 4, kOfWarp = 32 * kColumns;  // of a lane, of a warp
constexpr int64_t kRun = 128;                             // rows of a run, and runs of a round
constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

ir::Kernel build_backward_rows(const BackwardSpec& s) {
  BackwardTensors t("attention_bwd_rows", s);
  dsl::Builder& k = t.k;
  const int64_t width = s.value_width;
  auto grad_out = t.input("grad_out", t.q_rows, t.heads, width, s.grad_vector);
  auto out = t.input("out", t.q_rows, t.heads, width, s.o_vector);
  auto lse = k.input("lse", kF32, {t.batch, t.heads, t.q_rows}, {.align = 4});
  std::optional<Ref> grad_lse, sink;
  if (s.has_grad_lse != 0) {
    grad_lse = k.input("grad_lse", kF32, {t.batch, t.heads, t.q_rows}, {.align = 4});
  }
  if (s.has_sink != 0) sink = k.input("sink", kF32, {t.heads}, {.align = 4});
  const int64_t kept = s.has_sink != 0 ? 4 : 2;
  auto rows = k.output("rows", kF32, {kept, t.batch, t.heads, t.q_rows}, {.align = 4});
  auto tiles = ceil_div(t.q_rows, kRows);
  auto at = k.launch({tiles * t.heads * t.batch}, {.threads = kWarps * 32});
  auto pair = k.let("pair", at.x / tiles), first = k.let("first", at.x % tiles * kRows);
  auto head = k.let("head", pair % t.heads), request = k.let("request", pair / t.heads);
  auto length = t.length("q_lengths", t.q_lengths, request, t.q_rows);
  auto grads = k.shared(t.dtype(), {kRows, width}, "grads");
  auto outs = k.shared(t.dtype(), {kRows, width}, "outs");
  k.copy(grad_out(request, dsl::Builder::all, head).tile({first, 0}, {kRows, width}), grads);
  k.copy(out(request, dsl::Builder::all, head).tile({first, 0}, {kRows, width}), outs);
  k.unrolled(kRows / kWarps, [&](Value i) {
    auto r = k.let("r", i * kWarps + k.warp()), row = k.let("row", first + r);
    std::optional<Value> all;
    for (int64_t begin = 0; begin < width; begin += kOfWarp) {
      const int64_t columns = std::min(kOfWarp, width - begin);
      auto lane = k.let("lane", min(k.lane(), columns / kColumns - 1));
      Value sum = k.let("none", 0.0f);
      for (int64_t e = 0; e < kColumns; ++e) {
        Value grad = grads(r, begin + lane * kColumns + e),
              o = outs(r, begin + lane * kColumns + e);
        sum = fma(cast(kF32, grad), cast(kF32, o), sum);
      }
      sum = k.let("of_lane", select(k.lane() < columns / kColumns, sum, 0.0f));
      for (int64_t distance = 1; distance < 32; distance *= 2) {
        auto other = k.shuffle_xor(sum, distance);
        sum = k.let("sum", sum + other);
      }
      all = all ? k.let("all", *all + sum) : sum;
    }
    k.if_(k.lane() == 0 && row < t.q_rows, [&] {
      const Value delta = *all;
      Value of_lse = lse(request, head, row);
      auto a = k.let("a", of_lse * kLog2E);
      Value shifted = delta;
      if (grad_lse) {
        Value more = (*grad_lse)(request, head, row);
        shifted = delta - more;
      }
      rows(1, request, head, row) = shifted;
      if (!sink) {
        rows(0, request, head, row) = a;
        return;
      }
      Value given = (*sink)(head);
      auto b = k.let("b", given * kLog2E), top = k.let("top", max(a, b));
      auto both = k.let("both", top + log2(exp2_approx(a - top) + exp2_approx(b - top)));
      auto is_empty = k.let("is_empty", a == kInfinity || b == kInfinity);
      auto with = k.let("with", select(is_empty, kInfinity, both));
      auto is_row = row < length;
      rows(0, request, head, row) = with;
      rows(2, request, head, row) = select(is_empty || !is_row, 0.0f, exp2_approx(b - with));
      rows(3, request, head, row) = select(is_row, delta, 0.0f);
    });
  });
  return k.finish();
}

ir::Kernel build_backward_group(const GroupSpec& s) {
  dsl::Builder k("attention_bwd_group");
  const DType dtype = s.is_f16 != 0 ? DType::f16 : DType::bf16;
  auto rows = k.dim("rows"), groups = k.dim("g"), heads = k.dim("heads");
  auto scale = k.scalar("scale", kF32);
  auto parts = k.input("parts", kF32, {rows, groups, heads, s.width}, {.align = 16});
  auto out = k.output("out", dtype, {rows, groups, s.width}, {.align = 2});
  auto at = k.launch({rows * groups}, {.threads = 128});
  auto row = k.let("row", at.x / groups), group = k.let("group", at.x % groups);
  k.parallel({s.width}, [&](Value d) {
    Value of_first = parts(row, group, 0, d);
    auto sum = k.var(kF32, of_first, "sum");
    k.serial(1, heads, [&](Value head) { sum += parts(row, group, head, d); });
    Value all = sum;
    out(row, group, d) = cast(dtype, all * scale);
  });
  return k.finish();
}

ir::Kernel build_backward_sink(const SinkSpec& s) {
  dsl::Builder k("attention_bwd_sink");
  auto batch = k.dim("B"), heads = k.dim("h"), q_rows = k.dim("Sq");
  auto rows = k.input("rows", kF32, {4, batch, heads, q_rows}, {.align = 4});
  auto grad = k.output("grad_sink", kF32, {heads}, {.align = 4});
  std::optional<Value> bounds;
  std::optional<Ref> cu_q;
  if (s.is_packed != 0) {
    bounds = k.dim("bounds");
    cu_q = k.input("cu_q", kI32, {*bounds}, {.align = 4});
  }
  auto at = k.launch({heads}, {.threads = kRun});
  auto runs = k.shared(kF32, {kRun}, "runs");
  auto total = k.var(kF32, 0.0f, "total");
  // The runs of `requests` requests of `length` rows each; the first row of the first is `begin`.
  const auto add = [&](const Value& requests, const Value& begin, const Value& length) {
    auto of_request = k.let("of_request", ceil_div(length, kRun));
    k.serial(0, ceil_div(of_request * requests, kRun), [&](Value round) {
      k.parallel({kRun}, [&](Value i) {
        auto run = k.let("run", round * kRun + i);
        auto sum = k.var(kF32, 0.0f, "sum");
        k.if_(run < of_request * requests, [&] {
          auto request = k.let("request", run / of_request);
          auto first = k.let("first", run % of_request * kRun);
          k.serial(first, min(first + kRun, length), [&](Value row) {
            Value share = rows(2, request, at.x, begin + row);
            Value delta = rows(3, request, at.x, begin + row), now = sum;
            sum = fma(share, delta, now);
          });
        });
        Value made = sum;
        runs(i) = made;
      });
      k.if_(k.thread() == 0, [&] { k.serial(0, kRun, [&](Value i) { total += runs(i); }); });
    });
  };
  if (!bounds) {
    add(batch, dsl::i32(0), q_rows);
  } else {
    auto before = k.var(kI32, 0, "before");  // bounds that do not ascend are cut
    k.serial(1, *bounds, [&](Value b) {
      Value given = (*cu_q)(b), begin = before;
      auto end = k.let("end", max(min(given, q_rows), begin));
      add(dsl::i32(1), begin, end - begin);
      before = end;
    });
  }
  k.if_(k.thread() == 0, [&] {
    Value sum = grad(at.x), all = total;
    grad(at.x) = sum - all;
  });
  return k.finish();
}

}  // namespace tessera::kernels::attention
