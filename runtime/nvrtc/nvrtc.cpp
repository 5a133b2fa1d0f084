#include "runtime/nvrtc/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

#include "runtime/driver/driver.h"
#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr std::array kFileNames = {"libnvrtc.so.13", "libnvrtc.so.12"};
// Versions of builtins to look for beside a library that is not opened.
constexpr int kLastOf12 = 12090;
constexpr int kLastNvrtcVersion = 13090;

std::vector<std::string> folders_of(const NvrtcSearch& search) {
  std::vector<std::string> folders = search.folders;
  const auto add_toolkit = [&](const std::string& home) {
    folders.push_back(home + "/lib64");
    folders.push_back(home + "/targets/x86_64-linux/lib");
  };
  for (const std::string& home : search.cuda_homes) add_toolkit(home);
  if (!search.dependencies.empty()) {
    folders.push_back(search.dependencies + "/nvidia/cu13/lib");
    folders.push_back(search.dependencies + "/nvidia/cuda_nvrtc/lib");
  }
  add_toolkit("/usr/local/cuda");
  return folders;
}

// Shortens "libnvrtc.so.13: cannot open shared object file: No such file or directory".
std::string shorten(const std::string& reason) {
  return reason.find("No such file") != std::string::npos ? "not found" : reason;
}

// Fills `nvrtc` from an opened library; returns what is wrong with it, or "".
std::string adopt(const LibraryLoader& loader, void* library, Nvrtc& nvrtc) {
  const auto resolve = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(loader.symbol(library, symbol));
    return function != nullptr;
  };
#define TESSERA_RESOLVE(member, symbol, parameters) \
  if (!resolve(nvrtc.call.member, #symbol)) return "lacks " #symbol;
  TESSERA_NVRTC_FUNCTIONS(TESSERA_RESOLVE)
#undef TESSERA_RESOLVE
  if (!resolve(nvrtc.call.get_error_string, "nvrtcGetErrorString")) {
    return "lacks nvrtcGetErrorString";
  }
  resolve(nvrtc.set_flow_callback, "nvrtcSetFlowCallback");
  int major = 0;
  int minor = 0;
  int num_archs = 0;
  if (nvrtc.call.version(&major, &minor) != nvrtc_api::kSuccess) return "nvrtcVersion failed";
  nvrtc.version = major * 1000 + minor * 10;
  if (nvrtc.version < kMinNvrtcVersion) {
    return fmt::format("is version {}, needed is {} or newer", cuda_version_text(nvrtc.version),
                       cuda_version_text(kMinNvrtcVersion));
  }
  if (nvrtc.call.get_num_supported_archs(&num_archs) != nvrtc_api::kSuccess || num_archs < 0) {
    return "nvrtcGetNumSupportedArchs failed";
  }
  nvrtc.archs.resize(static_cast<size_t>(num_archs));
  if (nvrtc.call.get_supported_archs(nvrtc.archs.data()) != nvrtc_api::kSuccess) {
    return "nvrtcGetSupportedArchs failed";
  }
  nvrtc.path = loader.path_of(library);
  return "";
}

std::string builtins_of(int version) {
  return fmt::format("libnvrtc-builtins.so.{}", cuda_version_text(version));
}

std::string identity_text(int version, const std::string& library, const std::string& builtins) {
  return fmt::format("NVRTC {}, {}{}{}", cuda_version_text(version), library,
                     builtins.empty() ? "" : ", builtins ", builtins);
}

// NVRTC opens its builtins by bare name at the first compile. Mapping the neighbour first decides
// which file it gets. Returns their identity.
std::string open_builtins(const LibraryLoader& loader, Nvrtc& nvrtc) {
  nvrtc.wanted_builtins = builtins_of(nvrtc.version);
  const size_t slash = nvrtc.path.rfind('/');
  if (slash == std::string::npos) return "";
  std::string error;
  void* builtins = loader.open(nvrtc.path.substr(0, slash + 1) + nvrtc.wanted_builtins, error);
  if (!builtins) return "";
  nvrtc.builtins = loader.path_of(builtins);
  return loader.identity_of(builtins);
}

class Search {
 public:
  explicit Search(const LibraryLoader& loader) : loader_(loader) {}

  bool try_path(const std::string& path) {
    std::string error;
    void* library = loader_.open(path, error);
    return library ? try_library(library, path) : note(path, shorten(error));
  }
  bool try_mapped(const std::string& name) {
    void* library = loader_.open_mapped(name);
    return library && try_library(library, name + " in this process");
  }
  std::unique_ptr<Nvrtc> take() { return std::move(found_); }
  std::string tried() const { return fmt::format("{}", fmt::join(tried_, "\n            ")); }

 private:
  bool note(const std::string& place, const std::string& problem) {
    tried_.push_back(place + ": " + problem);
    return false;
  }
  bool try_library(void* library, const std::string& place) {
    auto nvrtc = std::make_unique<Nvrtc>();
    const std::string problem = adopt(loader_, library, *nvrtc);
    if (!problem.empty()) return note(place, problem);
    const std::string builtins = open_builtins(loader_, *nvrtc);
    nvrtc->identity = identity_text(nvrtc->version, loader_.identity_of(library), builtins);
    found_ = std::move(nvrtc);
    return true;
  }

  const LibraryLoader& loader_;
  std::unique_ptr<Nvrtc> found_;
  std::vector<std::string> tried_;
};

bool run(Search& search, const NvrtcSearch& places) {
  if (!places.given.empty()) return search.try_path(places.given);
  for (const char* name : kFileNames) {
    if (search.try_mapped(name)) return true;
  }
  for (const std::string& folder : folders_of(places)) {
    for (const char* name : kFileNames) {
      if (search.try_path(folder + "/" + name)) return true;
    }
  }
  for (const char* name : kFileNames) {
    if (search.try_path(name)) return true;
  }
  return false;
}

// Identifies a library's file and the builtins beside it. The version is that of the builtins if
// only one version of them is there.
std::optional<NvrtcId> identify_file(const LibraryLoader& loader, const std::string& path,
                                     const std::string& identity) {
  const size_t slash = path.rfind('/');
  if (identity.empty() || slash == std::string::npos) return std::nullopt;
  std::optional<NvrtcId> found;
  const auto try_version = [&](int version) {
    const auto builtins = loader.identity_of_file(path.substr(0, slash + 1) + builtins_of(version));
    if (!builtins) return true;
    if (found || builtins->empty()) return false;
    found = {version, identity_text(version, identity, *builtins)};
    return true;
  };
  for (int version = kMinNvrtcVersion; version <= kLastNvrtcVersion;
       version += version == kLastOf12 ? 13000 - kLastOf12 : 10) {
    if (!try_version(version)) return std::nullopt;
  }
  return found;
}

}  // namespace

std::string Nvrtc::describe() const {
  return fmt::format("NVRTC {} ({})", cuda_version_text(version), path);
}

std::unique_ptr<const Nvrtc> open_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search) {
  Search tries(loader);
  if (run(tries, search)) return tries.take();
  raise(ErrorKind::unsupported, "", "cannot compile CUDA: no usable libnvrtc",
        {.expected = fmt::format("NVRTC {} or newer", cuda_version_text(kMinNvrtcVersion)),
         .got = tries.tried(),
         .hint = search.given.empty() ? "install the CUDA toolkit (in Python: pip install "
                                        "'tessera-kernels[cuda13]') or name the "
                                        "file with TESSERA_NVRTC"
                                      : "TESSERA_NVRTC names this file and no other is tried"});
}

std::optional<NvrtcId> identify_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search) {
  if (!search.given.empty()) {
    return identify_file(loader, search.given, loader.identity_of_file(search.given).value_or(""));
  }
  for (const char* name : kFileNames) {
    if (loader.open_mapped(name)) return std::nullopt;
  }
  for (const std::string& folder : folders_of(search)) {
    for (const char* name : kFileNames) {
      const std::string path = folder + "/" + name;
      if (const auto identity = loader.identity_of_file(path)) {
        return identify_file(loader, path, *identity);
      }
    }
  }
  return std::nullopt;
}

}  // namespace tessera::runtime
