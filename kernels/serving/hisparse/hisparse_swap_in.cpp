// hisparse_swap_in: gives wanted tokens a slot of the device cache each, and copies the rows of those that
// are on the host alone.
//
// Dtypes   tokens, lengths, slots i32, lru i16, host rows i64, rows of bytes
// Method   two kernels: swap_plan.cpp, then row_copy.cpp over the list of misses. Nothing waits for the
//          host, so a call can be captured. Without misses the bound is the latency of the plan, else bytes
//          / the rate of the host's link.
// Measured one H200, 2048 of 4096 slots wanted, rows of 512 bytes in memory of the device: 1 request 12.3 us (goal 5), 100
//          requests 21.4 (goal 12), with 20 % misses as long. The rate of a host's link was not measured.
// Maths    none

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/jit/target.h"
#include "kernels/registry/all_ops.h"
#include "kernels/serving/hisparse/parts/requests.h"
#include "kernels/serving/hisparse/parts/row_copy.h"
#include "kernels/serving/hisparse/parts/swap_plan.h"
#include "kernels/signature/case.h"
#include "kernels/views/reshaped.h"

namespace tessera::kernels {
namespace {

int64_t entries_of(const Call& c) {
  return c["n"] * c["k"];
}

/// A call without entries: only counts are written.
struct FillSpec {
  int32_t unused = 0;
};

ir::Kernel build_no_misses(const FillSpec&) {
  using namespace dsl;
  constexpr int kThreads = 128;
  Builder k("hisparse_no_misses");
  auto batch = k.dim("batch");
  auto counts = k.output("miss_count", DType::i32, {batch}, {.align = 4});
  auto at = k.launch({ceil_div(batch, kThreads)}, {.threads = kThreads});
  k.wait_for_previous_kernel();
  counts(at.x * kThreads + k.thread()) = 0;
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t entries = entries_of(c);
  if (c["B"] == 0) return;
  if (entries == 0) {
    if (c.flag("save_misses")) go.add(build_no_misses, FillSpec{}, {}, "none");
    return;
  }
  TensorView list, counts;
  if (c.flag("save_misses")) {
    list = c.given("miss_list");
    counts = c.given("miss_count");
  } else {
    const TensorView& workspace = c.given("workspace");
    list = {workspace.data, DType::i64, Dims{c["B"], entries, 2}, Dims{2 * entries, 2, 1},
            workspace.device};
    counts = {static_cast<int64_t*>(workspace.data) + 2 * c["B"] * entries, DType::i32,
              Dims{c["B"]}, Dims{1}, workspace.device};
  }
  serving::SwapSpec s{};
  s.slots = c.i32("C");
  s.capacity = static_cast<int32_t>(serving::table_capacity(entries));
  s.has_num_reqs = c.has("num_reqs");
  s.saves_misses = c.flag("save_misses");
  Args args;
  args.tensors = {{"miss_list", list}, {"miss_count", counts}};
  for (const char* name : {"tokens", "locations"}) {
    args.tensors.push_back({name, reshaped(c.given(name), {c["B"], entries})});
  }
  args.scalars = {{"host_rows", c["S"]}, {"cache_rows", c["rows"]}};
  go.add(serving::build_swap_plan, s, args, "plan");
  serving::add_row_copies(c, go, list, counts);
}

void check(const Call& c) {
  for (const char* rows : {"host", "cache"}) serving::require_aligned_rows(c, rows);
  const int64_t needed = serving::swap_plan_memory(c["C"], entries_of(c));
  const int64_t most = jit::shared_memory_limit(c.device());
  c.need(needed <= most, "hot_slots", "so many slots and tokens do not fit into shared memory",
         std::to_string(most) + " bytes", std::to_string(needed), ErrorKind::unsupported);
}

/// The values of one request of a CPU call.
class Request {
 public:
  Request(const Call& c, int64_t b) : c_(c), b_(b), q_(integer_at(c.given("req"), b)) {
    length_ = integer_at(c.given("seq_len"), b);
    need(length_ >= 0 && length_ <= c["L"], "seq_len", "0 .. " + std::to_string(c["L"]), length_,
         {b});
  }

  void require() const {
    const std::set<int64_t> wanted = require_tokens();
    require_rows("hot_slots", c_["C"] + 1, c_["rows"]);
    require_rows("host_loc", length_, c_["S"]);
    if (length_ > c_["C"]) require_slots(wanted);
  }

 private:
  void need(bool holds, const char* name, const std::string& expected, int64_t got,
            const Dims& place) const {
    c_.need(holds, name, out_of_range(name), expected,
            std::to_string(got) + " at " + to_string(place));
  }

  /// Requires tokens of the request, each once in its step.
  std::set<int64_t> require_tokens() const {
    std::set<int64_t> all;
    for (int64_t step = 0; step < c_["n"]; ++step) {
      std::set<int64_t> of_step;
      for (int64_t i = 0; i < c_["k"]; ++i) {
        const int64_t token = integer_at(c_.given("tokens"), (b_ * c_["n"] + step) * c_["k"] + i);
        const Dims place = {b_, step, i};
        need(token >= -1 && token < length_, "tokens", "-1 .. " + std::to_string(length_ - 1),
             token, place);
        if (token < 0) continue;
        need(of_step.insert(token).second, "tokens", "a token once in its step", token, place);
        all.insert(token);
      }
    }
    return all;
  }

  void require_rows(const char* name, int64_t count, int64_t rows) const {
    const TensorView& all = c_.given(name);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = integer_at(all, q_ * all.shape[1] + i);
      need(row >= -1 && row < rows, name, "-1 .. " + std::to_string(rows - 1), row, {q_, i});
    }
  }

  void require_slots(const std::set<int64_t>& wanted) const {
    std::set<int64_t> slots, held;
    const int64_t count = c_["C"];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t slot = integer_at(c_.given("lru"), q_ * count + i);
      need(slot >= 0 && slot < count && slots.insert(slot).second, "lru",
           "each of 0 .. " + std::to_string(count - 1) + " once", slot, {q_, i});
      held.insert(integer_at(c_.given("hot_tokens"), q_ * (count + 1) + i));
    }
    int64_t needed = 0;
    for (const int64_t token : wanted) {
      if (token == length_ - 1) continue;
      const bool is_on_host = integer_at(c_.given("host_loc"), q_ * c_["L"] + token) >= 0;
      needed += held.contains(token) || is_on_host ? 1 : 0;
    }
    c_.need(needed <= count, "tokens", "argument 'tokens' wants more tokens than there are slots",
            "at most " + std::to_string(count) + " besides the newest",
            std::to_string(needed) + " at " + to_string(Dims{b_}));
  }

  const Call& c_;
  const int64_t b_, q_;
  int64_t length_;
};

void check_values(const Call& c) {
  for (const char* name :
       {"tokens", "seq_len", "req", "num_reqs", "hot_slots", "host_loc", "lru", "hot_tokens"}) {
    if (c.has(name) && !values_are_checked(c.given(name))) return;
  }
  const int64_t requests = serving::requests_that_count(c);
  serving::require_states(c, requests);
  for (int64_t b = 0; b < requests; ++b) Request(c, b).require();
}

}  // namespace

const Op hisparse_swap_in_op{
    .name = "hisparse_swap_in",
    .family = "serving",
    .purpose =
        "places of wanted tokens in a cache on the device, whose missing rows come from the host",
    .signature = R"(
      tokens               i32 [B, n, k]           # -1: none
      seq_len              i32 [B]
      req                  i32 [B]                 # row of the state tables, each once
      num_reqs?            i32 [1]                 # requests from here on do not count
      hot_slots            i32 [Q, C+1]            # cache row of each slot; the last one is the newest token's
      host_loc             i64 [Q, L] rows         # host row of each token; -1: none
      host                 u8 [S, bytes] rows      # pinned and mapped
      -> locations         i32 [B, n, k]           # cache row; -1: none
      -> inout hot_tokens  i32 [Q, C+1]            # token in each slot; -1: none
      -> inout lru         i16 [Q, C]              # slots, the one used longest ago first
      -> inout cache       u8 [rows, bytes] rows
      -> miss_list?        i64 [B, n*k, 2]         iff save_misses  # host row, cache row; then -1
      -> miss_count?       i32 [B]                 iff save_misses
      workspace?           i64 [elements()]        iff not save_misses
      param  save_misses bool = false
      need   1 <= C on hot_slots "there must be a slot"
      limit  C <= 32767 on hot_slots "so many slots are not supported"
      limit  n * k <= 4096 on tokens "so many tokens are not supported"
      limit  B * n * k <= 2130706431 on tokens "so many tokens are not supported"
      need   bytes % 16 = 0 on host "a row has the wrong number of bytes"
      limit  S <= 2130706431 on host "so many rows are not supported"
      limit  rows <= 2130706431 on cache "so many rows are not supported"
      need   Q >= 1 on hot_slots "argument 'hot_slots' has no rows"
      need   L >= 1 on host_loc "argument 'host_loc' has no columns"
    )",
    .launches = launches,
    .check = check,
    .check_values = check_values,
    .functions = {{"elements",
                   [](const Call& c) { return 2 * c["B"] * entries_of(c) + (c["B"] + 1) / 2; }}},
    .examples = R"(
      B=3 n=1 k=20 Q=5 C=40 L=90 S=300 rows=200 bytes=656 num_reqs=given
      B=2 n=4 k=8 Q=2 C=64 L=50 S=300 rows=200 bytes=512 save_misses=true; B=1 n=1 k=3 Q=1 C=5 L=9 S=9 rows=6 bytes=16)",
    .bench = R"(
      B=1 n=1 k=2048 Q=1 C=4096 L=65536 S=65536 rows=4097 bytes=512 misses=0
      B=100 n=1 k=2048 Q=100 C=4096 L=65536 S=65536 rows=409700 bytes=512 misses=0
      B=100 n=1 k=2048 Q=100 C=4096 L=65536 S=65536 rows=409700 bytes=512 misses=2
      B=100 n=1 k=2048 Q=100 C=4096 L=65536 S=65536 rows=409700 bytes=512 misses=410
      B=100 n=1 k=2048 Q=100 C=8192 L=65536 S=65536 rows=819300 bytes=656 misses=410)",
    .case_words = {{"misses", [](const Case& c) { return c["k"] / 3; }}},
    // The slots hold the tokens 0 .. C - 1; a call wants some of these, and `misses` others.
    .values = {{"tokens",
                [](const Case& c, int64_t i) {
                  const int64_t entry = i % (c["n"] * c["k"]), place = entry % c["k"];
                  const bool misses = place < c["misses"] && c["L"] > c["C"] + 1;
                  return misses ? c["C"] + place % std::max<int64_t>(c["L"] - c["C"] - 1, 1)
                                : place;
                }},
               {"seq_len", [](const Case& c, int64_t) { return c["L"]; }},
               {"req", [](const Case&, int64_t b) { return b; }},
               {"num_reqs", [](const Case& c, int64_t) { return c["B"] - 1; }},
               {"hot_slots", [](const Case& c, int64_t i) { return i % c["rows"]; }},
               {"host_loc", [](const Case& c, int64_t i) { return i * 7919 % c["S"]; }},
               {"hot_tokens",
                [](const Case& c, int64_t i) {
                  return i % (c["C"] + 1) == c["C"] ? -1 : i % (c["C"] + 1);
                }},
               {"lru", [](const Case& c, int64_t i) { return c["C"] - 1 - i % c["C"]; }}},
    .bytes = [](const Case& c) {
      const int64_t plan = 8 * c["n"] * c["k"] + 8 * c["C"];
      return c["B"] * (plan + c["misses"] * (2 * c["bytes"] + 16));
    }};

}  // namespace tessera::kernels
