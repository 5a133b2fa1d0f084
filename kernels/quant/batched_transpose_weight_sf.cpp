// batched_transpose_weight_sf: the exponents of the scales of square weight blocks, packed for products by
// rows of the weight and for products by its columns.
//
// Shapes   sf [.., rows, columns], sf0 [.., ceil(columns / 4), rows block], sf1 [.., ceil(rows / 4),
//          columns block]
// Dtypes   f32 to i32 words of four UE8M0 exponents, the first in the low byte
// Method   a block per row of sf0 or sf1. All words of a run of `block` are equal: a thread packs four scales
//          and stores the word as a vector of four. Scales come from L1 but for the first lane of a run, so
//          the bound is the stores.
// Maths    bits >> 23 of each scale; 0 beyond the last one
// Measured 256 weights of 56 x 16 blocks of 128 on an H200: 25.5 us, 66 % of a copy; of 224 x 64 of 32 107, 57 % (goal 80).

#include <fmt/format.h>

#include <bit>
#include <functional>

#include "dsl/builder.h"
#include "kernels/checks/value_check.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/signature/scale_layout.h"

namespace tessera::kernels {
namespace {

struct Spec {
  int32_t block;
};

constexpr int64_t kThreads = 256, kRun = 4;  // words per store
// Sign and mantissa: a power of two, +0 and +infinity have none.
constexpr uint32_t kForbidden = 0x807FFFFF;

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("batched_transpose_weight_sf");
  auto batch = k.dim("batch"), rows = k.dim("rows"), columns = k.dim("columns");
  auto row_words = k.dim("row_words"), column_words = k.dim("column_words");
  auto sf = k.input("sf", DType::u32, {batch, rows, columns}, {.align = 4});
  auto sf0 = k.output("sf0", DType::u32, {batch, column_words, rows * s.block});
  auto sf1 = k.output("sf1", DType::u32, {batch, row_words, columns * s.block});
  auto at = k.launch({batch * (column_words + row_words)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto words = k.let("words", column_words + row_words);
  auto one = k.let("one", at.x / words), line = k.let("line", at.x % words);
  k.wait_for_previous_kernel();
  // Packs the scales 4 `word` .. 4 `word` + 3 of a row or column of `count`.
  const auto packed = [&](const Value& word, const Value& count,
                          const std::function<Value(const Value&)>& scale) {
    auto result = k.var(DType::u32, u32(0), "packed");
    k.unrolled(4, [&](Value i) {
      auto place = k.let("place", word * 4 + i);
      k.if_(place < count, [&] {
        auto bits = k.let("bits", scale(place));
        k.report_unless((bits & u32(kForbidden)) == u32(0), out_of_range("sf"));
        result = Value(result) | (bits >> u32(23) & u32(255)) << u32(i * 8);
      });
    });
    return k.let("word_of_run", result);
  };
  const auto store = [&](const Ref& line_of, const Value& runs,
                         const std::function<Value(const Value&)>& word) {
    k.serial(
        k.thread(), runs * (s.block / kRun),
        [&](Value item) {
          auto value = k.let("value", word(item / (s.block / kRun)));
          k.vectorized(kRun, [&](Value i) { line_of(item * kRun + i).unchecked() = value; });
        },
        kThreads);
  };
  k.if_else(
      line < column_words,
      [&] {
        store(sf0(one, line), rows, [&](const Value& row) {
          return packed(line, columns, [&](const Value& column) {
            return sf(one, row, column).unchecked().read();
          });
        });
      },
      [&] {
        auto word = k.let("word_of_rows", line - column_words);
        store(sf1(one, word), columns, [&](const Value& column) {
          return packed(word, rows,
                        [&](const Value& row) { return sf(one, row, column).unchecked().read(); });
        });
      });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  const int64_t batch = c["T"], rows = c["R"], columns = c["C"], block = c["block_size"];
  if (batch * rows * columns == 0) return;  // nothing of either result
  const auto words = [&](const char* name, int64_t lines, int64_t length) {
    const TensorView& view = c.given(name);
    return Args::Tensor{name,
                        {view.data, DType::u32, Dims{batch, lines, length},
                         Dims{lines * length, length, 1}, view.device}};
  };
  go.add(
      build, Spec{static_cast<int32_t>(block)},
      {.tensors = {words("sf", rows, columns), words("sf0", num_blocks(columns, 4), rows * block),
                   words("sf1", num_blocks(rows, 4), columns * block)}});
}

void check_values(const Call& c) {
  const TensorView& sf = c.given("sf");
  if (!values_are_checked(sf)) return;
  for (int64_t i = 0; i < sf.size(); ++i) {
    const uint32_t bits = static_cast<const uint32_t*>(sf.data)[i];
    if ((bits & kForbidden) == 0) continue;
    c.need(false, "sf", out_of_range("sf"), "powers of two, +0 or +infinity",
           fmt::format("{} at {}", std::bit_cast<float>(bits), to_string(place_of(sf, i))));
  }
}

}  // namespace

const Op batched_transpose_weight_sf_op{
    .name = "batched_transpose_weight_sf",
    .family = "quant",
    .purpose =
        "packed exponents of the scales of weight blocks, by rows and by columns of the weight",
    .signature = R"(
      sf      f32 [.., R, C]                          # of blocks of block_size x block_size
      -> sf0  i32 [.., ceil(C / 4), R*block_size]     align 16  # per row of the weight
      -> sf1  i32 [.., ceil(R / 4), C*block_size]     align 16  # per column
      param  block_size {32, 128}
      need   R * block_size % 128 = 0 on sf "argument 'sf' has the wrong number of rows"
      need   C * block_size % 128 = 0 on sf "argument 'sf' has the wrong number of columns"
      limit  T * (R + C) * block_size <= 2130706431 on sf "so many scales are not supported"
      limit  R * C * block_size <= 2130706431 on sf "so many scales are not supported"
    )",
    .launches = launches,
    .check_values = check_values,
    .examples =
        "T=3 R=8 C=12 block_size=32; T=2 R=7 C=3 block_size=128; T=1 R=4 C=40 block_size=32",
    .bench = R"(
      T=1 R=56 C=16 block_size=128; T=256 R=56 C=16 block_size=128; T=256 R=224 C=64 block_size=32)",
    .values = {{"sf", [](const Case&, int64_t i) { return (i * 7 % 23 + 116) << 23; }}}};  // bits

}  // namespace tessera::kernels
