// The role `load` of the kernels of mla_decode: queries, and keys out of pages of bf16.
//
// A block of keys is a tensor copy where it lies in one page and ends before the request does, else a gather of rows, in
// which those behind the request are zeros. So are queries: a tensor copy where the rows of a tile are of one token.

#include "kernels/attention/mla/parts/mla_roles.h"
#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Ref;
using dsl::Value;

constexpr auto kI32 = DType::i32;
constexpr auto kBf16 = DType::bf16;
constexpr int64_t kPanel = 64;  // channels of a gather at a time
constexpr int64_t kRowsAtOnce = 8;

class PagedKeys final : public MlaLoad {
 public:
  PagedKeys(MlaTensors& t, QueryRing& queries, std::vector<KeyRings*> to)
      : MlaLoad(t, queries, std::move(to)),
        pages_(k_.shared(kI32, {kLatentKeys}, "pages")),
        page_(k_.var(kI32, -1, "page_of_thread")) {}

 private:
  void begin() override {
    end_ = k_.let("end", min(at_.length, at_.end * kLatentKeys));
    look_up(at_.first * kLatentKeys);
  }

  /// Looks for the pages before it waits for room.
  void fill(KeyRings& to, const Value& j) override {
    auto first = k_.let("first_key", j * kLatentKeys);
    note_pages(first);
    look_up(first + kLatentKeys);
    for (KeyPiece& piece : to.pieces) {
      piece.ring.fill([&] {
        if (piece.first == 0) {
          k_.parallel({kLatentKeys}, [&](Value r) {
            Value page = pages_(r);
            (*to.has_page)(r) = cast(DType::u8, page >= 0);
          });
        }
        load(first, piece);
      });
    }
  }

  /// Loads the page of the thread's key of a block, one block ahead.
  void look_up(const Value& first) {
    page_ = -1;
    k_.if_(k_.thread() < kLatentKeys && first + k_.thread() < end_,
           [&] { page_ = t_.table(at_.request, (first + k_.thread()) / t_.page_size); });
  }
  /// The pages of a block's keys; -1 for those behind the item's, and for pages that do not exist.
  void note_pages(const Value& first) {
    k_.if_(k_.thread() < kLatentKeys, [&] {
      Value page = page_;
      auto is_there = k_.let("is_there", page >= 0 && page < t_.pages);
      if (!t_.shape.may_lack_pages) {
        k_.report_unless(is_there || first + k_.thread() >= end_, out_of_range("page_table"));
      }
      pages_(k_.thread()) = select(is_there, page, -1);
    });
  }

  void load(const Value& first, const KeyPiece& to) {
    const auto copy = [&](const Value& channel, const Ref& tile) {
      const auto place = [&](const Value& r) {
        Value page = pages_(r);
        return std::vector<Value>{page, (first + r) % t_.page_size, dsl::i32(0), channel};
      };
      k_.copy(t_.cache->rows(kLatentKeys, place), tile);
    };
    const auto gather = [&] {
      // Threads that load for two groups have few registers.
      if (to.width == t_.spec.width) return copy(dsl::i32(0), to.tile);
      k_.rolled(0, to.width / kPanel, [&](Value i) {
        auto channel = k_.let("channel", i * kPanel);
        copy(to.first + channel, to.tile.tile({0, channel}, {kLatentKeys, kPanel}));
      });
    };
    if (t_.spec.by_engine == 0) return gather();
    Value of_first = pages_(0);
    auto page = k_.let("page_of_block", k_.uniform(of_first));
    k_.if_else(
        first + kLatentKeys <= end_,
        [&] {
          k_.copy((*t_.cache)(page, dsl::Builder::all, 0)
                      .tile({first % t_.page_size, to.first}, {kLatentKeys, to.width}),
                  to.tile, {.engine = ir::Engine::tensor});
        },
        gather);
  }

  const Ref pages_;  // of the keys of a block
  const Ref page_;   // of the thread's key of the next block
  Value end_;        // of the item's keys
};

}  // namespace

KeyRings::KeyRings(MlaTensors& t, int count, int stages) {
  const int64_t width = kLatentValueWidth / count;
  for (int i = 0; i < count; ++i) {
    const int64_t first = i * width, end = i + 1 < count ? first + width : t.spec.width;
    dsl::Ring ring = t.k.ring({.stages = stages});
    const Ref tile = ring.shared(kBf16, {kLatentKeys, end - first}, "key_tile");
    pieces.push_back({first, end - first, ring, tile});
  }
  has_page.emplace(pieces[0].ring.shared(DType::u8, {kLatentKeys}, "has_page"));
}

QueryRing::QueryRing(MlaTensors& t)
    : ring(t.k.ring({.stages = 1})),
      tile(ring.shared(kBf16, {t.spec.rows, t.spec.width}, "q_tile")) {
  if (t.spec.one_token == 0) token.emplace(ring.shared(kI32, {t.spec.rows}, "token"));
}

void MlaLoad::run(const Value& request, const Value& item) {
  at_.find(request, item);
  begin();
  k_.serial(
      at_.first, at_.end,
      [&](Value j) {
        for (size_t i = 0; i < to_.size(); ++i) fill(*to_[i], j + static_cast<int32_t>(i));
        // Those of the item before may be in use until its end.
        k_.if_(j == at_.first, [&] { queries_.ring.fill([&] { load_queries(); }); });
      },
      static_cast<int32_t>(to_.size()));
}

void MlaLoad::load_queries() {
  const int64_t rows = t_.spec.rows;
  if (t_.spec.one_token != 0) {
    auto request = k_.let("request_of_tile", k_.uniform(at_.request));
    auto token = k_.let("token", at_.row / t_.heads);
    const auto box =
        t_.q(request, token).tile({at_.row - token * t_.heads, 0}, {rows, t_.spec.width});
    const auto engine = t_.has_query_box() ? ir::Engine::tensor : ir::Engine::automatic;
    return k_.copy(box, queries_.tile, {.engine = engine});
  }
  k_.parallel({rows}, [&](Value r) {
    (*queries_.token)(r) = select(r < at_.count, (at_.row + r) / t_.heads, -1);
  });
  // A few rows at a time, to spare registers.
  k_.rolled(0, rows / kRowsAtOnce, [&](Value i) {
    auto first = k_.let("first_row", i * kRowsAtOnce);
    const auto place = [&](const Value& r) {
      Value token = (*queries_.token)(first + r);
      return std::vector<Value>{select(token < 0, -1, at_.request), token,
                                at_.row + first + r - token * t_.heads};
    };
    k_.copy(t_.q.rows(kRowsAtOnce, place),
            queries_.tile.tile({first, 0}, {kRowsAtOnce, t_.spec.width}));
  });
}

std::unique_ptr<MlaLoad> make_load(MlaTensors& t, QueryRing& queries, std::vector<KeyRings*> to) {
  if (t.lists) return make_listed_load(t, queries, std::move(to));
  return std::make_unique<PagedKeys>(t, queries, std::move(to));
}

}  // namespace tessera::kernels::attention
