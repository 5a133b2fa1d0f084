#include "codegen/cpu/races/global_shadow.h"

namespace tessera::codegen::cpu {

void GlobalShadow::start_cluster() {
  last_page_ = -1;
  if (pages_.empty()) return;
  pages_.clear();
  values_.clear();
  shadow_.clear();
}

std::optional<Conflict> GlobalShadow::write(const std::byte* at, int thread, int statement,
                                            std::optional<uint64_t> value) {
  const int64_t granule = place(at);
  uint64_t& last = values_[static_cast<size_t>(granule)];
  const bool is_same = value && *value == last;
  last = value.value_or(0);
  return shadow_.write(granule, thread, statement, 1, is_same);
}

void GlobalShadow::go_to(int64_t page) {
  const auto [found, is_new] = pages_.try_emplace(page, shadow_.bytes());
  if (is_new) {
    shadow_.append(kGranulesPerPage);
    values_.resize(static_cast<size_t>(shadow_.bytes()));
  }
  last_page_ = page;
  first_place_ = found->second;
}

}  // namespace tessera::codegen::cpu
