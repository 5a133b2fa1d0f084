// The parts that open the driver, load kernels and launch them, as runtime/launch.cpp and runtime/tensor_map.cpp do. Two
// differences: the window of the L2 policy is left out, and the context is always pushed.

#include "tools/lib/c_export/c_parts.h"

namespace tessera::tools {
namespace {

constexpr CPart kParts[] = {
    {"ts_driver", R"text(
/* The part of the driver's interface that a launch needs, as cuda.h declares it: a build needs no CUDA. */
typedef struct ts_attribute {
  int id;
  char padding[4];
  union {
    char bytes[64];
    unsigned words[16];
    uint64_t aligned;
  } value;
} ts_attribute;

typedef struct ts_config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void *stream;
  ts_attribute *attributes;
  unsigned num_attributes;
} ts_config;

static struct ts_driver {
  int is_open;
  int (*init)(unsigned);
  int (*error_name)(int, const char **);
  int (*error_text)(int, const char **);
  int (*current)(void **);
  int (*push)(void *);
  int (*pop)(void **);
  int (*device)(int *);
  int (*attribute)(int *, int, int);
  int (*context_of)(void *, void **);
  int (*load)(void **, const void *, int *, void **, unsigned, int *, void **, unsigned);
  int (*kernel)(void **, void *, const char *);
  int (*function)(void **, void *);
  int (*load_function)(void *);
  int (*set_attribute)(int, int, void *, int);
  int (*launch)(const ts_config *, void *, void **, void **);
  int (*encode)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,
                const unsigned *, int, int, int, int);
  int (*set_bytes)(unsigned long long, unsigned char, size_t, void *);
  int (*blocks)(int *, void *, int, size_t);
} ts_driver;

static pthread_mutex_t ts_mutex = PTHREAD_MUTEX_INITIALIZER;
)text"},
    {"ts_driver_failed", R"text(
static int ts_driver_failed(const char *call, int result, tessera_error *error) {
  const char *name = NULL, *text = NULL;
  if (ts_driver.error_name) (void)ts_driver.error_name(result, &name);
  if (ts_driver.error_text) (void)ts_driver.error_text(result, &text);
  return ts_fail(error, TESSERA_DRIVER, "tessera: " TS_OP ": %s failed\n  got       %s (%d): %s", call,
                 name ? name : "unknown CUDA error", result, text ? text : "no description");
}
)text"},
    {"ts_open", R"text(
typedef int (*ts_get_address)(const char *, void **, int, uint64_t, int *);

/* A function of the driver, in the version of our prototype: the plain symbol may be an older one. */
static int ts_find(ts_get_address get, const char *name, int version, void *function,
                   tessera_error *error) {
  void *address = NULL;
  int status = 0;
  if (get(name, &address, version, 0, &status) != 0 || !address) {
    return ts_fail(error, TESSERA_UNSUPPORTED,
                   "tessera: " TS_OP ": the CUDA driver lacks %s\n"
                   "  expected  CUDA 12.4 or newer\n  got       a driver without it",
                   name);
  }
  memcpy(function, &address, sizeof address);
  return TESSERA_OK;
}

static int ts_open_once(tessera_error *error) {
  ts_get_address get = NULL;
  void *address, *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int status = TESSERA_OK, result;
  if (!library) {
    const char *reason = dlerror();
    return ts_fail(error, TESSERA_UNSUPPORTED,
                   "tessera: " TS_OP ": no CUDA driver on this machine\n"
                   "  expected  libcuda.so.1 of CUDA 12.4 or newer\n  got       %s",
                   reason ? reason : "none");
  }
  address = dlsym(library, "cuGetProcAddress_v2");
  if (!address) {
    return ts_fail(error, TESSERA_UNSUPPORTED,
                   "tessera: " TS_OP ": the CUDA driver is too old\n"
                   "  expected  CUDA 12.4 or newer\n  got       a driver without cuGetProcAddress_v2");
  }
  memcpy(&get, &address, sizeof address);
#define TS_FIND(member, name, version) \
  if (status == TESSERA_OK) status = ts_find(get, name, version, &ts_driver.member, error)
  TS_FIND(error_name, "cuGetErrorName", 6000);
  TS_FIND(error_text, "cuGetErrorString", 6000);
  TS_FIND(init, "cuInit", 2000);
  TS_FIND(current, "cuCtxGetCurrent", 4000);
  TS_FIND(push, "cuCtxPushCurrent", 4000);
  TS_FIND(pop, "cuCtxPopCurrent", 4000);
  TS_FIND(device, "cuCtxGetDevice", 2000);
  TS_FIND(attribute, "cuDeviceGetAttribute", 2000);
  TS_FIND(context_of, "cuStreamGetCtx", 9020);
  TS_FIND(load, "cuLibraryLoadData", 12000);
  TS_FIND(kernel, "cuLibraryGetKernel", 12000);
  TS_FIND(function, "cuKernelGetFunction", 12000);
  TS_FIND(load_function, "cuFuncLoad", 12040);
  TS_FIND(set_attribute, "cuKernelSetAttribute", 12000);
  TS_FIND(launch, "cuLaunchKernelEx", 11060);
  TS_FIND(encode, "cuTensorMapEncodeTiled", 12000);
  TS_FIND(set_bytes, "cuMemsetD8Async", 3020);
  TS_FIND(blocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor", 6050);
#undef TS_FIND
  if (status != TESSERA_OK) return status;
  result = ts_driver.init(0);
  if (result != 0) return ts_driver_failed("cuInit", result, error);
  ts_driver.is_open = 1;
  return TESSERA_OK;
}

static int ts_open(tessera_error *error) {
  int status = TESSERA_OK;
  (void)pthread_mutex_lock(&ts_mutex);
  if (!ts_driver.is_open) status = ts_open_once(error);
  (void)pthread_mutex_unlock(&ts_mutex);
  return status;
}
)text"},
    {"ts_call", R"text(
/* All that the launches of a call share. */
typedef struct ts_call {
  ts_view views[TS_TENSORS];
  int64_t dims[TS_DIMS];       /* extents and strides that are free */
  int64_t scalars[TS_SCALARS]; /* each in the low bytes */
  char *workspace;
  void *stream;
  int device, num_sms, capability; /* 90: 9.0 */
  tessera_error *error;
} ts_call;
)text"},
    {"ts_enter", R"text(
/* Makes the context of the stream current, that of the thread for a default stream. */
static int ts_enter(ts_call *call) {
  void *context = NULL;
  int result, major = 0, minor = 0;
  const int status = ts_open(call->error);
  if (status != TESSERA_OK) return status;
  if ((uintptr_t)call->stream <= 2) {
    result = ts_driver.current(&context);
    if (result != 0) return ts_driver_failed("cuCtxGetCurrent", result, call->error);
  } else {
    result = ts_driver.context_of(call->stream, &context);
    if (result != 0) return ts_driver_failed("cuStreamGetCtx", result, call->error);
  }
  if (!context) {
    return ts_fail(call->error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": no CUDA context is current\n"
                   "  expected  a stream, or cuCtxSetCurrent before the call\n  got       none");
  }
  result = ts_driver.push(context);
  if (result != 0) return ts_driver_failed("cuCtxPushCurrent", result, call->error);
  result = ts_driver.device(&call->device);
  if (result == 0) result = ts_driver.attribute(&major, 75, call->device);
  if (result == 0) result = ts_driver.attribute(&minor, 76, call->device);
  if (result == 0) result = ts_driver.attribute(&call->num_sms, 16, call->device);
  call->capability = 10 * major + minor;
  if (result == 0) return TESSERA_OK;
  (void)ts_driver.pop(&context);
  return ts_driver_failed("cuDeviceGetAttribute", result, call->error);
}

static void ts_leave(void) {
  void *context = NULL;
  (void)ts_driver.pop(&context);
}
)text"},
    {"ts_kernel", R"text(
typedef struct ts_kernel {
  const uint64_t *code; /* a cubin */
  const char *entry;
  unsigned threads, shared_bytes, cluster;
  int is_early; /* waits for the kernel before it, and may begin before that has ended */
  int is_cooperative;
  void *handle;     /* a CUkernel, for every device */
  uint64_t devices; /* a bit for each that has it */
} ts_kernel;

static int ts_load_once(const ts_call *call, ts_kernel *kernel) {
  void *library = NULL, *function = NULL;
  int result;
  if (!kernel->handle) {
    result = ts_driver.load(&library, kernel->code, NULL, NULL, 0, NULL, NULL, 0);
    if (result != 0) return ts_driver_failed("cuLibraryLoadData", result, call->error);
    result = ts_driver.kernel(&kernel->handle, library, kernel->entry);
    if (result != 0) return ts_driver_failed("cuLibraryGetKernel", result, call->error);
  }
  result = ts_driver.function(&function, kernel->handle);
  if (result == 0) result = ts_driver.load_function(function);
  if (result != 0) return ts_driver_failed("cuFuncLoad", result, call->error);
  if (kernel->shared_bytes > 48 * 1024) {
    result = ts_driver.set_attribute(8, (int)kernel->shared_bytes, kernel->handle, call->device);
  }
  if (result == 0 && kernel->cluster > 8) {
    result = ts_driver.set_attribute(14, 1, kernel->handle, call->device);
  }
  if (result != 0) return ts_driver_failed("cuKernelSetAttribute", result, call->error);
  kernel->devices |= (uint64_t)1 << call->device;
  return TESSERA_OK;
}

/* Nothing is unloaded: graphs may hold it. */
static int ts_load(const ts_call *call, ts_kernel *kernel) {
  int status = TESSERA_OK;
  (void)pthread_mutex_lock(&ts_mutex);
  if (call->device > 63) {
    status = ts_fail(call->error, TESSERA_UNSUPPORTED,
                     "tessera: " TS_OP ": more devices than 64\n  expected  0 to 63\n  got       %d",
                     call->device);
  } else if (!(kernel->devices >> call->device & 1)) {
    status = ts_load_once(call, kernel);
  }
  (void)pthread_mutex_unlock(&ts_mutex);
  return status;
}
)text"},
    {"ts_pointer", R"text(
/* Null for an absent tensor; for one without elements an address that no kernel reads. */
static void *ts_pointer(const ts_view *view, int64_t offset) {
  if (!view->is_given) return NULL;
  return view->size == 0 ? (void *)(uintptr_t)256 : (char *)view->tensor.data + offset;
}
)text"},
    {"ts_map", R"text(
typedef struct ts_map {
  uint64_t words[16];
} __attribute__((aligned(64))) ts_map;

/* A tensor map for copies of boxes; extents, strides (elements) and box with the outermost dimension first. */
static int ts_encode(const ts_call *call, ts_map *map, const char *name, int type, int bytes,
                     void *address, int rank, const int64_t *shape, const int64_t *stride,
                     const unsigned *box, int swizzle, int bad) {
  uint64_t extents[5], pitches[5];
  unsigned boxes[5], steps[5];
  int i, result, is_empty = !address || address == (void *)(uintptr_t)256;
  memset(pitches, 0, sizeof pitches);
  for (i = 0; i < rank; ++i) is_empty = is_empty || shape[i] == 0;
  for (i = 0; i < rank; ++i) {
    const int d = rank - 1 - i;
    const int64_t extent = is_empty ? 1 : shape[d];
    const int64_t pitch = extent == 1 ? 16 : ts_mul(stride[d], bytes, &bad);
    if (bad || extent > (int64_t)1 << 32 ||
        (i > 0 && (pitch % 16 != 0 || pitch >= (int64_t)1 << 40))) {
      return ts_fail(call->error, TESSERA_ARGUMENT,
                     "tessera: " TS_OP ": tensor copies of '%s' are impossible\n"
                     "  expected  an extent of at most 2^32 and a stride that is a multiple of 16 "
                     "bytes below 2^40 in dimension %d\n"
                     "  got       extent %lld, stride %lld bytes",
                     name, d, (long long)extent, (long long)pitch);
    }
    extents[i] = (uint64_t)extent;
    if (i > 0) pitches[i - 1] = (uint64_t)pitch;
    boxes[i] = box[d];
    steps[i] = 1;
  }
  if (is_empty) address = (void *)(uintptr_t)16;
  result = ts_driver.encode(map, type, (unsigned)rank, address, extents, pitches, boxes, steps, 0,
                            swizzle, 3, 0);
  return result == 0 ? TESSERA_OK
                     : ts_driver_failed("cuTensorMapEncodeTiled", result, call->error);
}
)text"},
    {"ts_grid_barrier", R"text(
/* The blocks of this kernel wait for each other: all must run at once. Clears the words where they meet. */
static int ts_grid_barrier(const ts_call *call, ts_kernel *kernel, const int64_t grid[3], char *words) {
  void *function = NULL;
  int per_sm = 0, result, status = ts_load(call, kernel);
  if (status != TESSERA_OK) return status;
  result = ts_driver.function(&function, kernel->handle);
  if (result == 0) {
    result = ts_driver.blocks(&per_sm, function, (int)kernel->threads, kernel->shared_bytes);
  }
  if (result != 0) {
    return ts_driver_failed("cuOccupancyMaxActiveBlocksPerMultiprocessor", result, call->error);
  }
  if (grid[0] > (int64_t)per_sm * call->num_sms ||
      (double)grid[0] * (double)grid[1] * (double)grid[2] > (double)per_sm * call->num_sms) {
    return ts_fail(call->error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": the blocks of the grid wait for each other, and do not fit on "
                   "the device at once\n"
                   "  expected  at most %lld blocks\n  got       (%lld, %lld, %lld)",
                   (long long)per_sm * call->num_sms, (long long)grid[0], (long long)grid[1],
                   (long long)grid[2]);
}
result = ts_driver.set_bytes((unsigned long long)(uintptr_t)words, 0, 8, call->stream);
return result == 0 ? TESSERA_OK : ts_driver_failed("cuMemsetD8Async", result, call->error);
}
)text"},
    {"ts_launch", R"text(
static int ts_launch(const ts_call *call, ts_kernel *kernel, const int64_t grid[3], int bad,
                     void **arguments) {
  ts_attribute attributes[3];
  ts_config config;
  int result, status;
  unsigned count = 0;
  if (bad || grid[0] < 0 || grid[1] < 0 || grid[2] < 0 || grid[0] > INT32_MAX ||
      grid[1] > 65535 || grid[2] > 65535 || grid[0] % (int64_t)kernel->cluster != 0) {
    return ts_fail(call->error, TESSERA_ARGUMENT,
                   "tessera: " TS_OP ": the tensors are too large for one launch\n"
                   "  expected  at most 2147483647, 65535, 65535 blocks, the first a multiple of %u\n"
                   "  got       (%lld, %lld, %lld)",
                   kernel->cluster, (long long)grid[0], (long long)grid[1], (long long)grid[2]);
}
if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return TESSERA_OK;
status = ts_load(call, kernel);
if (status != TESSERA_OK) return status;
memset(attributes, 0, sizeof attributes);
if (kernel->cluster > 1) {
  attributes[count].id = 4; /* cluster dimension */
  attributes[count].value.words[0] = kernel->cluster;
  attributes[count].value.words[1] = attributes[count].value.words[2] = 1;
  ++count;
}
if (kernel->is_cooperative) {
  attributes[count].id = 2;
  attributes[count++].value.bytes[0] = 1;
}
if (kernel->is_early) {
  attributes[count].id = 6; /* programmatic stream serialization */
  attributes[count++].value.bytes[0] = 1;
}
memset(&config, 0, sizeof config);
config.grid_x = (unsigned)grid[0];
config.grid_y = (unsigned)grid[1];
config.grid_z = (unsigned)grid[2];
config.block_x = kernel->threads;
config.block_y = config.block_z = 1;
config.shared_bytes = kernel->shared_bytes;
config.stream = call->stream;
config.attributes = attributes;
config.num_attributes = count;
result = ts_driver.launch(&config, kernel->handle, arguments, NULL);
return result == 0 ? TESSERA_OK : ts_driver_failed("cuLaunchKernelEx", result, call->error);
}
)text"},
};

}  // namespace

std::span<const CPart> c_driver_parts() {
  return kParts;
}

}  // namespace tessera::tools
