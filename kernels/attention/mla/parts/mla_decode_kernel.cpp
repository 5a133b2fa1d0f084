// Latent attention of a few tokens over a paged cache: all heads share one key of 576 or 512 channels, of which the first 512
// are the value. For sparse_mla_fwd each token is a request, whose pages of one row are the entries that its indices choose.
// For sparse_mla_decode `load` makes keys of the bytes of a quantised cache (mla_listed_keys.cpp).
//
// Blocks walk items of work (paged_items.h): a part of one request for one tile of rows, which are the queries of its
// tokens and heads. So a key is loaded once for all heads, and once for both products. Three roles share an item:
//
//   load     fills a ring with blocks of 64 keys, and one with the queries of the item: mla_load.cpp
//   scores   multiplies q and the keys of a block, turns the scores into p, and fills a ring with p and the factor by
//            which the output so far shrinks
//   values   rescales its sums and adds p v, from the same block of keys
//
// So the scores of the next block are computed while p v of this one is. In a last turn of the ring of p `scores` hands over
// the inverse of the sum of each row.
//
// Keys are on M in the first product, channels of values in the second, so rows are padded to 8, not to 64. Without wgmma rows
// are on M, in tiles of 16. Bits are equal: an instruction's sums do not depend on the side of an operand.
//
// Up to 32 rows, which is what shared memory has room for; mla_two_groups.cpp takes more.
//
// Bound    bytes of the cache: 74 KB of a block take 4060 clocks of an SM at 4.2 TB/s, its products 1230 for 16 rows.
// Measured one H200, us: 128 requests of 4096 keys, 16 heads 161 (goal 155), of 1024 keys 52.6 (43). sparse_mla_fwd, 4096 tokens
//          by 2048 keys of 576, 32 heads 2812 (1.7 ms for the gather). Gathers of 64 channels at a time take 2386 and 2527 for 8
//          and 16 heads; of whole rows, each of which looked its page up, 2088 and 2241.
// Lost     rows one after the other in `scores`, with a chain of five exchanges each: 167, 58, and 3200 for 32 heads.

#include <vector>

#include "kernels/attention/mla/parts/mla_roles.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kF32 = DType::f32;

/// The role `values`.
class MlaValues {
 public:
  MlaValues(MlaTensors& tensors, MlaRings& rings)
      : t_(tensors),
        k_(tensors.k),
        from_(rings),
        at_(tensors),
        rows_(tensors.spec.rows),
        values_(rings.key_tile.tile({0, 0}, {kLatentKeys, kLatentValueWidth})),
        o_(tensors.has_keys_on_m() ? k_.fragment(kF32, {kLatentValueWidth, rows_}, "o")
                                   : k_.fragment(kF32, {rows_, kLatentValueWidth}, "o")) {}

  void run(const Value& request, const Value& item) {
    at_.find(request, item);
    k_.fill(o_, 0.0f);
    k_.serial(at_.first, at_.end,
              [&](Value) { from_.keys.take([&] { from_.p.take([&] { step(); }); }); });
    from_.p.take([&] { finish(); });
  }

 private:
  /// Calls `body` with the element of o, row and channel of each.
  template <class Body>
  void each(const Body& body) {
    if (t_.has_keys_on_m()) {
      k_.parallel({kLatentValueWidth, rows_}, [&](Value d, Value r) { body(o_(d, r), r, d); });
    } else {
      k_.parallel({rows_, kLatentValueWidth}, [&](Value r, Value d) { body(o_(r, d), r, d); });
    }
  }

  void step() {
    each([&](const Ref& o, const Value& r, const Value&) {
      Value before = o;
      o = before * from_.factor(r);
    });
    if (t_.has_keys_on_m()) {
      k_.gemm(values_.transposed(), from_.p_tile.transposed(), o_, t_.product(t_.value_warps()));
    } else {
      k_.gemm(from_.p_tile, values_, o_, t_.product(t_.value_warps()));
    }
  }

  void finish() {
    const auto whole = [&] { write(t_.out(at_.request), at_.row, true); };
    if (!t_.partial) return whole();
    k_.if_else(at_.is_alone, whole, [&] {
      write((*t_.partial)(at_.part), k_.let("first_row", t_.row_of_call(at_, dsl::i32(0))), false);
    });
  }
  /// Writes the rows of the tile to rows from `first` on, divided by their sums or not.
  void write(const Ref& to, const Value& first, bool is_divided) {
    const auto result_of = [&](const Ref& element, const Value& r) {
      // As variables: compilers would read arguments in different orders.
      Value o = element, inverse = from_.factor(r);
      return k_.let("result", select(inverse < 0.0f, 0.0f, is_divided ? fma(o, inverse, 0.0f) : o));
    };
    const Value count = at_.count;
    if (t_.has_keys_on_m()) {
      return each([&](const Ref& element, const Value& r, const Value& d) {
        auto result = result_of(element, r);
        k_.if_(r < count, [&] { to(first + r, d) = cast(to.dtype(), result); });
      });
    }
    each(
        [&](const Ref& element, const Value& r, const Value&) { element = result_of(element, r); });
    k_.copy(o_, to.rows(rows_, [=](const Value& r) {
      return std::vector<Value>{select(r < count, first + r, -1)};
    }));
  }

  MlaTensors& t_;
  dsl::Builder& k_;
  MlaRings& from_;
  PagedPlace at_;
  const int64_t rows_;
  const Ref values_, o_;
};

}  // namespace

ir::Kernel build_mla_decode(const MlaSpec& spec) {
  if (spec.form == MlaForm::two_groups) return build_two_groups(spec);
  MlaTensors t(spec);
  dsl::Builder& k = t.k;
  auto blocks = t.blocks();
  auto at = k.launch({blocks}, {.threads = (kScoreWarps + t.value_warps() + t.load_warps()) * 32});
  k.assume(t.heads >= 1);
  k.let_next_kernel_start();
  k.wait_for_previous_kernel();
  t.start(at.x, blocks);
  MlaRings rings(t);
  const auto scores = [&] {
    const auto role = make_scores(t, rings);
    each_item(t, true, [&](const Value& request, const Value& item) { role->run(request, item); });
  };
  const auto values = [&] {
    MlaValues role(t, rings);
    each_item(t, false, [&](const Value& request, const Value& item) { role.run(request, item); });
  };
  const auto load = [&] {
    const auto role = make_load(t, rings.queries, {&rings.blocks});
    each_item(t, false, [&](const Value& request, const Value& item) { role->run(request, item); });
  };
  const RoleRegisters registers = t.registers();
  k.roles({{.name = "scores",
            .warpgroups = kScoreWarps / 4,
            .registers = registers.scores,
            .body = scores},
           {.name = "values",
            .warpgroups = t.value_warps() / 4,
            .registers = registers.values,
            .body = values},
           {.name = "load",
            .warpgroups = t.load_warps() / 4,
            .registers = registers.load,
            .body = load}});
  return k.finish();
}

}  // namespace tessera::kernels::attention
