#pragma once
// A driver and an NVRTC made of plain functions, so that the runtime is tested without a GPU and
// without a toolkit. One at a time: the functions have C signatures and keep their state in
// globals.

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver/driver.h"
#include "runtime/driver/shared_library.h"

namespace tessera::test {

/// Everything about the fakes that a test sets or reads. Made anew by FakeCuda.
struct FakeState {
  // driver
  bool has_driver = true;
  int driver_version = 13000;
  int num_devices = 1;
  int major = 9, minor = 0;
  int shared_optin = 232448;
  std::string missing_function;            // cuGetProcAddress does not know it
  int load_result = 0;                     // of cuLibraryLoadData...
  std::atomic<int> num_refused_loads = 0;  // ...for so many calls; then it works
  const void* launched = nullptr;          // the code that was loaded, of the last launch
  int launch_result = 0;
  std::function<void(const runtime::cu::LaunchConfig&, void** arguments)> on_launch;
  int device_of_streams = 0;  // of every stream but the default ones
  int stream_result = 0;      // of cuStreamGetCtx
  int capture_status = 0;
  std::atomic<int> num_loads = 0, num_launches = 0, num_attribute_calls = 0;
  std::atomic<int> num_functions_loaded = 0;  // cuFuncLoad
  std::vector<int> pushed;                    // device whose context was pushed, in order
  std::atomic<int> current_device = -1;       // whose primary context is current; -1 = none
  unsigned grid[3] = {0, 0, 0};
  int64_t first_argument = 0;
  int attribute_id = 0;                         // the last one of the last launch
  unsigned num_attributes = 0;                  // of the last launch
  unsigned cluster = 0;                         // of the last launch
  runtime::cu::AccessPolicyWindow window = {};  // of the last launch
  int blocks_per_sm = 2;
  int allocate_result = 0;  // of cuMemAlloc
  uint32_t variable = 0;    // the only one of any kernel, but for:
  std::vector<uint64_t> marks = std::vector<uint64_t>(32 * 1024);  // tessera_marks
  unsigned long long stream_id = 1;
  unsigned long long last_argument = 0;         // of a cooperative launch
  int max_clusters = 1;                         // that fit the device
  std::vector<std::pair<int, int>> attributes;  // set on kernels, with their values
  std::string tensor_map;                       // the last one that was encoded, as text
  std::vector<std::string> tensor_maps;         // all of them
  int tensor_map_result = 0;                    // of cuTensorMapEncodeTiled

  // NVRTC
  std::set<std::string> nvrtc_files = {"/usr/local/cuda/lib64/libnvrtc.so.13"};
  std::set<std::string> builtins_files = {"/usr/local/cuda/lib64/libnvrtc-builtins.so.13.0"};
  std::string mapped;  // name that is already in the process
  int nvrtc_version = 13000;
  std::string nvrtc_identity = "build-id aa";
  std::optional<std::string> identity_of_file;  // of libnvrtc before it is opened, if another
  int compile_result = 0;
  std::string compile_log;
  std::atomic<int> compile_ms = 0;
  std::atomic<int> num_compiles = 0;
  std::atomic<int> num_to_meet = 0;   // a compile waits (10 s at most) until so many are running
  std::atomic<int> most_at_once = 0;  // that were running together
  bool stops_on_request = true;       // has nvrtcSetFlowCallback
  std::vector<std::string> options;   // of the last compile
  std::string file;                   // what its text was called
  std::vector<std::string> opened;    // every path that was tried
};

class FakeCuda {
 public:
  FakeCuda();
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  FakeState& state();
  runtime::LibraryLoader loader() const;
};

}  // namespace tessera::test
