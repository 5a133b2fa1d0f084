#pragma once
// The tensors of mla_decode, the rings between its roles, and the roles that compute p and load.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/mla/parts/mla_kernel.h"
#include "kernels/attention/mla/parts/mla_lists.h"
#include "kernels/attention/parts/paged_items.h"

namespace tessera::kernels::attention {

inline constexpr int kScoreWarps = 4;
/// Requests whose items a block sums together: shared memory is scarce, above all with slots of entries in it.
inline constexpr int64_t kLatentRequests = 32, kListedRequests = 16;

/// Registers of the threads of the roles; 0: as launched.
struct RoleRegisters {
  int scores = 0, values = 0, load = 0;
};

struct MlaTensors : PagedTensors {
  explicit MlaTensors(const MlaSpec& s)
      : PagedTensors(has_lists(s)       ? "sparse_mla_decode"
                     : s.is_sparse != 0 ? "sparse_mla_fwd"
                                        : "mla_decode",
                     {.rows = s.rows,
                      .keys = kLatentKeys,
                      .page_size = s.page_size,
                      .is_causal = s.is_causal != 0,
                      .has_one_head = true,
                      .has_lengths = s.has_lengths != 0,
                      .may_lack_pages = s.is_sparse != 0,
                      .has_token_lists = has_lists(s),
                      .requests = has_lists(s) ? kListedRequests : kLatentRequests}),
        spec(s),
        c(k.scalar("c", DType::f32)),
        q(input("q", {batch, tokens, heads, s.width}, s.q_vector)),
        out(k.output("out", s.is_f32 != 0 ? DType::f32 : DType::bf16,
                     {batch, tokens * heads, kLatentValueWidth}, {.align = 16})),
        lse(k.output("lse", DType::f32, {batch, heads, tokens}, {.align = 4})) {
    if (has_lists(s)) {
      lists.emplace(*this, s);
    } else {
      cache = input("cache", {pages, page_size, 1, s.width}, s.cache_vector);
    }
    if (s.is_sparse != 0) {
      max_logits = k.output("max_logits", DType::f32, {batch, heads}, {.align = 4});
    }
    if (s.has_sink != 0) sink = k.input("attn_sink", DType::f32, {heads}, {.align = 4});
    if (s.has_q_scale != 0) {
      q_scale = k.input("q_scale", DType::f32, {batch, tokens * heads}, {.align = 4});
    }
    if (s.has_parts == 0) return;
    auto count = k.dim("part_count"), rows = batch * tokens * heads;
    partial = k.output("partial", DType::f32, {count, rows, kLatentValueWidth}, {.align = 16});
    partial_max = k.output("partial_max", DType::f32, {count, rows}, {.align = 4});
    partial_sum = k.output("partial_sum", DType::f32, {count, rows}, {.align = 4});
  }

  dsl::Ref input(const char* name, const std::vector<dsl::Arg>& extents, int vector) {
    std::vector<dsl::Arg> strides;
    for (const char* of : {"_of_request", "_of_row", "_of_head"}) {
      strides.emplace_back(k.stride(std::string(name) + of, {.multiple_of = vector}));
    }
    strides.emplace_back(1);
    return k.input(name, DType::bf16, extents,
                   {.strides = strides, .align = vector * bytes(DType::bf16)});
  }
  DecodeRequest request(const dsl::Value& at, bool reports) override {
    if (!lists) return PagedTensors::request(at, reports);
    const dsl::Value places = lists->lengths.places(k, at, reports);
    return {places, tokens, std::nullopt, k.let("part_keys", part_blocks * shape.keys), false};
  }
  /// Keys of a request, at most.
  dsl::Value most_keys() const {
    return lists ? lists->lengths.most_places() : columns * page_size;
  }
  /// The copy engine takes the queries of a tile.
  bool has_query_box() const {
    return spec.one_token != 0 && spec.q_vector * bytes(DType::bf16) == 16 &&
           spec.form != MlaForm::plain;
  }
  /// Without groups of four twelve warps leave 168 registers to a thread; of more each partition would have four.
  int value_warps() const { return has_keys_on_m() && !lists ? 8 : 4; }
  /// Entries of a format are converted, which takes more warps.
  int load_warps() const { return lists && has_keys_on_m() ? 8 : 4; }
  /// A thread of `values` has four sums for each row of the tile, one of `load` what it holds of an entry.
  RoleRegisters registers() const {
    if (!lists || !has_keys_on_m() || spec.rows < 32) return {};
    return {128, 208, 88};
  }
  bool has_keys_on_m() const { return spec.form == MlaForm::keys_on_m; }
  /// A product by the warps of a role, each with columns of its own; or by groups of four.
  dsl::GemmOptions product(int warps) const {
    if (has_keys_on_m()) return {.instruction = ir::Instruction::wgmma};
    return {.warp_rows = 1, .warp_columns = warps};
  }
  /// The blocks of the grid.
  dsl::Value blocks() {
    auto most = batch * of_part() * ceil_div(most_keys(), kLatentKeys);
    return min(most, k.device_blocks());
  }
  /// A row of the tile in tensors that count all rows.
  dsl::Value row_of_call(const PagedPlace& at, const dsl::Value& r) const {
    return at.request * (tokens * heads) + (at.row + r);
  }

  const MlaSpec spec;
  dsl::Value c;
  dsl::Ref q, out, lse;
  std::optional<dsl::Ref> cache;
  std::optional<MlaLists> lists;
  std::optional<dsl::Ref> partial, partial_max, partial_sum, max_logits, sink, q_scale;
};

/// Some channels of a block of keys.
struct KeyPiece {
  int64_t first, width;
  dsl::Ring ring;
  dsl::Ref tile;
};

/// Blocks of keys, in pieces of some channels, each in a ring of its own.
struct KeyRings {
  KeyRings(MlaTensors& t, int pieces, int stages);

  std::vector<KeyPiece> pieces;
  std::optional<dsl::Ref> has_page;  // u8, of the first piece: the keys that are there
};

/// The queries of an item that has blocks of keys.
struct QueryRing {
  explicit QueryRing(MlaTensors& t);

  dsl::Ring ring;
  const dsl::Ref tile;
  std::optional<dsl::Ref> token;  // of each row, -1 behind the tile's; without one_token
};

/// The tiles that pass between the roles.
struct MlaRings {
  explicit MlaRings(MlaTensors& t)
      : queries(t),
        blocks(t, 1, t.spec.stages),
        keys(blocks.pieces[0].ring),
        p(t.k.ring({.stages = t.spec.p_stages})),
        key_tile(blocks.pieces[0].tile),
        has_page(*blocks.has_page),
        p_tile(p.shared(DType::bf16, {t.spec.rows, kLatentKeys}, "p_tile")),
        factor(p.shared(DType::f32, {t.spec.rows}, "factor")) {}

  QueryRing queries;
  KeyRings blocks;
  dsl::Ring keys, p;
  const dsl::Ref key_tile, has_page, p_tile;
  /// Shrinks the sums so far. The last turn of an item has no p, and here the factor of the output: -1 for an empty
  /// row.
  const dsl::Ref factor;
};

/// The role `scores`: for each block of an item p and the factor of the sums so far, then that of the output.
class MlaScores {
 public:
  virtual ~MlaScores() = default;
  virtual void run(const dsl::Value& request, const dsl::Value& item) = 0;
};
std::unique_ptr<MlaScores> make_scores(MlaTensors& t, MlaRings& rings);

/// The role `load`: blocks of keys to each of some rings in turn, and the queries behind the first of them.
class MlaLoad {
 public:
  MlaLoad(MlaTensors& tensors, QueryRing& queries, std::vector<KeyRings*> to)
      : t_(tensors), k_(tensors.k), at_(tensors), to_(std::move(to)), queries_(queries) {}
  virtual ~MlaLoad() = default;
  void run(const dsl::Value& request, const dsl::Value& item);

 protected:
  /// Before the first block of the item.
  virtual void begin() = 0;
  /// Fills the pieces of block j. One behind the item's has no key that is there.
  virtual void fill(KeyRings& to, const dsl::Value& j) = 0;

  MlaTensors& t_;
  dsl::Builder& k_;
  PagedPlace at_;
  const std::vector<KeyRings*> to_;

 private:
  void load_queries();

  QueryRing& queries_;
};
/// From pages of bf16, or from a quantised cache.
std::unique_ptr<MlaLoad> make_load(MlaTensors& t, QueryRing& queries, std::vector<KeyRings*> to);
std::unique_ptr<MlaLoad> make_listed_load(MlaTensors& t, QueryRing& queries,
                                          std::vector<KeyRings*> to);

/// MlaForm::two_groups.
ir::Kernel build_two_groups(const MlaSpec& spec);

}  // namespace tessera::kernels::attention
