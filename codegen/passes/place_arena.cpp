#include "codegen/passes/place_arena.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "codegen/analysis/footprint.h"
#include "codegen/analysis/shared_lifetimes.h"
#include "codegen/thread_ir/replace_shared.h"
#include "dsl/base/error.h"
#include "dsl/base/target_facts.h"
#include "dsl/layout/swizzle.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kArenaAlign = 128;
constexpr int64_t kMbarrierBytes = 8;  // size and alignment

int64_t round_up(int64_t bytes, int64_t align) {
  return (bytes + align - 1) / align * align;
}

int64_t bytes_of(const Array& array) {
  return round_up((array.size * bits(array.dtype) + 7) / 8, kArenaAlign);
}

/// Places of a program's arrays.
class Arena {
 public:
  explicit Arena(const Program& program, std::vector<std::shared_ptr<Array>> arrays)
      : facts_(facts_of(program.target)),
        threads_(program.threads),
        arrays_(std::move(arrays)),
        lifetimes_(shared_lifetimes(program)) {}

  /// Gives each array its place and returns the size of the arena.
  int64_t place() {
    int64_t sum = 0;
    for (const auto& array : arrays_) {
      if (!array->is_mbarriers()) sum += bytes_of(*array);
    }
    const int64_t most = facts_.threads / threads_;
    if (blocks_of(sum) >= most) return place(Sharing::no);
    const int64_t end = place(Sharing::yes);
    const int64_t blocks = blocks_of(end);
    if (blocks >= most || !any_in_flight()) return end;
    const int64_t with_waits = place(Sharing::after_waits);
    if (blocks_of(with_waits) > blocks) return with_waits;
    return place(Sharing::yes);
  }

  /// The array that makes place for one in its memory.
  std::vector<const Array*> before(const Array& array) const {
    std::vector<const Array*> result;
    const auto later = lifetimes_.find(&array);
    if (later == lifetimes_.end()) return result;
    for (const auto& other : arrays_) {
      const auto earlier = lifetimes_.find(other.get());
      const bool is_before =
          earlier != lifetimes_.end() && end_of(earlier->second) < later->second.first;
      if (is_before && overlap(*other, array)) result.push_back(other.get());
    }
    return result;
  }

  /// The outermost statements behind which a wait for all groups stands now.
  std::set<size_t> waits() const {
    std::set<size_t> result;
    for (const auto& array : arrays_) {
      for (const Array* other : before(*array)) {
        const Lifetime& lifetime = lifetimes_.at(other);
        if (lifetime.ends_if_awaited) result.insert(*lifetime.ends_if_awaited);
      }
    }
    return result;
  }

 private:
  enum class Sharing : uint8_t { no, yes, after_waits };

  /// Blocks of a multiprocessor, as far as their arena and their threads go.
  int64_t blocks_of(int64_t arena) const {
    return std::min<int64_t>(facts_.threads / threads_,
                             facts_.shared_memory / std::max<int64_t>(arena, 1));
  }

  static size_t end_of(const Lifetime& lifetime) {
    return lifetime.ends_if_awaited.value_or(lifetime.last);
  }

  bool any_in_flight() const {
    return std::any_of(lifetimes_.begin(), lifetimes_.end(),
                       [](const auto& entry) { return entry.second.ends_if_awaited.has_value(); });
  }

  bool are_in_use_together(const Array& a, const Array& b, Sharing sharing) const {
    const auto one = lifetimes_.find(&a);
    const auto other = lifetimes_.find(&b);
    if (sharing == Sharing::no || one == lifetimes_.end() || other == lifetimes_.end()) return true;
    if (sharing == Sharing::yes) return one->second.meets(other->second);
    return one->second.first <= end_of(other->second) && other->second.first <= end_of(one->second);
  }

  /// One after the other, or each at the lowest offset that is free during its lifetime.
  int64_t place(Sharing sharing) {
    int64_t end = 0;
    std::vector<const Array*> done;
    for (const auto& array : arrays_) {
      Array& placed = *array;
      if (placed.is_mbarriers()) continue;
      placed.shared_offset = 0;
      std::sort(done.begin(), done.end(),
                [](const Array* a, const Array* b) { return a->shared_offset < b->shared_offset; });
      for (const Array* other : done) {
        const int64_t other_end = other->shared_offset + bytes_of(*other);
        const bool meet = placed.shared_offset < other_end &&
                          other->shared_offset < placed.shared_offset + bytes_of(placed);
        if (meet && are_in_use_together(placed, *other, sharing)) {
          placed.shared_offset = round_up(other_end, placed.align);
        }
      }
      done.push_back(&placed);
      end = std::max(end, placed.shared_offset + (placed.size * bits(placed.dtype) + 7) / 8);
    }
    // The memory of an mbarrier is never reused.
    for (const auto& array : arrays_) {
      if (!array->is_mbarriers()) continue;
      array->shared_offset = round_up(end, kMbarrierBytes);
      end = array->shared_offset + array->size * kMbarrierBytes;
    }
    return end;
  }

  const TargetFacts facts_;
  const int threads_;  // of the block
  const std::vector<std::shared_ptr<Array>> arrays_;
  const std::map<const Array*, Lifetime> lifetimes_;
};

void require_room(const Program& program) {
  const int64_t limit = facts_of(program.target).shared_memory;
  if (program.shared_bytes <= limit) return;
  ErrorFields fields;
  fields.kind = ErrorKind::program;
  fields.op = program.name;
  fields.code = "SMEM_LIMIT";
  fields.what = "the block needs more shared memory than there is";
  fields.expected = fmt::format("at most {} bytes on {}", limit, to_string(program.target));
  for (const ArrayRef& array : program.shared) {
    fields.got += fmt::format("{}{} {} bytes", fields.got.empty() ? "" : ", ", array->name,
                              array->size * bits(array->dtype) / 8);
  }
  fields.loc = program.shared.back()->loc;
  throw Error(std::move(fields));
}

}  // namespace

std::vector<std::string> place_arena(Program& program) {
  std::vector<std::shared_ptr<Array>> arrays;
  std::map<ArrayRef, ArrayRef> placed;
  for (const ArrayRef& array : program.shared) {
    arrays.push_back(std::make_shared<Array>(*array));
    placed[array] = arrays.back();
  }
  replace_shared(program, placed);
  // The most aligned first, so that nothing is lost between them.
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto& a, const auto& b) { return a->align > b->align; });
  Arena arena(program, arrays);
  program.shared_bytes = arena.place();
  require_room(program);
  std::vector<std::string> notes;
  for (const ArrayRef& array : program.shared) {
    const std::vector<const Array*> before = arena.before(*array);
    std::vector<std::string> names;  // in the order of the program
    for (const ArrayRef& other : program.shared) {
      const bool is_before = std::find(before.begin(), before.end(), other.get()) != before.end();
      if (is_before) names.push_back("'" + other->name + "'");
    }
    notes.push_back(
        fmt::format("{}: shared '{}' at byte {}{}: {}", to_string(array->loc), array->name,
                    array->shared_offset,
                    names.empty() ? "" : fmt::format(", after {}", fmt::join(names, ", ")),
                    layout::to_string(*array->swizzle)));
  }
  const std::set<size_t> waits = arena.waits();
  for (auto at = waits.rbegin(); at != waits.rend(); ++at) {
    const SourceLoc loc = program.body[*at].loc;
    notes.push_back(fmt::format("{}: all copies are awaited behind it: their tiles make place",
                                to_string(loc)));
    program.body.insert(program.body.begin() + static_cast<std::ptrdiff_t>(*at) + 1,
                        Stmt{Await{}, loc});
  }
  return notes;
}

}  // namespace tessera::codegen
