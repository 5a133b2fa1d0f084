// Attention: out = softmax(scale * q k^T) v, for tiles of queries of one head.
//
// A block takes some query rows of one head and walks the blocks of keys of which some row sees one, in ascending
// order: scores = q k^T, then p and the rescaled sums (online_softmax.h), then o += p v. Rows and keys are
// aligned at the end: row i of Lq sees key j of Lk up to i + Lk - Lq, the window shifts both edges. The mask
// is applied to blocks at an edge only.
//
// Plain form    each of four warps has 16 rows; the copies of the next block run ahead where memory allows it,
//               else keys and values take turns in one tile
// By roles      one warp loads, in turn tiles of keys and of values, into one ring; groups of four warps multiply
//               64 rows each. The scores of the next block are issued before p v of this one, so the tensor
//               cores are busy while p is computed.
//
// Bound         4 x 16 heads of 128, 4096 tokens: 550 GFLOP, 729 us at the 754 TFLOP/s of gemm_bf16 at 8192^3. One H200,
//               us: 856, causal 483, 16384 tokens 3461, 64 q / 8 kv heads causal 1983, heads of 64 1312, causal 675, of 256
//               3574, 192 / 128 causal 651. In one process, medians of 96 interleaved calls: 875 where cuDNN took 883.
//               FlashAttention-3 took 758, causal 411, 16384 tokens 3081 on another day beside 901, 493, 3605.
// Where it goes The softmax of a block of 128 keys is 380 instructions, 710 clocks for a warp alone by their latencies; the
//               products of both groups take 2048. p v runs below the maximum and half of the exponentials; the waits for
//               products have fallen from 19 to 5 % of a warp's time (Nsight Compute), the softmax is 55, issuing products 23.
// Lost          p v awaited with the scores 938 in place of 896, below all of the exponentials 900, where the assembler puts
//               the wait 931; turns of the groups by named barriers 883 to 939 beside 875 to 923. Earlier: out from
//               registers 905 in place of 878, two stages 931, five 880, no persistent grid 912, scores not cleared 918 to
//               944, the maximum in four chains 903 to 930. Without the exponentials 820, without p v 670, without q k^T
//               705, loads from one place 900.

#include "kernels/attention/parts/fwd_kernel.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/parts/online_softmax.h"
#include "kernels/attention/parts/packed_requests.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;
constexpr int64_t kColumns = 64;  // of out that a warp multiplies at a time

dsl::CopyOptions by_engine() {
  return {.engine = ir::Engine::tensor};
}

class ForwardKernel {
 public:
  explicit ForwardKernel(const ForwardSpec& s)
      : s_(s),
        rows_(s.tile.rows),
        keys_(s.keys()),
        k_("attention_fwd"),
        batch_(k_.dim("B")),
        q_rows_(k_.dim("Sq")),
        k_rows_(k_.dim("Sk")),
        heads_(k_.dim("h")),
        k_heads_(k_.dim("g")),
        c_(k_.scalar("c", kF32)),
        section_(k_.scalar("section", DType::i32)),
        q_(input("q", q_rows_, heads_, s.width, s.q_vector)),
        keys_in_(input("k", k_rows_, k_heads_, s.width, s.k_vector)),
        values_in_(input("v", k_rows_, k_heads_, s.value_width, s.v_vector)),
        out_(k_.output("out", dtype(), {batch_, q_rows_, heads_, s.value_width},
                       {.align = s.out_vector * bytes(dtype())})),
        lse_(k_.output("lse", kF32, {batch_, heads_, q_rows_}, {.align = 4})) {
    if (s.has_q_lengths != 0) q_lengths_ = k_.input("q_lengths", DType::i32, {batch_});
    if (s.has_k_lengths != 0) k_lengths_ = k_.input("k_lengths", DType::i32, {batch_});
    if (s.is_packed != 0) {
      bounds_ = k_.dim("bounds");
      cu_q_ = k_.input("cu_q", DType::i32, {bounds_}, {.align = 4});
      cu_k_ = k_.input("cu_k", DType::i32, {bounds_}, {.align = 4});
    }
    if (s.has_sink != 0) sink_ = k_.input("sink", kF32, {heads_});
    if (s.has_softcap != 0) cap_ = k_.scalar("cap", kF32);
    if (s.has_left != 0) left_ = k_.scalar("left", DType::i32);
    if (s.has_right != 0) right_ = k_.scalar("right", DType::i32);
  }

  ir::Kernel plain() {
    auto at = k_.launch({tiles() * heads_ * batch_}, {.threads = 128});
    place(at.x);
    OnlineSoftmax softmax(k_, dtype(), rows_, keys_, s_.value_width, c_);
    auto q_tile = k_.shared(dtype(), {rows_, s_.width}, "q_tile");
    auto k_tile = k_.shared(dtype(), {keys_, s_.width}, "k_tile");
    // Where both do not fit, values take the place of keys: the pair of widths that needs it has the wider keys.
    auto v_tile = s_.tile.stages > 0 ? k_.shared(dtype(), {keys_, s_.value_width}, "v_tile")
                                     : k_tile.tile({0, 0}, {keys_, s_.value_width});
    k_.copy(q_box(), q_tile);
    softmax.start();
    const auto body = [&](Value j) {
      k_.copy(k_box(j), k_tile);
      k_.fill(softmax.scores, 0.0f);
      k_.gemm(q_tile, k_tile.transposed(), softmax.scores, {.warp_rows = 4});
      mask(softmax.scores, j);
      softmax.step();
      softmax.rescale_out();
      copy_values(j, v_tile, {});
      for (int64_t d = 0; d < s_.value_width; d += kColumns) {
        const int64_t columns = std::min(kColumns, s_.value_width - d);
        k_.gemm(softmax.p, v_tile.tile({0, d}, {keys_, columns}),
                softmax.out.tile({0, d}, {rows_, columns}), {.warp_rows = 4});
      }
    };
    if (s_.tile.stages > 0) {
      k_.pipelined(first_, end_, {.stages = s_.tile.stages, .in_place = true}, body);
    } else {
      k_.serial(first_, end_, body);
    }
    finish(softmax);
    copy_out(softmax.out, {});
    return k_.finish();
  }

  ir::Kernel by_roles() {
    const auto groups = static_cast<int>(rows_ / 64);
    auto count = tiles() * heads_ * batch_;
    const bool is_persistent = s_.tile.is_persistent != 0;
    auto at = k_.launch({is_persistent ? min(count, k_.device_blocks()) : count},
                        {.threads = (groups + 1) * 128});
    const auto each_tile = [&](const std::function<void(Value)>& body) {
      if (!is_persistent) return body(at.x);
      k_.persistent({count}, body);
    };
    if (is_packed()) place(at.x);  // once for both roles
    auto q_ring = k_.ring({.stages = 1}), ring = k_.ring({.stages = s_.tile.stages});
    auto q_tile = q_ring.shared(dtype(), {rows_, s_.width}, "q_tile");
    auto k_tile = ring.shared(dtype(), {keys_, s_.width}, "tile");
    // Keys and values take turns in one ring where their tiles are equal.
    std::optional<dsl::Ring> value_ring;
    if (s_.width != s_.value_width) value_ring.emplace(k_.ring({.stages = s_.tile.stages}));
    dsl::Ring& of_values = value_ring ? *value_ring : ring;
    const Ref v_tile =
        value_ring ? value_ring->shared(dtype(), {keys_, s_.value_width}, "v_tile") : k_tile;
    std::optional<Ref> out_tile;
    if (!value_ring) out_tile = k_.shared(dtype(), {rows_, s_.value_width}, "out_tile");
    const auto load = [&] {
      each_tile([&](Value block) {
        if (!is_packed()) place(block);
        const auto load_keys = [&](const Value& j) {
          ring.fill([&] { k_.copy(k_box(j), k_tile, by_engine()); });
        };
        const auto load_values = [&](const Value& j) {
          of_values.fill([&] { copy_values(j, v_tile, by_engine()); });
        };
        q_ring.fill([&] { k_.copy(q_box(), q_tile, by_engine()); });
        load_keys(first_);
        k_.serial(first_ + 1, end_, [&](Value j) { load_keys(j), load_values(j - 1); });
        load_values(end_ - 1);
      });
    };
    const auto multiply = [&] {
      OnlineSoftmax softmax(k_, dtype(), rows_, keys_, s_.value_width, c_);
      // Each warp has whole rows.
      const dsl::GemmOptions by_groups = {.warp_rows = 4 * groups,
                                          .instruction = ir::Instruction::wgmma};
      const auto multiply_keys = [&] {
        ring.take([&] {
          k_.fill(softmax.scores, 0.0f);
          k_.gemm(q_tile, k_tile.transposed(), softmax.scores, by_groups);
        });
      };
      const auto multiply_values = [&] {
        of_values.take([&] { k_.gemm(softmax.p, v_tile, softmax.out, by_groups); });
      };
      each_tile([&](Value block) {
        if (!is_packed()) place(block);
        softmax.start();
        q_ring.take([&] {
          multiply_keys();
          mask(softmax.scores, first_);
          softmax.step();
          k_.serial(first_ + 1, end_, [&](Value j) {
            multiply_keys();
            multiply_values();
            mask(softmax.scores, j);
            softmax.step();
            softmax.rescale_out();
          });
        });
        multiply_values();
        finish(softmax);
        copy_out(softmax.out, out_tile);
      });
    };
    // The rows of a tail take their role more registers.
    const int of_load = has_tails() ? 40 : 24, of_multiply = has_tails() ? 232 : 240;
    k_.roles(
        {{.name = "multiply", .warpgroups = groups, .registers = of_multiply, .body = multiply},
         {.name = "load", .warps = 1, .registers = of_load, .body = load}});
    return k_.finish();
  }

 private:
  DType dtype() const { return s_.is_f16 != 0 ? DType::f16 : DType::bf16; }
  Ref input(const char* name, const Value& rows, const Value& heads, int64_t width, int vector) {
    std::vector<dsl::Arg> strides;
    for (const char* of : {"_of_request", "_of_row", "_of_head"}) {
      strides.emplace_back(k_.stride(std::string(name) + of, {.multiple_of = vector}));
    }
    strides.emplace_back(1);
    return k_.input(name, dtype(), {batch_, rows, heads, width},
                    {.strides = strides, .align = vector * bytes(dtype())});
  }
  bool is_packed() const { return s_.is_packed != 0; }
  /// Behind the keys of a request there may be rows that are not zeros.
  bool has_tails() const { return is_packed() || k_lengths_; }
  /// Tiles of one request; in a packed call, all that there may be.
  Value tiles() const {
    auto whole = ceil_div(q_rows_, rows_);
    return is_packed() ? whole + bounds_ : whole;
  }

  /// The tile of a block: the last rows first, which see the most keys, of `section` heads at a time, whose keys
  /// and values stay in the cache.
  void place(const Value& block) {
    if (is_packed()) {
      head_ = k_.let("head", block % heads_), request_ = k_.let("request", 0);
      const PackedPlace at =
          find_packed(k_, bounds_, {"q", q_rows_, *cu_q_}, {"k", k_rows_, *cu_k_}, block / heads_,
                      rows_, TileOrder::last_rows_first);  // which see the most keys
      row_ = at.row, q_first_ = at.first, k_first_ = at.other_first;
      q_length_ = at.length, k_length_ = at.other_length;
    } else {
      place_dense(block);
    }
    k_head_ = k_.let("k_head", head_ / (heads_ / k_heads_));
    k_.assume(row_ >= 0);
    shift_ = k_.let("shift", k_length_ - q_length_);
    auto first = s_.has_left != 0 ? max(row_ + shift_ - *left_, 0) : k_.let("zero", 0);
    auto end = k_length_;
    if (s_.has_right != 0) {
      auto last_row = min(row_ + rows_, q_length_) - 1;
      end = max(min(k_length_, last_row + shift_ + *right_ + 1), 0);
    }
    first_ = k_.let("first", first / keys_);
    auto blocks = select(row_ < q_length_, ceil_div(end, keys_), 0);
    end_ = k_.let("end", s_.tile.by_roles != 0 ? max(blocks, first_ + 1) : blocks);
  }
  void place_dense(const Value& block) {
    auto pairs = k_.let("pairs", heads_ * batch_), of_section = section_ * tiles();
    auto before = k_.let("before", block / of_section * section_);
    auto width = k_.let("width", min(section_, pairs - before)), rest = block % of_section;
    auto pair = k_.let("pair", before + rest % width);
    head_ = k_.let("head", pair % heads_), request_ = k_.let("request", pair / heads_);
    row_ = k_.let("row", (tiles() - 1 - rest / width) * rows_);
    q_length_ = length("q_lengths", q_lengths_, q_rows_);
    k_length_ = length("k_lengths", k_lengths_, k_rows_);
  }
  Value length(const char* name, const std::optional<Ref>& lengths, const Value& rows) {
    if (!lengths) return rows;
    Value given = (*lengths)(request_);
    k_.report_unless(given >= 0 && given <= rows, out_of_range(name));
    return k_.let(name, min(max(given, 0), rows));
  }

  /// A row of the request as one of the tensors.
  Value in_q(const Value& row) const { return is_packed() ? q_first_ + row : row; }
  Value in_k(const Value& row) const { return is_packed() ? k_first_ + row : row; }
  Ref q_box() const {
    return q_(request_, dsl::Builder::all, head_).tile({in_q(row_), 0}, {rows_, s_.width});
  }
  Ref k_box(const Value& j) const {
    return keys_in_(request_, dsl::Builder::all, k_head_)
        .tile({in_k(j * keys_), 0}, {keys_, s_.width});
  }
  /// Rows behind the request are zeros: a key without weight must not be multiplied by what is there.
  void copy_values(const Value& j, const Ref& tile, const dsl::CopyOptions& options) {
    auto of_head = values_in_(request_, dsl::Builder::all, k_head_);
    const auto copy_whole = [&] {
      k_.copy(of_head.tile({in_k(j * keys_), 0}, {keys_, s_.value_width}), tile, options);
    };
    const auto copy_tail = [&] {
      k_.copy(of_head.rows(keys_,
                           [&](Value r) {
                             auto row = j * keys_ + r;
                             return std::vector<Value>{select(row < k_length_, in_k(row), -1)};
                           }),
              tile);
    };
    if (!has_tails()) return copy_whole();
    if (s_.tile.by_roles == 0) return copy_tail();
    k_.if_else((j + 1) * keys_ <= k_length_, copy_whole, copy_tail);
  }
  /// Writes the tile, of a packed call the rows that are the request's, through shared memory if there is some.
  void copy_out(const Ref& out, const std::optional<Ref>& tile) {
    auto of_head = out_(request_, dsl::Builder::all, head_);
    if (tile) k_.copy(out, *tile);
    const Ref from = tile ? *tile : out;
    if (!is_packed()) {
      return k_.copy(from, of_head.tile({row_, 0}, {rows_, s_.value_width}),
                     tile ? by_engine() : dsl::CopyOptions{});
    }
    k_.copy(from, of_head.rows(rows_, [&](Value r) {
      auto row = row_ + r;
      return std::vector<Value>{select(row < q_length_, in_q(row), -1)};
    }));
  }

  /// Scores of keys that a row does not see become -inf, after the cap.
  void mask(const Ref& scores, const Value& j) {
    if (cap_) {
      k_.parallel(scores, [&](Value r, Value c) {
        Value score = scores(r, c);
        scores(r, c) = tanh(score * *cap_);
      });
    }
    auto has_edge = (j + 1) * keys_ > k_length_;
    if (right_) has_edge = has_edge || (j + 1) * keys_ > row_ + shift_ + *right_ + 1;
    if (left_) has_edge = has_edge || j * keys_ < row_ + (rows_ - 1) + shift_ - *left_;
    k_.if_(has_edge, [&] {
      k_.parallel(scores, [&](Value r, Value c) {
        auto key = j * keys_ + c;
        auto is_seen = key < k_length_;
        if (right_) is_seen = is_seen && key <= row_ + r + shift_ + *right_;
        if (left_) is_seen = is_seen && key >= row_ + r + shift_ - *left_;
        Value score = scores(r, c);
        scores(r, c) = select(is_seen, score, kLowest);
      });
    });
  }

  void finish(OnlineSoftmax& softmax) {
    softmax.finish(q_length_ - row_, [&](const OnlineSoftmax::Row& row) {
      k_.if_(row_ + row.r < (is_packed() ? q_length_ : q_rows_), [&] {
        lse_(request_, head_, in_q(row_ + row.r)) = lse_of(row.sum, row.scaled, row.is_empty);
      });
      if (!sink_) return row.sum;
      Value sink = (*sink_)(head_);
      return with_sink(row.sum, row.scaled, sink);
    });
  }

  static constexpr float kLowest = -std::numeric_limits<float>::infinity();

  const ForwardSpec s_;
  const int64_t rows_, keys_;
  dsl::Builder k_;
  Value batch_, q_rows_, k_rows_, heads_, k_heads_, c_, section_;
  Ref q_, keys_in_, values_in_, out_, lse_;
  std::optional<Ref> q_lengths_, k_lengths_, cu_q_, cu_k_, sink_;
  std::optional<Value> cap_, left_, right_;
  Value bounds_;  // requests of a packed call, and one
  // The block's own. Rows count from the first of the request, which in a packed call is row q_first, k_first.
  Value request_, head_, k_head_, row_, q_length_, k_length_, q_first_, k_first_, shift_, first_,
      end_;
};

}  // namespace

ir::Kernel build_forward(const ForwardSpec& spec) {
  ForwardKernel kernel(spec);
  return spec.tile.by_roles != 0 ? kernel.by_roles() : kernel.plain();
}

}  // namespace tessera::kernels::attention
