// A block that stands in a kernel: x and y are f32 [rows, 64].
#include "dsl/builder.h"

namespace ts = tessera;
using namespace tessera::dsl;
constexpr auto kF32 = ts::DType::f32;

[[maybe_unused]] ts::ir::Kernel kernel() {
  Builder k("block");
  auto rows = k.dim("rows");
  auto x = k.input("x", kF32, {rows, 64});
  auto y = k.output("y", kF32, {rows, 64});
  auto at = k.launch({ceil_div(rows, 4)}, {.threads = 128});
  // BLOCK
  return k.finish();
}
