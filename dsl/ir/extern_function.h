#pragma once
// An external CUDA device function of the author.

#include <functional>
#include <string>
#include <vector>

#include "dsl/base/dtype.h"

namespace tessera::ir {

/// A call passes one value per parameter in the types of the generated text: float, int, bool,
/// unsigned int, long long, unsigned long long; narrower dtypes as bits in unsigned integers.
struct ExternFunction {
  std::string name;
  std::string source;  // CUDA C++ source that defines it; empty if CUDA defines it
  DType result = DType::f32;
  std::vector<DType> params;
  /// True: the result depends only on the arguments and there is no side effect; unused calls may
  /// vanish. False: calls stay in place, and memory accesses do not move across them.
  bool pure = true;
  /// True if it synchronises the block: all threads must reach it together.
  bool synchronises = false;
  /// The executor's model for one thread: computes the result from the arguments, each in native
  /// storage (float for f32, bits for narrower floats, a byte for bool). Without it the kernel runs
  /// on the GPU only.
  std::function<void(void* result, const void* const* args)> model;
};

}  // namespace tessera::ir
