#pragma once
// The checks of the puzzles. A check returns what is wrong, or nothing.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dsl/base/tensor_view.h"
#include "dsl/ir/tile.h"

namespace puzzles {

struct Puzzle {
  const char* file;  // "01_copy", the name of the source without its ending
  std::string (*check)();
};

/// In order.
const std::vector<Puzzle>& all();

/// Runs a kernel on CPU tensors, with every trap on.
void run(const tessera::ir::Kernel& kernel, const std::vector<tessera::TensorView>& tensors);

/// Numbers of -4 to 4, the same each time.
std::vector<float> numbers(int64_t count);

/// The first element that is further from what it should be than `tolerance` times its magnitude:
/// "y[3, 5] is 0, expected 1.5". Nothing if there is none.
std::string compare(const char* name, const std::vector<float>& got, int64_t columns,
                    const std::function<double(int64_t)>& expected, double tolerance = 0);

}  // namespace puzzles
