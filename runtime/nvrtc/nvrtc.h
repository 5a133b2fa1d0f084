#pragma once
// Finds and opens libnvrtc at run time.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/driver/shared_library.h"
#include "runtime/nvrtc/nvrtc_api.h"

namespace tessera::runtime {

/// The oldest NVRTC whose output we test: 12.3.
inline constexpr int kMinNvrtcVersion = 12030;

/// The compiler as cache keys name it.
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
  std::string builtins;         // path of the libnvrtc-builtins beside it; "" if there is none
  std::string wanted_builtins;  // file name of the builtins it looks for
  std::string identity;         // NvrtcId::identity
  std::vector<int> archs;       // compute capabilities it compiles for: 75, 80, ...

  NvrtcId id() const { return {version, identity}; }
  std::string describe() const;  // "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)"
};

struct NvrtcSearch {
  std::string given;                    // if set, this file and no other
  std::vector<std::string> cuda_homes;  // CUDA_HOME, CUDA_PATH
  std::string dependencies;  // folder with wheels: nvidia/cu13/lib, nvidia/cuda_nvrtc/lib
  std::vector<std::string> folders = {};  // further folders, searched before all of these
};

/// Searches in this order: the given file; a libnvrtc that the process has mapped; `folders`; lib64
/// and targets/*/lib of each CUDA home; the wheels; /usr/local/cuda; the loader's default. Each
/// place is searched for version 13, then 12. Opens libnvrtc-builtins from the same folder, so that
/// versions cannot mix. Throws an unsupported error that names every place.
std::unique_ptr<const Nvrtc> open_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search);

/// Identifies from its files, in a fraction of the time, the compiler that open_nvrtc would open.
/// Returns nothing where the files do not tell: the compiler is mapped already (then opening costs
/// nothing), it has no build id, only the loader knows its place, or builtins of no or of several
/// versions lie beside it.
std::optional<NvrtcId> identify_nvrtc(const LibraryLoader& loader, const NvrtcSearch& search);

}  // namespace tessera::runtime
