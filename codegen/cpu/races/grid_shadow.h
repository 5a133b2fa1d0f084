#pragma once
// Records which blocks touched each element of the tensors that a grid writes, to find races between
// two grid barriers. Ignores races within a cluster, whose blocks have their own barriers.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "codegen/cpu/races/block_order.h"

namespace tessera::codegen::cpu {

enum class Way : uint8_t { read, written, changed };  // changed: atomically
inline constexpr int kWays = 3;
/// The ways in which a program accesses a tensor.
struct Ways {
  std::array<bool, kWays> used{};

  bool& operator[](Way way) { return used[static_cast<size_t>(way)]; }
  bool operator[](Way way) const { return used[static_cast<size_t>(way)]; }
  /// False of memory that is only read, or only changed atomically.
  bool may_race() const {
    return used[static_cast<size_t>(Way::written)] ||
           (used[static_cast<size_t>(Way::changed)] && used[static_cast<size_t>(Way::read)]);
  }
};
inline const char* name(Way way) {
  return way == Way::read ? "read" : way == Way::written ? "written" : "changed atomically";
}

/// Two blocks of different clusters that access one element: at least one does more than read, and
/// not both are atomic.
struct GridConflict {
  struct Touch {
    Way way = Way::read;
    int64_t block = 0;  // counted with x fastest
    int32_t statement = 0;
  };
  int param = 0;     // the first that has the element
  int64_t byte = 0;  // from its start
  Touch one, other;
};

/// Tensors with overlapping memory count as one. Several threads may call note(). Its records, and
/// so the result of find(), do not depend on their order: the lowest and the highest block per way
/// of access, each with its lowest or highest statement.
///
/// Where atomics order blocks, one thread judges each access when it is made, against at most two
/// earlier unordered accesses of each way.
class GridShadow {
 public:
  struct Tensor {
    const std::byte* data = nullptr;  // null: absent
    int64_t bytes = 0;
    int element_bytes = 1;
    Ways ways;
  };
  /// `tensors`: by parameter.
  GridShadow(const std::vector<Tensor>& tensors, int blocks_per_cluster,
             const BlockOrder* order = nullptr);
  ~GridShadow();

  /// An access of `bytes` bytes of parameter `param` from `byte` on. `current`: the thread, where atomics
  /// order blocks.
  void note(int param, int64_t byte, int64_t bytes, Way way, int64_t block, int32_t statement,
            const BlockOrder::CurrentThread& current = {});
  /// The conflict at the lowest address of the first tensor that has one; where atomics order blocks,
  /// the first conflict in time.
  std::optional<GridConflict> find() const;
  /// A barrier of the grid: no access before it conflicts with one after it.
  void clear();

 private:
  static constexpr size_t kElementsPerPage = 1024;
  struct Page;
  struct Region;
  std::optional<GridConflict> find_at(const Region& region, size_t element) const;
  /// An access where atomics order blocks.
  struct Seen {
    BlockOrder::Epoch at;
    int32_t statement = 0;  // 0 = none
  };
  using SeenPage = std::array<std::array<Seen, 2>, kElementsPerPage>;
  void judge(Region& region, size_t element, Way way, const Seen& access,
             const BlockOrder::CurrentThread& current);
  /// Adds to `conflict` the tensor of the element and its place.
  GridConflict named(GridConflict conflict, const Region& region, size_t element) const;

  std::vector<std::unique_ptr<Region>> regions_;
  struct Place {
    Region* region = nullptr;  // null: no conflict is possible
    int64_t first_byte = 0;    // of the tensor in the region
    int64_t bytes = 0;
  };
  std::vector<Place> places_;  // by parameter
  int blocks_per_cluster_;
  const BlockOrder* order_;             // null = only grid barriers order blocks
  std::optional<GridConflict> judged_;  // the first unordered conflict
};

}  // namespace tessera::codegen::cpu
