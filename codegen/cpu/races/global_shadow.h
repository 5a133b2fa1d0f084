#pragma once
// Records who of a cluster touched each element of global memory, to find races of threads that neither a barrier nor
// a ring orders. GridShadow finds those between clusters.
//
// The memory is cut into granules of the smallest element that the program stores. Every access is aligned to its
// element (MISALIGNED otherwise), so it covers whole granules, and tensors that alias each other share their marks.
// A granule keeps the bits that were last written: two threads may write the same value, as all threads of a block do
// in `y(at.x) = total`, but not two values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/races/shadow.h"

namespace tessera::codegen::cpu {

class GlobalShadow {
 public:
  /// `granule`: bytes, a power of two of at most 8.
  GlobalShadow(const WarpClocks& clocks, bool parts_meet, int granule)
      : shadow_(0, clocks, parts_meet), granule_(granule) {}

  int granule() const { return granule_; }
  void start_cluster();

  /// Records an access to the granule at `at` by `thread` of the cluster; returns the conflict, if any.
  std::optional<Conflict> read(const std::byte* at, int thread, int statement) {
    return shadow_.read(place(at), thread, statement);
  }
  /// `value`: the bits that all of the granule gets; none if only a part of it is written.
  std::optional<Conflict> write(const std::byte* at, int thread, int statement,
                                std::optional<uint64_t> value);
  std::optional<Conflict> atomic(const std::byte* at, int thread, int statement) {
    return shadow_.atomic(place(at), thread, statement);
  }

 private:
  static constexpr int64_t kGranulesPerPage = 64;
  /// The index of a granule in `values_`; a byte of `shadow_` stands for it.
  int64_t place(const std::byte* at) {
    const auto granule = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at)) / granule_;
    const int64_t page = granule / kGranulesPerPage;
    if (page != last_page_) go_to(page);
    return first_place_ + granule % kGranulesPerPage;
  }
  void go_to(int64_t page);

  SharedShadow shadow_;
  int granule_;
  std::vector<uint64_t> values_;                // last written
  std::unordered_map<int64_t, int64_t> pages_;  // the first place of each page
  int64_t last_page_ = -1, first_place_ = 0;    // of the last access
};

}  // namespace tessera::codegen::cpu
