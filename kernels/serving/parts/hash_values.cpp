#include "kernels/serving/parts/hash_values.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {

int64_t rows_that_count(const Call& c) {
  if (!c.has("num_tokens")) return c["T"];
  return std::clamp<int64_t>(integer_at(c.given("num_tokens"), 0), 0, c["T"]);
}

void require_known(const Call& c) {
  const TensorView &ids = c.given("token_ids"), &table = c.given("table");
  const int64_t num_tokens = rows_that_count(c), topk = c["K"], experts = c["E"];
  require_values(c.check(), "token_ids", ids, 0, c["V"] - 1,
                 [&](int64_t token) { return token < num_tokens; });
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t entry = integer_at(ids, t), expert = integer_at(table, entry * topk + k);
      const bool exists = expert >= 0 && expert < experts;
      c.need(exists, "table", out_of_range("table"), "0 .. " + std::to_string(experts - 1),
             std::to_string(expert) + " at " + to_string(Dims{entry, k}));
    }
  }
}

void require_hashed(const Call& c) {
  const TensorView &ids = c.given("token_ids"), &table = c.given("table");
  const TensorView& logits = c.given("logits");
  if (!values_are_checked(logits)) return;
  require_known(c);
  const auto* values = static_cast<const float*>(logits.data);
  const int64_t topk = c["K"];
  for (int64_t t = 0; t < rows_that_count(c); ++t) {
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t expert = integer_at(table, integer_at(ids, t) * topk + k);
      const float logit = values[t * logits.strides[0] + expert];
      c.need(std::isfinite(logit), "logits", out_of_range("logits"),
             "finite logits of the experts that tokens are sent to",
             std::to_string(logit) + " at " + to_string(Dims{t, expert}));
    }
  }
}

}  // namespace tessera::kernels::serving
