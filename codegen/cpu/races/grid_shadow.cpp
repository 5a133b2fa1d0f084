// Two ways of finding races, both on elements: overlapping tensors are one Region, whose element is the greatest common
// divisor of their element sizes and offsets.
//
// Without atomics that order blocks, blocks run on many threads, and no access between two barriers of the grid is ordered
// before one of another cluster. Each access is noted without a lock, and find() looks for conflicts at the barrier. Of all
// blocks that touch an element one way, two suffice: the lowest and the highest. If any two of different clusters
// conflict, then so do the highest of one way and the lowest of the other, or the other way round. Both are maxima of one
// atomic number, block and statement packed (of complements, for the lowest), so the result is the same whatever the order
// of the threads. Most elements are touched once: `first` takes that touch, and a page gets room for the maxima (`Others`)
// at the second. A page is 2 ways * elements of memory and is made when one of its elements is touched.
//
// With such atomics (`order`), one thread runs all blocks, and judge() compares each access with the earlier ones of the ways
// that it conflicts with, unless BlockOrder orders them. An element keeps two earlier accesses of each way; an access that
// is ordered before the new one is replaced, since whatever races with it races with the new one or was found already. A
// third unordered access is not kept: a race may then be missed, and none is made up.

#include "codegen/cpu/races/grid_shadow.h"

#include <algorithm>
#include <numeric>

namespace tessera::codegen::cpu {
namespace {

constexpr int kStatementBits = 24;

/// Packs block and statement into one number, never 0.
uint64_t packed(int64_t block, int32_t statement) {
  return (static_cast<uint64_t>(block) + 1) << kStatementBits | static_cast<uint64_t>(statement);
}

GridConflict::Touch unpacked(Way way, uint64_t touch) {
  return {.way = way,
          .block = static_cast<int64_t>(touch >> kStatementBits) - 1,
          .statement = static_cast<int32_t>(touch & ((uint64_t{1} << kStatementBits) - 1))};
}

/// The object of `place`, created by the first thread that asks.
template <class T>
T& made_once(std::atomic<T*>& place) {
  T* made = place.load(std::memory_order_acquire);
  if (made != nullptr) return *made;
  auto fresh = std::make_unique<T>();
  if (place.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel)) {
    made = fresh.release();
  }
  return *made;
}

/// An atomic maximum, 0 before the first value.
class Highest {
 public:
  void add(uint64_t value) {
    uint64_t old = value_.load(std::memory_order_relaxed);
    while (old < value && !value_.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
    }
  }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace

/// The touches of some elements by one way of access. Most elements are touched once.
struct GridShadow::Page {
  /// Elements that were touched again.
  struct Others {
    std::array<Highest, kElementsPerPage> last;
    std::array<Highest, kElementsPerPage> before_last;  // of the complements, to find the lowest
  };
  std::array<std::atomic<uint64_t>, kElementsPerPage> first{};
  std::atomic<Others*> others{nullptr};

  Page() = default;
  ~Page() { delete others.load(); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  void add(size_t i, uint64_t touch) {
    uint64_t before = first[i].load(std::memory_order_relaxed);
    if (before == touch) return;
    if (before == 0 && first[i].compare_exchange_strong(before, touch, std::memory_order_relaxed)) {
      return;
    }
    Others& more = made_once(others);
    more.last[i].add(touch);
    more.before_last[i].add(~touch);
  }
  bool any(size_t i) const { return first[i].load(std::memory_order_relaxed) != 0; }
  uint64_t highest(size_t i) const {
    const uint64_t one = first[i].load(std::memory_order_relaxed);
    const Others* more = others.load(std::memory_order_acquire);
    return more == nullptr ? one : std::max(one, more->last[i].get());
  }
  uint64_t lowest(size_t i) const {
    const uint64_t one = first[i].load(std::memory_order_relaxed);
    const Others* more = others.load(std::memory_order_acquire);
    return more == nullptr ? one : std::min(one, ~more->before_last[i].get());
  }
};

/// The memory of one tensor, or of several that overlap.
struct GridShadow::Region {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t element_bytes = 1;
  int param = 0;  // the first
  Ways ways;
  size_t num_pages = 0;
  std::array<std::vector<std::atomic<Page*>>, kWays> pages;        // null: not touched this way
  std::array<std::vector<std::unique_ptr<SeenPage>>, kWays> seen;  // used if atomics order blocks

  ~Region() { clear(); }
  void clear() {
    for (auto& of_way : pages) {
      for (std::atomic<Page*>& page : of_way) delete page.exchange(nullptr);
    }
    for (auto& of_way : seen) {
      for (std::unique_ptr<SeenPage>& page : of_way) page.reset();
    }
  }
  Page& page(Way way, size_t element) {
    return made_once(pages[static_cast<size_t>(way)][element / kElementsPerPage]);
  }
  /// Null: no element of it is touched this way.
  const Page* find(Way way, size_t page) const {
    const auto& of_way = pages[static_cast<size_t>(way)];
    return of_way.empty() ? nullptr : of_way[page].load(std::memory_order_acquire);
  }
  /// False if no element of the page was touched twice.
  bool may_conflict(size_t page) const {
    int num_ways = 0;
    bool was_touched_again = false;
    for (const Way way : {Way::read, Way::written, Way::changed}) {
      const Page* const touched = find(way, page);
      if (touched == nullptr) continue;
      ++num_ways;
      was_touched_again =
          was_touched_again || touched->others.load(std::memory_order_acquire) != nullptr;
    }
    return num_ways > 1 || was_touched_again;
  }
};

GridShadow::GridShadow(const std::vector<Tensor>& tensors, int blocks_per_cluster,
                       const BlockOrder* order)
    : places_(tensors.size()), blocks_per_cluster_(blocks_per_cluster), order_(order) {
  std::vector<int> by_address;
  for (int i = 0; i < static_cast<int>(tensors.size()); ++i) {
    const Tensor& tensor = tensors[static_cast<size_t>(i)];
    if (tensor.data != nullptr && tensor.bytes > 0) by_address.push_back(i);
  }
  const auto tensor = [&](int param) -> const Tensor& {
    return tensors[static_cast<size_t>(param)];
  };
  std::stable_sort(by_address.begin(), by_address.end(),
                   [&](int a, int b) { return tensor(a).data < tensor(b).data; });
  for (const int param : by_address) {
    const Tensor& t = tensor(param);
    const bool overlaps =
        !regions_.empty() && t.data < regions_.back()->data + regions_.back()->bytes;
    if (!overlaps) {
      regions_.push_back(std::make_unique<Region>());
      regions_.back()->data = t.data;
      regions_.back()->element_bytes = t.element_bytes;
      regions_.back()->param = param;
    }
    Region& region = *regions_.back();
    const int64_t first_byte = t.data - region.data;
    region.bytes = std::max(region.bytes, first_byte + t.bytes);
    region.element_bytes =
        std::gcd(std::gcd(region.element_bytes, int64_t{t.element_bytes}), first_byte);
    region.param = std::min(region.param, param);
    for (size_t way = 0; way < kWays; ++way) region.ways.used[way] |= t.ways.used[way];
    places_[static_cast<size_t>(param)] = {&region, first_byte, t.bytes};
  }
  // The rest needs no record.
  for (Place& place : places_) {
    if (place.region != nullptr && !place.region->ways.may_race()) place = {};
  }
  std::erase_if(regions_, [&](const auto& region) { return !region->ways.may_race(); });
  for (const auto& region : regions_) {
    const int64_t per_page = region->element_bytes * static_cast<int64_t>(kElementsPerPage);
    region->num_pages = static_cast<size_t>((region->bytes - 1) / per_page + 1);
    for (size_t way = 0; way < kWays; ++way) {
      if (!region->ways.used[way]) continue;
      if (order_ != nullptr) {
        region->seen[way].resize(region->num_pages);
      } else {
        region->pages[way] = std::vector<std::atomic<Page*>>(region->num_pages);
      }
    }
  }
  std::sort(regions_.begin(), regions_.end(),
            [](const auto& a, const auto& b) { return a->param < b->param; });
}

GridShadow::~GridShadow() = default;

void GridShadow::note(int param, int64_t byte, int64_t bytes, Way way, int64_t block,
                      int32_t statement, const BlockOrder::CurrentThread& current) {
  const Place& place = places_[static_cast<size_t>(param)];
  if (place.region == nullptr) return;
  Region& region = *place.region;
  const uint64_t touch = packed(block, statement);
  const auto begin = static_cast<size_t>((place.first_byte + byte) / region.element_bytes);
  const auto end =
      static_cast<size_t>((place.first_byte + byte + bytes - 1) / region.element_bytes);
  if (order_ != nullptr) {
    const Seen access{order_->epoch(current), statement};
    for (size_t element = begin; element <= end; ++element) {
      judge(region, element, way, access, current);
    }
    return;
  }
  for (size_t element = begin; element <= end;) {
    Page& page = region.page(way, element);
    const size_t next = std::min(end + 1, (element / kElementsPerPage + 1) * kElementsPerPage);
    for (; element < next; ++element) page.add(element % kElementsPerPage, touch);
  }
}

void GridShadow::judge(Region& region, size_t element, Way way, const Seen& access,
                       const BlockOrder::CurrentThread& current) {
  const auto is_ordered = [&](const Seen& seen) {
    return seen.at.cluster == current.cluster || order_->is_before(seen.at, current);
  };
  for (const Way other : {Way::written, Way::changed, Way::read}) {
    const bool conflicts = way == Way::written || other == Way::written || way != other;
    const auto& of_way = region.seen[static_cast<size_t>(other)];
    if (!conflicts || judged_ || of_way.empty()) continue;
    const SeenPage* page = of_way[element / kElementsPerPage].get();
    if (page == nullptr) continue;
    for (const Seen& seen : (*page)[element % kElementsPerPage]) {
      if (seen.statement == 0 || is_ordered(seen) || judged_) continue;
      const GridConflict::Touch now{way, access.at.block, access.statement};
      const GridConflict::Touch before{other, seen.at.block, seen.statement};
      const bool now_first = way == Way::written || (way == Way::changed && other == Way::read);
      judged_ = named({.one = now_first ? now : before, .other = now_first ? before : now}, region,
                      element);
    }
  }
  std::unique_ptr<SeenPage>& page =
      region.seen[static_cast<size_t>(way)][element / kElementsPerPage];
  if (page == nullptr) page = std::make_unique<SeenPage>();
  auto& kept = (*page)[element % kElementsPerPage];
  // An access that is ordered before this one adds nothing to it.
  const auto replaced = std::find_if(kept.begin(), kept.end(), [&](const Seen& seen) {
    const bool own = seen.at.cluster == current.cluster && seen.at.thread == current.thread;
    return seen.statement == 0 || own || order_->is_before(seen.at, current);
  });
  if (replaced != kept.end()) *replaced = access;
}

GridConflict GridShadow::named(GridConflict conflict, const Region& region, size_t element) const {
  const int64_t byte = static_cast<int64_t>(element) * region.element_bytes;
  const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) {
    return p.region == &region && byte >= p.first_byte && byte < p.first_byte + p.bytes;
  });
  conflict.param = static_cast<int>(place - places_.begin());
  conflict.byte = byte - place->first_byte;
  return conflict;
}

std::optional<GridConflict> GridShadow::find_at(const Region& region, size_t element) const {
  constexpr std::array<std::array<Way, 2>, 4> kConflicts = {{{Way::written, Way::written},
                                                             {Way::written, Way::read},
                                                             {Way::written, Way::changed},
                                                             {Way::changed, Way::read}}};
  for (const auto& ways : kConflicts) {
    const Way one = ways[0], other = ways[1];
    const Page* const a = region.find(one, element / kElementsPerPage);
    const Page* const b = region.find(other, element / kElementsPerPage);
    const size_t i = element % kElementsPerPage;
    if (a == nullptr || b == nullptr || !a->any(i) || !b->any(i)) continue;
    GridConflict found;
    const auto conflict = [&](uint64_t x, uint64_t y) {
      found.one = unpacked(one, x);
      found.other = unpacked(other, y);
      return found.one.block / blocks_per_cluster_ != found.other.block / blocks_per_cluster_;
    };
    if (!conflict(a->highest(i), b->lowest(i)) && !conflict(a->lowest(i), b->highest(i))) continue;
    return named(found, region, element);
  }
  return std::nullopt;
}

std::optional<GridConflict> GridShadow::find() const {
  if (order_ != nullptr) return judged_;
  for (const auto& region : regions_) {
    for (size_t page = 0; page < region->num_pages; ++page) {
      if (!region->may_conflict(page)) continue;
      for (size_t i = 0; i < kElementsPerPage; ++i) {
        if (auto found = find_at(*region, page * kElementsPerPage + i)) return found;
      }
    }
  }
  return std::nullopt;
}

void GridShadow::clear() {
  judged_.reset();
  for (const auto& region : regions_) region->clear();
}

}  // namespace tessera::codegen::cpu
