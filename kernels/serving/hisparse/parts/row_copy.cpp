// Method   a block has 32 pairs of a request, a warp four of them, whose loads are in flight together: the
//          host's link has a latency of microseconds. Blocks beyond the count end at once.

#include "kernels/serving/hisparse/parts/row_copy.h"

#include <functional>
#include <string>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/signature/scale_layout.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels::serving {
namespace {

constexpr int64_t kThreads = 256, kTogether = 4, kPairs = kThreads / 32 * kTogether;

constexpr int64_t kWords = 4;  // of an access

struct Spec {
  int32_t unused = 0;  // one kernel for all calls
};

ir::Kernel build(const Spec&) {
  using namespace dsl;
  Builder k("hisparse_row_copy");
  auto batch = k.dim("batch"), entries = k.dim("entries");
  auto list = k.input("miss_list", DType::i64, {batch, entries, 2});
  auto counts = k.input("miss_count", DType::i32, {batch}, {.align = 4});
  auto host_rows = k.dim("host_rows"), slots = k.dim("slots");
  auto words = k.dim("words", {.multiple_of = 4});
  auto host_stride = k.stride("host_stride", {.multiple_of = kWords});
  auto cache_stride = k.stride("cache_stride", {.multiple_of = kWords});
  auto host = k.input("host", DType::u32, {host_rows, words}, {.strides = {host_stride, 1}});
  auto cache = k.output("cache", DType::u32, {slots, words}, {.strides = {cache_stride, 1}});
  auto parts = ceil_div(entries, kPairs);
  auto at = k.launch({batch * parts}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto request = k.let("request", at.x / parts);
  auto first = k.let("first", at.x % parts * kPairs + k.thread() / 32 * kTogether);
  k.wait_for_previous_kernel();
  auto given = k.let("given", counts(request).unchecked());
  k.report_unless(given >= 0 && given <= entries, out_of_range("miss_count"));
  auto count = k.let("count", min(max(given, 0), entries));
  k.if_(first < count, [&] {
    auto from = k.local(DType::i32, {kTogether}, "from"),
         to = k.local(DType::i32, {kTogether}, "to");
    k.unrolled(kTogether, [&](Value r) {
      from(r) = -1;
      to(r) = -1;
      k.if_(first + r < count, [&] {
        auto source = k.let("source", list(request, first + r, 0).unchecked());
        auto target = k.let("target", list(request, first + r, 1).unchecked());
        auto is_known = k.let("is_known", source >= 0 && source < i64(host_rows) && target >= 0 &&
                                              target < i64(slots));
        k.report_unless(is_known || source < 0 || target < 0, out_of_range("miss_list"));
        k.if_(is_known, [&] {
          from(r) = i32(source);
          to(r) = i32(target);
        });
      });
    });
    k.serial(0, ceil_div(words, 32 * kWords), [&](Value round) {
      auto word = k.let("word", (round * 32 + k.lane()) * kWords);
      auto held = k.local(DType::u32, {kTogether, kWords}, "held");
      const auto each = [&](const std::function<void(const Value&, const Value&)>& move) {
        k.unrolled(kTogether, [&](Value r) {
          k.if_(from(r) >= 0 && word < words,
                [&] { k.vectorized(kWords, [&](Value i) { move(r, i); }); });
        });
      };
      k.unrolled(kTogether,
                 [&](Value r) { k.unrolled(kWords, [&](Value i) { held(r, i) = u32(0); }); });
      each([&](const Value& r, const Value& i) {
        held(r, i) = host(from(r), word + i).unchecked();
      });
      each(
          [&](const Value& r, const Value& i) { cache(to(r), word + i).unchecked() = held(r, i); });
    });
  });
  return k.finish();
}

}  // namespace

TensorView as_words(TensorView rows) {
  rows.strides[0] = step(rows, 0) / 4;
  rows.dtype = DType::u32;
  rows.shape[1] /= 4;
  return rows;
}

void require_aligned_rows(const Call& c, const char* name) {
  const TensorView& rows = c.given(name);
  c.need(common_vector(rows, 16) == 16, name,
         "argument '" + std::string(name) + "' has rows that are not aligned",
         "rows at multiples of 16 bytes", to_string(rows));
}

void add_row_copies(const Call& c, Launches& go, const TensorView& list, const TensorView& counts) {
  const TensorView host = c.given("host"), cache = c.given("cache");
  if (list.size() == 0 || host.size() == 0 || cache.size() == 0) return;
  Args args;
  args.tensors = {{"miss_list", list},
                  {"miss_count", counts},
                  {"host", as_words(host)},
                  {"cache", as_words(cache)}};
  go.add(build, Spec{}, args, "copies");
}

}  // namespace tessera::kernels::serving
