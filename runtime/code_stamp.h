#pragma once
// Identifies the sources of the code generator.

namespace tessera::runtime {

/// SHA-256 over the sources of dsl, codegen and kernels: 64 digits, computed by the build. Programs
/// built from the same sources share it, and so share a cache and a bundle.
const char* code_stamp();

}  // namespace tessera::runtime
