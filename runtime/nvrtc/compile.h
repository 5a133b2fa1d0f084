#pragma once
// Compiles CUDA text to a binary for one target.

#include <stop_token>
#include <string>
#include <vector>

#include "runtime/image.h"
#include "runtime/nvrtc/nvrtc.h"
#include "runtime/nvrtc/target.h"

namespace tessera::runtime {

struct CompileOptions {
  bool line_info = false;  // for profilers
  std::string file =
      {};  // what the text is called in messages and line information; "OP.cu" if empty
  /// Ends a compile early where NVRTC can (12.8 and newer), with error code kCancelled.
  std::stop_token stop = {};
};
inline constexpr const char* kCancelled = "CANCELLED";

/// The options of every compile: target, C++17, no contraction of a * b + c, ptxas facts in the log,
/// and no cache of NVRTC's own (from 12.9 on). No include path, not even for hand-written CUDA: a text
/// is self-contained, so its key covers all of its bytes.
std::vector<std::string> standard_options(int nvrtc_version, Target target,
                                          const CompileOptions& how = {});

/// Compiles to a cubin. Reads registers, spills and shared memory from the log. Needs no GPU.
/// Generated texts compile without textures and runtime API types (--minimal, from 12.4 on): the
/// same cubin, sooner.
///
/// Errors: compile, with the compiler's first message, the lines around it and the log (64 KB at
/// most);
///         argument, from check_source(); unsupported, if the target does not exist or this NVRTC
///         does not know it.
/// Example: Image image = compile(*open_nvrtc(system_loader(), {}), source, {9, 0, 'a'});
Image compile(const Nvrtc& nvrtc, const KernelSource& source, Target target,
              const CompileOptions& how = {});

/// Compiles the same text to PTX.
std::string compile_to_ptx(const Nvrtc& nvrtc, const KernelSource& source, Target target);

/// Parses "Used 32 registers, ... 8 bytes spill stores ..." of ptxas.
KernelResources parse_ptxas_log(std::string_view log);

}  // namespace tessera::runtime
