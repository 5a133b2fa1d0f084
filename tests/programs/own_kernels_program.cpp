// The program with a user's own kernels, for tests: one with every kind of tensor and parameter, and
// one that a case makes go wrong. OWN_KERNELS_BREAK=1 adds one that cannot be registered.

#include <cstdlib>

#include "dsl/builder.h"
#include "tools/lib/own_kernel.h"

namespace tessera::tests {
namespace {

using tools::OwnKernel;

/// y[i, :] = scale * table[ids[i], :] (+ bias), how often each row was taken, and a mark.
ir::Kernel gather() {
  dsl::Builder k("gather");
  auto n = k.dim("n"), rows = k.dim("rows");
  auto pitch = k.stride("pitch", {.multiple_of = 4});
  auto table = k.input("table", DType::f32, {rows, 8}, {.strides = {pitch, 1}});
  auto ids = k.input("ids", DType::i32, {n});
  auto bias = k.input("bias", DType::f32, {8}, {.optional = true});
  auto y = k.output("y", DType::f32, {n, 8});
  auto taken = k.output("taken", DType::i32, {rows});
  auto scale = k.scalar("scale", DType::f32);
  auto at = k.launch({n}, {.threads = 32});
  auto id = k.let("id", ids(at.x));
  k.mark("scale", [&] { k.parallel({8}, [&](auto c) { y(at.x, c) = table(id, c) * scale; }); });
  k.if_present(bias, [&] { k.parallel({8}, [&](auto c) { y(at.x, c) = y(at.x, c) + bias(c); }); });
  k.if_(k.thread() == 0, [&] { k.atomic_add(taken(id), 1); });
  return k.finish();
}

ir::Kernel wild() {
  dsl::Builder k("wild");
  auto ids = k.input("ids", DType::i32, {32});
  auto y = k.output("y", DType::i32, {32});
  k.launch({1}, {.threads = 32});
  auto bins = k.shared(DType::i32, {16}, "bins");
  k.fill(bins, 0);
  k.parallel({32}, [&](auto i) { y(i) = bins(ids(i)); });
  return k.finish();
}

const OwnKernel own_gather("gather", gather, "n=40 rows=9 pitch=12 scale=0.5 ids=0..8",
                           "n=3 rows=9 pitch=8 scale=2 ids=0..8 bias=none");
const OwnKernel own_wild("wild", wild, "ids=0..15", std::string("ids=300..300"));

const bool broken = [] {
  if (std::getenv("OWN_KERNELS_BREAK") == nullptr) return false;
  static const OwnKernel twice("transpose", wild);
  return true;
}();

}  // namespace
}  // namespace tessera::tests
