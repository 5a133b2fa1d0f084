// A libnvrtc for tests of what happens to cubins: of a kernel it compiles an empty one of the same name, by the real library
// that QUICK_NVRTC_OF names. That takes a tenth of the time. Other texts have other cubins: the text's hash is in them.

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/nvrtc/nvrtc_api.h"

namespace {

using namespace tessera::runtime::nvrtc_api;

/// The function of the real library.
template <class Fn>
Fn* real(const char* name) {
  const char* const path = std::getenv("QUICK_NVRTC_OF");
  static void* const library = ::dlopen(path == nullptr ? "" : path, RTLD_NOW);
  return reinterpret_cast<Fn*>(library == nullptr ? nullptr : ::dlsym(library, name));
}

/// The kernel's name: what stands before the first parenthesis after its attributes.
std::string_view name_of(std::string_view source) {
  source.remove_prefix(source.find("__global__"));
  const std::string_view bounds = "__launch_bounds__(";
  if (const size_t at = source.find(bounds); at < source.find('{'))
    source.remove_prefix(source.find(')', at) + 1);
  source = source.substr(0, source.find('('));
  return source.substr(source.find_last_of(" \n") + 1);
}

std::string quick(std::string_view source) {
  if (source.find("__global__") == std::string_view::npos) return std::string(source);
  uint64_t hash = 14695981039346656037u;
  for (const char c : source) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return "__constant__ unsigned long long hash_of_text = " + std::to_string(hash) +
         "u;\nextern \"C\" __global__ void " + std::string(name_of(source)) +
         "(unsigned long long* p) {\n  *p = hash_of_text;\n}\n";
}

}  // namespace

extern "C" {

#define TESSERA_FORWARD(symbol, parameters, ...)                                   \
  __attribute__((visibility("default"))) Result symbol parameters {                \
    auto* const function = real<Result parameters>(#symbol);                       \
    return function == nullptr ? kBuiltinOperationFailure : function(__VA_ARGS__); \
  }

TESSERA_FORWARD(nvrtcVersion, (int* major, int* minor), major, minor)
TESSERA_FORWARD(nvrtcGetNumSupportedArchs, (int* count), count)
TESSERA_FORWARD(nvrtcGetSupportedArchs, (int* archs), archs)
TESSERA_FORWARD(nvrtcCreateProgram,
                (Program * program, const char* source, const char* name, int num_headers,
                 const char* const* headers, const char* const* header_names),
                program, quick(source).c_str(), name, num_headers, headers, header_names)
TESSERA_FORWARD(nvrtcDestroyProgram, (Program * program), program)
TESSERA_FORWARD(nvrtcCompileProgram, (Program program, int count, const char* const* options),
                program, count, options)
TESSERA_FORWARD(nvrtcGetProgramLogSize, (Program program, size_t* bytes), program, bytes)
TESSERA_FORWARD(nvrtcGetProgramLog, (Program program, char* log), program, log)
TESSERA_FORWARD(nvrtcGetCUBINSize, (Program program, size_t* bytes), program, bytes)
TESSERA_FORWARD(nvrtcGetCUBIN, (Program program, char* cubin), program, cubin)
TESSERA_FORWARD(nvrtcGetPTXSize, (Program program, size_t* bytes), program, bytes)
TESSERA_FORWARD(nvrtcGetPTX, (Program program, char* ptx), program, ptx)

__attribute__((visibility("default"))) const char* nvrtcGetErrorString(Result result) {
  auto* const function = real<const char*(Result)>("nvrtcGetErrorString");
  return function == nullptr ? "QUICK_NVRTC_OF names no library" : function(result);
}
}
