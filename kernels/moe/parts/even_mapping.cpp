#include "kernels/moe/parts/even_mapping.h"

#include <algorithm>

namespace tessera::kernels::moe {

int64_t EvenMapping::count(int64_t expert) const {
  return (num_entries - expert + num_experts - 1) / num_experts;
}

int64_t EvenMapping::start(int64_t expert) const {
  const auto aligned = [&](int64_t size) { return (size + alignment - 1) / alignment * alignment; };
  const int64_t larger = std::min(expert, num_entries % num_experts);
  const int64_t size = num_entries / num_experts;
  return larger * aligned(size + 1) + (expert - larger) * aligned(size);
}

int64_t EvenMapping::num_positions() const {
  return start(num_experts);
}

int64_t EvenMapping::position(int64_t flat) const {
  const int64_t token = flat / num_topk, slot = (flat % num_topk + token) % num_topk;
  const int64_t first = token * num_entries / num_tokens;
  const int64_t last = (token + 1) * num_entries / num_tokens;
  const int64_t entry = first + slot;
  return entry < last ? start(entry % num_experts) + entry / num_experts : -1;
}

int64_t EvenMapping::expert(int64_t position) const {
  int64_t e = 0;
  while (e + 1 < num_experts && start(e + 1) <= position) ++e;
  return position - start(e) < count(e) ? e : -1;
}

int64_t EvenMapping::pair(int64_t position) const {
  const int64_t e = expert(position);
  if (e < 0) return -1;
  const int64_t entry = (position - start(e)) * num_experts + e;
  // The last token whose run begins at or before the entry.
  const int64_t token = ((entry + 1) * num_tokens - 1) / num_entries;
  const int64_t nth = entry - token * num_entries / num_tokens;
  return token * num_topk + ((nth - token) % num_topk + num_topk) % num_topk;
}

EvenMapping mapping_of(const Case& c) {
  return {c["T"], c["K"], c["E"], c["entries"], c["alignment"]};
}

EvenMapping mapping_within(const Case& c) {
  EvenMapping mapping = mapping_of(c);
  if (c["P"] < mapping.num_positions()) mapping.num_experts = c["P"] / mapping.alignment;
  return mapping;
}

int64_t rank_entries(const Case& c) {
  return std::min(4001 * c["K"], c["T"] * c["K"]);
}

}  // namespace tessera::kernels::moe
