#include "tests/runtime/fake_cuda.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/nvrtc/nvrtc_api.h"

namespace tessera::test {
namespace {

using namespace runtime;

// Not destroyed at exit: a compile of a thread that nobody waits for may still look at it.
std::unique_ptr<FakeState>& g_state = *new std::unique_ptr<FakeState>;
std::mutex g_mutex;
// Addresses that stand for libraries and contexts.
int g_driver_library, g_nvrtc_library, g_builtins_library;
int g_contexts[8];

cu::Context context_of(int device) {
  return device < 0 ? nullptr : reinterpret_cast<cu::Context>(&g_contexts[device]);
}
int device_of(cu::Context context) {
  for (int i = 0; i < 8; ++i) {
    if (context_of(i) == context) return i;
  }
  return -1;
}

// ---- driver
cu::Result get_version(int* version) {
  return *version = g_state->driver_version, 0;
}
cu::Result init(unsigned) {
  return g_state->num_devices > 0 ? cu::kSuccess : cu::kNoDevice;
}
cu::Result get_count(int* count) {
  return *count = g_state->num_devices, 0;
}
cu::Result get_device(cu::Device* device, int ordinal) {
  return *device = ordinal, 0;
}
cu::Result get_name(char* name, int length, cu::Device) {
  std::strncpy(name, "Fake GPU", static_cast<size_t>(length));
  return 0;
}
cu::Result get_attribute(int* value, cu::DeviceAttribute attribute, cu::Device) {
  const std::map<int, int> values = {{cu::kComputeCapabilityMajor, g_state->major},
                                     {cu::kComputeCapabilityMinor, g_state->minor},
                                     {cu::kMultiprocessorCount, 132},
                                     {cu::kMaxSharedPerBlockOptin, g_state->shared_optin},
                                     {cu::kL2CacheSize, 50 << 20},
                                     {cu::kMaxAccessPolicyWindow, 128 << 20}};
  return *value = values.at(attribute), 0;
}
cu::Result total_mem(size_t* bytes, cu::Device) {
  return *bytes = size_t{1} << 30, 0;
}
cu::Result retain(cu::Context* context, cu::Device device) {
  return *context = context_of(device), 0;
}
cu::Result get_current(cu::Context* context) {
  return *context = context_of(g_state->current_device), 0;
}
cu::Result current_device(cu::Device* device) {
  return *device = g_state->current_device, 0;
}
cu::Result push(cu::Context context) {
  const std::lock_guard lock(g_mutex);
  g_state->pushed.push_back(device_of(context));
  g_state->current_device = device_of(context);
  return 0;
}
cu::Result pop(cu::Context*) {
  const std::lock_guard lock(g_mutex);
  g_state->current_device = -1;
  return 0;
}
cu::Result error_name(cu::Result error, const char** text) {
  return *text = error == 200 ? "CUDA_ERROR_INVALID_IMAGE" : "CUDA_ERROR_FAKE", 0;
}
cu::Result error_string(cu::Result, const char** text) {
  return *text = "a fake failure", 0;
}
cu::Result is_capturing(cu::Stream, cu::StreamCaptureStatus* status) {
  return *status = static_cast<cu::StreamCaptureStatus>(g_state->capture_status), 0;
}
cu::Result get_stream_context(cu::Stream, cu::Context* context) {
  return *context = context_of(g_state->device_of_streams), g_state->stream_result;
}
cu::Result load_function(cu::Function) {
  return ++g_state->num_functions_loaded, 0;
}
// The address of the code stands for library, kernel and function.
cu::Result load_data(cu::Library* library, const void* code, int*, void**, unsigned, int*, void**,
                     unsigned) {
  ++g_state->num_loads;
  *library = reinterpret_cast<cu::Library>(const_cast<void*>(code));
  return g_state->num_refused_loads-- > 0 ? g_state->load_result : 0;
}
cu::Result get_kernel(cu::Kernel* kernel, cu::Library library, const char*) {
  return *kernel = reinterpret_cast<cu::Kernel>(library), 0;
}
cu::Result get_function(cu::Function* function, cu::Kernel kernel) {
  return *function = reinterpret_cast<cu::Function>(kernel), 0;
}
cu::Result get_kernel_attribute(int* value, cu::FunctionAttribute, cu::Kernel, cu::Device) {
  return *value = 16, 0;
}
cu::Result set_kernel_attribute(cu::FunctionAttribute attribute, int value, cu::Kernel,
                                cu::Device) {
  const std::lock_guard lock(g_mutex);
  ++g_state->num_attribute_calls;
  g_state->attributes.emplace_back(attribute, value);
  return 0;
}
cu::Result max_clusters(int* count, cu::Function, const cu::LaunchConfig*) {
  return *count = g_state->max_clusters, 0;
}
cu::Result max_blocks(int* count, cu::Function, int, size_t) {
  return *count = g_state->blocks_per_sm, 0;
}
cu::Result stream_id(cu::Stream, unsigned long long* id) {
  return *id = g_state->stream_id, 0;
}
cu::Result allocate(cu::DevicePtr* pointer, size_t) {
  return *pointer = 0x10000, g_state->allocate_result;
}
cu::Result launch(const cu::LaunchConfig* config, cu::Function function, void** arguments, void**) {
  ++g_state->num_launches;
  g_state->launched = function;
  if (g_state->on_launch) g_state->on_launch(*config, arguments);
  g_state->grid[0] = config->grid_x;
  g_state->grid[1] = config->grid_y;
  g_state->grid[2] = config->grid_z;
  g_state->attribute_id = 0;
  g_state->num_attributes = config->num_attributes;
  g_state->cluster = 0;
  g_state->window = {};
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    const cu::LaunchAttribute& attribute = config->attributes[i];
    g_state->attribute_id = attribute.id;
    if (attribute.id == cu::kCooperative) {
      std::memcpy(&g_state->last_argument, arguments[1], sizeof(g_state->last_argument));
    }
    if (attribute.id == cu::kAccessPolicyWindow) {
      std::memcpy(&g_state->window, attribute.value, sizeof(g_state->window));
    }
    if (attribute.id == cu::kClusterDimension) {
      std::memcpy(&g_state->cluster, attribute.value, sizeof(unsigned));
    }
  }
  if (arguments) std::memcpy(&g_state->first_argument, arguments[0], sizeof(int64_t));
  return g_state->launch_result;
}
cu::Result get_global(cu::DevicePtr* pointer, size_t* bytes, cu::Library, const char* name) {
  if (name == std::string("tessera_marks")) {
    *pointer = reinterpret_cast<cu::DevicePtr>(g_state->marks.data());
    return *bytes = g_state->marks.size() * sizeof(uint64_t), 0;
  }
  *pointer = reinterpret_cast<cu::DevicePtr>(&g_state->variable);
  return *bytes = sizeof(g_state->variable), 0;
}
bool is_variable(cu::DevicePtr place) {
  return place == reinterpret_cast<cu::DevicePtr>(&g_state->variable) ||
         place == reinterpret_cast<cu::DevicePtr>(g_state->marks.data());
}
// Copies the variables; other memory of the device is not there.
cu::Result copy_async(cu::DevicePtr to, cu::DevicePtr from, size_t bytes, cu::Stream) {
  if (!is_variable(from)) return 0;
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), 0;
}
cu::Result set_async(cu::DevicePtr to, unsigned char value, size_t bytes, cu::Stream) {
  if (!is_variable(to)) return 0;
  return std::memset(reinterpret_cast<void*>(to), value, bytes), 0;
}
cu::Result encode_tensor_map(void* map, int dtype, unsigned rank, void* at,
                             const unsigned long long* extents, const unsigned long long* strides,
                             const unsigned* box, const unsigned* steps, int interleave,
                             int swizzle, int, int outside) {
  std::string& text = g_state->tensor_map;
  text = fmt::format("dtype {}, at {}", dtype, reinterpret_cast<uintptr_t>(at));
  for (unsigned d = 0; d < rank; ++d) {
    text += fmt::format(", {} by {} x {}", extents[d], box[d], steps[d]);
    if (d > 0) text += fmt::format(" every {}", strides[d - 1]);
  }
  text += fmt::format(", {} {} {}", interleave, swizzle, outside);
  g_state->tensor_maps.push_back(text);
  std::memset(map, 0x5A, 128);
  return g_state->tensor_map_result;
}
cu::Result succeed() {
  return 0;
}

template <class Function>
void* address(Function function) {
  return reinterpret_cast<void*>(function);
}

cu::Result get_proc_address(const char* symbol, void** function, int, uint64_t, int* status) {
  static const std::map<std::string, void*> kFunctions = {
      {"cuInit", address(init)},
      {"cuDeviceGetCount", address(get_count)},
      {"cuDeviceGet", address(get_device)},
      {"cuDeviceGetName", address(get_name)},
      {"cuDeviceGetAttribute", address(get_attribute)},
      {"cuDeviceTotalMem", address(total_mem)},
      {"cuDevicePrimaryCtxRetain", address(retain)},
      {"cuCtxGetCurrent", address(get_current)},
      {"cuCtxGetDevice", address(current_device)},
      {"cuCtxPushCurrent", address(push)},
      {"cuCtxPopCurrent", address(pop)},
      {"cuGetErrorName", address(error_name)},
      {"cuGetErrorString", address(error_string)},
      {"cuStreamIsCapturing", address(is_capturing)},
      {"cuStreamGetCtx", address(get_stream_context)},
      {"cuFuncLoad", address(load_function)},
      {"cuLibraryGetGlobal", address(get_global)},
      {"cuMemcpyAsync", address(copy_async)},
      {"cuMemsetD8Async", address(set_async)},
      {"cuLibraryLoadData", address(load_data)},
      {"cuLibraryGetKernel", address(get_kernel)},
      {"cuKernelGetFunction", address(get_function)},
      {"cuKernelGetAttribute", address(get_kernel_attribute)},
      {"cuKernelSetAttribute", address(set_kernel_attribute)},
      {"cuOccupancyMaxActiveClusters", address(max_clusters)},
      {"cuOccupancyMaxActiveBlocksPerMultiprocessor", address(max_blocks)},
      {"cuStreamGetId", address(stream_id)},
      {"cuTensorMapEncodeTiled", address(encode_tensor_map)},
      {"cuMemAlloc", address(allocate)},
      {"cuLaunchKernelEx", address(launch)}};
  if (g_state->missing_function == symbol) return *status = cu::kSymbolNotFound, 500;
  const auto found = kFunctions.find(symbol);
  *function = found == kFunctions.end() ? address(succeed) : found->second;
  return *status = cu::kFound, 0;
}

// ---- NVRTC
struct FakeProgram {
  std::string source;
  int (*flow)(void*, void*) = nullptr;
  void* payload = nullptr;
};
using Program = nvrtc_api::Program;
FakeProgram& of(Program program) {
  return *reinterpret_cast<FakeProgram*>(program);
}

// The smallest thing with the head of a CUDA ELF, followed by what it was made from.
std::string cubin_of(const FakeProgram& program) {
  std::string cubin(
      "\x7F"
      "ELF\x02\x01",
      6);
  cubin.resize(64, '\0');
  cubin[18] = static_cast<char>(190);
  return cubin + program.source;
}

int nvrtc_version(int* major, int* minor) {
  *major = g_state->nvrtc_version / 1000;
  *minor = g_state->nvrtc_version % 1000 / 10;
  return 0;
}
constexpr int kArchs[] = {75, 80, 86, 89, 90, 100, 120};
int num_archs(int* count) {
  return *count = static_cast<int>(std::size(kArchs)), 0;
}
int archs(int* values) {
  return std::copy(std::begin(kArchs), std::end(kArchs), values), 0;
}
int create(Program* program, const char* source, const char* file, int, const char* const*,
           const char* const*) {
  const std::lock_guard lock(g_mutex);
  g_state->file = file;
  *program = reinterpret_cast<Program>(new FakeProgram{source, nullptr, nullptr});
  return 0;
}
int destroy(Program* program) {
  delete &of(*program);
  *program = nullptr;
  return 0;
}
std::atomic<int> g_running = 0;

void meet_others() {
  const int running = ++g_running;
  int most = g_state->most_at_once;
  while (running > most && !g_state->most_at_once.compare_exchange_weak(most, running)) {
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (g_state->most_at_once < g_state->num_to_meet &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  --g_running;
}

int compile(Program program, int count, const char* const* options) {
  ++g_state->num_compiles;
  meet_others();
  for (int ms = 0; ms < g_state->compile_ms; ++ms) {
    const FakeProgram& fake = of(program);
    if (fake.flow && fake.flow(fake.payload, nullptr) == 1) return nvrtc_api::kCancelled;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard lock(g_mutex);
  g_state->options.assign(options, options + count);
  return g_state->compile_result;
}
int set_flow_callback(Program program, int (*callback)(void*, void*), void* payload) {
  of(program).flow = callback;
  of(program).payload = payload;
  return 0;
}
int log_size(Program, size_t* bytes) {
  return *bytes = g_state->compile_log.size() + 1, 0;
}
int get_log(Program, char* log) {
  return std::memcpy(log, g_state->compile_log.c_str(), g_state->compile_log.size() + 1), 0;
}
int cubin_size(Program program, size_t* bytes) {
  return *bytes = cubin_of(of(program)).size(), 0;
}
int get_cubin(Program program, char* to) {
  const std::string cubin = cubin_of(of(program));
  return std::memcpy(to, cubin.data(), cubin.size()), 0;
}
int ptx_size(Program, size_t* bytes) {
  return *bytes = 5, 0;
}
int get_ptx(Program, char* to) {
  return std::memcpy(to, "ptx!", 5), 0;
}
const char* error_string_of(int) {
  return "NVRTC_ERROR_FAKE";
}

void* symbol_of(void* library, const char* symbol) {
  static const std::map<std::string, void*> kDriver = {
      {"cuDriverGetVersion", address(get_version)},
      {"cuGetProcAddress_v2", address(get_proc_address)}};
  static const std::map<std::string, void*> kNvrtc = {
      {"nvrtcVersion", address(nvrtc_version)},
      {"nvrtcGetNumSupportedArchs", address(num_archs)},
      {"nvrtcGetSupportedArchs", address(archs)},
      {"nvrtcCreateProgram", address(create)},
      {"nvrtcDestroyProgram", address(destroy)},
      {"nvrtcCompileProgram", address(compile)},
      {"nvrtcGetProgramLogSize", address(log_size)},
      {"nvrtcGetProgramLog", address(get_log)},
      {"nvrtcGetCUBINSize", address(cubin_size)},
      {"nvrtcGetCUBIN", address(get_cubin)},
      {"nvrtcGetPTXSize", address(ptx_size)},
      {"nvrtcGetPTX", address(get_ptx)},
      {"nvrtcSetFlowCallback", address(set_flow_callback)},
      {"nvrtcGetErrorString", address(error_string_of)}};
  if (std::strcmp(symbol, "nvrtcSetFlowCallback") == 0 && !g_state->stops_on_request) {
    return nullptr;
  }
  const auto& symbols = library == &g_driver_library ? kDriver : kNvrtc;
  const auto found = symbols.find(symbol);
  return found == symbols.end() ? nullptr : found->second;
}

std::string g_nvrtc_path;

void* open_library(const std::string& path, std::string& error) {
  const std::lock_guard lock(g_mutex);
  g_state->opened.push_back(path);
  if (path == "libcuda.so.1" && g_state->has_driver) return &g_driver_library;
  if (g_state->nvrtc_files.count(path) > 0) {
    g_nvrtc_path = path;
    return &g_nvrtc_library;
  }
  if (g_state->builtins_files.count(path) > 0) return &g_builtins_library;
  error = path + ": cannot open shared object file: No such file or directory";
  return nullptr;
}

std::string path_of(void* library) {
  if (library == &g_driver_library) return "/usr/lib/libcuda.so.1";
  return library == &g_nvrtc_library ? g_nvrtc_path : "the builtins";
}

}  // namespace

FakeCuda::FakeCuda() {
  g_state = std::make_unique<FakeState>();
}
FakeCuda::~FakeCuda() {
  g_state.reset();
}
FakeState& FakeCuda::state() {
  return *g_state;
}

LibraryLoader FakeCuda::loader() const {
  return {open_library,
          [](const std::string& name) -> void* {
            if (g_state->mapped != name) return nullptr;
            g_nvrtc_path = "/mapped/" + name;
            return &g_nvrtc_library;
          },
          symbol_of,
          path_of,
          [](void* library) {
            return library == &g_nvrtc_library ? g_state->nvrtc_identity : "build-id bb";
          },
          [](const std::string& path) -> std::optional<std::string> {
            if (g_state->nvrtc_files.count(path) > 0) {
              return g_state->identity_of_file.value_or(g_state->nvrtc_identity);
            }
            if (g_state->builtins_files.count(path) > 0) return "build-id bb";
            return std::nullopt;
          }};
}

}  // namespace tessera::test
