#pragma once
// Prepares the kernels of an op before the first request.

#include <string_view>

#include "dsl/base/api.h"
#include "kernels/jit/prepare.h"

namespace tessera::kernels {

/// Compiles and loads the kernels of an op for any number of tokens, concurrently: those of the cases,
/// of no tokens, and of every declared bucket of token counts. Launches nothing and allocates no
/// tensors. Inputs have the strides of the cases (row-major without `.strides`), outputs are row-major,
/// all at multiples of 256 bytes: other strides and alignments may need other kernels.
///
///   op      a name of `tessera list`
///   cases   extents, dtypes and parameters (kernels/signature/case.h), one case per line or between
///           semicolons
///   device  a CUDA device; for the CPU the cases are checked and nothing is compiled, since a CPU call
///           lowers its kernel at its first call
///
/// Errors:  argument for an op or a case that is not understood, naming the op and the word, and for a text
///          without cases; those of the call and of jit::prepare_all.
/// Example: warm_up("per_token_cast", "T=1 H=7168 x=bf16 format=e4m3 num_per_channels=128",
///                  Device::cuda(0));
///          runtime::Runtime::instance().seal();  // no number of tokens compiles any more
TESSERA_API void warm_up(std::string_view op, std::string_view cases, Device device,
                         const jit::PrepareOptions& options = {});

}  // namespace tessera::kernels
