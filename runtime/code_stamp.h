#pragma once
// Identity of the code that generates kernels.

namespace tessera::runtime {

/// SHA-256 over the sources of dsl, codegen and kernels: 64 digits, made by the build. The same in
/// every program that is built from the same sources, so that they share one cache and one bundle.
const char* code_stamp();

}  // namespace tessera::runtime
