// batched_transpose: out[b, c, r] = x[b, r, c], and transpose, its case of one batch.
//
// Shapes   x [batch, rows, cols], out [batch, cols, rows]
// Dtypes   any of 1, 2 or 4 bytes, moved as integers
// Method   one tile through shared memory: rows come in as 16-byte vectors, columns go out as
// 16-byte vectors.
//          x is read once and out written once, so the bound is bytes / copy bandwidth.
// Maths    none
// Tuned    H200; see the table of tile sizes below.

#include "kernels/transpose/batched_transpose.h"

#include <algorithm>
#include <numeric>

#include "dsl/builder.h"
#include "kernels/arg_check.h"
#include "kernels/jit/call_memo.h"
#include "kernels/jit/jit.h"

namespace tessera::kernels {
namespace {

// 1. Spec: what the generated code depends on. The divisibilities are powers of two, at most
// kMostMultiple.
struct Spec {
  int32_t element_bytes;
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
constexpr int kMostMultiple = 256;

// 2. Builder
ir::Kernel build(const Spec& s) {
  const DType dtype = s.element_bytes == 1   ? DType::u8
                      : s.element_bytes == 2 ? DType::u16
                                             : DType::u32;
  const Tile t = tile_of(s.element_bytes);
  dsl::Builder k("batched_transpose");
  auto batch = k.dim("batch");
  auto rows = k.dim("rows", {.multiple_of = s.rows_multiple});
  auto cols = k.dim("cols", {.multiple_of = s.cols_multiple});
  auto batch_stride = k.stride("x_batch_stride", {.multiple_of = s.stride_multiple});
  auto row_stride = k.stride("x_row_stride", {.multiple_of = s.stride_multiple});
  auto x = k.input("x", dtype, {batch, rows, cols},
                   {.strides = {batch_stride, row_stride, 1}, .align = s.align});
  auto out = k.output("out", dtype, {batch, cols, rows}, {.align = s.align});
  auto at =
      k.launch({ceil_div(rows, t.rows), ceil_div(cols, t.cols), batch}, {.threads = t.threads});

  auto tile = k.shared(dtype, {t.rows, t.cols});  // (rows, cols) of one block
  k.copy(x(at.z).tile({at.x * t.rows, at.y * t.cols}, {t.rows, t.cols}), tile);
  k.copy(tile.transposed(), out(at.z).tile({at.y * t.cols, at.x * t.rows}, {t.cols, t.rows}));
  return k.finish();
}

// 3. Host function
int32_t power_of_two_divisor(int64_t value, int64_t limit) {
  return static_cast<int32_t>(std::gcd(value, limit));  // limit is a power of two
}

Spec spec_of(const TensorView& x, const TensorView& out) {
  const bool one_row = x.shape[1] <= 1;
  const bool one_batch = x.shape[0] <= 1;
  Spec s;
  s.element_bytes = bytes(x.dtype);
  s.rows_multiple = power_of_two_divisor(x.shape[1], kMostMultiple);
  s.cols_multiple = power_of_two_divisor(x.shape[2], kMostMultiple);
  s.stride_multiple = power_of_two_divisor(
      std::gcd(one_batch ? 0 : x.strides[0], one_row ? 0 : x.strides[1]), kMostMultiple);
  s.align =
      power_of_two_divisor(std::gcd(static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data)),
                                    static_cast<int64_t>(reinterpret_cast<uintptr_t>(out.data))),
                           16);
  return s;
}

DType moved_as(DType dtype) {
  const int size = bytes(dtype);
  return size == 1 ? DType::u8 : size == 2 ? DType::u16 : DType::u32;
}

/// Elements as plain integers, a matrix as a batch of one.
TensorView as_batch(TensorView x) {
  x.dtype = moved_as(x.dtype);
  if (x.rank() != 2) return x;
  return TensorView(x.data, x.dtype, {1, x.shape[0], x.shape[1]},
                    {x.shape[0] * x.strides[0], x.strides[0], x.strides[1]}, x.device);
}

TensorView transposed_view(const TensorView& x, void* data) {
  return TensorView(data, x.dtype, Dims{x.shape[0], x.shape[2], x.shape[1]}, x.device);
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
  return {{"out", x.dtype, shape, row_major_strides(shape), num_elements(shape)}};
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
  jit::run(
      "batched_transpose", jit::spec_bytes(spec), [&] { return build(spec); }, arguments, {},
      stream);
}

std::vector<ir::Kernel> kernels(const Tensors& tensors) {
  if (tensors.at("x").size() == 0) return {};
  const TensorView x = as_batch(tensors.at("x"));
  return {build(spec_of(x, transposed_view(x, nullptr)))};
}

// 4. Registration
BenchCase bench_case(std::string label, DType dtype, Dims shape, Dims strides) {
  BenchCase c;
  c.label = std::move(label);
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
  TensorInfo x{
      "x", Role::in, false, false, false, {"bytes1", "bytes2", "bytes4"}, {"B", "R", "C"}, "rows"};
  TensorInfo out{"out", Role::out, false, false, false, {"as x"}, {"B", "C", "R"}, "row_major"};
  if (!batched) {
    x.shape = {"R", "C"};
    out.shape = {"C", "R"};
  }
  op.tensors = {x, out};
  op.outputs = [batched](const Tensors& inputs, const Params&) { return outputs(inputs, batched); };
  op.run = [batched](const Tensors& t, const Params&, Stream stream) { run(t, batched, stream); };
  op.kernels = [](const Tensors& t, const Params&) { return kernels(t); };
  if (batched) {
    for (const DType dtype : {DType::e4m3, DType::bf16, DType::f32}) {
      op.examples.push_back(bench_case("B=2 R=192 C=128 " + std::string(name(dtype)), dtype,
                                       {2, 192, 128}, row_major_strides({2, 192, 128})));
    }
    op.examples.push_back(
        bench_case("B=1 R=70 C=33 bf16", DType::bf16, {1, 70, 33}, {70 * 33, 33, 1}));
    for (const int64_t b : {8, 32}) {
      for (const DType dtype : {DType::e4m3, DType::bf16}) {
        op.bench.push_back(
            bench_case("B=" + std::to_string(b) + " R=8064 C=7168 " + std::string(name(dtype)),
                       dtype, {b, 8064, 7168}, row_major_strides({b, 8064, 7168})));
      }
    }
  } else {
    for (const DType dtype : {DType::e4m3, DType::bf16}) {
      op.examples.push_back(
          bench_case("R=192 C=128 " + std::string(name(dtype)), dtype, {192, 128}, {256, 1}));
      op.bench.push_back(bench_case("R=8064 C=7168 " + std::string(name(dtype)), dtype,
                                    {8064, 7168}, {2 * 7168, 1}));
    }
    op.examples.push_back(bench_case("R=70 C=33 f32", DType::f32, {70, 33}, {33, 1}));
  }
  return op;
}

}  // namespace

void batched_transpose(const TensorView& x, const TensorView& out, Stream stream) {
  jit::call("batched_transpose", {&x, &out}, {}, stream, [&] {
    run({{"x", x}, {"out", out}}, true, stream);
  });
}

void transpose(const TensorView& x, const TensorView& out, Stream stream) {
  jit::call("transpose", {&x, &out}, {}, stream, [&] {
    run({{"x", x}, {"out", out}}, false, stream);
  });
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
