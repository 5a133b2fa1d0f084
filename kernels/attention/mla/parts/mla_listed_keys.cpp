// The role `load` of sparse_mla_decode: it reads entries of a cache in the bytes of their format and stores them as bf16. So the
// products are those of sparse_mla_fwd, and 8-bit rows cost bandwidth alone.
//
// Units    four lanes have an entry, a warp eight of them. A unit is the codes of 256 channels of as many entries as the warps
//          take at once. A lane holds two units: while it converts one it loads, into the registers that become free, the
//          unit after the next.
// Waits    ptxas counts all these loads with one scoreboard, so a wait is for the youngest of them. A piece begins with one:
//          loads stand behind it, a barrier of the warp after each step keeps them from sinking below all steps. Warps need no
//          other barrier, so some convert while others wait.
// Slots    a lane finds the slot of one entry of its warp and hands it over by shuffles. Its index is loaded a block ahead.
// Maths    bf16(code * scale) in f32, exact where the scale is a power of two: the value that kv_load gives. Codes and scales of
//          an entry that is none are zeros.
// Bound    bytes of the entries: of a block 42 KB in v32_fp8, 37 KB in v4_fp8, 34 KB in v41_fp8, 18 KB in v41_fp4.
//          Conversions take six instructions for two codes: about 15 clocks of an SM for an entry, if nothing waits.
// Measured one H200, us, in brackets the goal: v32_fp8, 2048 entries: 8 x 16 heads in 16 splits 22.3 (11), 64 x 8 heads in two
//          48 (36), 256 x 128 heads 475 (443). v4_fp8, 128 + 512 entries, 256 x 64 heads 109 (80), 1 x 64 heads 29.4, in ten
//          splits 12.5 (8); 128 + 1024, 256 x 128 heads 304 (220). v41_fp8 with v41_fp4, 256 x 64 heads 155 (95), 1024 x 64 597.
// Lost     in the same run: slots in shared memory, with two barriers of the role for each block, and rotated channels as a gather
//          in the background: 55.8, 537, 119, 339. In another: tiles of 32 rows for 64 heads and more: 750, 139, 430; of 64 for
//          v41_fp4, which four warps convert: 220, 853.
//          640 threads, eight warps of them for values: 96 registers spill with 32 rows. Arrays of e2m1: a register for each
//          code, so pairs of codes stay bytes until they are stored.
// Banks    lanes of two rows store together: with the swizzle of 128 bytes they cover all banks once.

#include <algorithm>
#include <functional>
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
constexpr int64_t kUnit = 256, kStepsOfUnit = kUnit / kStep;  // channels, steps
constexpr int64_t kHeld = 2;                                  // units
constexpr int64_t kStored = 8;                                // elements of an access to the tile
constexpr int64_t kWord = 4;                                  // bytes

/// The words of scales of a unit.
int64_t scale_words(const CacheLayout& layout) {
  return kUnit / layout.group * bytes(layout.scale) / kWord;
}

/// The codes of one unit that a lane holds, in the format of either list.
class HeldUnit {
 public:
  HeldUnit(dsl::Builder& k, const MlaLists& lists)
      : k_(k),
        codes_(k.local(DType::e4m3, {kStepsOfUnit * kPiece}, "codes")),
        words_(k.local(DType::u32, {most_words(lists)}, "words")) {}

  void load_words(const CacheBytes& from, const CacheBytes::Slot& slot, int64_t section) const {
    const int64_t count = scale_words(from.layout());
    for (int64_t i = 0; i < count; ++i) words_(i) = dsl::u32(0);
    k_.if_(slot.exists, [&] {
      for (int64_t i = 0; i < count; ++i) {
        words_(i) = from.scale(slot, dsl::i32(section * count + i));
      }
    });
  }
  /// Loads the lane's piece of a step, in accesses of `access` bytes of codes.
  void load(const CacheBytes& from, const CacheBytes::Slot& slot, int64_t access, int64_t section,
            int64_t step) const {
    const int64_t of_byte = codes_of_byte(from);
    const auto each = [&](const std::function<void(const Value&)>& body) {
      in_pieces(kPiece / of_byte, access, [&](const Value& i) { body(i); });
    };
    each([&](const Value& i) { codes_(step * kPiece + i) = dsl::cast(DType::e4m3, 0.0f); });
    k_.if_(slot.exists, [&] {
      const Value first = lane_channel() + (section * kUnit + step * kStep);
      each([&](const Value& i) {
        codes_(step * kPiece + i) = from.code(slot, first / dsl::i32(of_byte) + i);
      });
    });
  }

  std::vector<Value> words(const CacheBytes& of) const {
    std::vector<Value> words;
    for (int64_t i = 0; i < scale_words(of.layout()); ++i) {
      Value word = words_(i);
      words.push_back(k_.let("scale_word", word));
    }
    return words;
  }
  /// Stores the lane's piece of a step as bf16, in row `row` of a tile from column `column` on.
  void store(const CacheBytes& of, const std::vector<Value>& words, int64_t step, const Ref& row,
             int64_t column) const {
    const CacheLayout& layout = of.layout();
    const int64_t size = bytes(layout.scale), at = step * kStep / layout.group * size;
    const Value in_word = lane_channel() / dsl::i32(layout.group) * dsl::i32(size) + at % kWord;
    const Value word = words[static_cast<size_t>(at / kWord)];
    const Value scale = k_.let("scale", of.scale_in_word(word, in_word));
    const Value first = lane_channel() + (column + step * kStep);
    in_pieces(kPiece, kStored, [&](const Value& i) {
      if (bits(layout.codes) == 8) {
        row(first + i) = of.value_of(codes_(step * kPiece + i), scale);
      } else {
        const Value code = of.code_of_pair(codes_(step * kPiece + i / 2), i % 2);
        row(first + i) = of.value_of(code, scale);
      }
    });
  }

 private:
  static int64_t most_words(const MlaLists& lists) {
    const int64_t words = scale_words(lists.cache.layout());
    return lists.extra_cache ? std::max(words, scale_words(lists.extra_cache->layout())) : words;
  }
  static int64_t codes_of_byte(const CacheBytes& of) { return 8 / bits(of.layout().codes); }
  Value lane_channel() const { return k_.lane() % kLanesOfEntry * kPiece; }
  /// Runs `body` for each of `count` elements, in accesses of at most `width`.
  template <class Body>
  void in_pieces(int64_t count, int64_t width, const Body& body) const {
    const int64_t at_once = std::min(count, width);
    k_.unrolled(count / at_once, [&](Value piece) {
      k_.vectorized(at_once, [&](Value i) { body(piece * at_once + i); });
    });
  }

  dsl::Builder& k_;
  const Ref codes_, words_;
};

class ListedKeys final : public MlaLoad {
 public:
  ListedKeys(MlaTensors& t, QueryRing& queries, std::vector<KeyRings*> to)
      : MlaLoad(t, queries, std::move(to)),
        lists_(*t.lists),
        coded_(lists_.cache.layout().coded),
        entries_(t.load_warps() * kEntriesOfWarp),
        passes_(kLatentKeys / entries_),
        own_row_(k_.let("own_row", k_.warp() * kEntriesOfWarp +
                                       k_.lane() / kEntriesOfWarp % dsl::i32(passes_) * entries_ +
                                       k_.lane() % kEntriesOfWarp)),
        index_(k_.var(kI32, -1, "index")),
        block_(k_.var(kI32, -1, "block_of_slot")),
        offset_(k_.var(kI32, 0, "offset_of_slot")) {
    for (int64_t i = 0; i < kHeld; ++i) held_.emplace_back(k_, lists_);
    if (!has_rotated()) return;
    rotated_.emplace(k_.local(kBf16, {kPiece}, "rotated"));
    rotated_block_.emplace(k_.var(kI32, -1, "block_of_rotated"));
    rotated_offset_.emplace(k_.var(kI32, 0, "offset_of_rotated"));
  }

 private:
  void begin() override {
    token_ = k_.let("token_of_lists", at_.row / t_.heads);
    if (lists_.extra_cache) first_blocks_ = k_.let("first_blocks", lists_.lengths.first_blocks());
    find_index(at_.first);
    find_slot(at_.first);
    find_index(at_.first + 1);
    for (int64_t unit = 0; unit < kHeld; ++unit) load(at_.first, unit);
    if (has_rotated() && passes_ == 1) load_rotated(at_.first, entry_of(0));
  }

  void fill(KeyRings& to, const Value& j) override {
    last_first_ = to.pieces.back().first;
    for (KeyPiece& piece : to.pieces) {
      piece.ring.fill([&] {
        if (piece.first == 0) {
          Value block = block_;
          k_.if_(k_.lane() < dsl::i32(kEntriesOfWarp * passes_),
                 [&] { (*to.has_page)(own_row_) = cast(DType::u8, block >= 0); });
        }
        const int64_t end = piece.first + piece.width;
        for (int64_t section = piece.first / kUnit; section * kUnit < std::min(end, coded_);
             ++section) {
          for (int64_t pass = 0; pass < passes_; ++pass) {
            convert(piece, j, section * passes_ + pass);
          }
        }
      });
    }
  }

  /// The units of a block: the sections of channels of all its entries, one after the other.
  int64_t units() const { return (coded_ + kUnit - 1) / kUnit * passes_; }
  int64_t steps(int64_t unit) const {
    return std::min(kStepsOfUnit, coded_ / kStep - unit / passes_ * kStepsOfUnit);
  }
  const HeldUnit& held(int64_t unit) const { return held_[static_cast<size_t>(unit % kHeld)]; }

  /// Runs `first` or `second`, whichever list a block is of.
  void by_list(const Value& j, const std::function<void()>& first,
               const std::function<void()>& second) {
    if (!lists_.extra_cache) return first();
    k_.if_else(j < first_blocks_, first, second);
  }
  /// Runs `body` with the format of a block. Caches of one format need it once.
  void by_format(const Value& j, const std::function<void(const CacheBytes&)>& body) {
    if (t_.spec.extra.format == t_.spec.listed.format) return body(lists_.cache);
    by_list(
        j, [&] { body(lists_.cache); }, [&] { body(*lists_.extra_cache); });
  }
  /// Runs `body` with the cache of a block, and the bytes of accesses to its codes.
  void by_cache(const Value& j, const std::function<void(const CacheBytes&, int64_t)>& body) {
    by_list(
        j, [&] { body(lists_.cache, t_.spec.code_bytes); },
        [&] { body(*lists_.extra_cache, t_.spec.extra_code_bytes); });
  }

  /// The index of the lane's own entry of block j.
  void find_index(const Value& j) {
    index_ = -1;
    k_.if_(j < at_.end, [&] {
      auto place = k_.let("place", j * kLatentKeys + own_row_);
      by_list(
          j,
          [&] {
            const Value length = lists_.lengths.first(k_, at_.request, false);
            k_.if_(place < length, [&] { index_ = t_.table(at_.request, token_, place); });
          },
          [&] {
            auto of_second = k_.let("place_of_second", place - first_blocks_ * kLatentKeys);
            const Value length = lists_.lengths.second(k_, at_.request, false);
            k_.if_(of_second < length,
                   [&] { index_ = (*lists_.extra_indices)(at_.request, token_, of_second); });
          });
    });
  }
  /// The slot of that index, of block j.
  void find_slot(const Value& j) {
    by_cache(j, [&](const CacheBytes& cache, int64_t) {
      Value index = index_;
      const CacheBytes::Slot slot = cache.slot(index);
      block_ = select(slot.exists, slot.block, -1), offset_ = slot.offset;
    });
  }

  /// The lane's entry of a unit: its row of the tile, and its slot.
  Value row_of(int64_t unit) {
    return k_.warp() * kEntriesOfWarp + unit % passes_ * entries_ + k_.lane() / kLanesOfEntry;
  }
  CacheBytes::Slot entry_of(int64_t unit) {
    const Value finder = k_.lane() / kLanesOfEntry + unit % passes_ * kEntriesOfWarp;
    Value own_block = block_, own_offset = offset_;
    auto block = k_.let("block", k_.shuffle(own_block, finder));
    auto offset = k_.let("offset", k_.shuffle(own_offset, finder));
    return {k_.let("is_there", block >= 0), block, offset};
  }

  /// Loads a unit of block j.
  void load(const Value& j, int64_t unit) {
    const CacheBytes::Slot slot = entry_of(unit);
    load_words(j, unit, slot);
    for (int64_t step = 0; step < steps(unit); ++step) load_step(j, unit, slot, step);
  }
  void load_words(const Value& j, int64_t unit, const CacheBytes::Slot& slot) {
    by_cache(j, [&](const CacheBytes& cache, int64_t) {
      held(unit).load_words(cache, slot, unit / passes_);
    });
  }
  void load_step(const Value& j, int64_t unit, const CacheBytes::Slot& slot, int64_t step) {
    by_cache(j, [&](const CacheBytes& cache, int64_t access) {
      held(unit).load(cache, slot, access, unit / passes_, step);
    });
  }

  /// Converts a unit of block j, and loads the unit after the next.
  void convert(const KeyPiece& to, const Value& j, int64_t unit) {
    const int64_t later = (unit + kHeld) % units();
    const bool is_of_next = unit + kHeld >= units();
    const Value of_later = is_of_next ? j + 1 : j;
    const bool is_first_of_next = is_of_next && later == 0;
    if (is_first_of_next) find_slot(j + 1);
    const CacheBytes::Slot slot = entry_of(later);
    const Ref row = to.tile(row_of(unit));
    const int64_t column = unit / passes_ * kUnit - to.first;
    by_format(j, [&](const CacheBytes& cache) {
      const std::vector<Value> words = held(unit).words(cache);
      for (int64_t step = 0; step < kStepsOfUnit; ++step) {
        if (step < steps(unit)) held(unit).store(cache, words, step, row, column);
        if (step == 0) load_words(of_later, later, slot);  // not before codes are waited for
        if (step < steps(later)) load_step(of_later, later, slot, step);
        k_.sync_warp();
      }
    });
    if (has_rotated()) pass_rotated(row, j, unit);
    if (is_first_of_next) find_index(j + 2);
  }

  bool has_rotated() const { return lists_.cache.layout().bf16_bytes() > 0; }
  /// Behind a unit: stores the lane's channels in bf16 of its entry, which are one step, and loads the next ones. There is room
  /// for one entry; with two passes the second is loaded when the first is stored, and its slot is kept until then.
  void pass_rotated(const Ref& row, const Value& j, int64_t unit) {
    const int64_t pass = unit - (units() - passes_);  // of the last section
    if (pass >= 0) store_rotated(row);
    if (passes_ == 1) {
      if (pass == 0) load_rotated(j + 1, entry_of(0));
    } else if (pass == -1) {
      load_rotated(j, entry_of(0));
      const CacheBytes::Slot second = entry_of(1);
      *rotated_block_ = second.block, *rotated_offset_ = second.offset;
    } else if (pass == 0) {
      Value block = *rotated_block_, offset = *rotated_offset_;
      load_rotated(j, {block >= 0, block, offset});
    }
  }
  void load_rotated(const Value& j, const CacheBytes::Slot& slot) {
    const auto each = [&](int64_t width, const std::function<void(const Value&)>& body) {
      const int64_t at_once = std::min(width, kPiece);
      k_.unrolled(kPiece / at_once, [&](Value piece) {
        k_.vectorized(at_once, [&](Value i) { body(piece * at_once + i); });
      });
    };
    by_cache(j, [&](const CacheBytes& cache, int64_t access) {
      const int64_t width = access / bytes(kBf16);
      each(width, [&](const Value& i) { (*rotated_)(i) = dsl::cast(kBf16, 0.0f); });
      k_.if_(slot.exists, [&] {
        const Value first = k_.lane() % kLanesOfEntry * kPiece + dsl::i32(coded_);
        each(width, [&](const Value& i) { (*rotated_)(i) = cache.rotated(slot, first + i); });
      });
    });
  }
  void store_rotated(const Ref& row) {
    const Value first = k_.lane() % kLanesOfEntry * kPiece + dsl::i32(coded_ - last_first_);
    k_.unrolled(kPiece / kStored, [&](Value piece) {
      k_.vectorized(kStored, [&](Value i) {
        row(first + piece * kStored + i) = (*rotated_)(piece * kStored + i);
      });
    });
  }

  const MlaLists& lists_;
  const int64_t coded_;             // channels
  const int64_t entries_, passes_;  // of all warps at once; of a block
  const Value own_row_;             // of the tile: the entry whose slot the lane finds
  const Ref index_;                 // of that entry, of the block after that which is loaded
  const Ref block_, offset_;        // of its slot, of the block that is loaded; block -1: none
  std::vector<HeldUnit> held_;
  std::optional<Ref> rotated_, rotated_block_, rotated_offset_;
  int64_t last_first_ = 0;  // the first channel of the last piece
  Value token_, first_blocks_;
};

}  // namespace

std::unique_ptr<MlaLoad> make_listed_load(MlaTensors& t, QueryRing& queries,
                                          std::vector<KeyRings*> to) {
  return std::make_unique<ListedKeys>(t, queries, std::move(to));
}

}  // namespace tessera::kernels::attention
