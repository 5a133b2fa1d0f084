// engram_embed: rows of hashed embedding tables of one layer, for the last token ids: engram_hash and a gather
// in one.
//
// Dtypes   ids, sizes, offsets i32, multipliers i64, table and out bf16|f32
// Method   a lane hashes one entry, a warp 32 neighbours. Then the lanes share the rows, several lanes to a
//          row and a vector of 16 bytes each, with the loads of all 32 rows in flight as far as registers
//          allow. Stores are contiguous. The bound is bytes / copy bandwidth with rows of a sector or more.
// Maths    engram_hash; rows are copied
// Measured 8192 tokens by 24 rows of 64 bf16 on an H200: 12.4 us, 79 % of a copy; of 160 26.5, 84 %. Not tuned.

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "kernels/checks/value_check.h"
#include "kernels/engram/parts/ngram_hash.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t ngram, tables;
  int32_t columns;  // of the table, in words
  int16_t width;    // words per access
  DType word;       // u16 or u32
  uint8_t unused = 0;
};

constexpr int64_t kThreads = 256, kWarp = 32, kMostLoads = 8;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t entries = int64_t{s.ngram - 1} * s.tables;
  const int64_t vectors = s.columns / s.width;
  const auto lanes =
      std::min<int64_t>(kWarp, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(vectors))));
  const int64_t at_once = kWarp / lanes, rounds = kWarp / at_once;
  const int64_t loads = std::min(rounds, kMostLoads);
  Builder k("engram_embed");
  auto tokens = k.dim("tokens"), rows = k.dim("rows");
  auto ids = k.input("ngram_token_ids", DType::i32, {tokens, s.ngram}, {.align = 4});
  auto multipliers = k.input("multipliers", DType::i64, {s.ngram}, {.align = 8});
  auto sizes = k.input("vocab_sizes", DType::i32, {entries}, {.align = 4});  // flat
  auto offsets = k.input("offsets", DType::i32, {entries}, {.align = 4});
  const int64_t align = int64_t{bytes(s.word)} * s.width;
  auto stride = k.stride("table_stride", {.multiple_of = s.width});
  auto table =
      k.input("table", s.word, {rows, s.columns}, {.strides = {stride, 1}, .align = align});
  auto out = k.output("out", s.word, {tokens * entries, s.columns}, {.align = align});
  auto at = k.launch({ceil_div(tokens * entries, kThreads)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto first = k.let("first", at.x * kThreads + k.thread() / kWarp * kWarp);
  auto entry = k.let("entry", first + k.lane());
  k.wait_for_previous_kernel();
  // hash
  auto row_of = k.var(DType::i32, -1, "row_of");
  k.if_(entry < tokens * entries, [&] {
    auto token = k.let("token", entry / entries), column = k.let("column", entry % entries);
    auto size = k.let("size", sizes(column).unchecked());
    k.report_unless(size > 0 && size <= rows, out_of_range("vocab_sizes"));
    auto offset = k.let("offset", offsets(column).unchecked());
    auto fits = k.let("fits", offset >= 0 && i64(offset) + i64(size) <= i64(rows));
    k.report_unless(fits || size > rows, out_of_range("offsets"));
    auto order = k.let("order", column / s.tables + 1);
    auto row =
        k.let("row", engram::ngram_row(
                         k, s.ngram, order,
                         [&](const Value& i) { return ids(token, i).unchecked().read(); },
                         [&](const Value& i) { return multipliers(i).read(); }, size, offset));
    row_of = select(fits && size > 0, i32(row), -1);
  });
  // gather
  k.serial(0, i32(static_cast<int>(rounds / loads)), [&](Value round) {
    auto from = k.local(DType::i32, {loads}, "from");
    k.unrolled(loads, [&](Value j) {
      auto lane = (round * loads + j) * at_once + k.lane() / lanes;
      const Value row = k.shuffle(row_of, lane);
      from(j) = row;
    });
    k.serial(0, i32(static_cast<int>((vectors + lanes - 1) / lanes)), [&](Value step) {
      auto column = k.let("word", (step * lanes + k.lane() % lanes) * s.width);
      auto held = k.local(s.word, {loads, s.width}, "held");
      k.unrolled(loads, [&](Value j) {
        k.unrolled(s.width, [&](Value i) { held(j, i) = cast(s.word, u32(0)); });
      });
      k.if_(column < s.columns, [&] {
        k.unrolled(loads, [&](Value j) {
          k.if_(from(j) >= 0, [&] {
            k.vectorized(s.width,
                         [&](Value i) { held(j, i) = table(from(j), column + i).unchecked(); });
          });
        });
        k.unrolled(loads, [&](Value j) {
          auto to = k.let("to", first + (round * loads + j) * at_once + k.lane() / lanes);
          k.if_(to < tokens * entries, [&] {
            k.vectorized(s.width, [&](Value i) { out(to, column + i).unchecked() = held(j, i); });
          });
        });
      });
    });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t entries = (c["N"] - 1) * c["J"];
  const TensorView& given = c.given("table");
  const int64_t element = bytes(given.dtype);
  const int64_t width = std::gcd(common_vector(given, 16 / element), c["D"]) * element;  // bytes
  Spec s{};
  s.ngram = c.i32("N");
  s.tables = c.i32("J");
  s.word = width % 4 == 0 ? DType::u32 : DType::u16;
  const int64_t word = bytes(s.word);
  s.columns = static_cast<int32_t>(c["D"] * element / word);
  s.width = static_cast<int16_t>(width / word);
  const int64_t columns = s.columns;
  const TensorView table(given.data, s.word, Dims{c["V"], columns},
                         Dims{step(given, 0) * element / word, 1}, given.device);
  const TensorView out(c.given("out").data, s.word, Dims{c["T"] * entries, columns},
                       Dims{columns, 1}, given.device);
  TensorView sizes = c.given("vocab_sizes");
  sizes.shape = Dims{entries};
  sizes.strides = Dims{1};
  go.add(build, s, {.tensors = {{"table", table}, {"out", out}, {"vocab_sizes", sizes}}});
}

void check_values(const Call& c) {
  const TensorView &sizes = c.given("vocab_sizes"), &offsets = c.given("offsets");
  if (!values_are_checked(sizes) || !values_are_checked(offsets)) return;
  for (int64_t i = 0; i < offsets.size(); ++i) {
    const int64_t most = c["V"] - integer_at(sizes, i), offset = integer_at(offsets, i);
    c.need(offset >= 0 && offset <= most, "offsets", out_of_range("offsets"),
           "0 .. " + std::to_string(most) + ", the table's rows but those of this size",
           std::to_string(offset) + " at " + to_string(Dims{i}));
  }
}

}  // namespace

const Op engram_embed_op{
    .name = "engram_embed",
    .family = "engram",
    .purpose = "rows of a layer's hashed embedding tables for the last token ids",
    .signature = R"(
      ngram_token_ids  i32 [T, N]
      multipliers      i64 [N]             # of the layer
      vocab_sizes      i32 [N-1, J]        values 1 .. V
      offsets          i32 [(N-1)*J]       # first row of each table
      table            bf16/f32 [V, D] rows
      -> out           as table [T, (N-1)*J*D] align 16
      need             1 <= N <= 64
      need             D >= 1 on table "argument 'table' has no columns"
      need             V >= 1 on table "argument 'table' has no rows"
      limit            D <= 65536 on table "rows this long are not supported"
      limit            V <= 2130706431 on table "so many rows are not supported"
      limit            T * (N-1) * J <= 2130706431 on ngram_token_ids "so many tokens are not supported"
    )",
    .launches = launches,
    .check_values = check_values,
    .examples = R"(
      T=67 N=3 J=8 V=9000 D=64 table=bf16; T=5 N=12 J=3 V=20000 D=40 table=f32; T=9 N=2 J=1 V=500 D=7 table=bf16)",
    .bench = R"(
      T=1 N=3 J=8 V=8000000 D=64 table=bf16; T=128 N=3 J=8 V=8000000 D=64 table=bf16
      T=8192 N=3 J=8 V=8000000 D=64 table=bf16; T=8192 N=3 J=8 V=2000000 D=160 table=bf16)",
    .values = {{"ngram_token_ids", [](const Case&, int64_t i) { return i * 7919 % 100'000; }},
               {"multipliers", [](const Case&, int64_t i) { return i * 7919 % 100'000 + 1; }},
               {"vocab_sizes",
                [](const Case& c, int64_t i) {
                  const int64_t each = c["V"] / std::max<int64_t>((c["N"] - 1) * c["J"], 1);
                  return std::max<int64_t>(each - 1 - i % 2, 1);
                }},
               {"offsets",
                [](const Case& c, int64_t i) {
                  return i * (c["V"] / std::max<int64_t>((c["N"] - 1) * c["J"], 1));
                }}},
    .bytes = [](const Case& c) {
      const int64_t entries = (c["N"] - 1) * c["J"],
                    row = c["D"] * (c.dtype_word("table") == "f32" ? 4 : 2);
      return c["T"] * (4 * c["N"] + 2 * entries * row);
    }};

}  // namespace tessera::kernels
