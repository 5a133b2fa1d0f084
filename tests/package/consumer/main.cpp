// A kernel of the consumer's own and a shipped op, on CPU tensors.
#include <tessera/dsl/builder.h>
#include <tessera/kernels/jit/jit.h>
#include <tessera/kernels/ops.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "runtime/log.h"

namespace ts = tessera;

int main() {
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, doubled(6), turned(6);
  ts::dsl::Builder k("doubled");
  const auto in = k.input("in", ts::DType::f32, {6});
  const auto out = k.output("out", ts::DType::f32, {6});
  k.launch({1}, {.threads = 32});
  k.parallel({6}, [&](auto i) { out(i) = in(i)*2.0f; });
  const ts::TensorView flat[] = {{x.data(), ts::DType::f32, {6}},
                                 {doubled.data(), ts::DType::f32, {6}}};
  ts::kernels::jit::run(k.finish(), flat, {}, nullptr);

  const ts::TensorView matrix(x.data(), ts::DType::f32, {2, 3});
  ts::kernels::transpose(
      {.x = matrix, .out = ts::TensorView(turned.data(), ts::DType::f32, {3, 2})}, nullptr);
  std::printf("%s %g %g\n", greeting(), static_cast<double>(doubled[5]),
              static_cast<double>(turned[1]));
  return doubled[5] == 12 && turned[1] == 4 ? 0 : 1;
}
