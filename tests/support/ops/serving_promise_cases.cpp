#include <cmath>

#include "tests/support/ops/promise_cases.h"
#include "tests/support/tensor_of.h"

namespace tessera::test {
namespace {

struct Hashed {
  double token = 1, expert = 2, logit = 0;
  double num_tokens = 2;
};

PromiseCase hashed(const std::string& label, const Hashed& values, const std::string& refusal) {
  return {label,
          "hash_gate",
          {{"token_ids", tensor_of(DType::i64, {2}, {0, values.token})},
           {"table", tensor_of(DType::i32, {2, 2}, {0, 1, 0, values.expert})},
           {"logits", tensor_of(DType::f32, {2, 3}, {0, 0, 0, 0, 0, values.logit})},
           {"num_tokens", tensor_of(DType::i32, {1}, {values.num_tokens})}},
          {},
          refusal};
}

}  // namespace

std::vector<PromiseCase> serving_promise_cases() {
  return {
      hashed("all in range", {}, ""),
      hashed("a row of padding, of which nothing is read", {.token = 7, .num_tokens = 1}, ""),
      hashed("fewer rows than none", {.token = 7, .num_tokens = -3}, ""),
      hashed("a logit that no token is sent to", {.token = 0, .logit = NAN}, ""),
      hashed("a token beyond the table", {.token = 2},
             "tessera: hash_gate: argument 'token_ids' has a value out of range\n"
             "  expected  0 .. 1\n"
             "  got       2 at [1]"),
      hashed("a token that 32 bits do not hold", {.token = 4294967297},
             "tessera: hash_gate: argument 'token_ids' has a value out of range\n"
             "  expected  0 .. 1\n"
             "  got       4294967297 at [1]"),
      hashed("an expert beyond the logits", {.expert = 3},
             "tessera: hash_gate: argument 'table' has a value out of range\n"
             "  expected  0 .. 2\n"
             "  got       3 at [1, 1]"),
      hashed("an expert below 0", {.expert = -1},
             "tessera: hash_gate: argument 'table' has a value out of range\n"
             "  expected  0 .. 2\n"
             "  got       -1 at [1, 1]"),
      hashed("a logit that is not finite", {.logit = INFINITY},
             "tessera: hash_gate: argument 'logits' has a value out of range\n"
             "  expected  finite logits of the experts that tokens are sent to\n"
             "  got       inf at [1, 2]"),
  };
}

}  // namespace tessera::test
