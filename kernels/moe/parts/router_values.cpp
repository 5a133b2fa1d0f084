#include "kernels/moe/parts/router_values.h"

#include <cmath>
#include <string>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::moe {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

void refuse(const Call& c, const std::string& name, const std::string& expected,
            const std::string& value, const Dims& place) {
  c.need(false, name, out_of_range(name), expected, value + " at " + to_string(place));
}

bool is_set(const Call& c, const char* name, int64_t token, bool otherwise) {
  return c.has(name) ? integer_at(c.given(name), token) != 0 : otherwise;
}

void require_replicas(const Call& c) {
  if (!c.has("logical_count")) return;
  const TensorView &count = c.given("logical_count"), &map = c.given("to_physical_map");
  require_values(c.check(), "logical_count", count, 1, c["D"]);
  for (int64_t e = 0; e < c["E"] + c["S"]; ++e) {
    for (int64_t d = 0; d < integer_at(count, e); ++d) {
      const int64_t id = integer_at(map, e * c["D"] + d);
      if (id < c["physical"]) continue;
      refuse(c, "to_physical_map", "at most " + text(c["physical"] - 1), text(id), {e, d});
    }
  }
}

/// The experts that a token keeps exist.
void require_kept(const Call& c, int64_t token) {
  if (!is_set(c, "fix_routing_mask", token, false)) return;
  const int64_t topk = c["K"], experts = c["E"];
  for (int64_t k = 0; k < topk; ++k) {
    const int64_t id = integer_at(c.given("unmapped_topk_idx"), token * topk + k);
    if (id >= 0 && id < experts) continue;
    refuse(c, "unmapped_topk_idx", "0 .. " + text(experts - 1) + " where fix_routing_mask is true",
           text(id), {token, k});
  }
}

}  // namespace

void require_kept_and_mapped(const Call& c, int64_t tokens) {
  require_replicas(c);
  for (int64_t t = 0; t < tokens; ++t) {
    if (is_set(c, "mask", t, true)) require_kept(c, t);
  }
}

void require_routable(const Call& c) {
  const TensorView& logits = c.given("logits");
  if (!values_are_checked(logits)) return;
  const auto* values = static_cast<const float*>(logits.data);
  const int64_t experts = c["E"];
  require_replicas(c);
  // Unmasked tokens have finite logits, and the experts that they keep exist.
  for (int64_t t = 0; t < c["T"]; ++t) {
    if (!is_set(c, "mask", t, true)) continue;
    for (int64_t e = 0; e < experts; ++e) {
      const float value = values[t * experts + e];
      if (std::isfinite(value)) continue;
      refuse(c, "logits", "finite logits of tokens that are not masked", std::to_string(value),
             {t, e});
    }
    require_kept(c, t);
  }
}

}  // namespace tessera::kernels::moe
