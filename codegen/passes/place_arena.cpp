#include "codegen/passes/place_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "codegen/analysis/shared_lifetimes.h"
#include "codegen/thread_ir/replace_shared.h"
#include "dsl/base/error.h"
#include "dsl/layout/swizzle.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kArenaAlign = 128;
constexpr int64_t kMbarrierBytes = 8;  // size and alignment
constexpr int kDeviceThreads = 2048;   // of one SM
constexpr int64_t kArenaLimit =
    227 * 1024;  // limit of a block on sm_90; smaller devices report at load

int64_t round_up(int64_t bytes, int64_t align) {
  return (bytes + align - 1) / align * align;
}

int64_t bytes_of(const Array& array) {
  return round_up((array.size * bits(array.dtype) + 7) / 8, kArenaAlign);
}

/// True if the shared-memory arena does not limit occupancy.
bool fills_the_device(int64_t arena, int threads) {
  return arena * (kDeviceThreads / threads) <= kArenaLimit;
}

/// Places arrays one after the other. If that limits occupancy, arrays with disjoint lifetimes
/// share memory, each at the lowest free offset. Returns the size of the arena.
int64_t choose_places(const Program& program, const std::vector<std::shared_ptr<Array>>& arrays) {
  int64_t sum = 0;
  for (const auto& array : arrays) {
    if (!array->is_mbarriers()) sum += bytes_of(*array);
  }
  const bool share = !fills_the_device(sum, program.threads);
  const std::map<const Array*, Lifetime> lifetimes = shared_lifetimes(program);
  const auto in_use_together = [&](const Array& a, const Array& b) {
    const auto one = lifetimes.find(&a);
    const auto other = lifetimes.find(&b);
    const bool known = one != lifetimes.end() && other != lifetimes.end();
    return !share || !known || one->second.meets(other->second);
  };
  int64_t end = 0;
  std::vector<const Array*> done;
  for (const auto& array : arrays) {
    Array& placed = *array;
    if (placed.is_mbarriers()) continue;
    placed.shared_offset = 0;
    std::sort(done.begin(), done.end(),
              [](const Array* a, const Array* b) { return a->shared_offset < b->shared_offset; });
    for (const Array* other : done) {
      const int64_t other_end = other->shared_offset + bytes_of(*other);
      const bool overlap = placed.shared_offset < other_end &&
                           other->shared_offset < placed.shared_offset + bytes_of(placed);
      if (overlap && in_use_together(placed, *other)) {
        placed.shared_offset = round_up(other_end, placed.align);
      }
    }
    done.push_back(&placed);
    end = std::max(end, placed.shared_offset + (placed.size * bits(placed.dtype) + 7) / 8);
  }
  // The memory of an mbarrier is never reused.
  for (const auto& array : arrays) {
    if (!array->is_mbarriers()) continue;
    array->shared_offset = round_up(end, kMbarrierBytes);
    end = array->shared_offset + array->size * kMbarrierBytes;
  }
  return end;
}

void require_room(const Program& program) {
  if (program.shared_bytes <= kArenaLimit) return;
  ErrorFields fields;
  fields.kind = ErrorKind::program;
  fields.op = program.name;
  fields.code = "SMEM_LIMIT";
  fields.what = "the block needs more shared memory than there is";
  fields.expected = fmt::format("at most {} bytes", kArenaLimit);
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
  program.shared_bytes = choose_places(program, arrays);
  require_room(program);
  std::vector<std::string> notes;
  for (const ArrayRef& array : program.shared) {
    notes.push_back(fmt::format("{}: shared '{}' at byte {}: {}", to_string(array->loc),
                                array->name, array->shared_offset,
                                layout::to_string(*array->swizzle)));
  }
  return notes;
}

}  // namespace tessera::codegen
