#pragma once
// The shared part of the larger examples: run a kernel on random tensors, compare with a plain reference, and time it on
// a GPU beside a copy of the same bytes. And pictures of timelines.

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/builder.h"
#include "kernels/jit/jit.h"

namespace tessera::tools {

/// A tensor of an example: an input with the values given (of f32, i32, or bf16, which rounds them) or random
/// ones, or an output.
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

/// Prints the largest |got - want| / scale over every `step`th element; true if it is at most `tolerance`. A NaN
/// is never right. `want(i, scale)` gives element i and may set its scale, which is 1 otherwise.
template <class Want>
bool compare(const std::string& what, const TrialTensor& got, double tolerance, int64_t step,
             const Want& want) {
  double worst = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(got.values.size()); i += step) {
    double scale = 1;
    const double expected = want(i, scale);
    const double error = std::fabs(got.values[static_cast<size_t>(i)] - expected) / scale;
    if (!std::isnan(worst) && !(error <= worst)) worst = error;  // a NaN stays
  }
  fmt::print("{}: largest error {:.1e}, allowed {:.1e}\n", what, worst, tolerance);
  return worst <= tolerance;
}

/// An SVG file that stands by itself, on a light or a dark page: a row per warp, by roles; a box per mark, in the colour
/// that the legend gives; marks inside others are flatter.
///
///   jit::TimelineScope scope;
///   own_kernel(tensors, {}, nullptr);
///   std::ofstream("own_kernel.svg") << tools::timeline_picture(scope.timelines().front());
std::string timeline_picture(const kernels::jit::Timeline& timeline);

/// The same for a terminal: a line per warp, a letter per mark; then how long each role was in each of them.
std::string timeline_text(const kernels::jit::Timeline& timeline);

}  // namespace tessera::tools
