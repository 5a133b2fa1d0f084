// mla_decode for more rows than keys on M have room for: 64 queries on M, two groups of four warps ("seesaw").
//
// A tile of 64 queries, two blocks of 64 keys and p fill the shared memory, and 64 x 512 sums half of the registers. So each of
// two groups has half of the channels of the output, and scores every other block:
//
//   even  scores of even blocks, p; o += p v of channels 0 to 255, of both p
//   odd   scores of odd blocks, p; o += p v of channels 256 to 511, of both p
//   load  even and odd blocks: mla_load.cpp, of a quantised cache mla_listed_keys.cpp
//
// One group turns scores into p while the other one multiplies. A block passes in pieces, each of some channels in a ring of
// one stage: scores begin with the first piece, and a piece is free for the next block but one when the products of its
// channels are done.
//
// The maximum of a row is a chain through the blocks: with p a group hands over the maximum after its block, and the factor by
// which sums and output so far shrink. Both groups take all blocks in ascending order, so the bits of a row are those of the
// other forms. Blocks go in pairs; one behind all keys is zeros, and changes nothing.
//
// p is a left operand in registers. On its way to the other group it passes through a tile in shared memory, of which there is
// room for one. It suffices: warp i reads what warp i of the other group has written, and writes only afterwards; the turns
// of the rings of rows order the two.
//
// Bound  a block of 64 keys and 64 rows takes 2176 clocks of the tensor cores: 36 steps of scores of 32, 8 of p v of 128. 128
//        requests of 4096 keys, 128 heads: 159 us at 1.755 GHz.
// Measured one H200, us: 128 requests of 4096 keys, 128 heads 277 (FlashMLA 233 in another run), two tokens 517 (432), 32768
//        keys 2288 and 4385 (1720, 3157). sparse_mla_fwd, 4096 tokens by 2048 keys of 576, 128 heads 5958 = 393 TFLOP/s
//        (goal 500); by 512 of 512, 64 heads 930. Keys on M, in tiles of 32 rows: 688, 1378, 5478, 10676, 12348, 2819.
// Lost   in another run, where two pieces took 285, 521, 6535, 1021: blocks in one piece 307, 586, 7399, 1098; in four 300,
//        570, 6531, 1042.

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/attention/mla/parts/mla_roles.h"
#include "kernels/attention/mla/parts/mla_rows.h"
#include "kernels/attention/parts/online_softmax.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr auto kBf16 = DType::bf16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kRows = 64;
constexpr dsl::GemmOptions kByGroup = {.instruction = ir::Instruction::wgmma};

/// The rings of the blocks of one parity.
struct BlockRings : KeyRings {
  explicit BlockRings(MlaTensors& t)
      : KeyRings(t, t.spec.stages, 1),
        rows(t.k.ring({.stages = 1})),
        top(rows.shared(kF32, {kRows}, "top")),
        factor(rows.shared(kF32, {kRows}, "factor")) {}

  dsl::Ring rows;
  /// Rows after the block. The last turn of an item has the sum of the classes of this parity as its factor.
  const Ref top, factor;
};

struct GroupRings {
  explicit GroupRings(MlaTensors& t)
      : queries(t), p_tile(t.k.shared(kBf16, {kRows, kLatentKeys}, "p_tile")), even(t), odd(t) {}

  QueryRing queries;
  const Ref p_tile;  // of the block whose rows passed last
  BlockRings even, odd;
};

/// The role of a group: `own` are the blocks that it scores.
class MlaGroup {
 public:
  MlaGroup(MlaTensors& tensors, GroupRings& rings, bool is_odd)
      : t_(tensors),
        k_(tensors.k),
        rings_(rings),
        own_(is_odd ? rings.odd : rings.even),
        other_(is_odd ? rings.even : rings.odd),
        is_odd_(is_odd),
        first_(is_odd ? own_.pieces.size() / 2 : 0),
        end_(first_ + own_.pieces.size() / 2),
        at_(tensors),
        key_end_(k_.fragment(kI32, {kRows}, "key_end")),
        c_(k_.fragment(kF32, {kRows}, "c_of_row")),
        inverse_(k_.fragment(kF32, {kRows}, "inverse")),
        mask_(k_.fragment(DType::u32, {kRows}, "mask")),
        other_shrink_(k_.fragment(kF32, {kRows}, "other_shrink")),
        other_p_(k_.fragment(kBf16, {kRows, kLatentKeys}, "other_p")),
        softmax_(k_, kBf16, kRows, kLatentKeys, tensors.c,
                 tensors.q_scale ? std::optional<Ref>(c_) : std::nullopt) {
    for (size_t i = first_; i < end_; ++i) {
      out_.push_back(k_.fragment(kF32, {kRows, width_of_values()}, "o"));
    }
  }

  void run(const Value& request, const Value& item) {
    at_.find(request, item);
    start(t_.request(request, false));
    k_.if_(at_.first < at_.end, [&] {
      rings_.queries.ring.take([&] {
        k_.serial(
            at_.first, at_.end, [&](Value even) { is_odd_ ? odd_first(even) : even_first(even); },
            2);
      });
    });
    finish();
  }

 private:
  int64_t width_of_values() const {
    return kLatentValueWidth / static_cast<int64_t>(own_.pieces.size());
  }

  void start(const DecodeRequest& request) {
    softmax_.start();
    for (const Ref& out : out_) k_.fill(out, 0.0f);
    k_.parallel({kRows}, [&](Value r) {
      // Behind the last block of a part there may be one more.
      key_end_(r) = min(end_of_row(t_, at_, request, r), at_.end * kLatentKeys);
      if (t_.q_scale) c_(r) = factor_of_row(t_, at_, r);
    });
  }

  /// Blocks `even` and the next, which may be behind all keys. p passes on before a product that can wait for it.
  void even_first(const Value& even) {
    k_.fill(softmax_.scores, 0.0f);
    lead(0, [&] {
      mask(even);
      weigh();
      rescale(softmax_.shrink);
    });
    receive();
    add_others(first_);
  }
  void odd_first(const Value& even) {
    k_.fill(softmax_.scores, 0.0f);
    lead(0, [&] {
      mask(even + 1);
      receive();
      weigh();
      add_others(first_);
      rescale(softmax_.shrink);
    });
  }

  /// A block of one's own, from piece i on: the scores of all pieces, `body`, and p times the pieces whose channels are
  /// one's own, the last one first. Pieces behind those are free before `body`.
  void lead(size_t i, const std::function<void()>& body) {
    const bool is_last = i + 1 == own_.pieces.size();
    KeyPiece& piece = own_.pieces[i];
    piece.ring.take([&] {
      k_.gemm(rings_.queries.tile.tile({0, piece.first}, {kRows, piece.width}),
              piece.tile.transposed(), softmax_.scores, kByGroup);
      if (!is_last) lead(i + 1, body);
      if (is_odd_ ? is_last : i + 1 == end_) body();
      if (i >= first_ && i < end_) add(softmax_.p, i, own_);
    });
  }
  /// The same of a block of the other group, without scores.
  void add_others(size_t i) {
    if (i == end_) return rescale(other_shrink_);
    other_.pieces[i].ring.take([&] {
      add_others(i + 1);
      add(other_p_, i, other_);
    });
  }
  void add(const Ref& p, size_t i, const BlockRings& block) {
    k_.gemm(p, block.pieces[i].tile.tile({0, 0}, {kLatentKeys, width_of_values()}),
            out_[i - first_], kByGroup);
  }
  void rescale(const Ref& shrink) {
    for (const Ref& out : out_) softmax_.rescale(out, shrink);
  }

  /// Scores of keys that a row does not see, and the largest of each row.
  void mask(const Value& j) {
    const Ref& scores = softmax_.scores;
    k_.parallel(scores, [&](Value r, Value i) {
      Value score = scores(r, i), there = (*own_.has_page)(i), end = key_end_(r);
      scores(r, i) = select(there != 0 && j * kLatentKeys + i < end, score, kLowest);
    });
    softmax_.find_high();
  }
  /// From these scores to p, which the other group gets.
  void weigh() {
    softmax_.weigh();
    own_.rows.fill([&] {
      k_.copy(softmax_.top, own_.top);
      k_.copy(softmax_.shrink, own_.factor);
      k_.manual_sync([&] { k_.copy(softmax_.p, rings_.p_tile); });
    });
  }
  /// Takes p of a block of the other group.
  void receive() {
    other_.rows.take([&] {
      k_.copy(other_.factor, other_shrink_);
      softmax_.follow([&](const Value& r) { return other_.top(r).read(); },
                      [&](const Value& r) { return other_shrink_(r).read(); });
      k_.manual_sync([&] { k_.copy(rings_.p_tile, other_p_); });
    });
  }

  void finish() {
    const Ref sum = softmax_.total();
    own_.rows.fill([&] { k_.copy(sum, own_.factor); });
    other_.rows.take([&] {
      k_.parallel({kRows}, [&](Value r) {
        Value mine = sum(r), others = other_.factor(r);
        sum(r) = mine + others;
      });
    });
    k_.parallel({kRows}, [&](Value r) {
      Value total = sum(r), top = softmax_.top(r);
      Value c = t_.q_scale ? c_(r).read() : t_.c;
      const MlaRowEnd row = end_row(t_, r, total, top, c);
      inverse_(r) = factor_of_output(t_, at_, row);
      mask_(r) = dsl::u32(row.is_empty) - dsl::u32(1);
      if (!is_odd_) write_statistics(t_, at_, row);
    });
    const auto whole = [&] { write(t_.out(at_.request), at_.row, true); };
    if (!t_.partial) return whole();
    k_.if_else(at_.is_alone, whole, [&] {
      write((*t_.partial)(at_.part), k_.let("first_row", t_.row_of_call(at_, dsl::i32(0))), false);
    });
  }
  /// Writes the rows of the tile to rows from `first` on, divided by their sums or not.
  void write(const Ref& to, const Value& first, bool is_divided) {
    const Value count = at_.count;
    for (size_t i = first_; i < end_; ++i) {
      const Ref& out = out_[i - first_];
      const int64_t channel = own_.pieces[i].first;
      k_.parallel(out, [&](Value r, Value d) {
        Value o = out(r, d), inverse = inverse_(r), mask = mask_(r);
        auto result = is_divided ? fma(o, inverse, 0.0f) : o;
        // By bits: a choice becomes a branch for each element.
        auto masked = k_.let("masked", reinterpret(kF32, reinterpret(DType::u32, result) & mask));
        to(select(r < count, first + r, -1), d + channel) = cast(to.dtype(), masked);
      });
    }
  }

  MlaTensors& t_;
  dsl::Builder& k_;
  GroupRings& rings_;
  BlockRings &own_, &other_;
  const bool is_odd_;
  const size_t first_, end_;  // pieces whose channels are one's own
  PagedPlace at_;
  const Ref key_end_, c_, inverse_;
  const Ref mask_;                    // of the bits of the output: none of an empty row
  const Ref other_shrink_, other_p_;  // of a block of the other group
  RowSoftmax softmax_;
  std::vector<Ref> out_;  // of each piece
};

}  // namespace

ir::Kernel build_two_groups(const MlaSpec& spec) {
  MlaTensors t(spec);
  dsl::Builder& k = t.k;
  auto blocks = t.blocks();
  auto at = k.launch({blocks}, {.threads = 3 * 128});
  k.assume(t.heads >= 1);
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  t.start(at.x, blocks);
  GroupRings rings(t);
  const auto group = [&](bool is_odd) {
    return [&, is_odd] {
      MlaGroup role(t, rings, is_odd);
      each_item(t, !is_odd,
                [&](const Value& request, const Value& item) { role.run(request, item); });
    };
  };
  const auto load = [&] {
    const auto role = make_load(t, rings.queries, {&rings.even, &rings.odd});
    each_item(t, false, [&](const Value& request, const Value& item) { role->run(request, item); });
  };
  // Entries of a cache in registers take more of them.
  const int registers = t.lists ? 80 : 72;
  k.roles({{.name = "even", .warpgroups = 1, .registers = 288 - registers, .body = group(false)},
           {.name = "odd", .warpgroups = 1, .registers = 216, .body = group(true)},
           {.name = "load", .warpgroups = 1, .registers = registers, .body = load}});
  return k.finish();
}

}  // namespace tessera::kernels::attention
