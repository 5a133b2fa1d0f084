// The role of sparse_mla_decode that fills the ring of keys: it reads entries of a cache in the bytes of their format and
// stores them as bf16. So the products are those of sparse_mla_fwd, and 8-bit rows cost bandwidth alone.
//
// Method   four lanes have an entry, a warp eight of them. In a step of 64 channels a lane has a piece of 16, whose scale is one.
//          What a lane holds of a block it loads while it converts the block before: each piece is loaded as soon as its
//          registers are free, so the loads of a block are on their way through a whole round. The index of an entry is
//          loaded one more block ahead.
// Maths    bf16(code * scale) in f32, exact where the scale is a power of two: the value that kv_load gives.
//          Words of scales are spread over the lanes of an entry, which pass them on.
// Bound    bytes of the entries: of a block 42 KB in v32_fp8, 37 KB in v4_fp8, 34 KB in v41_fp8, 18 KB in v41_fp4.
// Measured one H200, us: v32_fp8, 2048 entries: 8 x 16 heads in 16 splits 25 (goal 11), 64 x 8 heads in two 51 (36), 256 x 128
//          heads 1006 (443). v4_fp8, 128 + 512 entries, 256 x 64 heads 200 (80). v41_fp8 with v41_fp4, 256 x 64 heads 233 (95). 64
//          and 128 heads convert each entry two and four times; bf16 rows for 64 heads are multiplied by two groups.
// Lost     640 threads, eight warps of them for values: 96 registers spill with 32 rows. Arrays of e2m1: a register for each
//          code, so pairs of codes stay bytes until they are stored.
// Banks    lanes of two rows store together: with the swizzle of 128 bytes they cover all banks once.

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/attention/mla/parts/mla_roles.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;
using serving::CacheBytes;
using serving::CacheLayout;

constexpr auto kI32 = DType::i32;
constexpr auto kBf16 = DType::bf16;
constexpr int64_t kPiece = 16, kLanesOfEntry = 4, kStep = kPiece * kLanesOfEntry;  // channels
constexpr int64_t kEntriesOfWarp = 32 / kLanesOfEntry;
constexpr int64_t kStored = 8;  // elements of an access to the tile

/// The bytes of one entry that a lane holds, in the format of either list. Its scales lie in words, which the lanes of an entry
/// share: the scales of a step are in one word.
class HeldEntry {
 public:
  HeldEntry(dsl::Builder& k, const MlaLists& lists)
      : k_(k),
        codes_(k.local(DType::e4m3, {lists.cache.layout().coded / kLanesOfEntry}, "codes")),
        words_(k.local(DType::u32, {2, kMostWords}, "words")) {
    if (lists.cache.layout().bf16_bytes() > 0) rotated_ = k.local(kBf16, {kPiece}, "rotated");
  }

  /// Lanes pass on the words of entries that are none.
  void clear_scales() const {
    k_.unrolled(kMostWords, [&](Value i) { words_(0, i) = 0, words_(1, i) = 0; });
  }
  /// Loads the lane's scales of an entry that is to come, and takes them where its codes are all there.
  void load_scales(const CacheBytes& from, const CacheBytes::Slot& slot) const {
    const int64_t all = from.layout().scale_bytes / kWord, own = words_of_lane(from.layout());
    for (int64_t i = 0; i < own; ++i) {
      words_(1, i) = from.scale(slot, (k_.lane() % kLanesOfEntry * dsl::i32(own) + i) % all);
    }
  }
  void take_scales(const CacheBytes& of) const {
    for (int64_t i = 0; i < words_of_lane(of.layout()); ++i) words_(0, i) = words_(1, i);
  }

  /// Loads the lane's piece of a step, in accesses of `access` bytes of codes.
  void load(const CacheBytes& from, const CacheBytes::Slot& slot, int64_t access,
            int64_t step) const {
    const CacheLayout& layout = from.layout();
    const Value channel = channel_of(step);
    if (!is_coded(layout, step)) {
      return in_pieces(kPiece, access / bytes(kBf16),
                       [&](const Value& i) { (*rotated_)(i) = from.rotated(slot, channel + i); });
    }
    const int64_t of_byte = 8 / bits(layout.codes);
    in_pieces(kPiece / of_byte, access, [&](const Value& i) {
      codes_(step * kPiece + i) = from.code(slot, channel / dsl::i32(of_byte) + i);
    });
  }

  /// The scale of the lane's piece. All lanes of the warp come together.
  Value scale(const CacheBytes& of, int64_t step) const {
    const CacheLayout& layout = of.layout();
    if (!is_coded(layout, step)) return dsl::f32(0.0f);
    const int64_t size = bytes(layout.scale), own = words_of_lane(layout);
    const int64_t word = step * kStep / layout.group * size / kWord;
    Value mine = words_(0, word % own);
    const Value lane = k_.lane() / kLanesOfEntry * kLanesOfEntry + word / own;
    auto held = k_.let("scale_word", k_.shuffle(mine, lane));
    const Value byte = channel_of(step) / dsl::i32(layout.group) * dsl::i32(size) % kWord;
    return k_.let("scale", of.scale_in_word(held, byte));
  }

  void store(const CacheBytes& of, int64_t step, const Value& scale, const Ref& row) const {
    const CacheLayout& layout = of.layout();
    const Value channel = channel_of(step);
    in_pieces(kPiece, kStored, [&](const Value& i) {
      if (!is_coded(layout, step)) {
        row(channel + i) = (*rotated_)(i);
      } else if (bits(layout.codes) == 8) {
        row(channel + i) = of.value_of(codes_(step * kPiece + i), scale);
      } else {
        const Value code = of.code_of_pair(codes_(step * kPiece + i / 2), i % 2);
        row(channel + i) = of.value_of(code, scale);
      }
    });
  }

  void store_zeros(int64_t step, const Ref& row) const {
    const Value channel = channel_of(step);
    in_pieces(kPiece, kStored, [&](const Value& i) { row(channel + i) = dsl::cast(kBf16, 0.0f); });
  }

 private:
  static constexpr int64_t kWord = 4, kMostWords = 2;  // bytes of a word; words of a lane
  static int64_t words_of_lane(const CacheLayout& layout) {
    return std::max<int64_t>(layout.scale_bytes / kWord / kLanesOfEntry, 1);
  }
  static bool is_coded(const CacheLayout& layout, int64_t step) {
    return step * kStep < layout.coded;
  }
  Value channel_of(int64_t step) const { return k_.lane() % kLanesOfEntry * kPiece + step * kStep; }
  /// Runs `body` for each of `count` elements, in accesses of at most `width`.
  template <class Body>
  void in_pieces(int64_t count, int64_t width, const Body& body) const {
    const int64_t at_once = std::min(count, width);
    k_.unrolled(count / at_once, [&](Value piece) {
      k_.vectorized(at_once, [&](Value i) { body(piece * at_once + i); });
    });
  }

  dsl::Builder& k_;
  const Ref codes_, words_;  // words: of this entry and of the next one
  std::optional<Ref> rotated_;
};

/// An entry of each round that a lane has: its row of the tile, what it holds of the entry in the cache, and what is known of
/// those of the next rounds.
struct Entry {
  Entry(dsl::Builder& k, const MlaLists& lists, const Value& row_of_tile)
      : row(row_of_tile),
        held(k, lists),
        index(k.var(kI32, -1, "index")),
        block(k.var(kI32, 0, "block_of_entry")),
        offset(k.var(kI32, 0, "offset_of_entry")),
        is_there(k.var(kI32, 0, "is_there")),
        is_next(k.var(kI32, 0, "is_next")) {}

  Value row;
  HeldEntry held;
  Ref index;              // of the next block but one while a block is converted
  Ref block, offset;      // of the next block
  Ref is_there, is_next;  // of the block and of the next one: 0 or 1
};

class ListedKeys final : public MlaLoad {
 public:
  ListedKeys(MlaTensors& t, MlaRings& to)
      : t_(t), k_(t.k), lists_(*t.lists), to_(to), at_(t), steps_(t.spec.width / kStep) {
    const int64_t warps = t.load_warps();
    for (int64_t i = 0; i < kLatentKeys / (warps * kEntriesOfWarp); ++i) {
      auto row = k_.let("row_of_tile", k_.warp() * kEntriesOfWarp + i * (warps * kEntriesOfWarp) +
                                           k_.lane() / kLanesOfEntry);
      entries_.emplace_back(k_, lists_, row);
    }
  }

  void run(const Value& request, const Value& item) override {
    at_.find(request, item);
    token_ = k_.let("token", at_.row / t_.heads);
    if (has_two()) first_blocks_ = k_.let("first_blocks", lists_.lengths.first_blocks());
    for (const Entry& entry : entries_) {
      entry.held.clear_scales();
      find_index(entry, at_.first);
      find_slot(entry, at_.first);
      load_scales(entry, at_.first);
      load(entry, at_.first);
      find_index(entry, at_.first + 1);
    }
    k_.serial(at_.first, at_.end, [&](Value j) { to_.keys.fill([&] { turn(j); }); });
  }

 private:
  bool has_two() const { return lists_.extra_cache.has_value(); }
  /// Runs `first` or `second`, whichever list a block is of.
  void by_list(const Value& j, const std::function<void()>& first,
               const std::function<void()>& second) {
    if (!has_two()) return first();
    k_.if_else(j < first_blocks_, first, second);
  }

  /// Runs `body` with the format of a block. Caches of one format need it once.
  void by_format(const Value& j, const std::function<void(const CacheBytes&)>& body) {
    if (t_.spec.extra.format == t_.spec.listed.format) return body(lists_.cache);
    by_list(
        j, [&] { body(lists_.cache); }, [&] { body(*lists_.extra_cache); });
  }

  void turn(const Value& j) {
    auto next = k_.let("next", j + 1);
    for (const Entry& entry : entries_) {
      k_.if_(k_.lane() % kLanesOfEntry == 0, [&] { to_.has_page(entry.row) = entry.is_next; });
      entry.is_there = entry.is_next;
      find_slot(entry, next);
      by_format(j, [&](const CacheBytes& of) { entry.held.take_scales(of); });
      load_scales(entry, next);
      for (int64_t step = 0; step < steps_; ++step) {
        by_format(j, [&](const CacheBytes& of) { store(entry, of, step); });
        k_.if_(entry.is_next == 1, [&] { load_step(entry, next, step); });
      }
      find_index(entry, next + 1);
    }
  }

  /// The index of the entry's row in block j.
  void find_index(const Entry& entry, const Value& j) {
    entry.index = -1;
    k_.if_(j < at_.end, [&] {
      auto place = k_.let("place", j * kLatentKeys + entry.row);
      by_list(
          j,
          [&] {
            const Value length = lists_.lengths.first(k_, at_.request, false);
            k_.if_(place < length, [&] { entry.index = t_.table(at_.request, token_, place); });
          },
          [&] {
            auto of_second = k_.let("place_of_second", place - first_blocks_ * kLatentKeys);
            const Value length = lists_.lengths.second(k_, at_.request, false);
            k_.if_(of_second < length,
                   [&] { entry.index = (*lists_.extra_indices)(at_.request, token_, of_second); });
          });
    });
  }

  /// The slot of the entry's index, of block j.
  void find_slot(const Entry& entry, const Value& j) {
    const auto find = [&](const CacheBytes& bytes) {
      Value index = entry.index;
      const CacheBytes::Slot slot = bytes.slot(index);
      entry.is_next = dsl::i32(slot.exists), entry.block = slot.block, entry.offset = slot.offset;
    };
    by_list(
        j, [&] { find(lists_.cache); }, [&] { find(*lists_.extra_cache); });
  }

  /// Stores the lane's piece of a step as bf16.
  void store(const Entry& entry, const CacheBytes& bytes, int64_t step) {
    const Ref row = to_.key_tile(entry.row);
    const Value scale = entry.held.scale(bytes, step);
    k_.if_else(
        entry.is_there == 1, [&] { entry.held.store(bytes, step, scale, row); },
        [&] { entry.held.store_zeros(step, row); });
  }

  CacheBytes::Slot slot_of(const Entry& entry) {
    Value block = entry.block, offset = entry.offset;
    return {dsl::i32(1) == 1, block, offset};
  }
  void load_scales(const Entry& entry, const Value& j) {
    k_.if_(entry.is_next == 1, [&] {
      const CacheBytes::Slot slot = slot_of(entry);
      by_list(
          j, [&] { entry.held.load_scales(lists_.cache, slot); },
          [&] { entry.held.load_scales(*lists_.extra_cache, slot); });
    });
  }
  void load_step(const Entry& entry, const Value& j, int64_t step) {
    const CacheBytes::Slot slot = slot_of(entry);
    by_list(
        j, [&] { entry.held.load(lists_.cache, slot, t_.spec.code_bytes, step); },
        [&] { entry.held.load(*lists_.extra_cache, slot, t_.spec.extra_code_bytes, step); });
  }
  void load(const Entry& entry, const Value& j) {
    k_.if_(entry.is_next == 1, [&] {
      for (int64_t step = 0; step < steps_; ++step) load_step(entry, j, step);
    });
  }

  MlaTensors& t_;
  dsl::Builder& k_;
  const MlaLists& lists_;
  MlaRings& to_;
  PagedPlace at_;
  const int64_t steps_;
  std::vector<Entry> entries_;
  Value token_, first_blocks_;
};

}  // namespace

std::unique_ptr<MlaLoad> make_listed_load(MlaTensors& t, MlaRings& rings) {
  return std::make_unique<ListedKeys>(t, rings);
}

}  // namespace tessera::kernels::attention
