// engram_sinkhorn_momentum: the momentum of a gradient, and the update that it gives.
//
// Dtypes   grad bf16|f32, momentum bf16|f32, out f32
// Method   eight elements per thread, in accesses of four that are adjacent in a warp. Every byte moves once; the bound is
//          bytes / copy bandwidth.
// Maths    m = fma(momentum, beta1, (1 - beta1) grad); out = fma(grad, 1 - beta1, beta1 m), or m without
//          nesterov; momentum = m rounded. 1 - beta1 is rounded once, from f64.
// Measured one H200, 2^27 elements: f32 momentum 465 us, 95 % of copy, bf16 325, 97 %.
// Lost     eight neighbouring elements of a thread, whose stores write half sectors: 545 and 336.

#include <algorithm>
#include <functional>

#include "dsl/builder.h"
#include "kernels/registry/all_ops.h"
#include "kernels/signature/case.h"
#include "kernels/signature/launches.h"
#include "kernels/views/alignment.h"

namespace tessera::kernels {
namespace {

struct Spec {
  DType grad, momentum;
  bool nesterov;
  int8_t grad_width, momentum_width, out_width;  // elements per access
};

constexpr int64_t kThreads = 256, kWarp = 32;
constexpr int64_t kPiece = 4, kPieces = 2;  // elements of an access, accesses of a thread
constexpr int64_t kRun = kPiece * kPieces;
constexpr int64_t kRow = kWarp * kRun,
                  kRows = kThreads / kWarp;  // a row of a warp, rows of a block

ir::Kernel build(const Spec& s) {
  using namespace dsl;
  Builder k("engram_sinkhorn_momentum");
  auto rows = k.dim("rows");
  auto grad =
      k.input("grad", s.grad, {rows, kRow}, {.align = int64_t{bytes(s.grad)} * s.grad_width});
  auto momentum = k.output("momentum", s.momentum, {rows, kRow},
                           {.align = int64_t{bytes(s.momentum)} * s.momentum_width});
  auto out = k.output("out", DType::f32, {rows, kRow}, {.align = int64_t{4} * s.out_width});
  auto beta1 = k.scalar("beta1", DType::f32), rest = k.scalar("rest", DType::f32);
  auto at = k.launch({ceil_div(rows, kRows)}, {.threads = kThreads});
  k.let_next_kernel_start();
  auto row = k.let("row", at.x * kRows + k.thread() / kWarp);
  auto first = k.let("first", k.thread() % kWarp * kPiece);
  k.wait_for_previous_kernel();
  k.if_(row < rows, [&] {
    auto g = k.local(s.grad, {kRun}, "g"), m = k.local(s.momentum, {kRun}, "m");
    auto update = k.local(DType::f32, {kRun}, "update");
    // Accesses of a warp are adjacent: a store of half a sector by each lane would write it twice.
    const auto pieces = [&](int64_t width,
                            const std::function<void(const Value& i, const Value& column)>& move) {
      k.unrolled(kPieces, [&](Value piece) {
        k.unrolled(kPiece / width, [&](Value part) {
          k.vectorized(width, [&](Value j) {
            auto i = part * width + j;
            move(piece * kPiece + i, first + (piece * (kWarp * kPiece) + i));
          });
        });
      });
    };
    pieces(s.grad_width, [&](const Value& i, const Value& column) { g(i) = grad(row, column); });
    pieces(s.momentum_width,
           [&](const Value& i, const Value& column) { m(i) = momentum(row, column); });
    k.unrolled(kRun, [&](Value i) {
      auto value = k.let("value", f32(g(i)));
      auto next = k.let("next", fma(f32(m(i)), beta1, rest * value));
      update(i) = s.nesterov ? fma(value, rest, beta1 * next) : next;
      m(i) = cast(s.momentum, next);
    });
    pieces(s.momentum_width,
           [&](const Value& i, const Value& column) { momentum(row, column) = m(i); });
    pieces(s.out_width, [&](const Value& i, const Value& column) { out(row, column) = update(i); });
  });
  return k.finish();
}

void launches(const Call& c, Launches& go) {
  Spec s{};
  s.grad = c.dtype("grad");
  s.momentum = c.dtype("momentum");
  s.nesterov = c.flag("nesterov");
  Args args;
  const auto bind = [&](const char* name) {
    TensorView view = c.given(name);
    view.shape = Dims{c["n"] / kRow, kRow};
    view.strides = Dims{kRow, 1};
    args.tensors.push_back({name, view});
    return static_cast<int8_t>(
        common_vector(view, std::min<int64_t>(kPiece, 16 / bytes(view.dtype))));
  };
  s.grad_width = bind("grad");
  s.momentum_width = bind("momentum");
  s.out_width = bind("out");
  args.scalars.push_back({"rest", 1 - c.number("beta1")});
  go.add(build, s, args);
}

}  // namespace

const Op engram_sinkhorn_momentum_op{
    .name = "engram_sinkhorn_momentum",
    .family = "engram",
    .purpose = "momentum of the gradient of embedding tables, and the update that it gives",
    .signature = R"(
      grad               bf16/f32 [n]
      -> inout momentum  bf16/f32 [n]
      -> out             f32 [n]
      param  beta1 float
      param  nesterov bool = true
      need   n % 256 = 0 on grad "the number of elements is no multiple of 256"
      limit  n <= 545460846336    # rows are i32
    )",
    .launches = launches,
    .examples = R"(
      n=5120 grad=bf16 momentum=f32 beta1=0.95; n=768 grad=f32 momentum=bf16 beta1=0.9 nesterov=false)",
    .bench = R"(
      n=134217728 grad=bf16 momentum=f32 beta1=0.95; n=134217728 grad=bf16 momentum=bf16 beta1=0.95
      n=131072 grad=bf16 momentum=f32 beta1=0.95)",
    .bytes = [](const Case& c) {  // the momentum in and out
      const auto size = [&](const char* name) { return c.dtype_word(name) == "f32" ? 4 : 2; };
      return c["n"] * (size("grad") + 2 * size("momentum") + 4);
    }};

}  // namespace tessera::kernels
