#pragma once
// SASS of a cubin, by the toolkit's disassembler.

#include <string>

namespace tessera::tools {

/// Runs nvdisasm, else cuobjdump, from CUDA_HOME, CUDA_PATH, /usr/local/cuda or the PATH. Throws
/// Error (unsupported) saying which tool is missing and where it was looked for, Error (load) if
/// the tool fails.
std::string disassemble(const std::string& cubin);

}  // namespace tessera::tools
