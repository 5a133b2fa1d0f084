#pragma once
// libnvrtc, found and opened at run time.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/shared_library.h"
#include "runtime/nvrtc/nvrtc_api.h"

namespace tessera::runtime {

/// The oldest NVRTC whose output we test: 12.3.
inline constexpr int kMinNvrtcVersion = 12030;

/// What every cache key says of the compiler.
struct NvrtcId {
  int version = 0;  // 13000 = CUDA 13.0
  std::string
      identity;  // version and build ids: "NVRTC 13.0, build-id 65be..., builtins build-id 0c3f..."
  friend bool operator==(const NvrtcId&, const NvrtcId&) = default;
};

struct Nvrtc {
  nvrtc_api::Functions call;
  nvrtc_api::SetFlowCallback set_flow_callback = nullptr;  // null before 12.8
  int version = 0;                                         // 13000 = CUDA 13.0
  std::string path;
  std::string builtins;         // path of its libnvrtc-builtins; empty if that is not beside it
  std::string wanted_builtins;  // the file name it looks for
  std::string identity;         // NvrtcId::identity
  std::vector<int> archs;       // compute capabilities it compiles for: 75, 80, ...

  NvrtcId id() const { return {version, identity}; }
  std::string describe() const;  // "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)"
};

struct NvrtcSearch {
  std::string given;                    // if set, this file and no other
  std::vector<std::string> cuda_homes;  // CUDA_HOME, CUDA_PATH
  std::string dependencies;  // folder with wheels: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib
  std::vector<std::string> folders = {};  // others, searched before all of these
};

/// Looks in this order: the given file; a libnvrtc that the process has mapped; `folders`; lib64 and
/// targets/*/lib of each CUDA home; the wheels; /usr/local/cuda; the loader's default. In each
/// place version 13, then 12. Opens libnvrtc-builtins from the same folder, so that versions cannot
/// mix. Throws an unsupported error which names every place.
std::unique_ptr<const Nvrtc> open_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search);

/// The id of what open_nvrtc would open, told from its files in a fraction of the time. Nothing if
/// they do not tell: it is mapped already (then opening costs nothing), it has no build id, only the
/// loader knows where it is, or builtins of no or of several versions lie beside it.
std::optional<NvrtcId> identify_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search);

}  // namespace tessera::runtime
