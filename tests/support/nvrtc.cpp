#include "tests/support/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "tests/support/places.h"

namespace tessera::test {
namespace {

using Handle = void*;

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* named = std::getenv("TESSERA_NVRTC")) paths.emplace_back(named);
  for (const char* version : {"13", "12"}) paths.push_back(fmt::format("libnvrtc.so.{}", version));
  paths.emplace_back("/usr/local/cuda/lib64/libnvrtc.so");
  paths.emplace_back(in_source(".deps/nvidia/cu13/lib/libnvrtc.so.13"));
  paths.emplace_back(in_source(".deps/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
  return paths;
}

/// NVRTC opens its builtins by bare name: those of a wheel, in no folder that the loader knows, must
/// be mapped already.
void open_builtins(void* library, const std::string& path) {
  const size_t slash = path.rfind('/');
  int major = 0, minor = 0;
  if (slash == std::string::npos) return;
  if (symbol<int(int*, int*)>(library, "nvrtcVersion")(&major, &minor) != 0) return;
  const std::string builtins = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen((path.substr(0, slash + 1) + builtins).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

std::optional<Nvrtc> Nvrtc::open(std::string& reason) {
  for (const std::string& path : candidates()) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      open_builtins(library, path);
      Nvrtc nvrtc;
      nvrtc.handle_ = library;
      return nvrtc;
    }
  }
  reason = fmt::format("no libnvrtc; tried {}", fmt::join(candidates(), ", "));
  return std::nullopt;
}

bool Nvrtc::supports(const std::string& target) const {
  const auto count_targets = symbol<int(int*)>(handle_, "nvrtcGetNumSupportedArchs");
  const auto list_targets = symbol<int(int*)>(handle_, "nvrtcGetSupportedArchs");
  int count = 0;
  count_targets(&count);
  std::vector<int> versions(static_cast<size_t>(count));
  list_targets(versions.data());
  const int version = std::atoi(target.c_str() + 3);  // digits after "sm_"
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

Compiled Nvrtc::compile(const std::string& text, const std::string& target) const {
  const auto create =
      symbol<int(Handle*, const char*, const char*, int, const char* const*, const char* const*)>(
          handle_, "nvrtcCreateProgram");
  const auto compile = symbol<int(Handle, int, const char* const*)>(handle_, "nvrtcCompileProgram");
  const auto log_size = symbol<int(Handle, size_t*)>(handle_, "nvrtcGetProgramLogSize");
  const auto get_log = symbol<int(Handle, char*)>(handle_, "nvrtcGetProgramLog");
  const auto destroy = symbol<int(Handle*)>(handle_, "nvrtcDestroyProgram");

  Handle program = nullptr;
  Compiled result;
  if (create(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr) != 0) return result;
  const std::string architecture = "--gpu-architecture=" + target;
  const char* options[] = {architecture.c_str(), "--std=c++17", "--fmad=false"};
  const std::clock_t start = std::clock();
  result.ok = compile(program, 3, options) == 0;
  result.cpu_ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  size_t size = 0;
  log_size(program, &size);
  result.log.resize(size);
  get_log(program, result.log.data());
  while (!result.log.empty() && (result.log.back() == '\0' || result.log.back() == '\n')) {
    result.log.pop_back();
  }
  destroy(&program);
  return result;
}

}  // namespace tessera::test
