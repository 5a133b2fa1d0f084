// Logits of the indexer: logit = (sum over heads of max(q . k, 0) * weight) * scale of the key.
//
// A tile is some keys on M by all heads of some queries on N, so a key is loaded once for several queries, and the product
// needs one step per 32 channels. Then thread by thread: a thread of the tensor cores holds two neighbouring heads of every
// eight of a key, so the chains over heads, even and odd ones apart, run in registers; the sums of four lanes are added by
// shuffles. The order is the op's definition, whatever the tile.
//
// Items of work are tiles of queries by chunks of keys, the queries of a chunk one after the other, whose keys stay in L2.
// Blocks take them in turn. An item computes the keys between the first and the last that some of its rows sees, and
// writes of each row what the row sees; the other columns of the chunk are filled with -inf.
//
// By roles      four warps load a ring of tiles: keys in rows by tensor copies, those of pages and of chosen blocks by pieces,
//               whose rows are looked up once, a key by each thread; scales by cp.async.
//               Groups of four warps multiply 64 keys each by wgmma. While one of them adds up, others multiply.
// Plain form    four warps of 16 keys each, by wgmma or mma.sync as the target has it; copies run ahead.
//
// Bound         2048 queries of 64 heads and 65536 keys of 128 channels: 2.2 TFLOP, 1.11 ms at the 1.98 PFLOP/s of an H200's
//               tensor cores. The sums take 8.6 G max and as many fma, 0.58 ms, beside the products. Queries of a few
//               tokens are bound by the keys, width + 4 bytes each at 4.2 TB/s.
// Tiles         4 queries of 64 heads: 256 columns need half of the bytes from L2 that 128 do. Without spills compile too, by
//               NVRTC: 2 queries by 192 or 256 keys (three and four groups), 2 by 128 with two products at once.
// Measured      one H200, us (goal: DeepGEMM's time): 2048 x 65536 of 64 heads 2172 (1914), 8192 x 65536 8839 (8507); paged, 256
//               x 8192 117 (78), 64 x 65536 228 (550 for 256 requests), 1 x 262144 18.6 (8: bound); 8 rows of 2048 chosen blocks
//               17 (14 with the choice), 256 rows 352 (90). Where each piece looked its row up: 250, 481, 34.5, 67, 1998.
//               Tensor copies of pages need shared tiles of their own, which a product does not take.

#include "kernels/serving/indexer/parts/logits_kernel.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::serving {
namespace {

using dsl::Axis;
using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr auto kI32 = DType::i32;
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr int64_t kEight = 8;  // heads of a step of the four chains
constexpr int64_t kTurns = 4;  // tiles in a round of the loop where products overlap

class LogitsKernel {
 public:
  explicit LogitsKernel(const LogitsSpec& s)
      : s_(s), t_(s.tile), heads_(int64_t{s.tile.rows} * s.heads), k_("mqa_logits") {
    rows_ = k_.dim("rows");
    columns_ = k_.dim("columns");
    of_request_ = k_.scalar("rows_of_request", kI32);
    chunk_ = k_.scalar("chunk", kI32);
    q_ = k_.input("q", DType::e4m3, {k_.dim("q_rows"), s.width}, {.align = s.q_vector});
    weights_ = k_.input("weights", kF32, {rows_, s.heads},
                        {.strides = {k_.stride("weights_stride"), 1}, .align = 4});
    if (is_paged()) {
      declare_pages();
    } else {
      declare_rows();
    }
    if (has_blocks()) {
      auto of_row = k_.dim("blocks_of_row"), stride = k_.stride("blocks_stride");
      blocks_ = k_.input("blocks", kI32, {rows_, of_row}, {.strides = {stride, 1}, .align = 4});
    }
    const DType dtype = s.is_bf16 != 0 ? DType::bf16 : kF32;
    logits_ = k_.output("logits", dtype, {rows_, columns_},
                        {.strides = {k_.stride("logits_stride"), 1}, .align = bytes(dtype)});
  }

  ir::Kernel plain() {
    k_.launch({min(items(), k_.device_blocks(2))}, {.threads = 128});
    k_.let_next_kernel_start();
    k_.wait_for_previous_kernel();
    auto q_tile = k_.shared(DType::e4m3, {heads_, s_.width}, "q_tile");
    auto k_tile = k_.shared(DType::e4m3, {t_.keys, s_.width}, "k_tile");
    auto sf_tile = k_.shared(kF32, {t_.keys, 1}, "sf_tile");
    Sums sums(*this);
    each_item([&] {
      fill_rest();
      k_.copy(q_box(), q_tile);
      sums.load_weights(weights_box());
      k_.pipelined(first_, end_, {.stages = t_.stages, .in_place = true}, [&](Value j) {
        load(j, k_tile, sf_tile, {});
        sums.multiply(0, k_tile, sf_tile, q_tile, by_keys(4));
        sums.add(0, j);
      });
    });
    return k_.finish();
  }

  ir::Kernel by_roles() {
    const int groups = static_cast<int>(t_.keys / 64);
    k_.launch({min(items(), k_.device_blocks())}, {.threads = (groups + 1) * 128});
    k_.let_next_kernel_start();
    k_.wait_for_previous_kernel();
    // The queries of the next item come while this one is at work.
    auto q_ring = k_.ring({.stages = 2}), ring = k_.ring({.stages = t_.stages});
    auto q_tile = q_ring.shared(DType::e4m3, {heads_, s_.width}, "q_tile");
    auto weight_tile = q_ring.shared(kF32, {t_.rows, s_.heads}, "weight_tile");
    auto k_tile = ring.shared(DType::e4m3, {t_.keys, s_.width}, "k_tile");
    auto sf_tile = ring.shared(kF32, {t_.keys, 1}, "sf_tile");
    std::optional<Ref> there_tile;
    if (looks_up()) {
      there_tile.emplace(ring.shared(DType::u8, {t_.keys}, "there"));
      row_of_key_.emplace(k_.shared(kI32, {t_.keys}, "row_of_key"));
      offset_of_key_.emplace(k_.shared(kI32, {t_.keys}, "offset_of_key"));
    }
    const dsl::CopyOptions by_engine{.engine = ir::Engine::tensor};
    const auto fetch = [&] {
      each_item([&] {
        k_.if_(first_ < end_, [&] {
          q_ring.fill([&] {
            k_.copy(q_box(), q_tile, by_engine);
            k_.copy(weights_box(), weight_tile);
          });
          k_.serial(first_, end_, [&](Value j) {
            if (!looks_up()) return ring.fill([&] { load(j, k_tile, sf_tile, by_engine); });
            look_up(j);
            ring.fill([&] { load_found(k_tile, sf_tile, *there_tile); });
          });
        });
      });
    };
    const auto multiply = [&] {
      Sums sums(*this);
      const auto take = [&](int64_t part) {
        ring.take([&] {
          if (there_tile) sums.note(part, *there_tile);
          sums.multiply(part, k_tile, sf_tile, q_tile, by_keys(4 * groups));
        });
      };
      each_item([&] {
        fill_rest();
        k_.if_(first_ < end_, [&] {
          q_ring.take([&] {
            sums.load_weights(weight_tile);
            Value from = first_;
            if (t_.parts > 1) {
              auto rounds = k_.let("rounds", (end_ - first_) / kTurns);
              k_.serial(0, rounds, [&](Value round) {
                auto j = k_.let("j", first_ + round * kTurns);
                for (int64_t i = 0; i < kTurns; ++i) {
                  take(i % 2);
                  if (i > 0) sums.add((i - 1) % 2, j + (i - 1));  // beside the product
                }
                sums.add((kTurns - 1) % 2, j + (kTurns - 1));
              });
              from = k_.let("from", first_ + rounds * kTurns);
            }
            k_.serial(from, end_, [&](Value j) {
              take(0);
              sums.add(0, j);
            });
          });
        });
      });
    };
    const Registers registers = registers_of(groups);
    k_.roles({{.name = "multiply",
               .warpgroups = groups,
               .registers = registers.multiply,
               .body = multiply},
              {.name = "load", .warps = 4, .registers = registers.load, .body = fetch}});
    return k_.finish();
  }

 private:
  struct Registers {
    int multiply, load;
  };
  /// Registers of a thread of each role. Gathers take the role that loads more.
  Registers registers_of(int groups) const {
    if (groups > 3) return {112, 32};
    if (groups == 3) return {160, 32};
    return is_paged() || has_blocks() ? Registers{208, 88} : Registers{232, 40};
  }
  /// Each warp has all heads of its keys.
  dsl::GemmOptions by_keys(int warps) const {
    const bool by_wgmma = s_.by_wgmma != 0;
    return {.warp_rows = warps,
            .instruction = by_wgmma ? ir::Instruction::wgmma : ir::Instruction::automatic,
            .promote = 0};
  }
  bool is_paged() const { return s_.keys == KeyPlace::in_pages; }
  /// Columns are the keys of chosen blocks, not all keys.
  bool has_blocks() const { return s_.block_size > 0; }
  /// The place of a key in memory is looked up.
  bool looks_up() const { return is_paged() || has_blocks(); }

  void declare_rows() {
    keys_ = k_.dim("keys");
    k_in_ = k_.input("k", DType::e4m3, {keys_, s_.width},
                     {.strides = {k_.stride("k_stride", {.multiple_of = s_.k_vector}), 1},
                      .align = s_.k_vector});
    k_sf_ = k_.input("k_sf", kF32, {keys_, 1}, {.align = 4});
    k_start_ = k_.input("k_start", kI32, {rows_}, {.align = 4});
    k_end_ = k_.input("k_end", kI32, {rows_}, {.align = 4});
  }
  void declare_pages() {
    pages_ = k_.dim("pages");
    page_size_ = s_.page_size > 0 ? dsl::i32(s_.page_size) : k_.dim("page_size");
    const auto of_cache = [&](const char* name, DType dtype, int64_t width, int64_t multiple) {
      auto apart = k_.stride(std::string(name) + "_stride", {.multiple_of = multiple});
      return k_.input(name, dtype, {pages_, page_size_, width},
                      {.strides = {apart, width, 1}, .align = multiple * bytes(dtype)});
    };
    k_in_ = of_cache("codes", DType::e4m3, s_.width, s_.k_vector);
    k_sf_ = of_cache("scales", kF32, 1, 1);
    table_columns_ = k_.dim("table_columns");
    auto requests = k_.dim("requests"), stride = k_.stride("page_table_stride");
    table_ = k_.input("page_table", kI32, {requests, table_columns_},
                      {.strides = {stride, 1}, .align = 4});
    lengths_ = k_.input("lengths", kI32, {rows_}, {.align = 4});
  }

  /// The places that tiles divide: columns, or keys that may have none.
  Value places() const { return is_paged() || has_blocks() ? columns_ : max(keys_, columns_); }
  Value tiles_of_request() const { return ceil_div(of_request_, t_.rows); }
  Value tiles() const { return rows_ / of_request_ * tiles_of_request(); }
  Value chunks() const { return (ceil_div(places(), t_.keys) + chunk_ - 1) / chunk_; }
  Value items() const { return tiles() * chunks(); }

  void each_item(const std::function<void()>& body) {
    k_.persistent({chunks(), tiles()}, [&](Value chunk, Value tile) {
      place(chunk, tile);
      body();
    });
  }

  /// The rows of an item, what each of them sees, and the tiles of keys.
  void place(const Value& chunk, const Value& tile) {
    request_ = k_.let("request", tile / tiles_of_request());
    auto of_tile = k_.let("row_of_request", (tile - request_ * tiles_of_request()) * t_.rows);
    row_ = k_.let("row", request_ * of_request_ + of_tile);
    count_ = k_.let("count", min(of_request_ - of_tile, t_.rows));
    k_.assume(row_ >= 0 && request_ >= 0 && count_ >= 1);
    begins_.clear(), ends_.clear();
    Value low = dsl::i32(std::numeric_limits<int32_t>::max()), high = dsl::i32(0);
    for (int32_t r = 0; r < t_.rows; ++r) {
      auto is_row = r < count_;
      auto row = k_.let("row_here", min(row_ + r, rows_ - 1));
      const Range keys = range(row);
      if (has_blocks()) begin_key_ = keys.begin, end_key_ = k_.let("end_key", keys.end);
      const Value begin = has_blocks() ? dsl::i32(0) : keys.begin;
      const Value end = has_blocks() ? columns_ : keys.end;
      begins_.push_back(k_.let("begin", select(is_row, begin, 0)));
      ends_.push_back(k_.let("end_of_row", select(is_row, end, 0)));
      auto sees = begins_.back() < ends_.back();
      low = select(sees, min(low, begins_.back()), low);
      high = select(sees, max(high, ends_.back()), high);
    }
    from_tile_ = k_.let("from_tile", chunk * chunk_);
    auto least = k_.let("least", low / t_.keys), most = k_.let("most", ceil_div(high, t_.keys));
    first_ = k_.let("first", k_.uniform(max(from_tile_, least)));
    end_ = k_.let("end", k_.uniform(min(from_tile_ + chunk_, most)));
    k_.assume(first_ >= 0 && from_tile_ >= 0);
  }
  struct Range {
    Value begin, end;
  };
  /// The keys that a row sees, cut to those that there are.
  Range range(const Value& row) {
    if (is_paged()) {
      Value length = (*lengths_)(row);
      auto most = has_blocks() ? k_.let("most_keys", table_columns_ * page_size_) : columns_;
      k_.report_unless(length >= 0 && length <= most, out_of_range("lengths"));
      return {dsl::i32(0), min(max(length, 0), most)};
    }
    Value start = (*k_start_)(row), end = (*k_end_)(row);
    k_.report_unless(start >= 0 && start <= end, out_of_range("k_start"));
    k_.report_unless(end <= keys_, out_of_range("k_end"));
    auto begin = k_.let("begin_in_keys", min(max(start, 0), keys_));
    auto until = min(max(end, begin), keys_);
    if (s_.is_compressed == 0) return {begin, until};
    k_.report_unless(until - begin <= columns_, out_of_range("k_end"));
    return {begin, min(until, begin + columns_)};
  }
  /// Column of a key, where the row begins at `begin`.
  Value column(const Value& key, const Value& begin) const {
    return s_.is_compressed != 0 ? key - begin : key;
  }

  Ref q_box() const { return q_->tile({row_ * s_.heads, 0}, {heads_, s_.width}); }

  Ref weights_box() const { return weights_->tile({row_, 0}, {t_.rows, s_.heads}); }

  /// Copies a tile of keys. Those that no row sees, and those without a page, may be zeros.
  void load(const Value& j, const Ref& tile, const Ref& sf_tile, const dsl::CopyOptions& options) {
    if (!is_paged() && !has_blocks()) {
      k_.copy(k_in_->tile({j * t_.keys, 0}, {t_.keys, s_.width}), tile, options);
      return k_.copy(k_sf_->tile({j * t_.keys, 0}, {t_.keys, 1}), sf_tile);
    }
    const auto place = [this, j](const Value& r) {
      auto key = key_at(j * t_.keys + r);
      if (!is_paged()) return std::vector<Value>{key};
      return std::vector<Value>{page_of(key), key % page_size_};
    };
    k_.copy(k_in_->rows(t_.keys, place), tile);
    k_.copy(k_sf_->rows(t_.keys, place), sf_tile);
  }
  /// Finds the rows of the keys of a tile, each by one thread: its page and the place there, or the key itself. -1 for keys
  /// that no row sees, and those without a page.
  void look_up(const Value& j) {
    k_.parallel({t_.keys}, [&](Value r) {
      auto key = k_.let("key_here", key_at(j * t_.keys + r));
      (*row_of_key_)(r) = is_paged() ? page_of(key) : key;
      if (is_paged()) (*offset_of_key_)(r) = max(key, 0) % page_size_;
    });
  }
  /// Copies the keys that look_up has found.
  void load_found(const Ref& tile, const Ref& sf_tile, const Ref& there) {
    k_.parallel({t_.keys}, [&](Value r) {
      Value row = (*row_of_key_)(r);
      there(r) = cast(DType::u8, row >= 0);
    });
    const auto place = [this](const Value& r) {
      Value row = (*row_of_key_)(r);
      if (!is_paged()) return std::vector<Value>{row};
      Value offset = (*offset_of_key_)(r);
      return std::vector<Value>{row, offset};
    };
    k_.copy(k_in_->rows(t_.keys, place), tile);
    k_.copy(k_sf_->rows(t_.keys, place), sf_tile);
  }
  /// The key of a place; -1 if no row of the item sees it.
  Value key_at(const Value& place) const {
    if (!has_blocks()) return select(place < seen(), place, -1);
    const int32_t size = s_.block_size;
    Value block = (*blocks_)(row_, place / size);
    auto key = block * size + place % size;  // wraps for numbers that are no blocks
    auto is_block = block >= 0 && block < ceil_div(end_key_, size) && place < columns_;
    return select(is_block && key >= begin_key_ && key < end_key_, key, -1);
  }
  /// -1 for a key of -1, and where there is none.
  Value page_of(const Value& key) const {
    auto column = max(key, 0) / page_size_;
    Value page = (*table_)(request_, column);
    auto is_there = key >= 0 && column < table_columns_ && page < pages_;
    return select(is_there, page, -1);
  }
  /// True for a place whose key counts: others among those of a row have -inf.
  Value counts(const Value& place) const {
    if (is_paged()) return page_of(key_at(place)) >= 0;
    return key_at(place) >= 0;
  }
  Value seen() const {
    Value most = ends_.front();
    for (const Value& end : ends_) most = max(most, end);
    return most;
  }

  /// Fills the columns of the chunk that belong to no key of their row.
  void fill_rest() {
    if (s_.is_clean == 0 || has_blocks()) return;
    auto from = k_.let("from_column", from_tile_ * t_.keys);
    auto to = k_.let("to_column", min(from + chunk_ * t_.keys, columns_));
    for (int32_t r = 0; r < t_.rows; ++r) {
      auto row = k_.let("row_to_fill", select(r < count_, row_ + r, rows_));
      const Value begin = column(begins_[static_cast<size_t>(r)], begins_[static_cast<size_t>(r)]);
      const Value end = column(ends_[static_cast<size_t>(r)], begins_[static_cast<size_t>(r)]);
      const auto fill = [&](const Value& first, const Value& last) {
        k_.serial(
            first + k_.thread(), last,
            [&](Value c) { (*logits_)(row, c) = dsl::cast(logits_->dtype(), kLowest); }, threads());
      };
      fill(from, k_.let("before", min(begin, to)));
      fill(k_.let("behind", max(end, from)), to);
    }
  }
  int64_t threads() const { return t_.by_roles != 0 ? int64_t{t_.keys} * 2 : 128; }

  /// The sums of the threads that multiply.
  class Sums {
   public:
    explicit Sums(LogitsKernel& kernel)
        : o_(kernel),
          k_(o_.k_),
          eights_(o_.heads_ / kEight),
          weights_(k_.fragment(kF32, {eights_, kEight}, "weights_of_tile")),
          chains_(k_.fragment(kF32, {o_.t_.keys, kEight}, "chains")),
          pairs_(k_.fragment(kF32, {o_.t_.keys, 4}, "pairs")),
          halves_(k_.fragment(kF32, {o_.t_.keys, 2}, "halves")),
          total_(k_.fragment(kF32, {o_.t_.keys}, "total")) {
      for (int32_t i = 0; i < std::max(o_.t_.parts, 1); ++i) {
        parts_.push_back(k_.fragment(kF32, {o_.t_.keys, o_.heads_}, "part"));
        scales_.push_back(k_.fragment(kF32, {o_.t_.keys}, "scale"));
        if (is_noted()) there_.push_back(k_.fragment(kI32, {o_.t_.keys}, "is_there"));
      }
    }

    void load_weights(const Ref& weights) {
      k_.copy(weights, weights_.reshape({o_.t_.rows, o_.s_.heads}));
    }

    /// Notes the keys of a tile that are there. Without roles the threads that add up look for themselves.
    void note(int64_t part, const Ref& there) {
      k_.parallel({o_.t_.keys}, [&](Value r) {
        Value is_there = there(r);
        there_[static_cast<size_t>(part)](r) = dsl::i32(is_there);
      });
    }
    /// Multiplies a tile of keys; add(part, j) ends it, where it is tile j.
    void multiply(int64_t part, const Ref& k_tile, const Ref& sf_tile, const Ref& q_tile,
                  const dsl::GemmOptions& options) {
      const Ref& sum = parts_[static_cast<size_t>(part)];
      k_.parallel({o_.t_.keys}, [&](Value r) {
        Value scale = sf_tile(r, 0);
        scales_[static_cast<size_t>(part)](r) = scale;
      });
      k_.fill(sum, 0.0f);
      k_.gemm(k_tile, q_tile.transposed(), sum, options);
    }

    void add(int64_t part, const Value& j) {
      const auto p = static_cast<size_t>(part);
      const Ref eights = parts_[p].reshape({o_.t_.keys, eights_, kEight});
      const int64_t of_row = o_.s_.heads / kEight;
      for (int64_t q = 0; q < o_.t_.rows; ++q) {
        k_.parallel({o_.t_.keys, kEight}, [&](Value r, Value u) {
          Value sum = dsl::f32(0.0f);
          for (int64_t i = q * of_row; i < (q + 1) * of_row; ++i) {
            Value product = eights(r, i, u), weight = weights_(i, u);
            sum = fma(max(product, 0.0f), weight, sum);
          }
          chains_(r, u) = sum;
        });
        const Ref evens_and_odds = chains_.reshape({o_.t_.keys, 4, 2});
        k_.parallel({o_.t_.keys, 4}, [&](Value r, Value c) {
          Value even = evens_and_odds(r, c, 0), odd = evens_and_odds(r, c, 1);
          pairs_(r, c) = even + odd;
        });
        k_.reduce_sum(pairs_.reshape({o_.t_.keys, 2, 2}), halves_, Axis(2));
        k_.reduce_sum(halves_, total_, Axis(1));
        write(p, q, j);
      }
    }

   private:
    bool is_noted() const { return o_.t_.by_roles != 0 && o_.looks_up(); }
    Value counts(size_t p, const Value& r, const Value& key) {
      if (!is_noted()) return o_.counts(key);
      Value is_there = there_[p](r);
      return is_there != 0;
    }
    void write(size_t p, int64_t q, const Value& j) {
      const Value begin = o_.begins_[static_cast<size_t>(q)],
                  end = o_.ends_[static_cast<size_t>(q)];
      k_.parallel({o_.t_.keys}, [&](Value r) {
        auto key = j * o_.t_.keys + r;
        Value sum = total_(r), scale = scales_[p](r);
        Value logit = sum * scale;
        if (o_.looks_up()) logit = select(counts(p, r, key), logit, kLowest);
        k_.if_(key >= begin && key < end, [&] {
          (*o_.logits_)(o_.row_ + q, o_.column(key, begin)).unchecked() =
              dsl::cast(o_.logits_->dtype(), logit);
        });
      });
    }

    LogitsKernel& o_;
    dsl::Builder& k_;
    const int64_t eights_;
    const Ref weights_, chains_, pairs_, halves_, total_;
    std::vector<Ref> parts_, scales_, there_;
  };

  const LogitsSpec s_;
  const LogitsTile t_;
  const int64_t heads_;  // of all rows of a tile
  dsl::Builder k_;
  Value rows_, columns_, of_request_, chunk_, keys_, pages_, page_size_, table_columns_;
  std::optional<Ref> q_, weights_, logits_, k_in_, k_sf_, k_start_, k_end_, table_, lengths_,
      blocks_;
  std::optional<Ref> row_of_key_, offset_of_key_;  // of a tile
  // The item's own.
  Value request_, row_, count_, from_tile_, first_, end_;
  Value begin_key_, end_key_;  // of its only row, where that has blocks
  std::vector<Value> begins_, ends_;
};

}  // namespace

ir::Kernel build_logits(const LogitsSpec& spec) {
  LogitsKernel kernel(spec);
  return spec.tile.by_roles != 0 ? kernel.by_roles() : kernel.plain();
}

}  // namespace tessera::kernels::serving
