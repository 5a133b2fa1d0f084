#pragma once
// Variants of a case of the KV compressor: plans and scores that a server never means to send, and plans
// with so many rows that a block takes several.

#include "tests/support/ops/op_cases.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

/// Makes the scores in x and state, and their bias ape, multiples of 256: all exponentials are 1 and 0.
void make_exponentials_exact(HostTensors& inputs, Random& random);

/// Fields of a plan, one in each row, that name what is not there.
OpCase astray(OpCase test, bool is_decode);

/// So many rows of the plan that a block takes several: the same windows at several places, and padding.
OpCase crowded(OpCase test, int64_t rows);

/// The same of decode: most tokens end no window.
OpCase crowded_tokens(OpCase test, int64_t rows);

/// Scores at every scale, infinite ones and NaN.
OpCase hostile(OpCase test);

}  // namespace tessera::test
