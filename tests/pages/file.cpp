// A block of a file with a kernel `rmsnorm`.
#include "dsl/builder.h"
#include "tools/lib/own_kernel.h"

namespace ts = tessera;
ts::ir::Kernel rmsnorm(int64_t cols);
// BLOCK
