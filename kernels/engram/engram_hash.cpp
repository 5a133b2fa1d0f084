// engram_hash: rows of hashed embedding tables.
//
// Method   one thread per entry: one 64-bit division each, and neighbours store neighbouring
//          entries. Tables of one order repeat the same hash, which costs N products. Few bytes:
//          the bound is the latency of two loads, one division and one store.
// Maths    h ^= id * multiplier (mod 2^64); floor modulus; sum mod 2^32
// Tuned    H200: 256 threads per block.

#include <optional>

#include "kernels/checks/value_check.h"
#include "kernels/engram/parts/ngram_hash.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/op_builder.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t ngram, tables;
  int32_t has_mask;  // 0 or 1
};

constexpr int64_t kThreads = 256;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  const int64_t columns = int64_t{s.ngram - 1} * s.tables;
  OpBuilder k(engram_hash_op, {{"N", s.ngram}, {"J", s.tables}});
  auto tokens = k.extent("T"), layers = k.extent("L");
  auto ids = k.tensor("ngram_token_ids"), multipliers = k.tensor("multipliers");
  auto vocab_sizes = k.input("vocab_sizes", DType::i32, {layers, columns}, {.align = 4});  // flat
  auto offsets = k.tensor("offsets"), out = k.tensor("out");
  std::optional<Ref> image;
  if (s.has_mask != 0) image = k.tensor("image_token_mask");
  auto at = k.launch({ceil_div(tokens * columns, kThreads), layers}, {.threads = kThreads});

  auto entry = k.let("entry", at.x * kThreads + k.thread());
  auto token = k.let("token", entry / columns);
  auto column = k.let("column", entry % columns);
  k.if_(token < tokens, [&] {
    // load
    auto size = k.let("size", vocab_sizes(at.y, column));
    k.report_unless(size > 0, out_of_range("vocab_sizes"));
    auto offset = k.let("offset", offsets(at.y, column));
    // hash the ids of this order
    auto order = k.let("order", column / s.tables + 1);
    Value row = i32(engram::ngram_row(
        k, s.ngram, order, [&](const Value& i) { return ids(token, i).read(); },
        [&](const Value& i) { return multipliers(at.y, i).read(); }, size, offset));
    if (image) {
      auto is_image = k.let("is_image", (*image)(token));
      row = select(is_image, i32(-1), row);
    }
    out(at.y, token, column) = row;
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  TensorView sizes = c.tensor("vocab_sizes");
  sizes.shape = c.tensor("offsets").shape;
  sizes.strides = row_major_strides(sizes.shape);
  go.add(build, Spec{c.i32("N"), c.i32("J"), c.has("image_token_mask") ? 1 : 0},
         {.tensors = {{"vocab_sizes", sizes}}});
}

int64_t spread(const Case&, int64_t i) {
  return i * 7919 % 100'000;
}

}  // namespace

const Op engram_hash_op{
    .name = "engram_hash",
    .family = "engram",
    .purpose = "rows of hashed embedding tables for the last token ids",
    .signature = R"(
      ngram_token_ids  i32 [T, N]
      multipliers      i64 [L, N]
      vocab_sizes      i32 [L, N-1, J]     values 1 .. 2147483647
      offsets          i32 [L, (N-1)*J]
      image_token_mask?  bool [T]          # true: the rows of the token are -1
      -> out           i32 [L, T, (N-1)*J]
      need             1 <= N <= 65536
    )",
    .launches = launches,
    .examples = "T=67 L=2 N=3 J=8; T=5 L=1 N=12 J=3; T=9 L=2 N=3 J=8 image_token_mask=given",
    .bench = "T=4001 L=2 N=3 J=8; T=8001 L=2 N=3 J=8; T=1 L=2 N=3 J=8; T=128 L=2 N=3 J=8",
    .values = {{"ngram_token_ids", spread},
               {"multipliers", spread},
               {"vocab_sizes", [](const Case&, int64_t i) { return 100'003 + i * 9973; }},
               {"offsets", [](const Case&, int64_t i) { return i * 500'009; }}}};

}  // namespace tessera::kernels
