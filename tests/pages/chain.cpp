// A block that stands in a kernel whose blocks wait for each other: x and total are f32 [blocks], ready is i32.
#include "dsl/builder.h"

namespace ts = tessera;
using namespace tessera::dsl;
constexpr auto kF32 = ts::DType::f32;

[[maybe_unused]] ts::ir::Kernel chain() {
  Builder k("chain");
  auto blocks = k.dim("blocks");
  auto x = k.input("x", kF32, {blocks});
  auto total = k.output("total", kF32, {blocks});
  auto ready = k.output("ready", ts::DType::i32, {blocks});
  auto at = k.launch({blocks}, {.threads = 32});
  // BLOCK
  return k.finish();
}
