#pragma once
// What the larger examples share: run a kernel on random tensors, compare with a plain reference, and time it on
// a GPU beside a copy of the same bytes.

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/builder.h"

namespace tessera::tools {

/// A tensor of an example: an input with random values, or an output.
struct TrialTensor {
  DType dtype;
  Dims shape;
  bool is_output = false;
  std::vector<double> values = {};  // of an input; of an output after run()
};

/// Runs `kernel` on the tensors, in its order of parameters, and fills the values of all of them. On a GPU it
/// prints the time, with `flops` the rate, and the share of a copy's rate.
void run(const ir::Kernel& kernel, std::vector<TrialTensor>& tensors, const std::string& device,
         double flops = 0);

/// The largest |got - want| / (tolerance * scale), where it stands, printed; true if it is at most 1. `want` gives
/// the element and, in `scale`, the magnitude that the tolerance refers to.
template <class Want>
bool compare(const std::string& what, const TrialTensor& got, double tolerance, int64_t step,
             const Want& want) {
  double worst = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(got.values.size()); i += step) {
    double scale = 1;
    const double expected = want(i, scale);
    const double error = std::fabs(got.values[static_cast<size_t>(i)] - expected) / scale;
    if (!(error <= worst)) worst = error;
  }
  fmt::print("{}: largest error {:.1e}, allowed {:.1e}\n", what, worst, tolerance);
  return worst <= tolerance;
}

}  // namespace tessera::tools
