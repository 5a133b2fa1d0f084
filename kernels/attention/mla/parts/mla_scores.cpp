// The role of mla_decode that turns scores into p.
//
// Scores pass through shared memory: a warp takes whole rows, and lane (u, w) the two keys j of class
// (j mod 8 = u, j div 16 = w), so a class is a register for each parity of the block, whichever side of the product is on M.
//
// A block rescales the sums of both parities and adds to one, and they change places. Their total is symmetric, so it does
// not matter which one is of the even blocks.

#include <limits>
#include <optional>

#include "kernels/attention/mla/parts/mla_roles.h"
#include "kernels/attention/mla/parts/mla_rows.h"
#include "kernels/attention/parts/online_softmax.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr auto kBf16 = DType::bf16;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kLanesOfW = 8, kKeysOfLane = 2;

class ScoresOfItems final : public MlaScores {
 public:
  ScoresOfItems(MlaTensors& tensors, MlaRings& rings)
      : t_(tensors),
        k_(tensors.k),
        to_(rings),
        at_(tensors),
        rows_(tensors.spec.rows),
        rows_of_warp_(rows_ / kScoreWarps),
        score_tile_(k_.shared(kF32, {rows_, kLatentKeys}, "score_tile")),
        scores_(tensors.has_keys_on_m() ? k_.fragment(kF32, {kLatentKeys, rows_}, "scores")
                                        : k_.fragment(kF32, {rows_, kLatentKeys}, "scores")),
        there_(k_.local(kI32, {kKeysOfLane}, "there")),
        c_(k_.local(kF32, {rows_of_warp_}, "c_of_row")),
        top_(k_.local(kF32, {rows_of_warp_}, "top")),
        sum_(k_.local(kF32, {rows_of_warp_}, "sum")),
        other_sum_(k_.local(kF32, {rows_of_warp_}, "other_sum")),
        x_(k_.local(kF32, {rows_of_warp_, kKeysOfLane}, "x")),
        high_(k_.local(kF32, {rows_of_warp_}, "high")) {
    if (!t_.lists) end_ = k_.local(kI32, {rows_of_warp_}, "end");
  }

  void run(const Value& request, const Value& item) override {
    at_.find(request, item);
    start(t_.request(request, false));
    k_.if_(at_.first < at_.end, [&] {
      to_.queries.ring.take([&] {
        k_.serial(at_.first, at_.end, [&](Value j) {
          to_.keys.take([&] { multiply(); });
          to_.p.fill([&] { step(j); });
        });
      });
    });
    to_.p.fill([&] { finish(); });
  }

 private:
  /// Gives the output of row r its factor, and writes what else there is of the row. By one thread.
  void finish_row(const Value& r, const Value& total, const Value& top, const Value& factor) {
    const MlaRowEnd row = end_row(t_, r, total, top, factor);
    to_.factor(r) = factor_of_output(t_, at_, row);
    write_statistics(t_, at_, row);
  }

  Value c_of(const Value& i) const { return t_.q_scale ? c_(i).read() : t_.c; }
  Value row_of_warp(const Value& i) const { return i * kScoreWarps + k_.warp(); }
  /// The key of the block that a lane takes with place e.
  Value column(int64_t e) const {
    return k_.lane() % kLanesOfW + k_.lane() / kLanesOfW * (2 * kLanesOfW) + e * kLanesOfW;
  }

  void start(const DecodeRequest& r) {
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto of_tile = k_.let("r", row_of_warp(i));
      if (end_) (*end_)(i) = end_of_row(t_, at_, r, of_tile);
      if (t_.q_scale) c_(i) = factor_of_row(t_, at_, of_tile);
      top_(i) = kLowest, sum_(i) = 0.0f, other_sum_(i) = 0.0f;
    });
  }

  void multiply() {
    k_.fill(scores_, 0.0f);
    if (t_.has_keys_on_m()) {
      k_.gemm(to_.key_tile, to_.queries.tile.transposed(), scores_, t_.product(kScoreWarps));
      k_.copy(scores_, score_tile_.transposed());
    } else {
      k_.gemm(to_.queries.tile, to_.key_tile.transposed(), scores_, t_.product(kScoreWarps));
      k_.copy(scores_, score_tile_);
    }
    for (int64_t e = 0; e < kKeysOfLane; ++e) {
      Value is_there = to_.has_page(column(e));
      there_(e) = dsl::i32(is_there);
    }
  }

  /// From scores to p, and the sums of rows. All rows of a warp go through each stage together: a row's maximum is a chain of
  /// five exchanges, and its stores would hold up the loads of the next row.
  void step(const Value& j) {
    std::vector<Value> columns, keys, is_there;
    for (int64_t e = 0; e < kKeysOfLane; ++e) {
      columns.push_back(k_.let("column", column(e)));
      keys.push_back(k_.let("key", j * kLatentKeys + columns.back()));
      Value noted = there_(e);
      is_there.push_back(k_.let("is_there", noted == 1));
    }
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      std::vector<Value> is_seen = is_there;
      if (end_) {
        Value end = (*end_)(i);
        for (size_t e = 0; e < keys.size(); ++e) is_seen[e] = is_there[e] && keys[e] < end;
      }
      for (size_t e = 0; e < columns.size(); ++e) {
        Value score = score_tile_(r, columns[e]);
        x_(i, static_cast<int32_t>(e)) = select(is_seen[e], score, kLowest);
      }
      Value first = x_(i, 0), second = x_(i, 1);
      high_(i) = max(first, second);
    });
    for (const int64_t distance : {16, 8, 4, 2, 1}) {
      k_.unrolled(rows_of_warp_, [&](Value i) {
        Value high = high_(i);
        high_(i) = max(high, k_.shuffle_xor(high, distance));
      });
    }
    k_.unrolled(rows_of_warp_, [&](Value i) {
      Value top = top_(i), high = high_(i), sum = sum_(i), other = other_sum_(i), c = c_of(i);
      const NextTop next(top, k_.let("scaled", top * c), high, c);
      auto base = k_.let("base", next.base), shrink = k_.let("shrink", next.shrink);
      std::vector<Value> p;
      for (int32_t e = 0; e < kKeysOfLane; ++e) {
        Value x = x_(i, e);
        p.push_back(k_.let("p", exp2_approx(fma(x, c, -base))));
        x_(i, e) = p.back();
      }
      top_(i) = next.top;
      sum_(i) = other * shrink;
      other_sum_(i) = fma(sum, shrink, p[0]) + p[1];
      high_(i) = shrink;
    });
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      for (size_t e = 0; e < columns.size(); ++e) {
        Value p = x_(i, static_cast<int32_t>(e));
        to_.p_tile(r, columns[e]) = cast(kBf16, p);
      }
      Value shrink = high_(i);
      k_.if_(k_.lane() == 0, [&] { to_.factor(r) = shrink; });
    });
  }

  /// The sum of the classes that the lanes of a warp hold.
  Value total(Value sum) {
    for (const int64_t distance : {kLanesOfW, 2 * kLanesOfW, int64_t{1}, int64_t{2}, int64_t{4}}) {
      auto other = k_.shuffle_xor(sum, distance);
      sum = k_.let("total", sum + other);
    }
    return sum;
  }

  void finish() {
    k_.unrolled(rows_of_warp_, [&](Value i) {
      auto r = k_.let("r", row_of_warp(i));
      Value sum = sum_(i), other = other_sum_(i), top = top_(i), c = c_of(i);
      const Value of_one = total(sum), of_other = total(other);
      auto all = k_.let("all", of_one + of_other);
      k_.if_(k_.lane() == 0, [&] { finish_row(r, all, top, c); });
    });
  }

  MlaTensors& t_;
  dsl::Builder& k_;
  MlaRings& to_;
  PagedPlace at_;
  const int64_t rows_, rows_of_warp_;
  const Ref score_tile_, scores_;
  const Ref there_, c_, top_, sum_, other_sum_;  // of a lane, of the rows of a warp
  const Ref x_, high_;                           // of a block: scores, then p; maxima, then factors
  std::optional<Ref>
      end_;  // behind the keys of a row; with lists each key says whether it is there
};

}  // namespace

std::unique_ptr<MlaScores> make_scores(MlaTensors& t, MlaRings& rings) {
  return std::make_unique<ScoresOfItems>(t, rings);
}

}  // namespace tessera::kernels::attention
