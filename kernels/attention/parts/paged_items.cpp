#include "kernels/attention/parts/paged_items.h"

#include <vector>

#include "kernels/checks/value_check.h"

namespace tessera::kernels::attention {
namespace {

using dsl::Axis;
using dsl::Ref;
using dsl::Value;

constexpr auto kI32 = DType::i32;

Ref make_table(PagedTensors& t) {
  if (!t.shape.has_token_lists) {
    return t.k.input("page_table", kI32, {t.batch, t.columns},
                     {.strides = {t.k.stride("of_table"), 1}, .align = 4});
  }
  const Value of_table = t.k.stride("of_table"), of_token = t.k.stride("of_token");
  return t.k.input("page_table", kI32, {t.batch, t.tokens, t.columns},
                   {.strides = {of_table, of_token, 1}, .align = 4});
}

}  // namespace

PagedTensors::PagedTensors(const char* kernel, const PagedShape& s)
    : shape(s),
      k(kernel),
      batch(k.dim("B")),
      tokens(k.dim("n")),
      heads(k.dim("h")),
      k_heads(s.has_one_head ? dsl::i32(1) : k.dim("g")),
      pages(s.has_token_lists ? dsl::i32(0) : k.dim("P")),
      page_size(s.page_size > 0 ? dsl::i32(s.page_size) : k.dim("ps")),
      columns(k.dim("Q")),
      part_blocks(k.scalar("part_blocks", kI32)),
      group(s.has_one_head ? heads : k.scalar("group", kI32)),
      table(make_table(*this)) {
  if (s.has_lengths) lengths = k.input("lengths", kI32, {batch}, {.align = 4});
  if (s.has_left) left = k.scalar("left", kI32);
}

DecodeRequest PagedTensors::request(const Value& at, bool reports) {
  auto most = k.let("most", columns * page_size);
  Value length = most;
  if (lengths) {
    Value given = (*lengths)(at);
    if (reports) k.report_unless(given >= 0 && given <= most, out_of_range("lengths"));
    length = k.let("length", min(max(given, 0), most));
  }
  return {length, tokens, left, k.let("part_keys", part_blocks * shape.keys), shape.is_causal};
}

void PagedTensors::start(const Value& of_grid, const Value& blocks) {
  block = of_grid, step = k.let("step", blocks), items_of_part = k.let("items_of_part", of_part());
}

Value PagedTensors::tiles() const {
  return ceil_div(shape.has_token_lists ? group : tokens * group, shape.rows);
}

Value PagedTensors::of_part() const {
  return (shape.has_token_lists ? tokens * tiles() : tiles()) * k_heads;
}

PagedPlace::PagedPlace(PagedTensors& tensors)
    : t_(tensors), k_(tensors.k), place_(k_.shared(kI32, {7}, "place")) {}

void PagedPlace::find(const Value& of_request, const Value& item) {
  const int64_t rows = t_.shape.rows, keys = t_.shape.keys;
  request = of_request;
  k_.assume(request >= 0 && request < t_.batch);
  const DecodeRequest r = t_.request(request, false);
  length = r.length;
  k_.if_(k_.thread() == 0, [&] {
    const bool by_token = t_.shape.has_token_lists;
    auto shared_rows = k_.let("shared_rows", by_token ? t_.group : t_.tokens * t_.group);
    auto tiles = k_.let("tiles", t_.tiles());
    auto rest = k_.let("rest", item / t_.k_heads);
    auto shared_row = k_.let("shared_row", rest % tiles * rows);
    auto rows_of_tile = k_.let("rows_of_tile", min(shared_rows - shared_row, rows));
    auto first_part = k_.let("first_part", r.first_part());
    auto above = k_.let("above", rest / tiles);  // parts; with lists of tokens, tokens of parts
    auto first_row =
        by_token ? k_.let("row_of_tile", above % t_.tokens * t_.group + shared_row) : shared_row;
    auto of_item = k_.let("part_of_item", first_part + (by_token ? above / t_.tokens : above));
    auto from = max(r.begin(first_row / t_.group), of_item * r.part_keys);
    auto to = min(r.end((first_row + rows_of_tile - 1) / t_.group), (of_item + 1) * r.part_keys);
    place_(0) = item % t_.k_heads, place_(1) = first_row, place_(2) = rows_of_tile;
    place_(3) = of_item, place_(4) = dsl::i32(r.end_part() - first_part <= 1);
    place_(5) = from / keys, place_(6) = ceil_div(max(to, 0), keys);
  });
  const auto at = [&](int i) { return k_.uniform(place_(i)); };
  k_head = at(0), row = at(1), count = at(2), part = at(3);
  is_alone = k_.let("is_alone", at(4) == 1), first = at(5), end = at(6);
  k_.assume(k_head >= 0 && k_head < t_.k_heads);
  k_.assume(row >= 0 && part >= 0 && first >= 0 && end <= kMaxKeys / keys);
}

/// The items of a round of requests are found by prefix sums of their parts.
void each_item(PagedTensors& t, bool reports, const std::function<void(Value, Value)>& body) {
  dsl::Builder& k = t.k;
  const int64_t requests = t.shape.requests;
  auto ends = k.shared(kI32, {requests}, "ends");
  auto before = k.var(kI32, 0, "before");  // items of the requests of earlier rounds
  k.serial(0, ceil_div(t.batch, requests), [&](Value chunk) {
    k.parallel({requests}, [&](Value i) {
      auto items = k.var(kI32, 0, "items");
      k.if_(chunk * requests + i < t.batch, [&] {
        const DecodeRequest r = t.request(chunk * requests + i, reports);
        items = max(r.end_part() - r.first_part(), 1) * t.items_of_part;
      });
      ends(i) = items;
    });
    k.scan_sum(ends, ends, Axis(0));
    Value until = k.uniform(before), all = ends(requests - 1);
    auto rest = k.let("rest", (t.block - until) % t.step);
    auto first = k.let("first_item", select(rest < 0, rest + t.step, rest));
    auto rounds = k.let("rounds", select(first < all, (all - first - 1) / t.step + 1, 0));
    k.rolled(0, rounds, [&](Value round) {
      auto item = k.let("item", first + round * t.step);
      auto owner = k.let("owner", find_owner(k, ends, item, requests));
      auto of_request = k.let("of_request", item - sum_before(ends, owner));
      body(k.let("request", chunk * requests + owner), of_request);
    });
    before = until + all;
  });
}

void load_rows(PagedTensors& t, const PagedPlace& at, const Ref& cache, const Value& j,
               const Ref& tile) {
  const auto place = [=, &t, &at](const Value& r) {
    auto key = j * t.shape.keys + r;
    Value page = t.table(at.request, key / t.page_size);
    return std::vector<Value>{select(key < at.length, page, -1), key % t.page_size, at.k_head};
  };
  t.k.copy(cache.rows(t.shape.keys, place), tile);
}

void note_pages(PagedTensors& t, const PagedPlace& at, const Value& j, const Ref& is_there) {
  dsl::Builder& k = t.k;
  k.parallel({t.shape.keys}, [&](Value r) {
    auto key = k.let("key", j * t.shape.keys + r);
    Value page = t.table(at.request, key / t.page_size);
    auto has_page = k.let("has_page", page >= 0 && page < t.pages);
    if (!t.shape.may_lack_pages) {
      k.report_unless(has_page || key >= at.length, out_of_range("page_table"));
    }
    is_there(r) = dsl::i32(has_page);
  });
}

}  // namespace tessera::kernels::attention
