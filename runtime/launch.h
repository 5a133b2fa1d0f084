#pragma once
// A kernel on a device, and its launch.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsl/base/api.h"
#include "runtime/driver/device.h"
#include "runtime/driver/grid_barriers.h"
#include "runtime/driver/memory.h"
#include "runtime/image.h"

namespace tessera::runtime {

/// Immutable once loaded; never unloaded, graphs may hold it.
struct TESSERA_API LoadedKernel {
  /// The fields that every launch reads, in two cache lines: between launches the driver evicts
  /// other lines, and a cache miss costs more than the launch computes.
  struct alignas(64) Hot {
    cu::LaunchConfig config = {};  // all but grid, stream and attributes
    cu::Kernel handle = nullptr;
    decltype(cu::Functions::launch_kernel_ex) launch_kernel_ex = nullptr;
    decltype(cu::Functions::ctx_get_current) ctx_get_current = nullptr;
    decltype(cu::Functions::stream_get_ctx) stream_get_ctx = nullptr;
    cu::Context primary = nullptr;  // of the device
    int64_t cluster = 1;            // blocks, along x
    bool cooperative = false;
  } hot;
  std::vector<cu::LaunchAttribute> attributes;
  std::shared_ptr<const Image> image;
  cu::Library code = nullptr;
  std::string spec;  // as shown in messages
  const Driver* driver = nullptr;
  int device = 0;
  int registers = 0;                       // per thread, as loaded
  int64_t local_bytes = 0;                 // per thread: stack and spills
  int64_t l2_bytes = 0, window_bytes = 0;  // of the device
  // A cooperative kernel's: how many blocks are resident at once, and its barrier counters.
  int64_t max_blocks = 0;
  std::shared_ptr<GridBarriers> barriers;

  /// Lets launches begin before the previous kernel of their stream has ended; the kernel waits
  /// itself.
  void begin_early();
};

/// Loads an image on one device and sets its attributes. Returns nothing, with the driver's words
/// in `refusal`, if the driver refuses the image. Throws unsupported errors (target, shared memory
/// or cluster does not fit the device) and driver errors.
TESSERA_API std::optional<LoadedKernel> load_image(const Driver& driver,
                                                   std::shared_ptr<const Image> image,
                                                   const DeviceInfo& device, std::string& refusal);

/// Throws an unsupported error if a block cannot have that much shared memory.
TESSERA_API void check_shared_memory(const std::string& op, int64_t bytes,
                                     const DeviceInfo& device);

/// Blocks along x, y, z.
struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

/// An argument that points to memory that the launch reads only once.
struct Streamed {
  int argument = -1;  // none
  int64_t bytes = 0;
};

/// Puts one launch into the stream and returns. `arguments` points to one value per kernel parameter,
/// in order. A grid with a zero is a no-op. `streamed` memory is evicted first from L2 if it is larger
/// than L2 (a smaller range may stay for the next reader) and no larger than one access policy window
/// (a window over a part would not protect the rest).
///
/// Errors: argument, if the grid is negative, beyond the device's limits (x 2^31-1, y and z 65535) or
///         along x no multiple of the cluster, if the stream belongs to another device, or if the
///         blocks of a cooperative kernel do not run at once;
///         driver, if the launch fails or an earlier kernel has already broken the context.
/// Example: void* arguments[] = {&x_pointer, &y_pointer, &count};
///          launch(kernel, {.x = blocks}, arguments, stream);
TESSERA_API void launch(const LoadedKernel& kernel, Grid grid, void** arguments,
                        StreamHandle stream, Streamed streamed = {});

/// Waits for the work of `stream`, returns a 32-bit variable of the kernel's text (__device__, extern
/// "C") and sets it to 0. Throws driver errors.
TESSERA_API uint32_t take_variable(const LoadedKernel& kernel, const char* name,
                                   StreamHandle stream);

/// Waits for the work of `stream`, returns an array of 64-bit variables of the kernel's text and sets it to 0. Throws
/// driver errors.
TESSERA_API std::vector<uint64_t> take_array(const LoadedKernel& kernel, const char* name,
                                             StreamHandle stream);

/// Throws an argument error naming the axis unless every extent is within the device's limits.
TESSERA_API void check_grid(const std::string& op, Grid grid);

}  // namespace tessera::runtime
