#pragma once
#include <tessera/dsl/builder.h>

/// out = 2 * in, f32 [size].
tessera::ir::Kernel doubled(int64_t size);
