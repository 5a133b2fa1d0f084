#pragma once
// Stores of threads to shared memory that copies through the async proxy overwrite: a proxy fence orders the two.

#include "codegen/thread_ir.h"

namespace tessera::codegen {

/// True if a bulk or tensor copy of the body may follow stores to shared memory that it overwrites.
bool overwrites_stores(const Body& body);

}  // namespace tessera::codegen
