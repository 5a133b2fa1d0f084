// Two paths lead to the driver's cuLaunchKernelEx:
//
//   fast    the stream's context is the primary one of the kernel's device, as nearly always: a read of that context, then
//           the launch. Everything that this path reads lies in LoadedKernel::Hot; it allocates nothing and takes no lock
//   slow    another context is current: the primary one is pushed for the call, and the stream is asked whose it is, because
//           the driver would run the kernel on the stream's device, with memory of the wrong one. Cooperative kernels always
//           come here: they need the barrier counters of their stream
//
// Launch attributes are made once, when the image is loaded (cluster, cooperative, early begin). Only the window of the L2
// policy depends on the call: it is appended to a copy on the stack, for a streamed tensor that is larger than L2 and no
// larger than one window.
//
// A kernel is a CUkernel of a library, independent of contexts: the driver keeps a copy in each context, and picks that of
// the stream. Nothing is unloaded, since graphs may hold it.
//
// An error of the launch itself names grid, threads, shared memory and Spec. A sticky one was caused by an earlier kernel:
// the message says so, and blames not this one.

#include "runtime/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/raise.h"

namespace tessera::runtime {
namespace {

constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxGridYZ = 65535;
constexpr int64_t kDefaultDynamicShared = 48 * 1024;  // more must be requested per kernel
constexpr int kPortableCluster = 8;                   // larger clusters, too
constexpr size_t kMaxAttributes = 4;                  // of a launch

bool is_refusal(cu::Result result) {
  constexpr std::array kRefusals = {cu::kInvalidImage, cu::kNoBinaryForGpu, cu::kInvalidPtx,
                                    cu::kUnsupportedPtxVersion, cu::kInvalidSource};
  return std::find(kRefusals.begin(), kRefusals.end(), result) != kRefusals.end();
}

std::string text_of(Grid grid) {
  return fmt::format("({}, {}, {})", grid.x, grid.y, grid.z);
}

[[noreturn]] void fail_launch(const LoadedKernel& kernel, Grid grid, cu::Result result) {
  const Image& image = *kernel.image;
  const std::string cluster =
      image.cluster > 1 ? fmt::format(", clusters of {}", image.cluster) : "";
  const std::string shape = fmt::format(
      "grid {}, {} threads, {} bytes of shared memory{}, cuda:{}, Spec {}", text_of(grid),
      image.threads, image.shared_bytes, cluster, kernel.device, kernel.spec);
  const bool sticky = is_sticky(result);
  raise(ErrorKind::driver, image.op,
        sticky ? fmt::format("cannot launch: an earlier kernel on cuda:{} failed", kernel.device)
               : "the launch failed: " + shape,
        {.got = kernel.driver->describe(result),
         .hint = result == cu::kInvalidHandle || result == cu::kInvalidContext
                     ? "does the stream still exist?"
                 : sticky ? "the context is lost; run the program under compute-sanitizer"
                          : ""});
}

// True for 0, legacy and per-thread: default streams belong to the current context.
bool is_default(StreamHandle stream) {
  constexpr uintptr_t kLastSpecial = 2;
  return reinterpret_cast<uintptr_t>(stream) <= kLastSpecial;
}

// The driver launches in the stream's context, for a default stream in the current one. If that is
// the primary context of the kernel's device, as nearly always, nothing has to change.
bool is_in_context(const LoadedKernel::Hot& hot, StreamHandle stream) {
  cu::Context context = nullptr;
  const cu::Result result = is_default(stream)
                                ? hot.ctx_get_current(&context)
                                : hot.stream_get_ctx(static_cast<cu::Stream>(stream), &context);
  return result == cu::kSuccess && context == hot.primary;
}

// A stream of another device would run the kernel there, on memory of the wrong device. `current`
// is a context of the kernel's device. The launch itself refuses an invalid stream.
void check_stream(const LoadedKernel& kernel, cu::Context current, StreamHandle stream) {
  if (is_default(stream)) return;
  const cu::Functions& call = kernel.driver->call;
  cu::Context context = nullptr;
  if (call.stream_get_ctx(static_cast<cu::Stream>(stream), &context) != cu::kSuccess) return;
  if (context == current) return;
  cu::Device device = 0;
  cu::Device wanted = 0;
  cu::Context popped = nullptr;
  kernel.driver->check(call.ctx_push_current(context), "cuCtxPushCurrent", kernel.image->op);
  const cu::Result result = call.ctx_get_device(&device);
  static_cast<void>(call.ctx_pop_current(&popped));
  kernel.driver->check(result, "cuCtxGetDevice", kernel.image->op);
  kernel.driver->check(call.device_get(&wanted, kernel.device), "cuDeviceGet", kernel.image->op);
  if (device == wanted) return;
  raise(ErrorKind::argument, kernel.image->op, "the stream belongs to another device",
        {.argument = "stream",
         .expected = fmt::format("a stream of cuda:{}, like the tensors", kernel.device),
         .got = fmt::format("a stream of cuda:{}", device)});
}

// The launch configuration of the image, with a grid of one block.
cu::LaunchConfig config_of(const Image& image) {
  cu::LaunchConfig config = {};
  config.grid_x = config.grid_y = config.grid_z = 1;
  config.block_x = static_cast<unsigned>(image.threads);
  config.block_y = 1;
  config.block_z = 1;
  config.shared_bytes = static_cast<unsigned>(image.shared_bytes);
  return config;
}

cu::LaunchAttribute flag(int id) {
  cu::LaunchAttribute attribute = {};
  attribute.id = id;
  attribute.value[0] = 1;
  return attribute;
}

cu::LaunchAttribute cluster_attribute(const Image& image) {
  cu::LaunchAttribute attribute = {};
  attribute.id = cu::kClusterDimension;
  const std::array<unsigned, 3> extents = {static_cast<unsigned>(image.cluster), 1, 1};
  std::memcpy(attribute.value, extents.data(), sizeof(extents));
  return attribute;
}

cu::LaunchAttribute window_attribute(void* base, int64_t bytes) {
  cu::LaunchAttribute attribute = {};
  attribute.id = cu::kAccessPolicyWindow;
  const cu::AccessPolicyWindow window = {base, static_cast<size_t>(bytes), 1.0f, cu::kStreaming,
                                         cu::kNormal};
  std::memcpy(attribute.value, &window, sizeof(window));
  return attribute;
}

// Throws if the device cannot hold one cluster. If the driver cannot say, the launch will.
void check_cluster(const LoadedKernel& kernel, const Image& image, const DeviceInfo& device) {
  const Driver& driver = *kernel.driver;
  if (!driver.call.occupancy_max_clusters) return;
  cu::LaunchConfig config = config_of(image);
  config.grid_x = static_cast<unsigned>(image.cluster);
  cu::LaunchAttribute cluster = cluster_attribute(image);
  config.attributes = &cluster;
  config.num_attributes = 1;
  int at_once = 0;
  driver.check(driver.call.occupancy_max_clusters(
                   &at_once, reinterpret_cast<cu::Function>(kernel.hot.handle), &config),
               "cuOccupancyMaxActiveClusters", image.op);
  if (at_once > 0) return;
  raise(ErrorKind::unsupported, image.op, "the device cannot run one cluster of the kernel",
        {.expected = fmt::format("a cluster that fits cuda:{} ({})", device.ordinal, device.name),
         .got = fmt::format("{} blocks of {} threads, {} registers each, {} bytes of shared memory",
                            image.cluster, image.threads, kernel.registers, image.shared_bytes),
         .hint = "fewer blocks per cluster, fewer threads or less shared memory",
         .code = "CLUSTER_TOO_LARGE"});
}

}  // namespace

void check_shared_memory(const std::string& op, int64_t bytes, const DeviceInfo& device) {
  if (bytes <= device.shared_optin) return;
  raise(ErrorKind::unsupported, op, "too much shared memory per block",
        {.expected = fmt::format("at most {} bytes on cuda:{} ({})", device.shared_optin,
                                 device.ordinal, device.name),
         .got = fmt::format("{} bytes", bytes)});
}

std::optional<LoadedKernel> load_image(const Driver& driver, std::shared_ptr<const Image> image,
                                       const DeviceInfo& device, std::string& refusal) {
  const std::string& op = image->op;
  check_shared_memory(op, image->shared_bytes + image->resources.static_shared, device);
  if (!runs_on(image->target, device.major, device.minor)) {
    raise(ErrorKind::unsupported, op, "the kernel was compiled for another device",
          {.expected = fmt::format("a target for compute capability {}.{} (cuda:{}, {})",
                                   device.major, device.minor, device.ordinal, device.name),
           .got = to_string(image->target)});
  }
  // The first use of a kernel in a context loads its code. Doing it here keeps that out of the
  // first launch.
  const ContextScope context(driver, device.ordinal);
  cu::Device handle = 0;
  cu::Library library = nullptr;
  driver.check(driver.call.device_get(&handle, device.ordinal), "cuDeviceGet", op);
  LoadedKernel kernel;
  const auto accepted = [&](cu::Result result, std::string_view call) {
    if (is_refusal(result)) return refusal = driver.describe(result), false;
    driver.check(result, call, op);
    return true;
  };
  cu::Function function = nullptr;
  if (!accepted(driver.call.load_library_data(&library, image->cubin.data(), nullptr, nullptr, 0,
                                              nullptr, nullptr, 0),
                "cuLibraryLoadData") ||
      !accepted(driver.call.get_library_kernel(&kernel.hot.handle, library, image->entry.c_str()),
                "cuLibraryGetKernel") ||
      !accepted(driver.call.kernel_get_function(&function, kernel.hot.handle),
                "cuKernelGetFunction") ||
      !accepted(driver.call.function_load(function), "cuFuncLoad")) {
    return std::nullopt;
  }
  if (image->shared_bytes > kDefaultDynamicShared) {
    driver.check(driver.call.kernel_set_attribute(cu::kMaxDynamicSharedBytes,
                                                  static_cast<int>(image->shared_bytes),
                                                  kernel.hot.handle, handle),
                 "cuKernelSetAttribute", op);
  }
  if (image->cluster > kPortableCluster) {
    driver.check(
        driver.call.kernel_set_attribute(cu::kNonPortableClusterSize, 1, kernel.hot.handle, handle),
        "cuKernelSetAttribute", op);
  }
  const auto attribute = [&](cu::FunctionAttribute which) {
    int value = 0;
    driver.check(driver.call.kernel_get_attribute(&value, which, kernel.hot.handle, handle),
                 "cuKernelGetAttribute", op);
    return value;
  };
  kernel.registers = attribute(cu::kNumRegisters);
  kernel.local_bytes = attribute(cu::kLocalBytes);
  kernel.driver = &driver;
  kernel.code = library;
  kernel.device = device.ordinal;
  kernel.l2_bytes = device.l2_bytes;
  kernel.window_bytes = device.window_bytes;
  kernel.hot.config = config_of(*image);
  kernel.hot.launch_kernel_ex = driver.call.launch_kernel_ex;
  kernel.hot.ctx_get_current = driver.call.ctx_get_current;
  kernel.hot.stream_get_ctx = driver.call.stream_get_ctx;
  kernel.hot.primary = driver.primary.at(static_cast<size_t>(device.ordinal));
  kernel.hot.cluster = image->cluster;
  kernel.hot.cooperative = image->cooperative;
  if (image->cluster > 1) {
    check_cluster(kernel, *image, device);
    kernel.attributes.push_back(cluster_attribute(*image));
  }
  if (image->cooperative) {
    kernel.attributes.push_back(flag(cu::kCooperative));
    int per_sm = 0;
    driver.check(driver.call.occupancy_max_blocks(&per_sm, function, image->threads,
                                                  static_cast<size_t>(image->shared_bytes)),
                 "cuOccupancyMaxActiveBlocksPerMultiprocessor", op);
    kernel.max_blocks = int64_t{per_sm} * device.num_sms;
    kernel.barriers = std::make_shared<GridBarriers>(driver, op);
  }
  kernel.image = std::move(image);
  return kernel;
}

void LoadedKernel::begin_early() {
  attributes.push_back(flag(cu::kProgrammaticStreamSerialization));
}

namespace {

void check_runs_at_once(const LoadedKernel& kernel, Grid grid) {
  if (grid.x <= kernel.max_blocks && grid.y <= kernel.max_blocks && grid.z <= kernel.max_blocks &&
      grid.x * grid.y * grid.z <= kernel.max_blocks) {
    return;
  }
  raise(ErrorKind::argument, kernel.image->op,
        "the blocks of the grid wait for each other, and do not fit on the device at once",
        {.expected = fmt::format("at most {} blocks on cuda:{}", kernel.max_blocks, kernel.device),
         .got = text_of(grid),
         .hint = "let each block do more, for example by k.persistent"});
}

bool fits(Grid grid) {
  return grid.x >= 0 && grid.x <= kMaxGridX && grid.y >= 0 && grid.y <= kMaxGridYZ && grid.z >= 0 &&
         grid.z <= kMaxGridYZ;
}

void check_clusters(const LoadedKernel& kernel, Grid grid) {
  if (grid.x % kernel.hot.cluster == 0) return;
  raise(ErrorKind::argument, kernel.image->op,
        "the first extent of the grid is no multiple of the cluster",
        {.expected = fmt::format("a multiple of {}", kernel.hot.cluster), .got = text_of(grid)});
}

bool pays(const LoadedKernel& kernel, Streamed streamed) {
  return streamed.argument >= 0 && streamed.bytes > kernel.l2_bytes &&
         streamed.bytes <= kernel.window_bytes;
}

// Launches in the context that the driver finds by itself.
void enqueue(const LoadedKernel& kernel, Grid grid, void** arguments, StreamHandle stream,
             Streamed streamed) {
  cu::LaunchConfig config = kernel.hot.config;
  config.grid_x = static_cast<unsigned>(grid.x);
  config.grid_y = static_cast<unsigned>(grid.y);
  config.grid_z = static_cast<unsigned>(grid.z);
  config.stream = static_cast<cu::Stream>(stream);
  // The driver takes mutable attributes and does not write them.
  config.attributes = const_cast<cu::LaunchAttribute*>(kernel.attributes.data());
  config.num_attributes = static_cast<unsigned>(kernel.attributes.size());
  std::array<cu::LaunchAttribute, kMaxAttributes> with_window;
  if (pays(kernel, streamed)) {
    auto* const last =
        std::copy(kernel.attributes.begin(), kernel.attributes.end(), with_window.begin());
    *last = window_attribute(*static_cast<void**>(arguments[streamed.argument]), streamed.bytes);
    config.attributes = with_window.data();
    ++config.num_attributes;
  }
  // A CUkernel may be passed as a CUfunction. The driver then uses its copy in the stream's
  // context, or in the current one for a default stream.
  auto* const function = reinterpret_cast<cu::Function>(kernel.hot.handle);
  const cu::Result result = kernel.hot.launch_kernel_ex(&config, function, arguments, nullptr);
  if (result != cu::kSuccess) fail_launch(kernel, grid, result);
}

// Cooperative kernels use the grid-barrier counters of the stream, passed after the kernel's own
// arguments.
void enqueue_cooperative(const LoadedKernel& kernel, Grid grid, void** arguments,
                         StreamHandle stream, Streamed streamed) {
  check_runs_at_once(kernel, grid);
  cu::DevicePtr barrier = kernel.barriers->of(stream);
  std::vector<void*> with_barrier(arguments, arguments + kernel.image->params.size());
  with_barrier.push_back(&barrier);
  enqueue(kernel, grid, with_barrier.data(), stream, streamed);
}

}  // namespace

void check_grid(const std::string& op, Grid grid) {
  const auto check = [&](const char* axis, int64_t extent, int64_t limit) {
    if (extent >= 0 && extent <= limit) return;
    raise(ErrorKind::argument, op, fmt::format("the grid does not fit the device along {}", axis),
          {.expected = fmt::format("0 to {} blocks along {}", limit, axis), .got = text_of(grid)});
  };
  check("x", grid.x, kMaxGridX);
  check("y", grid.y, kMaxGridYZ);
  check("z", grid.z, kMaxGridYZ);
}

void launch(const LoadedKernel& kernel, Grid grid, void** arguments, StreamHandle stream,
            Streamed streamed) {
  if (!fits(grid)) check_grid(kernel.image->op, grid);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (kernel.hot.cluster > 1) check_clusters(kernel, grid);
  if (!kernel.hot.cooperative && is_in_context(kernel.hot, stream)) {
    enqueue(kernel, grid, arguments, stream, streamed);
    return;
  }
  const ContextScope context(*kernel.driver, kernel.device);
  check_stream(kernel, context.current(), stream);
  if (kernel.hot.cooperative) {
    enqueue_cooperative(kernel, grid, arguments, stream, streamed);
  } else {
    enqueue(kernel, grid, arguments, stream, streamed);
  }
}

namespace {

/// A variable of a kernel's text, read and cleared in a stream.
class DeviceVariable {
 public:
  DeviceVariable(const LoadedKernel& kernel, const char* name, StreamHandle stream)
      : driver_(*kernel.driver),
        op_(kernel.image->op),
        context_(driver_, kernel.device),
        stream_(static_cast<cu::Stream>(stream)) {
    driver_.check(driver_.call.get_library_global(&place_, &bytes_, kernel.code, name),
                  "cuLibraryGetGlobal", op_);
  }
  size_t bytes() const { return bytes_; }
  void read(void* to, size_t bytes) const {
    driver_.check(
        driver_.call.memcpy_async(reinterpret_cast<cu::DevicePtr>(to), place_, bytes, stream_),
        "cuMemcpyAsync", op_);
    driver_.check(driver_.call.stream_synchronize(stream_), "cuStreamSynchronize", op_);
  }
  void clear() const {
    driver_.check(driver_.call.memset_async(place_, 0, bytes_, stream_), "cuMemsetD8Async", op_);
    driver_.check(driver_.call.stream_synchronize(stream_), "cuStreamSynchronize", op_);
  }

 private:
  const Driver& driver_;
  const std::string& op_;
  const ContextScope context_;
  cu::Stream const stream_;
  cu::DevicePtr place_ = 0;
  size_t bytes_ = 0;
};

}  // namespace

uint32_t take_variable(const LoadedKernel& kernel, const char* name, StreamHandle stream) {
  const DeviceVariable variable(kernel, name, stream);
  uint32_t value = 0;
  variable.read(&value, sizeof value);
  if (value != 0)
    variable.clear();  // what other streams write meanwhile is reported by the next call
  return value;
}

std::vector<uint64_t> take_array(const LoadedKernel& kernel, const char* name,
                                 StreamHandle stream) {
  const DeviceVariable variable(kernel, name, stream);
  std::vector<uint64_t> values(variable.bytes() / sizeof(uint64_t));
  variable.read(values.data(), values.size() * sizeof(uint64_t));
  variable.clear();
  return values;
}

}  // namespace tessera::runtime
