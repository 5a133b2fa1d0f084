// batched_transpose: out[b, c, r] = x[b, r, c]; transpose is its case of one batch.
//
// Method   one tile through shared memory: loads rows and stores columns as 16-byte vectors. x is
//          read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    none
// Tuned    H200; see the table of tile sizes below, which `tessera tune` may replace.

#include <algorithm>
#include <numeric>

#include "dsl/builder.h"
#include "kernels/jit/tune.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostMultiple = 256;

struct Tile {
  int32_t rows, cols;
  int32_t threads;
};

/// The divisibilities are powers of two, at most kMostMultiple.
struct Spec {
  DType dtype;  // u8, u16 or u32
  uint8_t unused[3] = {};
  int32_t rows_multiple, cols_multiple, stride_multiple;
  int32_t align;  // bytes, of x and out
  Tile tile;
};

// 32 KiB (16 KiB of 4-byte elements) and 512 threads: long runs on both sides, and enough blocks
// per SM that the loads of one overlap the stores of another. Smaller tiles lose up to 4 % of the
// copy rate on two-byte elements.
Tile tile_of(int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return {128, 256, 512};
    case 2:
      return {128, 128, 512};
    default:
      return {64, 64, 512};
  }
}

/// More than one block per SM: the loads of one overlap the stores of another.
bool is_legal(const jit::TuneFacts& facts, const jit::TuneChoice& c) {
  const int64_t tile_bytes = c[0] * c[1] * facts.spec.at("bytes");
  return 2 * tile_bytes <= facts.shared_memory && 16 * c[2] <= tile_bytes &&
         facts.extents.at("cols") <= 65535 * c[1];
}

const jit::TuneSpace& tune_space() {
  static const auto* const made = new jit::TuneSpace{
      .fields = {{"rows", {64, 128}}, {"cols", {64, 128, 256}}, {"threads", {256, 512}}},
      .standard =
          [](const jit::TuneFacts& facts) {
            const Tile t = tile_of(facts.spec.at("bytes"));
            return jit::TuneChoice{t.rows, t.cols, t.threads};
          },
      .is_legal = is_legal};
  return *made;
}

ir::Kernel build(const Spec& s) {
  const Tile& t = s.tile;
  dsl::Builder k("batched_transpose");
  auto batch = k.dim("batch");
  auto rows = k.dim("rows", {.multiple_of = s.rows_multiple});
  auto cols = k.dim("cols", {.multiple_of = s.cols_multiple});
  auto batch_stride = k.stride("x_batch_stride", {.multiple_of = s.stride_multiple});
  auto row_stride = k.stride("x_row_stride", {.multiple_of = s.stride_multiple});
  auto x = k.input("x", s.dtype, {batch, rows, cols},
                   {.strides = {batch_stride, row_stride, 1}, .align = s.align});
  auto out = k.output("out", s.dtype, {batch, cols, rows}, {.align = s.align});
  auto at =
      k.launch({ceil_div(rows, t.rows), ceil_div(cols, t.cols), batch}, {.threads = t.threads});

  auto tile = k.shared(s.dtype, {t.rows, t.cols});  // (rows, cols) of one block
  k.copy(x(at.z).tile({at.x * t.rows, at.y * t.cols}, {t.rows, t.cols}), tile);
  k.copy(tile.transposed(), out(at.z).tile({at.y * t.cols, at.x * t.rows}, {t.cols, t.rows}));
  return k.finish();
}

int32_t power_of_two_divisor(int64_t value) {
  return static_cast<int32_t>(std::gcd(value, kMostMultiple));
}

Spec spec_of(std::string_view op, const TensorView& x, const TensorView& out) {
  const int64_t batch_stride = x.shape[0] <= 1 ? 0 : x.strides[0];
  const int64_t row_stride = x.shape[1] <= 1 ? 0 : x.strides[1];
  Spec s;
  s.dtype = x.dtype;
  s.rows_multiple = power_of_two_divisor(x.shape[1]);
  s.cols_multiple = power_of_two_divisor(x.shape[2]);
  s.stride_multiple = power_of_two_divisor(std::gcd(batch_stride, row_stride));
  s.align = common_alignment({x, out});
  const jit::TuneChoice tile = jit::choose(op, tune_space(),
                                           {.spec = {{"bytes", bytes(s.dtype)},
                                                     {"rows_multiple", s.rows_multiple},
                                                     {"cols_multiple", s.cols_multiple},
                                                     {"stride_multiple", s.stride_multiple},
                                                     {"align", s.align}},
                                            .extents = {{"cols", x.shape[2]}}},
                                           x.device);
  s.tile = {static_cast<int32_t>(tile[0]), static_cast<int32_t>(tile[1]),
            static_cast<int32_t>(tile[2])};
  return s;
}

/// Views elements as plain integers and a matrix as a batch of one.
TensorView as_batch(TensorView x) {
  const int size = bytes(x.dtype);
  x.dtype = size == 1 ? DType::u8 : size == 2 ? DType::u16 : DType::u32;
  if (x.rank() != 2) return x;
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]},
                    {x.shape[0] * x.strides[0], x.strides[0], x.strides[1]}, x.device);
}

/// The longest rows that one launch takes.
int64_t most_cols(const Call& c) {
  return int64_t{65535} * tile_of(bytes(c.given("x").dtype)).cols;
}

void launches(const Call& c, Launches& go) {
  const TensorView x = as_batch(c.given("x"));
  const TensorView out = c.has("out") ? as_batch(c.given("out")) : TensorView();
  go.add(build, spec_of(c.op().name, x, out), {.tensors = {{"x", x}, {"out", out}}});
}

}  // namespace

const Op transpose_op{.name = "transpose",
                      .family = "transpose",
                      .purpose = "transposes a matrix",
                      .signature = R"(
      x       bytes1/bytes2/bytes4 [R, C] rows
      -> out  as x [C, R]
      limit   C <= most_cols() if R * C > 0 "the rows are too long for one launch"
    )",
                      .launches = launches,
                      .functions = {{"most_cols", most_cols}},
                      .examples = R"(
      R=192 C=128 x=e4m3 x.strides=256,1; R=192 C=128 x=bf16 x.strides=256,1; R=70 C=33 x=f32)",
                      .bench = R"(
      R=8064 C=7168 x=e4m3 x.strides=14336,1; R=8064 C=7168 x=bf16 x.strides=14336,1)"};

const Op batched_transpose_op{.name = "batched_transpose",
                              .family = "transpose",
                              .purpose = "transposes the last two dimensions of every batch",
                              .signature = R"(
      x       bytes1/bytes2/bytes4 [B, R, C] rows
      -> out  as x [B, C, R]
      limit   B <= 65535 if B * R * C > 0 "the batch is too large for one launch"
      limit   C <= most_cols() if B * R * C > 0 "the rows are too long for one launch"
    )",
                              .launches = launches,
                              .functions = {{"most_cols", most_cols}},
                              .examples = R"(
      B=2 R=192 C=128 x=e4m3; B=2 R=192 C=128 x=bf16; B=2 R=192 C=128 x=f32; B=1 R=70 C=33 x=bf16)",
                              .bench = R"(
      B=8 R=8064 C=7168 x=e4m3; B=8 R=8064 C=7168 x=bf16; B=32 R=8064 C=7168 x=e4m3
      B=32 R=8064 C=7168 x=bf16)"};

}  // namespace tessera::kernels
