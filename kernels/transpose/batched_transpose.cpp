// batched_transpose: out[b, c, r] = x[b, r, c], and transpose, its case of one batch.
//
// Shapes   x [batch, rows, cols], out [batch, cols, rows]
// Dtypes   any of 1, 2 or 4 bytes, moved as integers
// Method   one tile through shared memory: rows come in as 16-byte vectors, columns go out as 16-byte
//          vectors. x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    none
// Tuned    H200; see the table of tile sizes below.

#include "kernels/transpose/batched_transpose.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "dsl/builder.h"
#include "kernels/alignment.h"
#include "kernels/arg_check.h"
#include "kernels/jit/run_op.h"
#include "kernels/op_call.h"

namespace tessera::kernels {
namespace {

// 1. Spec
constexpr int64_t kMostMultiple = 256;

/// The divisibilities are powers of two, at most kMostMultiple.
struct Spec {
  DType dtype;  // u8, u16 or u32
  uint8_t unused[3] = {};
  int32_t rows_multiple, cols_multiple, stride_multiple;
  int32_t align;  // bytes, of x and out
};

struct Tile {
  int64_t rows, cols;
  int threads;
};

// 32 KiB (16 KiB of 4-byte elements) and 512 threads: long runs on both sides and enough blocks per
// SM that the loads of one overlap the stores of another. Smaller tiles lose up to 4 % of the copy
// rate on two-byte elements.
Tile tile_of(int element_bytes) {
  switch (element_bytes) {
    case 1:
      return {128, 256, 512};
    case 2:
      return {128, 128, 512};
    default:
      return {64, 64, 512};
  }
}

// 2. Builder
ir::Kernel build(const Spec& s) {
  const Tile t = tile_of(bytes(s.dtype));
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

// 3. Host function
int32_t power_of_two_divisor(int64_t value) {
  return static_cast<int32_t>(std::gcd(value, kMostMultiple));
}

Spec spec_of(const TensorView& x, const TensorView& out) {
  const int64_t batch_stride = x.shape[0] <= 1 ? 0 : x.strides[0];
  const int64_t row_stride = x.shape[1] <= 1 ? 0 : x.strides[1];
  Spec s;
  s.dtype = x.dtype;
  s.rows_multiple = power_of_two_divisor(x.shape[1]);
  s.cols_multiple = power_of_two_divisor(x.shape[2]);
  s.stride_multiple = power_of_two_divisor(std::gcd(batch_stride, row_stride));
  s.align = common_alignment({x, out});
  return s;
}

/// Elements as plain integers, a matrix as a batch of one.
TensorView as_batch(TensorView x) {
  const int size = bytes(x.dtype);
  x.dtype = size == 1 ? DType::u8 : size == 2 ? DType::u16 : DType::u32;
  if (x.rank() != 2) return x;
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]},
                    {x.shape[0] * x.strides[0], x.strides[0], x.strides[1]}, x.device);
}

void check_input(ArgCheck& check, const Tensors& tensors, bool batched) {
  auto x = check.tensor("x", tensors).movable();
  if (batched) {
    x.shape("B", "R", "C").rows();
  } else {
    x.shape("R", "C").rows();
  }
  if (tensors.at("x").size() == 0) return;  // whatever the other extents say
  const TensorView view = as_batch(tensors.at("x"));
  check.require(view.shape[0] <= 65535, "x", "the batch is too large for one launch",
                "at most 65535", std::to_string(view.shape[0]), ErrorKind::unsupported);
  const int64_t limit = 65535 * tile_of(bytes(view.dtype)).cols;
  check.require(view.shape[2] <= limit, "x", "the rows are too long for one launch",
                "at most " + std::to_string(limit) + " columns", std::to_string(view.shape[2]),
                ErrorKind::unsupported);
}

std::vector<OutputInfo> outputs(const Tensors& inputs, bool batched) {
  ArgCheck check(batched ? "batched_transpose" : "transpose");
  check_input(check, inputs, batched);
  const TensorView& x = inputs.at("x");
  Dims shape = x.shape;
  std::swap(shape[shape.rank - 1], shape[shape.rank - 2]);
  return {row_major_output("out", x.dtype, shape)};
}

void run(const Tensors& tensors, bool batched, Stream stream) {
  ArgCheck check(batched ? "batched_transpose" : "transpose");
  check_input(check, tensors, batched);
  auto out = check.output("out", tensors).dtype(tensors.at("x").dtype);
  if (batched) {
    out.shape("B", "C", "R").row_major();
  } else {
    out.shape("C", "R").row_major();
  }
  check.memory();
  if (tensors.at("x").size() == 0) return;
  const TensorView x = as_batch(tensors.at("x"));
  const Spec spec = spec_of(x, as_batch(tensors.at("out")));
  const TensorView arguments[] = {x, as_batch(tensors.at("out"))};
  jit::run_op("batched_transpose", spec, build, arguments, {}, stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors) {
  if (tensors.at("x").size() == 0) return {};
  const TensorView x = as_batch(tensors.at("x"));
  return {build(spec_of(x, TensorView()))};
}

// 4. Registration
BenchCase bench_case(DType dtype, const Dims& shape, const Dims& strides = {}) {
  BenchCase c;
  if (shape.rank == 3) c.label = fmt::format("B={} ", shape[0]);
  c.label += fmt::format("R={} C={} {}", shape[shape.rank - 2], shape[shape.rank - 1], name(dtype));
  c.bytes = 2 * num_elements(shape) * bytes(dtype);
  c.inputs.push_back({"x", dtype, shape, strides});
  return c;
}

OpInfo op_info(bool batched) {
  OpInfo op;
  op.name = batched ? "batched_transpose" : "transpose";
  op.family = "transpose";
  op.purpose =
      batched ? "transposes the last two dimensions of every batch" : "transposes a matrix";
  TensorInfo x = input("x", {"bytes1", "bytes2", "bytes4"}, {"B", "R", "C"}, "rows");
  TensorInfo out = output("out", {"as x"}, {"B", "C", "R"});
  if (!batched) {
    x.shape = {"R", "C"};
    out.shape = {"C", "R"};
  }
  op.tensors = {x, out};
  op.outputs = [batched](const Tensors& inputs, const Params&) { return outputs(inputs, batched); };
  op.run = [batched](const Tensors& t, const Params&, Stream stream) { run(t, batched, stream); };
  op.kernels = [](const Tensors& t, const Params&) { return kernels(t); };
  if (batched) {
    op.examples = {bench_case(DType::e4m3, {2, 192, 128}), bench_case(DType::bf16, {2, 192, 128}),
                   bench_case(DType::f32, {2, 192, 128}), bench_case(DType::bf16, {1, 70, 33})};
    for (const int64_t batches : {8, 32}) {
      for (const DType dtype : {DType::e4m3, DType::bf16}) {
        op.bench.push_back(bench_case(dtype, {batches, 8064, 7168}));
      }
    }
  } else {
    for (const DType dtype : {DType::e4m3, DType::bf16}) {
      op.examples.push_back(bench_case(dtype, {192, 128}, {256, 1}));
      op.bench.push_back(bench_case(dtype, {8064, 7168}, {2 * 7168, 1}));
    }
    op.examples.push_back(bench_case(DType::f32, {70, 33}));
  }
  return op;
}

}  // namespace

void batched_transpose(const TensorView& x, const TensorView& out, Stream stream) {
  call_op(batched_transpose_op(), {{"x", x}, {"out", out}}, {}, stream);
}

void transpose(const TensorView& x, const TensorView& out, Stream stream) {
  call_op(transpose_op(), {{"x", x}, {"out", out}}, {}, stream);
}

const OpInfo& batched_transpose_op() {
  static const OpInfo* const op = new OpInfo(op_info(true));
  return *op;
}

const OpInfo& transpose_op() {
  static const OpInfo* const op = new OpInfo(op_info(false));
  return *op;
}

}  // namespace tessera::kernels
