#pragma once
// A CUDA device function that the author brings along.

#include <functional>
#include <string>
#include <vector>

#include "dsl/base/dtype.h"

namespace tessera::ir {

/// `name` is called with one value per parameter, in the types of the generated text: float, int,
/// bool, unsigned int, long long, unsigned long long, and the bits of narrower dtypes in unsigned
/// integers.
struct ExternFunction {
  std::string name;
  std::string source;  // CUDA C++ that defines it; empty if CUDA itself does
  DType result = DType::f32;
  std::vector<DType> params;
  /// The result depends on the arguments alone and nothing else happens: a call whose result is not
  /// used may vanish. Otherwise calls stay where they are, and so does the memory traffic around
  /// them.
  bool pure = true;
  /// Waits for all threads of the block, which therefore have to reach it together.
  bool synchronises = false;
  /// What the executor runs for one thread: writes the result from the arguments, each in native
  /// storage (float for f32, bits for narrower floats, a byte for bool). Without it the kernel runs
  /// on the GPU only.
  std::function<void(void* result, const void* const* args)> model;
};

}  // namespace tessera::ir
