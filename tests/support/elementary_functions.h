#pragma once
// The functions of the language that a GPU approximates, with the exact function, where each is tested and
// the error that its declaration allows.

#include <vector>

#include "dsl/builder.h"

namespace tessera::test {

struct ElementaryFunction {
  const char* name;
  dsl::Value (*function)(const dsl::Arg&);
  long double (*exact)(long double);
  double low, high;     // tested between these
  double ulps = 0;      // allowed on a GPU, beside the rounding of the exact value
  double absolute = 0;  // allowed besides
  double relative = 0;  // allowed besides
};

const std::vector<ElementaryFunction>& elementary_functions();

/// How many times its allowance `got` is away from function(x): at most 1 is right.
double error_of(const ElementaryFunction& f, float x, float got);

/// y[i] = function(x[i]) for every function, a row each: inputs x [functions, n], output y of that shape.
ir::Kernel elementary_kernel(int64_t n);
/// Inputs for it: from `low` to `high` of each function, both included.
std::vector<float> elementary_inputs(int64_t n);

}  // namespace tessera::test
