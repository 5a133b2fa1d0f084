#pragma once
// Declares the part of the CUDA driver interface that the runtime uses, so that the build needs no
// toolkit. Names follow the driver's without their prefix. A test compares the layouts with
// <cuda.h> where that exists.

#include <cstddef>
#include <cstdint>

namespace tessera::runtime::cu {

using Result = int;
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextHandle*;
struct StreamHandle;  // not the runtime's
using Stream = StreamHandle*;
using Event = struct EventHandle*;
using Library = struct LibraryHandle*;
using Kernel = struct KernelHandle*;
using Function = struct FunctionHandle*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kNoBinaryForGpu = 209;
inline constexpr Result kInvalidPtx = 218;
inline constexpr Result kUnsupportedPtxVersion = 222;
inline constexpr Result kInvalidSource = 300;
inline constexpr Result kInvalidHandle = 400;

enum DeviceAttribute : int {
  kMaxThreadsPerBlock = 1,
  kWarpSize = 10,
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedPerBlockOptin = 97,
  kMaxAccessPolicyWindow = 109,
};

enum FunctionAttribute : int {
  kStaticSharedBytes = 1,
  kLocalBytes = 3,
  kNumRegisters = 4,
  kMaxDynamicSharedBytes = 8,
  kNonPortableClusterSize = 14,
};

enum StreamCaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };

inline constexpr unsigned kStreamNonBlocking = 1;

/// Values of LaunchAttribute::id, with the type of their value.
inline constexpr int kAccessPolicyWindow = 1;               // an AccessPolicyWindow
inline constexpr int kCooperative = 2;                      // an int
inline constexpr int kClusterDimension = 4;                 // three unsigned: x, y, z
inline constexpr int kProgrammaticStreamSerialization = 6;  // an int

struct LaunchAttribute {  // 72 bytes
  int id;
  char padding[4];
  alignas(8) unsigned char value[64];
};

/// The L2 policy for the lines of a memory range that a launch touches.
struct AccessPolicyWindow {
  void* base;
  size_t bytes;
  float hit_ratio;  // fraction of the lines with hit_property; the others have miss_property
  int hit_property, miss_property;  // kNormal, kStreaming
};
inline constexpr int kNormal = 0;
inline constexpr int kStreaming = 1;  // evicted first

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

/// How cuGetProcAddress answered.
enum ProcAddressStatus : int { kFound = 0, kSymbolNotFound = 1, kVersionNotSufficient = 2 };
using GetProcAddress = Result (*)(const char* symbol, void** function, int cuda_version,
                                  uint64_t flags, int* status);

// Function, driver symbol, interface version of our prototype, parameters.
#define TESSERA_DRIVER_FUNCTIONS(X)                                                                \
  X(init, cuInit, 2000, (unsigned flags))                                                          \
  X(device_get_count, cuDeviceGetCount, 2000, (int* count))                                        \
  X(device_get, cuDeviceGet, 2000, (Device * device, int ordinal))                                 \
  X(device_get_name, cuDeviceGetName, 2000, (char* name, int length, Device device))               \
  X(device_get_attribute, cuDeviceGetAttribute, 2000,                                              \
    (int* value, DeviceAttribute attribute, Device device))                                        \
  X(device_total_mem, cuDeviceTotalMem, 3020, (size_t * bytes, Device device))                     \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, 7000, (Context * context, Device device)) \
  X(ctx_get_current, cuCtxGetCurrent, 4000, (Context * context))                                   \
  X(ctx_get_device, cuCtxGetDevice, 2000, (Device * device))                                       \
  X(ctx_push_current, cuCtxPushCurrent, 4000, (Context context))                                   \
  X(ctx_pop_current, cuCtxPopCurrent, 4000, (Context * context))                                   \
  X(ctx_synchronize, cuCtxSynchronize, 2000, ())                                                   \
  X(get_error_name, cuGetErrorName, 6000, (Result error, const char** text))                       \
  X(get_error_string, cuGetErrorString, 6000, (Result error, const char** text))                   \
  X(mem_alloc, cuMemAlloc, 3020, (DevicePtr * pointer, size_t bytes))                              \
  X(mem_free, cuMemFree, 3020, (DevicePtr pointer))                                                \
  X(memcpy_async, cuMemcpyAsync, 4000,                                                             \
    (DevicePtr to, DevicePtr from, size_t bytes, Stream stream))                                   \
  X(get_library_global, cuLibraryGetGlobal, 12000,                                                 \
    (DevicePtr * pointer, size_t * bytes, Library library, const char* name))                      \
  X(memset_async, cuMemsetD8Async, 3020,                                                           \
    (DevicePtr pointer, unsigned char value, size_t bytes, Stream stream))                         \
  X(stream_create, cuStreamCreate, 2000, (Stream * stream, unsigned flags))                        \
  X(stream_destroy, cuStreamDestroy, 4000, (Stream stream))                                        \
  X(stream_synchronize, cuStreamSynchronize, 2000, (Stream stream))                                \
  X(stream_get_id, cuStreamGetId, 12000, (Stream stream, unsigned long long* id))                  \
  X(occupancy_max_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050,                       \
    (int* count, Function function, int threads, size_t shared_bytes))                             \
  X(stream_is_capturing, cuStreamIsCapturing, 10000,                                               \
    (Stream stream, StreamCaptureStatus * status))                                                 \
  X(event_create, cuEventCreate, 2000, (Event * event, unsigned flags))                            \
  X(event_destroy, cuEventDestroy, 4000, (Event event))                                            \
  X(event_record, cuEventRecord, 2000, (Event event, Stream stream))                               \
  X(event_synchronize, cuEventSynchronize, 2000, (Event event))                                    \
  X(event_elapsed_time, cuEventElapsedTime, 2000, (float* ms, Event start, Event end))             \
  X(stream_get_ctx, cuStreamGetCtx, 9020, (Stream stream, Context * context))                      \
  X(load_library_data, cuLibraryLoadData, 12000,                                                   \
    (Library * library, const void* code, int* jit_options, void** jit_values,                     \
     unsigned num_jit_options, int* library_options, void** library_values,                        \
     unsigned num_library_options))                                                                \
  X(get_library_kernel, cuLibraryGetKernel, 12000,                                                 \
    (Kernel * kernel, Library library, const char* name))                                          \
  X(kernel_get_function, cuKernelGetFunction, 12000, (Function * function, Kernel kernel))         \
  X(function_load, cuFuncLoad, 12040, (Function function))                                         \
  X(kernel_get_attribute, cuKernelGetAttribute, 12000,                                             \
    (int* value, FunctionAttribute attribute, Kernel kernel, Device device))                       \
  X(kernel_set_attribute, cuKernelSetAttribute, 12000,                                             \
    (FunctionAttribute attribute, int value, Kernel kernel, Device device))                        \
  X(launch_kernel_ex, cuLaunchKernelEx, 11060,                                                     \
    (const LaunchConfig* config, Function function, void** parameters, void** extra))

// Null where the driver lacks them.
#define TESSERA_OPTIONAL_DRIVER_FUNCTIONS(X)                     \
  X(occupancy_max_clusters, cuOccupancyMaxActiveClusters, 11080, \
    (int* count, Function function, const LaunchConfig* config))

/// The driver's functions, resolved once.
struct Functions {
#define TESSERA_MEMBER(member, symbol, version, parameters) Result(*member) parameters = nullptr;
  TESSERA_DRIVER_FUNCTIONS(TESSERA_MEMBER)
  TESSERA_OPTIONAL_DRIVER_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

}  // namespace tessera::runtime::cu
