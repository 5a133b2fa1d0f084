#pragma once
// Declares the part of the NVRTC interface that the runtime uses, so that the build needs no
// toolkit.

#include <cstddef>

namespace tessera::runtime::nvrtc_api {

using Result = int;
using Program = struct ProgramHandle*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidOption = 5;
inline constexpr Result kCompilation = 6;
inline constexpr Result kBuiltinOperationFailure = 7;
inline constexpr Result kCancelled = 16;

/// nvrtcSetFlowCallback, from 12.8 on. The callback returns 1 to stop the compile.
using SetFlowCallback = Result (*)(Program program, int (*callback)(void*, void*), void* payload);

// Function, symbol, parameters.
#define TESSERA_NVRTC_FUNCTIONS(X)                                             \
  X(version, nvrtcVersion, (int* major, int* minor))                           \
  X(get_num_supported_archs, nvrtcGetNumSupportedArchs, (int* count))          \
  X(get_supported_archs, nvrtcGetSupportedArchs, (int* archs))                 \
  X(create_program, nvrtcCreateProgram,                                        \
    (Program * program, const char* source, const char* name, int num_headers, \
     const char* const* headers, const char* const* header_names))             \
  X(destroy_program, nvrtcDestroyProgram, (Program * program))                 \
  X(compile_program, nvrtcCompileProgram,                                      \
    (Program program, int num_options, const char* const* options))            \
  X(get_log_size, nvrtcGetProgramLogSize, (Program program, size_t * bytes))   \
  X(get_log, nvrtcGetProgramLog, (Program program, char* log))                 \
  X(get_cubin_size, nvrtcGetCUBINSize, (Program program, size_t * bytes))      \
  X(get_cubin, nvrtcGetCUBIN, (Program program, char* cubin))                  \
  X(get_ptx_size, nvrtcGetPTXSize, (Program program, size_t * bytes))          \
  X(get_ptx, nvrtcGetPTX, (Program program, char* ptx))

struct Functions {
#define TESSERA_MEMBER(member, symbol, parameters) Result(*member) parameters = nullptr;
  TESSERA_NVRTC_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  const char* (*get_error_string)(Result) = nullptr;
};

}  // namespace tessera::runtime::nvrtc_api
