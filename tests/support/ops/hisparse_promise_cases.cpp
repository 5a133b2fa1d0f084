#include "tests/support/ops/promise_cases.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

/// Two requests with slots for two tokens: the first has three tokens, the second one.
struct State {
  std::vector<double> tokens = {0, 2, 0, -1};
  std::vector<double> lengths = {3, 1}, states = {1, 0}, lru = {0, 1, 1, 0};
  std::vector<double> slots = {0, 1, 2, 3, 4, 5}, rows = {0, 1, 2, 3, 4, 5};
};

PromiseCase swap(const std::string& label, const State& s, const std::string& refusal,
                 bool is_reported = true) {
  const auto wanted = static_cast<int64_t>(s.tokens.size()) / 2;
  return {label,
          "hisparse_swap_in",
          {{"tokens", tensor_of(DType::i32, {2, 1, wanted}, s.tokens)},
           {"seq_len", tensor_of(DType::i32, {2}, s.lengths)},
           {"req", tensor_of(DType::i32, {2}, s.states)},
           {"hot_slots", tensor_of(DType::i32, {2, 3}, s.slots)},
           {"host_loc", tensor_of(DType::i64, {2, 3}, s.rows)},
           {"hot_tokens", tensor_of(DType::i32, {2, 3}, {-1})},
           {"lru", tensor_of(DType::i16, {2, 2}, s.lru)},
           {"host", tensor_of(DType::u8, {6, 16}, {1, 2, 3})},
           {"cache", tensor_of(DType::u8, {6, 16}, {0})}},
          {},
          refusal,
          is_reported};
}

PromiseCase replay(const std::string& label, double count, double row, const std::string& refusal) {
  return {label,
          "hisparse_replay",
          {{"miss_list", tensor_of(DType::i64, {1, 2, 2}, {0, 1, row, 2})},
           {"miss_count", tensor_of(DType::i32, {1}, {count})},
           {"host", tensor_of(DType::u8, {3, 16}, {1, 2, 3})},
           {"cache", tensor_of(DType::u8, {4, 16}, {0})}},
          {},
          refusal};
}

struct Newest {
  double length = 3, state = 1, slot = 2, row = 4;
};

PromiseCase backup(const std::string& label, const Newest& s, const std::string& refusal,
                   bool is_reported = true) {
  return {label,
          "hisparse_backup",
          {{"seq_len", tensor_of(DType::i32, {2}, {2, s.length})},
           {"req", tensor_of(DType::i32, {2}, {0, s.state})},
           {"hot_slots", tensor_of(DType::i32, {2, 3}, {0, 1, 1, 0, 1, s.slot})},
           {"host_loc", tensor_of(DType::i64, {2, 3}, {0, 1, 2, 3, 0, s.row})},
           {"host", tensor_of(DType::u8, {5, 16}, {1, 2, 3})},
           {"cache", tensor_of(DType::u8, {3, 16}, {0})}},
          {},
          refusal,
          is_reported};
}

std::string out_of_range(const std::string& op, const std::string& name,
                         const std::string& expected, const std::string& got) {
  return "tessera: " + op + ": argument '" + name +
         "' has a value out of range\n"
         "  expected  " +
         expected +
         "\n"
         "  got       " +
         got;
}

}  // namespace

std::vector<PromiseCase> hisparse_promise_cases() {
  const std::string op = "hisparse_swap_in", backs = "hisparse_backup", replays = "hisparse_replay";
  return {
      swap("tokens of their requests", {}, ""),
      swap("tokens without a row, slots without a place",
           {.slots = {-1, -1, -1, -1, -1, -1}, .rows = {-1, -1, -1, -1, -1, -1}}, ""),
      swap("a token beyond its request", {.tokens = {0, 3, 0, -1}},
           out_of_range(op, "tokens", "-1 .. 2", "3 at [0, 0, 1]")),
      swap("a token below -1", {.tokens = {0, -2, 0, -1}},
           out_of_range(op, "tokens", "-1 .. 2", "-2 at [0, 0, 1]")),
      swap("a token twice in its step", {.tokens = {0, 0, 0, -1}},
           out_of_range(op, "tokens", "a token once in its step", "0 at [0, 0, 1]"), false),
      swap("a length beyond the host's rows", {.lengths = {4, 1}},
           out_of_range(op, "seq_len", "0 .. 3", "4 at [0]")),
      swap("a length below 0", {.tokens = {0, 2, -1, -1}, .lengths = {3, -1}},
           out_of_range(op, "seq_len", "0 .. 3", "-1 at [1]")),
      swap("a state that is none", {.states = {1, 2}},
           out_of_range(op, "req", "each of 0 .. 1 at most once", "2 at [1]")),
      swap("a state of two requests", {.states = {1, 1}},
           out_of_range(op, "req", "each of 0 .. 1 at most once", "1 at [1]")),
      swap("a place beyond the cache", {.slots = {6, 1, 2, 3, 4, 5}},
           out_of_range(op, "hot_slots", "-1 .. 5", "6 at [0, 0]")),
      swap("a row beyond the host's", {.tokens = {1, 2, 0, -1}, .rows = {0, 1, 2, 3, 6, 5}},
           out_of_range(op, "host_loc", "-1 .. 5", "6 at [1, 1]")),
      swap("a slot that is none", {.lru = {0, 1, 2, 0}},
           out_of_range(op, "lru", "each of 0 .. 1 once", "2 at [1, 0]")),
      swap("a slot twice", {.lru = {0, 1, 1, 1}},
           out_of_range(op, "lru", "each of 0 .. 1 once", "1 at [1, 1]"), false),
      replay("misses and none", 2, -1, ""),
      replay("a row beyond the host's", 2, 3,
             out_of_range(replays, "miss_list", "at most 2, or -1", "3 at [0, 1, 0]")),
      replay("a row that does not count", 1, 3, ""),
      replay("more misses than entries", 3, 2,
             out_of_range(replays, "miss_count", "0 .. 2", "3 at [0]")),
      backup("the newest tokens of two requests", {}, ""),
      backup("a token without a row, a slot without a place", {.slot = -1, .row = -1}, ""),
      backup("no token", {.length = 0}, ""),
      backup("a length beyond the host's rows", {.length = 4},
             out_of_range(backs, "seq_len", "0 .. 3", "4 at [1]")),
      backup("a state of two requests", {.state = 0},
             out_of_range(backs, "req", "each of 0 .. 1 at most once", "0 at [1]")),
      backup("a place beyond the cache", {.slot = 3},
             out_of_range(backs, "hot_slots", "-1 .. 2", "3 at [1, 2]")),
      backup("a row beyond the host's", {.row = 5},
             out_of_range(backs, "host_loc", "-1 .. 4", "5 at [1, 2]")),
      backup("a row of two requests", {.row = 1},
             out_of_range(backs, "host_loc", "a host row for one request at most", "1 at [1, 2]"),
             false),
  };
}

}  // namespace tessera::test
