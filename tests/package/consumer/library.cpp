#include "library.h"

tessera::ir::Kernel doubled(int64_t size) {
  tessera::dsl::Builder k("doubled");
  const auto in = k.input("in", tessera::DType::f32, {size});
  const auto out = k.output("out", tessera::DType::f32, {size});
  k.launch({1}, {.threads = 32});
  k.parallel({size}, [&](auto i) { out(i) = in(i)*2.0f; });
  return k.finish();
}
