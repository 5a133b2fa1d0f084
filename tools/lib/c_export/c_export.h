#pragma once
// `tessera compile --format c`: an op's kernels as a header and a source in C, for programs that have nothing of
// Tessera.

#include <functional>
#include <string>
#include <vector>

#include "kernels/jit/target.h"
#include "kernels/op.h"
#include "runtime/nvrtc/target.h"

namespace tessera::tools {

struct CExportOptions {
  std::string name;         // of files and function; empty: that of the op
  std::string case_of;      // empty: the op's first example
  std::string free_extent;  // T or P of a shipped op; empty: all extents are those of the case
  std::vector<runtime::Target> targets;
  kernels::jit::GpuModel model = {};  // whose stored tile sizes the kernels have
  int jobs = 1;
};

struct CFiles {
  std::string name;  // NAME.h and NAME.c
  std::string header, source;
  size_t num_kernels = 0;
};

/// Compiles the kernels of a call and writes them as C. A kernel of one's own has all of its dims free. A shipped op
/// chooses kernels by extents, so it has those of the case, but for `free_extent`, which may be any number of the
/// case's bucket (signature/buckets.h).
///
/// Errors: argument, for a name that is no C identifier, an extent that cannot be free, a case without work;
///         unsupported, for an op whose outputs have an extent that the host reads from the device; compile.
/// Example: export_c(find_op("transpose"), {.case_of = "R=64 C=128 x=bf16", .targets = {{9, 0, 'a'}}})
CFiles export_c(const kernels::OpInfo& op, const CExportOptions& options);

/// Throws an argument error if there is a file at the path that does not begin as an exported one.
void check_replaceable(const std::string& path);

}  // namespace tessera::tools
