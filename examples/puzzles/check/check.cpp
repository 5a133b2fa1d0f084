#include "examples/puzzles/check/check.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/jit/jit.h"

namespace puzzles {

void run(const tessera::ir::Kernel& kernel, const std::vector<tessera::TensorView>& tensors) {
  const tessera::kernels::jit::TrapScope traps;
  tessera::kernels::jit::run(kernel, tensors, {}, nullptr);
}

std::vector<float> numbers(int64_t count) {
  std::vector<float> result;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    result.push_back(static_cast<float>(state >> 8) * 0x1p-21f - 4.0f);
  }
  return result;
}

std::string compare(const char* name, const std::vector<float>& got, int64_t columns,
                    const std::function<double(int64_t)>& expected, double tolerance) {
  for (size_t i = 0; i < got.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const double want = expected(at), is = static_cast<double>(got[i]);
    if (std::fabs(is - want) <= tolerance * std::fabs(want) || is == want) continue;
    const std::string place =
        columns > 1 ? fmt::format("{}, {}", at / columns, at % columns) : fmt::format("{}", at);
    return fmt::format("{}[{}] is {:.7g}, expected {:.7g}", name, place, is, want);
  }
  return "";
}

}  // namespace puzzles
