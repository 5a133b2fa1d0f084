#pragma once
#include <tessera/dsl/builder.h>

struct ScaledSpec {
  int64_t size;
};
/// out = 2 * in, f32 [size].
tessera::ir::Kernel scaled(const ScaledSpec& spec);
